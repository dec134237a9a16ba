// Operations on one file: rights, bytes, attributes, extended attributes.
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <cstring>

#include "store/memory_fs.h"
#include "store/permission.h"

namespace forebay {

namespace {

FileTime wall_clock() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return {now.tv_sec, static_cast<uint32_t>(now.tv_nsec)};
}

Result<void> must_be_file(const Attr& attr) {
  if (attr.type == FileType::directory) return Error(EISDIR);
  if (attr.type == FileType::symlink) return Error(ELOOP);
  return {};
}

}  // namespace

// ---- Rights ----

Right MemoryFs::grant(Inode& file, Access access, const Caller& caller) {
  Grant grant;
  std::memset(&grant, 0, sizeof grant);  // its padding is sealed too
  grant.file_id = file.attr.file_id;
  grant.nonce = next_nonce_++;
  grant.uid = caller.uid;
  grant.access = access;
  open_.emplace(grant.nonce, grant.file_id);
  ++file.opens;
  char body[sizeof grant];
  std::memcpy(body, &grant, sizeof body);
  return {key_.seal(SealDomain::right, {body, sizeof body})};
}

Result<MemoryFs::Grant> MemoryFs::examine(const Right& right, const Inode& file,
                                          const Caller& caller) const {
  const auto body = key_.unseal(SealDomain::right, right.bytes);
  Grant grant;
  if (!body || body->size() != sizeof grant) return Error(EBADF, "forged or damaged right");
  std::memcpy(&grant, body->data(), sizeof grant);
  if (grant.file_id != file.attr.file_id) return Error(EBADF, "the right is for another file");
  if (grant.uid != caller.uid) return Error(EACCES, "the right was granted to another user");
  return grant;
}

Result<MemoryFs::Grant> MemoryFs::may_use(const Request& r, const Inode& file,
                                          Access access) const {
  auto grant = examine(r.right, file, *r.caller);
  if (grant && !allows(grant->access, access)) return Error(EBADF, "the right does not allow this");
  return grant;
}

Result<void> MemoryFs::admits(const Request& r) {
  const auto file = resolve(r.handle);
  if (!file) return file.error();
  const auto grant = may_use(r, **file, r.op == Op::read ? Access::read : Access::write);
  return grant ? Result<void>() : Result<void>(grant.error());
}

Result<void> MemoryFs::use(const Request& r, Inode& file, Access access) {
  const auto grant = may_use(r, file, access);
  if (!grant) return grant.error();
  if (open_.emplace(grant->nonce, grant->file_id).second) ++file.opens;
  return {};
}

Result<void> MemoryFs::use_or_may(const Request& r, Inode& file, Access access) {
  if (!r.right.empty()) return use(r, file, access);
  if (!permission::may(*r.caller, file.attr, permission::wants(access))) return Error(EACCES);
  return {};
}

Result<Reply> MemoryFs::open(Inode& file, Request& r) {
  if (auto good = must_be_file(file.attr); !good) return good.error();
  if (r.access == Access::none) return Error(EINVAL);
  if (!permission::may(*r.caller, file.attr, permission::wants(r.access))) return Error(EACCES);
  Reply reply = described(file, false);
  reply.right = grant(file, r.access, *r.caller);
  return reply;
}

Result<Reply> MemoryFs::close(Inode& file, Request& r) {
  const auto grant = examine(r.right, file, *r.caller);
  if (!grant) return grant.error();
  if (open_.erase(grant->nonce) != 0) {
    --file.opens;
    collect(file);
  }
  return Reply{};
}

// ---- Bytes ----

Result<Reply> MemoryFs::read(Inode& file, Request& r) {
  if (auto good = use(r, file, Access::read); !good) return good.error();
  Reply reply;
  walk_pairs(r.file, r.memory.shape, [&](Extent from, Extent to) {
    const uint64_t start = from.offset.value, size = file.attr.size;
    const uint64_t n = start < size ? std::min(from.length.value, size - start) : 0;
    file.content.read(start, {r.memory.at(to.offset), n});
    reply.count += n;
    return n == from.length.value;
  });
  return reply;
}

Result<Reply> MemoryFs::write(Inode& file, Request& r) {
  if (auto good = use(r, file, Access::write); !good) return good.error();
  Reply reply;
  walk_pairs(r.file, r.memory.shape, [&](Extent to, Extent from) {
    const uint64_t start = to.offset.value;
    const uint64_t n = file.content.write(start, {r.memory.at(from.offset), from.length.value});
    if (n != 0) file.attr.size = std::max(file.attr.size, start + n);
    reply.count += n;
    return n == from.length.value;
  });
  if (reply.count != 0) {
    file.attr.mode = permission::without_set_id(file.attr.mode);
    modified(file);
  }
  if (reply.count != r.file.total().value) return Error(ENOSPC).with_done(reply.count);
  return reply;
}

