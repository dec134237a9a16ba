// Operations on names: lookup, create, remove, rename, links, directories. Errors come in the order
// in which Linux finds them (fs/namei.c), so that programs see what they are used to.
#include "store/memory_fs.h"

#include <unistd.h>

#include <array>
#include <cstring>

#include "store/permission.h"

namespace forebay {

namespace {

bool is(const Attr& attr, FileType type) {
  return attr.type == type;
}

}  // namespace

MemoryFs::MemoryFs(uint64_t limit, uint64_t fs_id) : limit_(limit), fs_id_(fs_id), budget_{limit} {
  const Caller owner{geteuid(), getegid(), {}, {}};
  auto top = std::make_unique<Inode>(budget_);
  top->attr.type = FileType::directory;
  top->attr.mode = 0755;
  top->attr.uid = owner.uid;
  top->attr.gid = owner.gid;
  top->attr.links = 2;
  top->attr.file_id = next_file_id_++;
  top->attr.fs_id = fs_id_;
  modified(*top);
  top->attr.atime = top->attr.btime = top->attr.mtime;
  inodes_.emplace(top->attr.file_id, std::move(top));
}

MemoryFs::Operation MemoryFs::operation(Op op) {
  static constexpr std::array<Operation, kOpCount> kOperations = {
      &MemoryFs::lookup,    &MemoryFs::open,      &MemoryFs::close,      &MemoryFs::create,
      &MemoryFs::remove,    &MemoryFs::rename,    &MemoryFs::link,       &MemoryFs::symlink,
      &MemoryFs::readlink,  &MemoryFs::mkdir,     &MemoryFs::readdir,    &MemoryFs::getattr,
      &MemoryFs::setattr,   &MemoryFs::resize,    &MemoryFs::fallocate,  &MemoryFs::commit,
      &MemoryFs::statfs,    &MemoryFs::read,      &MemoryFs::write,      &MemoryFs::layout,
      &MemoryFs::xattr_get, &MemoryFs::xattr_set, &MemoryFs::xattr_list, &MemoryFs::xattr_remove};
  return kOperations[static_cast<size_t>(op)];
}

Result<Reply> MemoryFs::perform(Request& request) {
  auto inode = resolve(request.handle);
  if (!inode) return std::move(inode).error();
  const Operation known = operation(request.op);
  if (!known) return Error(EOPNOTSUPP, "locks are kept by servers");
  return (this->*known)(**inode, request);
}

// ---- Names to inodes and back ----

Handle MemoryFs::handle_of(const Inode& inode) const {
  char body[sizeof inode.attr.file_id];
  std::memcpy(body, &inode.attr.file_id, sizeof body);
  return {key_.seal(SealDomain::handle, {body, sizeof body})};
}

Handle MemoryFs::top() const {
  return handle_of(*inodes_.at(1));
}

Result<MemoryFs::Inode*> MemoryFs::resolve(const Handle& handle) {
  const auto body = key_.unseal(SealDomain::handle, handle.bytes);
  uint64_t file_id;
  if (!body || body->size() != sizeof file_id) return Error(EBADF, "forged or damaged handle");
  std::memcpy(&file_id, body->data(), sizeof file_id);
  const auto found = inodes_.find(file_id);
  if (found == inodes_.end()) return Error(ESTALE);
  return found->second.get();
}

MemoryFs::Inode& MemoryFs::inode(uint64_t file_id) {
  const auto found = inodes_.find(file_id);
  FOREBAY_ASSERT(found != inodes_.end(), "file id " + std::to_string(file_id));
  return *found->second;
}

Result<void> MemoryFs::enter(const Inode& directory, const Caller& caller) const {
  if (!is(directory.attr, FileType::directory)) return Error(ENOTDIR);
  if (!permission::may(caller, directory.attr, permission::kExecute)) return Error(EACCES);
  return {};
}

MemoryFs::Inode* MemoryFs::find(const Inode& directory, const std::string& name) {
  const auto slot = directory.names.find(name);
  return slot == directory.names.end() ? nullptr : &inode(slot->second.file_id);
}

Result<MemoryFs::Inode*> MemoryFs::child(Inode& directory, const std::string& name,
                                         const Caller& caller) {
  if (auto entered = enter(directory, caller); !entered) return entered.error();
  if (Inode* found = find(directory, name)) return found;
  return Error(ENOENT);
}

Result<void> MemoryFs::may_add(Inode& directory, const std::string& name, const Caller& caller) {
  if (auto entered = enter(directory, caller); !entered) return entered.error();
  if (find(directory, name)) return Error(EEXIST);
  if (!permission::may(caller, directory.attr, permission::kWrite)) return Error(EACCES);
  return {};
}

bool MemoryFs::is_within(const Inode& inner, uint64_t ancestor) {
  for (uint64_t id = inner.attr.file_id; id != 0; id = inode(id).parent) {
    if (id == ancestor) return true;
  }
  return false;
}

Reply MemoryFs::described(const Inode& file, bool with_handle) const {
  Reply reply;
  reply.attr = file.attr;
  if (with_handle) reply.handle = handle_of(file);
  return reply;
}

// ---- Changes of the tree ----

MemoryFs::Inode& MemoryFs::add(Inode& directory, const std::string& name, FileType type,
                               uint32_t mode, const Caller& caller) {
  auto made = std::make_unique<Inode>(budget_);
  Attr& attr = made->attr;
  attr.type = type;
  attr.mode = mode & 07777;
  attr.file_id = next_file_id_++;
  attr.fs_id = fs_id_;
  permission::inherit(caller, directory.attr, attr);
  modified(*made);
  attr.atime = attr.btime = attr.mtime;
  if (type == FileType::directory) attr.links = 1;  // its own "."
  Inode& inode = *inodes_.emplace(attr.file_id, std::move(made)).first->second;
  enter_name(directory, name, inode);
  return inode;
}

void MemoryFs::enter_name(Inode& directory, const std::string& name, Inode& file) {
  const uint64_t cookie = directory.next_cookie++;
  directory.names.emplace(name, Inode::Slot{file.attr.file_id, cookie});
  directory.order.emplace(cookie, name);
  ++file.attr.links;
  if (is(file.attr, FileType::directory)) {
    file.parent = directory.attr.file_id;
    ++directory.attr.links;  // its ".."
  }
  changed(file);
  modified(directory);
}

void MemoryFs::drop_name(Inode& directory, const std::string& name, Inode& file) {
  const auto slot = directory.names.find(name);
  directory.order.erase(slot->second.cookie);
  directory.names.erase(slot);
  --file.attr.links;
  if (is(file.attr, FileType::directory)) --directory.attr.links;
  changed(file);
  modified(directory);
}

// After drop_name for good: the "." of a directory goes with its name.
void MemoryFs::drop_link(Inode& file) {
  if (is(file.attr, FileType::directory)) --file.attr.links;
  collect(file);
}

void MemoryFs::collect(Inode& file) {
  if (file.attr.links == 0 && file.opens == 0) inodes_.erase(file.attr.file_id);
}

// ---- Operations ----

Result<Reply> MemoryFs::lookup(Inode& start, Request& r) {
  Inode* at = &start;
  for (std::string_view rest = r.name;;) {
    const size_t slash = rest.find('/');
    const std::string name(rest.substr(0, slash));
    if (at != &start && is(at->attr, FileType::symlink)) return Error(ELOOP);
    auto next = child(*at, name, *r.caller);
    if (!next) return std::move(next).error();
    at = *next;
    if (slash == std::string_view::npos) return described(*at, true);
    rest.remove_prefix(slash + 1);
  }
}

Result<Reply> MemoryFs::create(Inode& directory, Request& r) {
  if (auto entered = enter(directory, *r.caller); !entered) return entered.error();
  Inode* file = find(directory, r.name);
  if (file) {
    if (r.flags & kFlagExclusive) return Error(EEXIST);
    if (is(file->attr, FileType::directory)) return Error(EISDIR);
    if (is(file->attr, FileType::symlink)) return Error(ELOOP);
    const bool cut = (r.flags & kFlagTruncate) != 0;
    const uint32_t want = permission::wants(r.access) | (cut ? permission::kWrite : 0u);
    if (!permission::may(*r.caller, file->attr, want)) return Error(EACCES);
    if (cut) truncate(*file, 0);
  } else {
    if (!permission::may(*r.caller, directory.attr, permission::kWrite)) return Error(EACCES);
    file = &add(directory, r.name, FileType::file, r.mode, *r.caller);
  }
  Reply reply = described(*file, true);
  // The creator may do what it asked for, whatever mode it gave the file.
  if (r.access != Access::none) reply.right = grant(*file, r.access, *r.caller);
  return reply;
}

Result<Reply> MemoryFs::mkdir(Inode& directory, Request& r) {
  if (auto good = may_add(directory, r.name, *r.caller); !good) return good.error();
  return described(add(directory, r.name, FileType::directory, r.mode & 01777, *r.caller), true);
}

Result<Reply> MemoryFs::symlink(Inode& directory, Request& r) {
  if (auto good = may_add(directory, r.name, *r.caller); !good) return good.error();
  Inode& made = add(directory, r.name, FileType::symlink, 0777, *r.caller);
  made.target = std::move(r.data);
  made.attr.size = made.target.size();
  return described(made, true);
}

Result<Reply> MemoryFs::readlink(Inode& file, Request&) {
  if (!is(file.attr, FileType::symlink)) return Error(EINVAL);
  Reply reply;
  reply.data = file.target;
  return reply;
}

Result<Reply> MemoryFs::link(Inode& file, Request& r) {
  auto directory = resolve(r.handle2);
  if (!directory) return std::move(directory).error();
  if (file.attr.links == 0) return Error(ENOENT);  // unlinked and still open: it stays unlinked
  if (auto good = may_add(**directory, r.name2, *r.caller); !good) return good.error();
  if (is(file.attr, FileType::directory)) return Error(EPERM);
  enter_name(**directory, r.name2, file);
  return described(file, false);
}

Result<Reply> MemoryFs::remove(Inode& directory, Request& r) {
  auto file = child(directory, r.name, *r.caller);
  if (!file) return std::move(file).error();
  const bool as_directory = (r.flags & kFlagDirectory) != 0;
  if (auto good = may_replace(r, directory, **file, as_directory); !good) return good.error();
  drop_name(directory, r.name, **file);
  drop_link(**file);
  return Reply{};
}

// May `old` lose its name in `directory`, to a directory or rmdir, or to something else?
Result<void> MemoryFs::may_replace(const Request& r, const Inode& directory, const Inode& old,
                                   bool by_directory) {
  auto good = permission::may_unlink(*r.caller, directory.attr, old.attr);
  if (!good) return good;
  const bool is_directory = is(old.attr, FileType::directory);
  if (by_directory && !is_directory) return Error(ENOTDIR);
  if (!by_directory && is_directory) return Error(EISDIR);
  if (!old.names.empty()) return Error(ENOTEMPTY);
  return {};
}

Result<void> MemoryFs::may_rename(const Request& r, const Inode& from, const Inode& to,
                                  const Inode& source, const Inode* target) {
  auto good = permission::may_unlink(*r.caller, from.attr, source.attr);
  if (!good) return good;
  const bool moves_directory = is(source.attr, FileType::directory);
  const bool swap = (r.flags & kFlagExchange) != 0;
  if (!target) {
    if (!permission::may(*r.caller, to.attr, permission::kWrite)) return Error(EACCES);
  } else if (swap) {
    good = permission::may_unlink(*r.caller, to.attr, target->attr);
  } else {
    good = may_replace(r, to, *target, moves_directory);
  }
  if (!good) return good;
  // A directory that moves elsewhere gets another "..": that is a change of itself.
  const auto may_move = [&](const Inode& i) {
    return &from == &to || !is(i.attr, FileType::directory) ||
           permission::may(*r.caller, i.attr, permission::kWrite);
  };
  if (!may_move(source) || (swap && !may_move(*target))) return Error(EACCES);
  return {};
}

Result<Reply> MemoryFs::rename(Inode& from, Request& r) {
  const bool swap = (r.flags & kFlagExchange) != 0, keep = (r.flags & kFlagNoReplace) != 0;
  auto resolved = resolve(r.handle2);
  if (!resolved) return std::move(resolved).error();
  Inode& to = **resolved;
  if (auto entered = enter(from, *r.caller); !entered) return entered.error();
  if (auto entered = enter(to, *r.caller); !entered) return entered.error();
  Inode* source = find(from, r.name);
  Inode* target = find(to, r.name2);
  if (!source) return Error(ENOENT);
  if (keep && target) return Error(EEXIST);
  if (swap && !target) return Error(ENOENT);
  if (is_within(to, source->attr.file_id)) return Error(EINVAL);
  if (target && is_within(from, target->attr.file_id)) return Error(swap ? EINVAL : ENOTEMPTY);
  if (source == target) return Reply{};
  if (auto good = may_rename(r, from, to, *source, target); !good) return good.error();
  if (target) drop_name(to, r.name2, *target);
  drop_name(from, r.name, *source);
  enter_name(to, r.name2, *source);
  if (swap) {
    enter_name(from, r.name, *target);
  } else if (target) {
    drop_link(*target);
  }
  return Reply{};
}

Result<Reply> MemoryFs::readdir(Inode& directory, Request& r) {
  if (!is(directory.attr, FileType::directory)) return Error(ENOTDIR);
  if (!permission::may(*r.caller, directory.attr, permission::kRead)) return Error(EACCES);
  const bool plus = (r.flags & kFlagPlus) != 0;
  Reply reply;
  uint64_t bytes = 0;
  auto at = directory.order.upper_bound(r.cookie);
  for (; at != directory.order.end(); ++at) {
    bytes += at->second.size() + (plus ? kReaddirPlusEntry : kReaddirEntry);
    // One entry always fits: a reader with a small buffer gets on.
    if (!reply.entries.empty() && bytes > r.length.value) break;
    const Inode& file = inode(directory.names.at(at->second).file_id);
    Entry& entry = reply.entries.emplace_back();
    entry.name = at->second;
    entry.cookie = at->first;
    entry.file_id = file.attr.file_id;
    entry.type = file.attr.type;
    if (!plus) continue;
    entry.handle = handle_of(file);
    entry.attr = file.attr;
  }
  reply.end = at == directory.order.end();
  return reply;
}

}  // namespace forebay
