#include "store/permission.h"

#include <sys/stat.h>

#include <algorithm>

namespace forebay::permission {

bool in_group(const Caller& caller, uint32_t gid) {
  return caller.gid == gid ||
         std::find(caller.groups.begin(), caller.groups.end(), gid) != caller.groups.end();
}

bool may(const Caller& caller, const Attr& file, uint32_t want) {
  if (caller.uid == 0) {
    // Even root needs some execute bit, except to search a directory.
    return !(want & kExecute) || file.type == FileType::directory || (file.mode & 0111) != 0;
  }
  uint32_t bits = file.mode;
  if (caller.uid == file.uid) {
    bits >>= 6;
  } else if (in_group(caller, file.gid)) {
    bits >>= 3;
  }
  return (bits & want) == want;
}

uint32_t wants(Access access) {
  return (allows(access, Access::read) ? kRead : 0u) |
         (allows(access, Access::write) ? kWrite : 0u);
}

Result<void> may_unlink(const Caller& caller, const Attr& directory, const Attr& file) {
  if (!may(caller, directory, kWrite | kExecute)) return Error(EACCES);
  const bool sticky = (directory.mode & S_ISVTX) != 0;
  if (sticky && caller.uid != 0 && caller.uid != directory.uid && caller.uid != file.uid) {
    return Error(EPERM);
  }
  return {};
}

void inherit(const Caller& caller, const Attr& directory, Attr& made) {
  made.uid = caller.uid;
  made.gid = caller.gid;
  if (!(directory.mode & S_ISGID)) return;
  made.gid = directory.gid;
  if (made.type == FileType::directory) {
    made.mode |= S_ISGID;
  } else if ((made.mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) && caller.uid != 0 &&
             !in_group(caller, made.gid)) {
    made.mode &= ~S_ISGID;
  }
}

uint32_t without_set_id(uint32_t mode) {
  // Without group execution the set-group bit once meant mandatory locking, and stays.
  return mode & ~(S_ISUID | ((mode & S_IXGRP) ? S_ISGID : 0u));
}

namespace {

Result<void> change_owner(const Caller& caller, const SetAttr& set, Attr& attr) {
  const bool owner = caller.uid == attr.uid;
  if ((set.what & SetAttr::kUid) && caller.uid != 0 && !(owner && set.uid == attr.uid)) {
    return Error(EPERM);
  }
  if ((set.what & SetAttr::kGid) && caller.uid != 0 &&
      !(owner && (set.gid == attr.gid || in_group(caller, set.gid)))) {
    return Error(EPERM);
  }
  if (set.what & SetAttr::kUid) attr.uid = set.uid;
  if (set.what & SetAttr::kGid) attr.gid = set.gid;
  const bool either = (set.what & (SetAttr::kUid | SetAttr::kGid)) != 0;
  if (either && attr.type != FileType::directory) attr.mode = without_set_id(attr.mode);
  return {};
}

Result<void> change_mode(const Caller& caller, const SetAttr& set, Attr& attr) {
  if (!(set.what & SetAttr::kMode)) return {};
  if (attr.type == FileType::symlink) return Error(EOPNOTSUPP);
  if (caller.uid != 0 && caller.uid != attr.uid) return Error(EPERM);
  attr.mode = set.mode & 07777;
  if (caller.uid != 0 && !in_group(caller, attr.gid)) attr.mode &= ~S_ISGID;
  return {};
}

Result<void> change_times(const Caller& caller, const SetAttr& set, FileTime now, Attr& attr) {
  constexpr uint32_t kGiven = SetAttr::kAtime | SetAttr::kMtime;
  constexpr uint32_t kNow = SetAttr::kAtimeNow | SetAttr::kMtimeNow;
  const bool owner = caller.uid == 0 || caller.uid == attr.uid;
  const bool only_both_now = !(set.what & kGiven) && (set.what & kNow) == kNow;
  if ((set.what & (kGiven | kNow)) && !owner) {
    if (!only_both_now) return Error(EPERM);
    if (!may(caller, attr, kWrite)) return Error(EACCES);
  }
  if (set.what & SetAttr::kAtime) attr.atime = set.atime;
  if (set.what & SetAttr::kMtime) attr.mtime = set.mtime;
  if (set.what & SetAttr::kAtimeNow) attr.atime = now;
  if (set.what & SetAttr::kMtimeNow) attr.mtime = now;
  return {};
}

}  // namespace

Result<Attr> apply(const Caller& caller, const Attr& file, const SetAttr& set, FileTime now) {
  Attr attr = file;
  if (auto r = change_owner(caller, set, attr); !r) return r.error();
  if (auto r = change_mode(caller, set, attr); !r) return r.error();
  if (auto r = change_times(caller, set, now, attr); !r) return r.error();
  if (set.what != 0) attr.ctime = now;
  return attr;
}

}  // namespace forebay::permission