void MemoryFs::modified(Inode& file) {
  file.attr.mtime = file.attr.ctime = wall_clock();
  file.attr.allocated = file.content.allocated();
}

void MemoryFs::changed(Inode& file) {
  file.attr.ctime = wall_clock();
}

void MemoryFs::truncate(Inode& file, uint64_t size) {
  if (size < file.attr.size) file.content.erase_from(size);
  file.attr.size = size;
  file.attr.mode = permission::without_set_id(file.attr.mode);
  modified(file);
}

Result<Reply> MemoryFs::resize(Inode& file, Request& r) {
  if (file.attr.type == FileType::directory) return Error(EISDIR);
  if (file.attr.type != FileType::file) return Error(EINVAL);
  if (auto good = use_or_may(r, file, Access::write); !good) return good.error();
  truncate(file, r.length.value);
  return described(file, false);
}

// Reserving space changes nothing but the size: pages are paid when they are written.
Result<Reply> MemoryFs::fallocate(Inode& file, Request& r) {
  if (auto good = use(r, file, Access::write); !good) return good.error();
  const bool punch = (r.flags & kFlagPunchHole) != 0, zero = (r.flags & kFlagZeroRange) != 0;
  if (punch || zero) file.content.zero(r.offset.value, r.length.value);
  const bool keep_size = punch || (r.flags & kFlagKeepSize) != 0;
  if (!keep_size) file.attr.size = std::max(file.attr.size, r.offset.value + r.length.value);
  modified(file);
  return Reply{};
}

Result<Reply> MemoryFs::commit(Inode& file, Request& r) {
  if (!r.right.empty()) {
    if (auto good = use(r, file, Access::none); !good) return good.error();
  }
  return Reply{};
}

// ---- Attributes ----

Result<Reply> MemoryFs::getattr(Inode& file, Request&) {
  return described(file, false);
}

Result<Reply> MemoryFs::setattr(Inode& file, Request& r) {
  if (!r.right.empty()) {
    if (auto good = use(r, file, Access::none); !good) return good.error();
  }
  auto after = permission::apply(*r.caller, file.attr, r.set, wall_clock());
  if (!after) return std::move(after).error();
  file.attr = *after;
  return described(file, false);
}

Result<Reply> MemoryFs::statfs(Inode&, Request&) {
  Reply reply;
  FsStatus& s = reply.statfs;
  s.block_size = 4096;
  s.blocks = limit_ / s.block_size;
  s.blocks_free = s.blocks_available = budget_.free / s.block_size;
  s.files = UINT32_MAX;
  s.files_free = UINT32_MAX - inodes_.size();
  return reply;
}

Result<Reply> MemoryFs::layout(Inode&, Request&) {
  return Reply{};
}

Result<void> MemoryFs::xattr_access(const Inode& file, const Request& r, uint32_t want) const {
  if (!r.name.starts_with("user.") || r.name.size() == 5) return Error(EOPNOTSUPP);
  if (file.attr.type != FileType::file && file.attr.type != FileType::directory) {
    return Error(want & permission::kWrite ? EPERM : ENODATA);
  }
  if (!permission::may(*r.caller, file.attr, want)) return Error(EACCES);
  return {};
}

Result<Reply> MemoryFs::xattr_get(Inode& file, Request& r) {
  if (auto good = xattr_access(file, r, permission::kRead); !good) return good.error();
  const auto found = file.xattrs.find(r.name);
  if (found == file.xattrs.end()) return Error(ENODATA);
  Reply reply;
  reply.data = found->second;
  return reply;
}

Result<Reply> MemoryFs::xattr_set(Inode& file, Request& r) {
  const bool exists = file.xattrs.count(r.name) != 0;
  if (auto good = xattr_access(file, r, permission::kWrite); !good) return good.error();
  if (exists && (r.flags & kFlagCreate)) return Error(EEXIST);
  if (!exists && (r.flags & kFlagReplace)) return Error(ENODATA);
  file.xattrs.insert_or_assign(std::move(r.name), std::move(r.data));
  changed(file);
  return Reply{};
}

Result<Reply> MemoryFs::xattr_list(Inode& file, Request&) {
  Reply reply;
  for (const auto& [name, value] : file.xattrs) reply.data.append(name).push_back('\0');
  return reply;
}

Result<Reply> MemoryFs::xattr_remove(Inode& file, Request& r) {
  if (auto good = xattr_access(file, r, permission::kWrite); !good) return good.error();
  if (file.xattrs.erase(r.name) == 0) return Error(ENODATA);
  changed(file);
  return Reply{};
}

}  // namespace forebay
