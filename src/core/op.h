// The operations of a Store, described once, as data: the list after ZOIDFS (paper 1, section II)
// and what front doors need. A Request names an operation and its arguments, a Reply its results.
// The wire codec, the server's checks, the trace, the fault injector and the stores all work from
// the table op_info(), so that a new operation is one row here and one function per store.
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/callback.h"
#include "core/extents.h"
#include "core/memory.h"
#include "core/result.h"

namespace forebay {

enum class Op : uint8_t {
  lookup,        // handle, name                    -> handle, attr   (name may be a path: "a/b/c")
  open,          // handle, access, flag_direct     -> right, attr
  close,         // handle, right                   -> verifier
  create,        // handle, name, mode, access, flag_exclusive, flag_truncate, flag_direct
                 //                                 -> handle, right, attr
  remove,        // handle, name, flag_directory
  rename,        // handle, name, handle2, name2, flag_no_replace, flag_exchange
  link,          // handle (the file), handle2, name2 -> attr
  symlink,       // handle, name, data (the target) -> handle, attr
  readlink,      // handle                          -> data
  mkdir,         // handle, name, mode              -> handle, attr
  readdir,       // handle, cookie, length, flag_plus -> entries, end
  getattr,       // handle                          -> attr
  setattr,       // handle, set, [right]            -> attr
  resize,        // handle, length, [right]         -> attr
  fallocate,     // handle, right, offset, length, flag_keep_size, flag_punch_hole,
                 // flag_zero_range, flag_fill
  commit,        // handle, [right], flag_data_only -> verifier
  statfs,        // handle                          -> statfs
  read,          // handle, right, file, memory     -> count (short only at the end of file)
  write,         // handle, right, file, memory, flag_behind, flag_stable, flag_sieve,
                 // flag_no_sieve, length (of a sieve's window at most; 0: as the server likes),
                 // [cookie: kept under this write lease; ESTALE if that is gone]
                 //                                 -> count (always all, or an error with done()),
                 //                                    verifier
                 // flag_append: at the end, whoever else appends; file is one extent from 0
                 //                                 -> value (the place), too
  layout,        // handle                          -> layout
  xattr_get,     // handle, name                    -> data
  xattr_set,     // handle, name, data, flag_create, flag_replace
  xattr_list,    // handle                          -> data (names, each ended by a NUL)
  xattr_remove,  // handle, name
  // Advisory locks, which only a server keeps: EOPNOTSUPP where there is none. An owner is one of
  // the client's, told apart by `cookie`; length 0: up to the largest offset.
  lock,       // handle, right, offset, length, cookie, flag_shared, flag_whole, flag_wait,
              // [flag_reclaim, value, expected: as answered then], [flag_holds: from a server]
              //                                 -> value (the life of the server that keeps it),
              //                                    verifier (its owner's number there)
              //                                    (EAGAIN: another's; EDEADLK; ENOLCK)
  unlock,     // handle, offset, length, cookie, flag_whole
  lock_test,  // handle, offset, length, cookie, flag_shared, flag_whole
              //                                 -> count (1: there is one in the way), locked
  // Numbers that clients share about a file, with a right of any kind. Servers keep them
  // (server/shared_state.h), and back ends know nothing of them.
  attr_create,     // handle, right, name, value
  attr_remove,     // handle, right, name
  attr_get,        // handle, right, name             -> value
  attr_set,        // handle, right, name, value
  attr_fetch_add,  // handle, right, name, value      -> value (before; counts modulo 2^64)
  attr_cas,        // handle, right, name, value, expected -> value (before: done if as expected)
  attr_list,  // handle, right, [flag_plus: holes] -> data (of each: 8 bytes, the lowest first, and
              // its name, ended by a NUL; of a hole: offset, length), value (number of all holes)
  // A lease (attr/leases.h), which only the server that is the file's home gives; it is given back,
  // and recalled, outside of requests (LeaseHolder in store/store.h).
  lease,  // handle, right, [flag_shared: to read, otherwise to write],
          // [flag_reclaim, cookie: renew this one, and all]
          //            -> value (its number), count (milliseconds from the request on), attr
          //               (EOPNOTSUPP: not here; EAGAIN: not now; ENOLCK: too many, or not held)
  // A client on the server's node wants to read, or write, the file itself for a while
  // (server/shortcuts.h).
  shortcut,  // handle, right, [flag_shared: to read only], [value: the layout of memory that it
             // knows, to gather writes in]
             //         -> data (its path), count and attr.file_id (its device and inode there),
             //            value (the generation, 32 bits, and the number of the shortcut's word),
             //            attr.rdev (of memory that was handed over: its inode),
             //            end (the right is for reading, too)
             //            (EOPNOTSUPP: never; EAGAIN: not now)
  // Of servers among themselves: about locks that wait (server/lock_search.h).
  lock_waits,  // handle (the export's top), value (0: who is in the way of these owners; 1: does
               // all of this stand; 2: these are to look for circles), data
               //       -> data, end (that is all of it), count (1: it stands)
};
inline constexpr int kOpCount = static_cast<int>(Op::lock_waits) + 1;

// Which fields a request uses. A server refuses a request that lacks one of `needs` or carries one
// that is in neither list.
enum Field : uint32_t {
  kHandle = 1u << 0,
  kName = 1u << 1,
  kHandle2 = 1u << 2,
  kName2 = 1u << 3,
  kRight = 1u << 4,
  kAccess = 1u << 5,
  kMode = 1u << 6,
  kSet = 1u << 7,
  kOffset = 1u << 8,
  kLength = 1u << 9,
  kCookie = 1u << 10,
  kData = 1u << 11,
  kFile = 1u << 12,
  kFlags = 1u << 13,
  kValue = 1u << 14,
  kExpected = 1u << 15,
};

enum class OpKind : uint8_t {
  path,     // names and attributes, done as the caller
  data,     // bytes of a file, done with a right
  session,  // open, close, lock and unlock: they change what a session holds
  shared,   // what clients share about a file, done with a right by the server itself
};

constexpr bool is_lock(Op op) {
  return op == Op::lock || op == Op::unlock || op == Op::lock_test;
}

constexpr bool is_transfer(Op op) {
  return op == Op::read || op == Op::write;
}

struct OpInfo {
  Op op;
  const char* name;
  OpKind kind;
  bool changes;     // modifies the file system, or what clients share
  bool repeatable;  // if its flags allow: ask repeatable(request)
  uint32_t needs;   // fields that must be there and not be empty
  uint32_t may;     // fields that may be there; 0 and empty are values of them
  uint32_t flags;   // flags that may be set
};

const OpInfo& op_info(Op op);
const OpInfo* op_by_name(std::string_view name);

enum Flag : uint32_t {
  kFlagExclusive = 1u << 0,
  kFlagTruncate = 1u << 1,
  kFlagDirectory = 1u << 2,
  kFlagNoReplace = 1u << 3,
  kFlagExchange = 1u << 4,
  kFlagPlus = 1u << 5,
  kFlagKeepSize = 1u << 6,
  kFlagPunchHole = 1u << 7,
  kFlagZeroRange = 1u << 8,
  kFlagDataOnly = 1u << 9,
  kFlagCreate = 1u << 10,
  kFlagReplace = 1u << 11,
  kFlagDirect = 1u << 12,  // a hint: data of this file around the page cache while it is open
  // May a server acknowledge a write before it is in the file system, until the next commit or
  // close? Neither: as the export is configured.
  kFlagBehind = 1u << 13,
  kFlagStable = 1u << 14,
  // May a server write scattered pieces together with what lies between them? Neither: as the
  // export is configured.
  kFlagSieve = 1u << 15,
  kFlagNoSieve = 1u << 16,
  // Of locks.
  kFlagShared = 1u << 20,   // otherwise exclusive
  kFlagWhole = 1u << 21,    // of the whole file, as flock(2) has them, apart from those of ranges
  kFlagWait = 1u << 22,     // until it is granted
  kFlagReclaim = 1u << 23,  // it was held in an earlier life of the server
  kFlagHolds = 1u << 18,    // its owner holds others, at other servers
  kFlagAppend = 1u << 17,   // a server chooses the place, at the end of the file
  // fallocate where the file system has none: zeros are written, as posix_fallocate(3) does it.
  // That takes its time: who wants much asks for a piece at a time (store/reserve.h).
  kFlagFill = 1u << 18,
};

// Which request this is, of all that its client ever sends, so that a server which does not know
// the client's session (it was restarted, or it is not the one that the client talks to) does it
// once, however often it comes. A client has lanes, each with one request under way: the last
// answer of a lane is remembered until the next request in it, also across a restart.
struct Once {
  uint64_t client = 0, client2 = 0;  // random
  uint64_t sequence = 0;             // in its lane, from 1 on; 0: nothing is remembered
  uint16_t lane = 0;
  bool empty() const { return sequence == 0; }
  bool operator==(const Once&) const = default;
};
inline constexpr uint16_t kMaxLanes = 4096;

// Who asks. Shared and immutable: requests of one caller share one, so "the same caller as before"
// is usually a comparison of pointers.
struct Caller {
  uint32_t uid = 0;
  uint32_t gid = 0;
  std::vector<uint32_t> groups;
  std::string job;  // for people and accounting; grants nothing
  bool same_identity(const Caller& o) const {
    return uid == o.uid && gid == o.gid && groups == o.groups;
  }
  bool operator==(const Caller&) const = default;
};
using CallerRef = std::shared_ptr<const Caller>;
CallerRef this_process_caller();  // effective ids and groups of this process

// A portable name of a file: opaque bytes that any client may pass to any other, valid on every
// server of the export and after a restart, and useless if forged. A name, not a right.
struct Handle {
  std::string bytes;
  bool empty() const { return bytes.empty(); }
  bool operator==(const Handle&) const = default;
};
inline constexpr size_t kMaxHandle = 4096 + 256;  // a path handle holds a path

// What open granted: opaque bytes to present with every read and write, also after a restart.
struct Right {
  std::string bytes;
  bool empty() const { return bytes.empty(); }
  bool operator==(const Right&) const = default;
};
inline constexpr size_t kMaxRight = 256;

enum class Access : uint8_t { none = 0, read = 1, write = 2, both = 3 };
constexpr bool allows(Access have, Access want) {
  return (static_cast<int>(have) & static_cast<int>(want)) == static_cast<int>(want);
}

enum class FileType : uint8_t { unknown, file, directory, symlink, fifo, socket, block, character };

struct FileTime {
  int64_t seconds = 0;
  uint32_t nanoseconds = 0;
  auto operator<=>(const FileTime&) const = default;
};

struct Attr {
  FileType type = FileType::unknown;
  uint32_t mode = 0;  // permission bits, set-id bits and sticky
  uint32_t uid = 0, gid = 0;
  uint64_t links = 0;
  uint64_t size = 0;
  uint64_t allocated = 0;  // bytes
  uint64_t file_id = 0;    // st_ino
  uint64_t fs_id = 0;      // one per export, not a device number
  uint64_t rdev = 0;
  uint32_t block_size = 4096;
  FileTime atime, mtime, ctime, btime;  // btime is 0 where unknown
  bool operator==(const Attr&) const = default;
};

// What setattr changes. Size is changed by resize.
struct SetAttr {
  enum What : uint32_t {
    kMode = 1,
    kUid = 2,
    kGid = 4,
    kAtime = 8,
    kMtime = 16,
    kAtimeNow = 32,
    kMtimeNow = 64,
  };
  uint32_t what = 0;
  uint32_t mode = 0, uid = 0, gid = 0;
  FileTime atime{}, mtime{};
  bool operator==(const SetAttr&) const = default;
};

struct Entry {
  std::string name;
  uint64_t cookie = 0;  // where the next readdir goes on
  uint64_t file_id = 0;
  FileType type = FileType::unknown;
  Handle handle;  // with kFlagPlus
  Attr attr;      // with kFlagPlus
  bool operator==(const Entry&) const = default;
};

struct FsStatus {
  uint64_t block_size = 0, blocks = 0, blocks_free = 0, blocks_available = 0;
  uint64_t files = 0, files_free = 0;
  uint32_t name_max = 255;
  bool operator==(const FsStatus&) const = default;
};

// Where the bytes of a file live: offset / stripe_size modulo stripe_count is the storage target.
struct Layout {
  uint64_t stripe_size = 0;  // 0: not striped, one target
  uint32_t stripe_count = 1;
  uint32_t first_target = 0;
  bool operator==(const Layout&) const = default;
};

// A lock that somebody holds.
struct Locked {
  Offset offset{};
  Length length{};
  bool shared = false;
  uint32_t pid = 0;  // of the client's process, on its own machine
  bool operator==(const Locked&) const = default;
};

struct Request {
  Op op = Op::getattr;
  uint32_t flags = 0;
  CallerRef caller = {};  // never null when it reaches a Store
  Handle handle = {}, handle2 = {};
  std::string name = {}, name2 = {};
  Right right = {};
  Access access = Access::none;
  uint32_t mode = 0;
  SetAttr set = {};
  Offset offset = {};
  Length length = {};
  uint64_t cookie = 0;
  std::string data = {};
  uint64_t value = 0, expected = 0;  // of attributes; of a lock that is reclaimed
  Once once = {};                    // a client's RemoteStore gives it, if nobody has
  Extents file = {};                 // file side of read and write
  Memory memory = {};                // memory side; never on the wire
  std::stop_token stop = {};  // cancel: a Store may give up with ECANCELED while it has not begun
  // Of a write: until it completes, whoever submits it keeps all others from the whole of
  // file.bounds(), so what lies between the pieces may be read and written back. Never on the wire.
  bool owns_holes = false;
};

struct Reply {
  uint64_t count = 0;
  Handle handle;
  Right right;
  Attr attr;
  std::string data;
  std::vector<Entry> entries;
  bool end = false;
  FsStatus statfs;
  Layout layout;
  Locked locked;
  // Of a write: not 0, it is acknowledged and not in the file system yet. Of a commit or close that
  // comes later: the same number, or what was acknowledged with another one may be lost.
  uint64_t verifier = 0;
  uint64_t value = 0;  // of an attribute; of an append: the place
};

using Completion = Callback<void(Result<Reply>&&)>;

// Attributes whose names begin so are there only while somebody has their file open.
inline constexpr std::string_view kTemporary = "tmp:";
constexpr bool is_temporary(std::string_view attribute) {
  return attribute.starts_with(kTemporary);
}

// Limits that hold at every door.
inline constexpr size_t kMaxName = 255;         // one component, ENAMETOOLONG beyond
inline constexpr size_t kMaxPath = 4095;        // a symlink's target, a path given to lookup
inline constexpr size_t kMaxXattr = 64 * 1024;  // one value, one list of names (the kernel's)
inline constexpr size_t kMaxAttributes = 200;   // of one file: a list of them fits in as much
// The length of a readdir: bytes of entries at most. 0 leaves it to the store.
inline constexpr size_t kMaxReaddirBytes = 256 * 1024;
// What an entry takes of it beside its name, without and with attributes; about as on the wire.
inline constexpr uint64_t kReaddirEntry = 24, kReaddirPlusEntry = 200;

// Is doing it twice as doing it once, so that a client may send it again after a server's crash
// without knowing whether it happened? A second time may not fail because of the first (a create
// that is exclusive, a remove, a rename, a link) nor undo what others did in between by the result
// of the first (a create that truncates). Of data and attributes the last value counts: writing the
// same bytes, size or attributes again is as doing it late, which an unanswered request may be
// anyhow.
bool repeatable(const Request& request);
// Is it of the requests that a server does once if it is told which one it is (Once)?
bool takes_once(const Request& request);

// Is the request well formed: fields that its operation needs and no others, sizes, names of one
// component without '/' or NUL, flags? EINVAL (ENAMETOOLONG, ERANGE and E2BIG where the kernel says
// so) with a text that names the operation and the field.
Result<void> check_arguments(const Request& request);
// check_arguments(), and what only a request on its way into a Store has: a caller, and a memory
// side as long as the file side. The first thing that a store does; a server, which has no memory
// yet, asks check_arguments() first.
Result<void> check(const Request& request);
// check(), and nothing that only servers do: EOPNOTSUPP. For Stores that keep bytes themselves.
Result<void> check_at_back_end(const Request& request);

}  // namespace forebay
