// Attributes, extended attributes, and what is asked of the file system as a whole.
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "store/posix_layout.h"
#include "store/posix_ops.h"

namespace forebay::posix {

namespace {

timespec time_to_set(const SetAttr& set, uint32_t given, uint32_t now, const FileTime& time) {
  if (set.what & given) return {time.seconds, static_cast<long>(time.nanoseconds)};
  return {0, set.what & now ? UTIME_NOW : UTIME_OMIT};
}

bool starts_with(std::string_view name, std::string_view prefix) {
  return name.substr(0, prefix.size()) == prefix;
}

bool may_use_xattr(std::string_view name, const Caller& caller) {
  return starts_with(name, "user.") || starts_with(name, "system.posix_acl_") ||
         (caller.uid == 0 && starts_with(name, "trusted."));
}

Result<void> check_xattr(const Request& r) {
  if (may_use_xattr(r.name, *r.caller)) return {};
  return Error(EOPNOTSUPP, r.name + ": only user.* and POSIX ACLs (and trusted.* for root)");
}

}  // namespace

Result<Reply> Operations::getattr(At& at, Request&) {
  Result<Attr> attr = attr_of(at);
  if (!attr) return std::move(attr).error();
  if (attr->links == 0 && is_gone(at)) return Error(ESTALE, "the file was removed");
  Reply reply;
  reply.attr = *attr;
  return reply;
}

// The owner first, because changing it clears the set-id bits that the mode may hold.
Result<Reply> Operations::setattr(At& at, Request& r) {
  const SetAttr& set = r.set;
  if (!r.right.empty()) {
    const File::Use use = at.file->use(r.right.bytes, Access::read);
    Result<Grant> good = use.known ? Result<Grant>(use.grant) : know_right(at, r);
    if (!good) return std::move(good).error();
    if (good->uid != r.caller->uid) return Error(EACCES, "the right was granted to another user");
  }
  if (set.what & (SetAttr::kUid | SetAttr::kGid)) {
    const uid_t uid = set.what & SetAttr::kUid ? set.uid : static_cast<uid_t>(-1);
    const gid_t gid = set.what & SetAttr::kGid ? set.gid : static_cast<gid_t>(-1);
    const auto own = [&] { return ::fchownat(at.fd(), "", uid, gid, AT_EMPTY_PATH); };
    if (auto ok = act(*r.caller, own, "chown"); !ok) return ok.error();
  }
  if (set.what & SetAttr::kMode) {
    if (at.file->type == FileType::symlink)
      return Error(EOPNOTSUPP, "a symbolic link has no mode of its own");
    const auto mode = [&] { return ::chmod(ProcPath(at.fd()).c_str(), set.mode); };
    if (auto ok = act(*r.caller, mode, "chmod"); !ok) return ok.error();
  }
  const timespec times[2] = {time_to_set(set, SetAttr::kAtime, SetAttr::kAtimeNow, set.atime),
                             time_to_set(set, SetAttr::kMtime, SetAttr::kMtimeNow, set.mtime)};
  if (times[0].tv_nsec != UTIME_OMIT || times[1].tv_nsec != UTIME_OMIT) {
    const auto touch = [&] { return ::utimensat(at.fd(), "", times, AT_EMPTY_PATH); };
    if (auto ok = act(*r.caller, touch, "utimens"); !ok) return ok.error();
  }
  return getattr(at, r);
}

Result<Reply> Operations::statfs(At& at, Request&) {
  struct statvfs fs;
  if (::fstatvfs(at.fd(), &fs)) return failed("statvfs");
  Reply reply;
  reply.statfs = {fs.f_frsize,
                  fs.f_blocks,
                  fs.f_bfree,
                  fs.f_bavail,
                  fs.f_files,
                  fs.f_ffree,
                  static_cast<uint32_t>(fs.f_namemax)};
  return reply;
}

// One target, unless the file system says otherwise in a way of its own. Local ones know at once
// that they have no such attributes.
Result<Reply> Operations::layout(At& at, Request& r) {
  std::string value(kMaxXattr, '\0');
  const auto ask = [&](const char* attribute, auto parse) -> std::optional<Layout> {
    ssize_t n = 0;
    const auto get = [&] {
      n = ::getxattr(ProcPath(at.fd()).c_str(), attribute, value.data(), value.size());
      return n < 0 ? -1 : 0;
    };
    if (!act(*r.caller, get, attribute)) return std::nullopt;
    return parse(std::string_view(value.data(), static_cast<size_t>(n)));
  };
  Reply reply;
  auto found = ask(kCephLayout, ceph_layout);
  if (!found) found = ask(kLustreLayout, lustre_layout);
  if (found) reply.layout = *found;
  return reply;
}

// ---- Extended attributes ----

Result<Reply> Operations::xattr_get(At& at, Request& r) {
  if (auto ok = check_xattr(r); !ok) return ok.error();
  Reply reply;
  reply.data.resize(kMaxXattr);
  ssize_t n = 0;
  const auto get = [&] {
    n = ::getxattr(ProcPath(at.fd()).c_str(), r.name.c_str(), reply.data.data(), kMaxXattr);
    return n < 0 ? -1 : 0;
  };
  if (auto ok = act(*r.caller, get, r.name); !ok) return ok.error();
  reply.data.resize(static_cast<size_t>(n));
  reply.data.shrink_to_fit();
  return reply;
}

Result<Reply> Operations::xattr_set(At& at, Request& r) {
  if (auto ok = check_xattr(r); !ok) return ok.error();
  const int flags = r.flags & kFlagCreate    ? XATTR_CREATE
                    : r.flags & kFlagReplace ? XATTR_REPLACE
                                             : 0;
  const auto set = [&] {
    return ::setxattr(ProcPath(at.fd()).c_str(), r.name.c_str(), r.data.data(), r.data.size(),
                      flags);
  };
  if (auto ok = act(*r.caller, set, r.name); !ok) return ok.error();
  return Reply{};
}

Result<Reply> Operations::xattr_list(At& at, Request& r) {
  std::string names(kMaxXattr, '\0');
  ssize_t n = 0;
  const auto list = [&] {
    n = ::listxattr(ProcPath(at.fd()).c_str(), names.data(), names.size());
    return n < 0 ? -1 : 0;
  };
  if (auto ok = act(*r.caller, list, "listxattr"); !ok) return ok.error();
  Reply reply;
  for (std::string_view rest(names.data(), static_cast<size_t>(n)); !rest.empty();) {
    const std::string_view name = rest.substr(0, rest.find('\0'));
    if (may_use_xattr(name, *r.caller)) reply.data.append(name).push_back('\0');
    rest.remove_prefix(std::min(name.size() + 1, rest.size()));
  }
  return reply;
}

Result<Reply> Operations::xattr_remove(At& at, Request& r) {
  if (auto ok = check_xattr(r); !ok) return ok.error();
  const auto remove = [&] { return ::removexattr(ProcPath(at.fd()).c_str(), r.name.c_str()); };
  if (auto ok = act(*r.caller, remove, r.name); !ok) return ok.error();
  return Reply{};
}

}  // namespace forebay::posix
