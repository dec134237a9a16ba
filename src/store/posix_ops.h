// What each operation does on a directory tree: one function per row of core/op.h. Blocking, on the
// calling thread; any thread. The request has passed check().
//
// Confinement: a name is always one component (or, for lookup, a path) below the descriptor of a
// directory that a sealed handle named; open_beneath() and the *at calls without following links do
// the rest. The own folder at the top cannot be named and is not listed.
//
// Identity: path operations act as the caller. Operations with a right use its descriptor, without
// a change of identity. Both kinds run without CAP_SYS_RESOURCE and CAP_FSETID unless the caller of
// a path operation is root itself.
//
// Extended attributes: user.* and POSIX ACLs for everybody (the kernel checks), trusted.* for root
// callers, all else (security.*) is EOPNOTSUPP, because our threads have capabilities that callers
// lack.
#pragma once

#include <optional>

#include "store/posix.h"
#include "store/posix_direct.h"
#include "store/posix_files.h"
#include "store/posix_handles.h"
#include "store/posix_identity.h"
#include "store/posix_io.h"
#include "store/posix_mapped.h"
#include "store/posix_rights.h"
#include "store/posix_unlinked.h"

namespace forebay::posix {

class Operations {
 public:
  // Direct reads and writes are staged in `staging`.
  Operations(Fd top, SealKey key, const PosixOptions& options, Identity identity,
             size_t descriptors, FsKind fs, BufferPool& staging, CounterSet& counters);

  Result<Reply> perform(Request& request);
  // As perform(), for a read, but EAGAIN rather than waiting for a device.
  Result<Reply> read_without_waiting(Request& request);
  // Finds out about the top directory; before anything else.
  Result<void> start();
  const Handle& top() const { return top_handle_; }
  bool kernel_handles() const { return handles_.kernel(); }
  Result<void> admits(const Request& request) const;

  Result<Store::LocalFile> local_file(const Request& request);

  // Does this read or write go around the page cache?
  bool is_direct(const Handle& file) const;
  uint64_t block() const { return direct_.block; }
  // The descriptors for it, if that needs no system call and the request is good; null otherwise,
  // and perform() finds out what is missing.
  DescriptorPtr ready_direct(const Request& request) const;
  std::weak_ptr<const Fd> at_hand(const Request& request) const;
  // From here on this thread is who the request is done as.
  void become_writer(const Request& request) const;

  // A read that does not wait: known to be impossible here (the file system has no such thing).
  bool never_waits() const { return no_nowait_.load(std::memory_order_relaxed); }

 private:
  // A handle that was resolved: its file and the O_PATH descriptor.
  struct At {
    FilePtr file;
    DescriptorPtr path;
    int fd() const { return path->get(); }
  };
  // Runs a system call as the caller: `call` returns negative with errno on failure.
  template <class Call>
  Result<void> act(const Caller& caller, Call&& call, const std::string& what) const;
  using Operation = Result<Reply> (Operations::*)(At&, Request&);
  static Operation operation(Op op);

  Result<Reply> lookup(At& at, Request& r);
  Result<Reply> open(At& at, Request& r);
  Result<Reply> close(Request& r);  // needs no descriptor, so it takes the handle itself
  Result<Reply> create(At& at, Request& r);
  Result<Reply> remove(At& at, Request& r);
  Result<Reply> rename(At& at, Request& r);
  Result<Reply> link(At& at, Request& r);
  Result<Reply> symlink(At& at, Request& r);
  Result<Reply> readlink(At& at, Request& r);
  Result<Reply> mkdir(At& at, Request& r);
  Result<Reply> readdir(At& at, Request& r);
  Result<Reply> getattr(At& at, Request& r);
  Result<Reply> setattr(At& at, Request& r);
  Result<Reply> resize(At& at, Request& r);
  Result<Reply> fallocate(At& at, Request& r);
  Result<Reply> commit(At& at, Request& r);
  Result<Reply> statfs(At& at, Request& r);
  Result<Reply> read(At& at, Request& r);
  Result<Reply> write(At& at, Request& r);
  Result<Reply> layout(At& at, Request& r);
  Result<Reply> xattr_get(At& at, Request& r);
  Result<Reply> xattr_set(At& at, Request& r);
  Result<Reply> xattr_list(At& at, Request& r);
  Result<Reply> xattr_remove(At& at, Request& r);

  // Handles to files and back.
  Result<At> at(const Handle& handle);
  Result<At> resolve(const Handle& handle);
  Result<Attr> attr_of(const At& at) const;
  Attr shown(const File& file, Attr attr) const;
  // Names what a path descriptor shows: handle and attributes; it is then in the table.
  struct Named {
    At at;
    Reply reply;
  };
  Result<Named> name(Fd path);
  // What a name is now, for the operation that just made it.
  Result<Reply> made(const At& directory, const std::string& child);
  // Runs `open`, and again after closing cached descriptors if there were too many.
  template <class Open>
  auto with_room(Open&& open) -> decltype(open());
  void describe(const At& directory, Entry& entry);
  bool is_own_folder(const At& directory, std::string_view name) const;
  Result<void> may_make(const At& directory, const std::string& name) const;

