// Attributes.
#include <sys/xattr.h>
#include <unistd.h>

#include <cstring>

#include "preload/serve.h"
#include "store/permission.h"

namespace forebay::preload {
namespace {

uint16_t type_bits(FileType type) {
  constexpr uint16_t kBits[] = {S_IFREG, S_IFREG,  S_IFDIR, S_IFLNK,
                                S_IFIFO, S_IFSOCK, S_IFBLK, S_IFCHR};
  return kBits[static_cast<size_t>(type)];
}

statx_timestamp stamp(const FileTime& t) {
  statx_timestamp to = {};
  to.tv_sec = t.seconds;
  to.tv_nsec = t.nanoseconds;
  return to;
}

void fill(struct statx* to, const Attr& attr) {
  *to = {};
  to->stx_mask = STATX_BASIC_STATS;
  to->stx_blksize = attr.block_size;
  to->stx_nlink = static_cast<uint32_t>(attr.links);
  to->stx_uid = attr.uid;
  to->stx_gid = attr.gid;
  to->stx_mode = static_cast<uint16_t>(type_bits(attr.type) | attr.mode);
  to->stx_ino = attr.file_id;
  to->stx_size = attr.size;
  to->stx_blocks = attr.allocated / 512;
  to->stx_atime = stamp(attr.atime);
  to->stx_mtime = stamp(attr.mtime);
  to->stx_ctime = stamp(attr.ctime);
  if (attr.btime != FileTime()) {
    to->stx_btime = stamp(attr.btime);
    to->stx_mask |= STATX_BTIME;
  }
  // No device of this machine: those without one have major 0 and small minors.
  to->stx_dev_major = 0;
  to->stx_dev_minor =
      static_cast<uint32_t>(attr.fs_id ^ attr.fs_id >> 20 ^ attr.fs_id >> 40) & 0x7ffff;
  to->stx_dev_minor |= 0x80000;
}

Result<Attr> attributes(const Target& target) {
  if (target.fd < 0) {
    auto found = find(target);
    if (!found) return std::move(found).error();
    return found->attr;
  }
  auto reply = about(target, {.op = Op::getattr});
  if (!reply) return std::move(reply).error();
  return reply->attr;
}

// As getxattr(2): with no room, how much there is.
Result<int64_t> copied(const std::string& bytes, void* to, size_t room) {
  if (room != 0 && bytes.size() > room) return Error(ERANGE);
  if (room != 0) std::memcpy(to, bytes.data(), bytes.size());
  return static_cast<int64_t>(bytes.size());
}

Result<void> set_time(SetAttr& set, const timespec& to, FileTime& field, uint32_t given,
                      uint32_t now) {
  if (to.tv_nsec == UTIME_OMIT) return {};
  if (to.tv_nsec == UTIME_NOW) return set.what |= now, Result<void>();
  if (to.tv_nsec < 0 || to.tv_nsec > 999'999'999) return Error(EINVAL);
  set.what |= given;
  field = {to.tv_sec, static_cast<uint32_t>(to.tv_nsec)};
  return {};
}

Result<SetAttr> to_set(const Change& change) {
  SetAttr set;
  if (change.mode) {
    set.what |= SetAttr::kMode;
    set.mode = change.to_mode & 07777;
  }
  if (change.owner && change.uid != static_cast<uid_t>(-1)) {
    set.what |= SetAttr::kUid;
    set.uid = change.uid;
  }
  if (change.owner && change.gid != static_cast<gid_t>(-1)) {
    set.what |= SetAttr::kGid;
    set.gid = change.gid;
  }
  if (change.times) {
    if (auto ok = set_time(set, change.atime, set.atime, SetAttr::kAtime, SetAttr::kAtimeNow); !ok)
      return std::move(ok).error();
    if (auto ok = set_time(set, change.mtime, set.mtime, SetAttr::kMtime, SetAttr::kMtimeNow); !ok)
      return std::move(ok).error();
  }
  return set;
}

}  // namespace

int status(const Target& target, struct statx* to) {
  return static_cast<int>(run([&]() -> Result<int64_t> {
    auto attr = attributes(target);
    if (!attr) return std::move(attr).error();
    fill(to, *attr);
    return 0;
  }));
}

// By mode bits, without ACLs: what is then done is checked by the server.
int access(const Target& target, int mode, bool effective) {
  return static_cast<int>(run([&]() -> Result<int64_t> {
    if (mode & ~(R_OK | W_OK | X_OK)) return Error(EINVAL);
    auto attr = attributes(target);
    if (!attr) return std::move(attr).error();
    Caller who = *Connection::get().caller();
    if (!effective) {
      who.uid = ::getuid();
      who.gid = ::getgid();
    }
    static_assert(R_OK == permission::kRead && W_OK == permission::kWrite &&
                  X_OK == permission::kExecute);
    if (!permission::may(who, *attr, static_cast<uint32_t>(mode))) return Error(EACCES);
    return 0;
  }));
}

int change(const Target& target, const Change& change) {
  return static_cast<int>(run([&]() -> Result<int64_t> {
    auto found = find(target);
    if (!found) return std::move(found).error();
    if (change.mode && target.fd < 0 && found->attr.type == FileType::symlink)
      return Error(EOPNOTSUPP);
    auto set = to_set(change);
    if (!set) return std::move(set).error();
    if (set->what == 0) return 0;
    return done(Connection::get().call({.op = Op::setattr,
                                        .caller = found->caller,
                                        .handle = std::move(found->handle),
                                        .set = *set}));
  }));
}

int file_system(const Target& target, struct statvfs* to) {
  return static_cast<int>(run([&]() -> Result<int64_t> {
    auto reply = about(target, {.op = Op::statfs});
    if (!reply) return std::move(reply).error();
    const FsStatus& fs = reply->statfs;
    *to = {};
    to->f_bsize = to->f_frsize = fs.block_size;
    to->f_blocks = fs.blocks;
    to->f_bfree = fs.blocks_free;
    to->f_bavail = fs.blocks_available;
    to->f_files = fs.files;
    to->f_ffree = to->f_favail = fs.files_free;
    to->f_namemax = fs.name_max;
    return 0;
  }));
}

// ---- Extended attributes ----

ssize_t get_xattr(const Target& target, const char* name, void* to, size_t room) {
  return run([&]() -> Result<int64_t> {
    auto reply = about(target, {.op = Op::xattr_get, .name = name});
    if (!reply) return std::move(reply).error();
    return copied(reply->data, to, room);
  });
}

int set_xattr(const Target& target, const char* name, const void* value, size_t size, int flags) {
  return static_cast<int>(run([&]() -> Result<int64_t> {
    if (size > kMaxXattr) return Error(E2BIG);
    return done(about(target, {.op = Op::xattr_set,
                               .flags = (flags & XATTR_CREATE ? kFlagCreate : 0u) |
                                        (flags & XATTR_REPLACE ? kFlagReplace : 0u),
                               .name = name,
                               .data = std::string(static_cast<const char*>(value), size)}));
  }));
}

ssize_t list_xattr(const Target& target, char* to, size_t room) {
  return run([&]() -> Result<int64_t> {
    auto reply = about(target, {.op = Op::xattr_list});
    if (!reply) return std::move(reply).error();
    return copied(reply->data, to, room);
  });
}

int remove_xattr(const Target& target, const char* name) {
  return static_cast<int>(
      run([&] { return done(about(target, {.op = Op::xattr_remove, .name = name})); }));
}

}  // namespace forebay::preload
