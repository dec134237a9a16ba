// Attributes, extended attributes, and what is asked of the file system as a whole.
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "fuse/door.h"
#include "store/permission.h"

namespace forebay::fuse {

namespace {

FileTime time_of(const timespec& t) {
  return {t.tv_sec, static_cast<uint32_t>(t.tv_nsec)};
}

SetAttr changes(const struct stat& to, int valid) {
  SetAttr set;
  const auto given = [&](int flag, uint32_t what) {
    if (valid & flag) set.what |= what;
  };
  given(FUSE_SET_ATTR_MODE, SetAttr::kMode);
  given(FUSE_SET_ATTR_UID, SetAttr::kUid);
  given(FUSE_SET_ATTR_GID, SetAttr::kGid);
  if (valid & FUSE_SET_ATTR_ATIME_NOW)
    set.what |= SetAttr::kAtimeNow;
  else
    given(FUSE_SET_ATTR_ATIME, SetAttr::kAtime);
  if (valid & FUSE_SET_ATTR_MTIME_NOW)
    set.what |= SetAttr::kMtimeNow;
  else
    given(FUSE_SET_ATTR_MTIME, SetAttr::kMtime);
  if (set.what & SetAttr::kMode) set.mode = to.st_mode & 07777;
  if (set.what & SetAttr::kUid) set.uid = to.st_uid;
  if (set.what & SetAttr::kGid) set.gid = to.st_gid;
  if (set.what & SetAttr::kAtime) set.atime = time_of(to.st_atim);
  if (set.what & SetAttr::kMtime) set.mtime = time_of(to.st_mtim);
  return set;
}

// As getxattr(2): with no room, how much there is.
void answer_bytes(fuse_req_t req, const std::string& bytes, size_t room) {
  if (room == 0) {
    fuse_reply_xattr(req, bytes.size());
  } else if (bytes.size() > room) {
    fuse_reply_err(req, ERANGE);
  } else {
    fuse_reply_buf(req, bytes.data(), bytes.size());
  }
}

}  // namespace

// The kernel asks before it reads from its pages (FileLeases), and names the open file then.
void Door::answer_gate(fuse_req_t req, const OpenFile& file) {
  const auto asks = [&] {
    return ask(req, {.op = Op::getattr, .caller = file.caller, .handle = file.node.handle()});
  };
  const Result<Attr> attr =
      leases_.gate(file.node, number_of(file.node), {file.right, file.caller}, asks);
  if (!attr) return fail(req, attr.error());
  const struct stat st = stat_of(*attr);
  fuse_reply_attr(req, &st, options_.attr_timeout);
}

void Door::getattr(fuse_req_t req, fuse_ino_t node, fuse_file_info* info) {
  write_back_.settle(at(node));
  if (info && file_of(info).leased) return answer_gate(req, file_of(info));
  const Result<Reply> reply =
      ask(req, {.op = Op::getattr, .caller = caller(req), .handle = at(node).handle()});
  if (!reply) return fail(req, reply.error());
  leases_.tell(at(node), node, reply->attr.size);
  const struct stat st = stat_of(reply->attr);
  fuse_reply_attr(req, &st, options_.attr_timeout);
}

Result<Reply> Door::resize(fuse_req_t req, Node& node, uint64_t size, const fuse_file_info* info) {
  return ask(req, {.op = Op::resize,
                   .caller = caller(req, info),
                   .handle = node.handle(),
                   .right = info ? file_of(info).right : Right(),
                   .length = Length(size)});
}

void Door::setattr(fuse_req_t req, fuse_ino_t number, struct stat* to, int valid,
                   fuse_file_info* info) {
  Node& node = at(number);
  SetAttr set = changes(*to, valid);
  write_back_.settle(node);
  Result<Reply> reply(std::in_place);
  if (valid & FUSE_SET_ATTR_SIZE) {
    if (to->st_size < 0) return fail(req, Error(EINVAL));
    reply = resize(req, node, static_cast<uint64_t>(to->st_size), info);
    // The kernel sends these along with a truncate, whose caller may write by a descriptor alone:
    // the Store sets the time, and drops set-id bits, by itself.
    set.what &= ~uint32_t{SetAttr::kMtimeNow | SetAttr::kMode};
  }
  // A file's times are its owner's or a writer's to set, whoever opened it.
  if (reply && set.what != 0)
    reply =
        ask(req, {.op = Op::setattr, .caller = caller(req), .handle = node.handle(), .set = set});
  else if (reply && !(valid & FUSE_SET_ATTR_SIZE))
    reply = ask(req, {.op = Op::getattr, .caller = caller(req), .handle = node.handle()});
  if (!reply) return fail(req, reply.error());
  leases_.changed(node, reply->attr.size);
  leases_.tell(node, number, reply->attr.size);
  const struct stat st = stat_of(reply->attr);
  fuse_reply_attr(req, &st, options_.attr_timeout);
}

// For access(2) and chdir(2) only, which a Store has no operation for: by mode bits, without ACLs.
// What is then done is checked by the Store.
void Door::access(fuse_req_t req, fuse_ino_t node, int mask) {
  const CallerRef who = caller(req);
  const Result<Reply> reply =
      ask(req, {.op = Op::getattr, .caller = who, .handle = at(node).handle()});
  if (!reply) return fail(req, reply.error());
  static_assert(R_OK == permission::kRead && W_OK == permission::kWrite &&
                X_OK == permission::kExecute);
  const bool may = permission::may(*who, reply->attr, static_cast<uint32_t>(mask) & 7);
  fuse_reply_err(req, may ? 0 : EACCES);
}

void Door::statfs(fuse_req_t req, fuse_ino_t node) {
  const Result<Reply> reply =
      ask(req, {.op = Op::statfs, .caller = caller(req), .handle = at(node).handle()});
  if (!reply) return fail(req, reply.error());
  const FsStatus& fs = reply->statfs;
  struct statvfs st = {};
  st.f_bsize = st.f_frsize = fs.block_size;
  st.f_blocks = fs.blocks;
  st.f_bfree = fs.blocks_free;
  st.f_bavail = fs.blocks_available;
  st.f_files = fs.files;
  st.f_ffree = st.f_favail = fs.files_free;
  st.f_namemax = fs.name_max;
  fuse_reply_statfs(req, &st);
}

// ---- Extended attributes ----

void Door::getxattr(fuse_req_t req, fuse_ino_t node, const char* name, size_t room) {
  const Result<Reply> reply = ask(
      req, {.op = Op::xattr_get, .caller = caller(req), .handle = at(node).handle(), .name = name});
  if (!reply) return fail(req, reply.error());
  answer_bytes(req, reply->data, room);
}

void Door::setxattr(fuse_req_t req, fuse_ino_t node, const char* name, const char* value,
                    size_t size, int flags) {
  answer(req, ask(req, {.op = Op::xattr_set,
                        .flags = (flags & XATTR_CREATE ? kFlagCreate : 0u) |
                                 (flags & XATTR_REPLACE ? kFlagReplace : 0u),
                        .caller = caller(req),
                        .handle = at(node).handle(),
                        .name = name,
                        .data = std::string(value, size)}));
}

void Door::listxattr(fuse_req_t req, fuse_ino_t node, size_t room) {
  const Result<Reply> reply =
      ask(req, {.op = Op::xattr_list, .caller = caller(req), .handle = at(node).handle()});
  if (!reply) return fail(req, reply.error());
  answer_bytes(req, reply->data, room);
}

void Door::removexattr(fuse_req_t req, fuse_ino_t node, const char* name) {
  answer(req, ask(req, {.op = Op::xattr_remove,
                        .caller = caller(req),
                        .handle = at(node).handle(),
                        .name = name}));
}

}  // namespace forebay::fuse