  // Rights.
  struct Io {
    FilePtr file;
    DescriptorPtr descriptor;
    int fd() const { return descriptor->get(); }
  };
  // What is open already for a read or a write by a right; null: not without more ado.
  DescriptorPtr known_io(const File& file, const Request& r) const;
  // The descriptor of the request's right, which must allow `access`; opened again if need be.
  Result<Io> use_right(At& at, const Request& r, Access access);
  // Opens what the right is for, with all that the store needs of it.
  Result<Fd> open_for(const At& at, Access access, int flags = 0);
  Result<Grant> know_right(At& at, const Request& r);
  Result<DescriptorPtr> open_again(At& at, const Request& r, Grant grant, Access access);
  // Makes the right, and keeps the descriptor that open or create got for it.
  Result<Right> grant(At& at, const Request& r, const Handle& handle, Fd opened);
  Result<Reply> created(Fd opened, Request& r);
  Result<Reply> open_existing(const At& directory, Request& r);
  Result<Reply> with_right(Named named, Request& r, Fd opened);
  Result<Reply> read_list_of(At& at, Request& r, bool nowait);
  // The twin of the descriptor, opened if need be; below 0: there is none.
  int direct_twin(At& at, const Request& r, const Io& io);
  Result<void> fill_space(At& at, const Request& r, int fd);
  bool is_direct(const File& file) const;
  void refuse_direct(const Error& why);
  Result<uint64_t> move_bytes(At& at, Request& r, const Io& io);
  Result<uint64_t> move_bytes(int fd, Request& r);

  // Files that lose a name, which may be open.
  struct Losing {
    FilePtr file;         // if it is in the table
    bool last = false;    // it is the only name
    bool open = false;    // it has rights
    bool linked = false;  // so it has a link in the own folder,
    bool ours = false;    // which was made just now
    bool pinned = false;  // or its descriptors stay open instead
    std::unique_lock<std::mutex> lock;
  };
  // Held from the look whether a file is open until its name is gone, by close and by whoever
  // opens: so that a file neither loses its last user in between nor gets its first.
  std::mutex& losing(const InodeId& id) { return losing_[InodeIdHash()(id) % losing_.size()]; }
  // Held from the look what a name is until it is something else, and by whoever makes names of
  // files; taken before the above.
  struct Place {
    const At& directory;
    std::string_view name;
  };
  using NameLocks = std::array<std::unique_lock<std::mutex>, 2>;
  NameLocks lock_names(const Place& one, const Place& other);
  NameLocks lock_names(const Place& one) { return lock_names(one, one); }
  // `lost` keeps the file: what takes long of its end is to free its blocks, which is done when
  // `lost` is closed, after the locks are gone. Who opens or closes on a loop waits for them.
  Losing before_loss(const At& directory, const std::string& name, const Caller& caller, Fd& lost);
  void lost_name(const Losing& losing);
  void still_named(const Losing& losing);
  // Is the file without a name and without rights: gone, but for our descriptor?
  bool is_gone(const At& at);
  void remember_rename(const At& from, const At& to, const Request& r);

  const Fd top_;
  const uint64_t export_id_;
  const Identity identity_;
  const bool in_application_;
  const Mounts mounts_;
  const bool forgets_closed_;
  Handles handles_;
  Rights rights_;
  FileTable table_;
  UnlinkedFiles unlinked_;
  std::array<std::mutex, 256> naming_;
  std::array<std::mutex, 64> losing_;
  InodeId top_id_;
  bool counts_links_ = true;  // the file system
  Handle top_handle_;
  Counter& io_calls_;
  std::atomic<bool> no_nowait_{false};
  const std::string directory_;
  const bool all_direct_;
  std::atomic<bool> some_direct_{false};  // so that exports without pay nothing for asking
  std::atomic<bool> direct_refused_{false};
  const DirectParts direct_;
  const IoLimits limits_;
  const bool local_;  // the file system
  const bool mapped_;
  LooksInVain looks_;
  HugePages huge_pages_;
  const MappedParts mapping_;
};

template <class Open>
auto Operations::with_room(Open&& open) -> decltype(open()) {
  auto result = open();
  if (result || !out_of_descriptors(result.error())) return result;
  table_.make_room(table_.budget() / 4 + 1);
  return open();
}

template <class Call>
Result<void> Operations::act(const Caller& caller, Call&& call, const std::string& what) const {
  if (auto ok = identity_.become(caller); !ok) return ok;
  identity_.reduce_unless_root(caller);
  if (call() < 0) return failed(what);
  return {};
}

}  // namespace forebay::posix
