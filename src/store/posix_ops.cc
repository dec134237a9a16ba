// Handles to files, and the operations on names.
#include "store/posix_ops.h"

#include <fmt/format.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <climits>

namespace forebay::posix {

namespace {

// What direct and cached access must not share: a page, and a block of the file system. Network
// file systems show the size of a transfer instead.
uint64_t block_of(int fd) {
  constexpr uint64_t kMost = 64_KiB;
  uint64_t block = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  struct stat st;
  if (::fstat(fd, &st) != 0) return block;
  const auto theirs = static_cast<uint64_t>(st.st_blksize);
  if (theirs <= kMost && std::has_single_bit(theirs)) block = std::max(block, theirs);
  return block;
}

}  // namespace

Operations::Operations(Fd top, SealKey key, const PosixOptions& options, Identity identity,
                       size_t descriptors, FsKind fs, BufferPool& staging, CounterSet& counters)
    : top_(std::move(top)),
      export_id_(options.export_id),
      identity_(identity),
      in_application_(options.in_application),
      mounts_(in_application_ ? Mounts::enter : Mounts::stay),
      forgets_closed_(options.forgets_closed),
      handles_(key, options.export_id, top_.get(), fs,
               !options.force_path_handles && !in_application_ &&
                   Handles::kernel_handles_work(top_.get(), fs),
               mounts_),
      rights_(key),
      table_(descriptors, identity.privileged(), counters),
      unlinked_(top_.get(), identity_,
                in_application_ ? std::nullopt : std::optional(options.hidden_grace),
                [this](const InodeId& id) {
                  const FilePtr file = table_.find(id);
                  return file && file->has_rights();
                }),
      io_calls_(counters.get("posix.io_calls")),
      directory_(options.directory),
      all_direct_(options.direct),
      direct_{block_of(top_.get()), staging, io_calls_, counters.get("posix.direct_edges"),
              counters.get("posix.direct_staged")},
      limits_{.crumb = fs.local ? IoLimits().crumb : kCrumbOfOthers},
      local_(fs.local),
      mapped_(options.mapped && fs.local),
      huge_pages_(mapped_ && huge_pages_are_cheap()),
      mapping_{options.mapped_piece,
               io_calls_,
               counters.get("posix.mapped_steps"),
               counters.get("posix.mapped_faults"),
               looks_,
               huge_pages_} {}

Operations::Operation Operations::operation(Op op) {
  using O = Operations;  // close is apart: it needs no descriptor; locks are nobody's
  static constexpr std::array<Operation, kOpCount> kOperations = {
      &O::lookup,  &O::open,    nullptr,       &O::create,    &O::remove,     &O::rename,
      &O::link,    &O::symlink, &O::readlink,  &O::mkdir,     &O::readdir,    &O::getattr,
      &O::setattr, &O::resize,  &O::fallocate, &O::commit,    &O::statfs,     &O::read,
      &O::write,   &O::layout,  &O::xattr_get, &O::xattr_set, &O::xattr_list, &O::xattr_remove};
  return kOperations[static_cast<size_t>(op)];
}

Result<Reply> Operations::perform(Request& request) {
  if (auto served = identity_.serves(*request.caller); !served) return served.error();
  if (request.op == Op::close) return close(request);
  const Operation known = operation(request.op);
  if (!known) return Error(EOPNOTSUPP, "locks are kept by servers");
  Result<At> found = at(request.handle);
  if (!found) return std::move(found).error();
  Result<Reply> reply = (this->*known)(*found, request);
  // What others removed behind our back fails in its own ways, as long as we have a descriptor.
  if (!reply && is_gone(*found)) return Error(ESTALE, "the file was removed");
  return reply;
}

// ---- Handles to files and back ----

Result<Operations::At> Operations::at(const Handle& handle) {
  if (FilePtr file = table_.find(handle.bytes)) {
    if (DescriptorPtr path = file->path()) return At{std::move(file), std::move(path)};
  }
  return resolve(handle);
}

Result<Operations::At> Operations::resolve(const Handle& handle) {
  identity_.become_server();
  Result<Fd> fd = with_room([&] { return handles_.resolve(handle); });
  if (!fd) return std::move(fd).error();
  const Result<FileStat> stat = stat_of(fd->get());
  if (!stat) return stat.error();
  if (stat->attr.links == 0) {
    // The kernel still finds it because somebody has it open; that must be one of ours.
    const FilePtr known = table_.find(stat->id);
    if (!known || !known->has_rights()) return Error(ESTALE, "the file was removed");
  }
  FileTable::Adopted adopted = table_.adopt(handle, std::move(*fd), *stat);
  if (unlinked_.contains(stat->id)) adopted.file->hidden = true;
  return At{std::move(adopted.file), std::move(adopted.path)};
}

Attr Operations::shown(const File& file, Attr attr) const {
  attr.fs_id = export_id_;
  // The link in the own folder is none of the user's.
  if (file.hidden && attr.links > 0) --attr.links;
  return attr;
}

Result<Attr> Operations::attr_of(const At& at) const {
  const Result<FileStat> stat = stat_of(at.fd());
  if (!stat) return stat.error();
  return shown(*at.file, stat->attr);
}

bool Operations::is_gone(const At& at) {
  const Result<FileStat> stat = stat_of(at.fd());
  if (!stat || stat->attr.links != 0 || at.file->has_rights()) return false;
  table_.drop(at.file);
  return true;
}

Result<Operations::Named> Operations::name(Fd path) {
  const Result<FileStat> stat = stat_of(path.get());
  if (!stat) return stat.error();
  // What is known of the directory holds for it too.
  if (mounts_ == Mounts::enter && stat->id.device != top_id_.device && local_ &&
      !fs_kind(path.get()).local)
    return Error(EXDEV, "it is mounted there from a file system that is not local");
  Result<Handle> handle = handles_.make(path.get(), stat->id);
  if (!handle) return std::move(handle).error();
  FileTable::Adopted adopted = table_.adopt(*handle, std::move(path), *stat);
  Named named;
  named.at = {std::move(adopted.file), std::move(adopted.path)};
  named.reply.attr = shown(*named.at.file, stat->attr);
  named.reply.handle = std::move(*handle);
  return named;
}

Result<Reply> Operations::made(const At& directory, const std::string& child) {
  Result<Fd> path = with_room([&] { return open_path(directory.fd(), child, mounts_); });
  if (!path) return std::move(path).error();
  Result<Named> named = name(std::move(*path));
  if (!named) return std::move(named).error();
  return std::move(named->reply);
}

Result<void> Operations::start() {
  Result<Fd> path = open_path(top_.get(), ".", mounts_);
  if (!path && path.error().code() == ENOSYS)
    return Error(ENOSYS, "openat2 is missing: this needs Linux 5.6 or later");
  if (!path) return std::move(path).error();
  const Result<FileStat> stat = stat_of(path->get());
  if (!stat) return stat.error();
  top_id_ = stat->id;
  counts_links_ = stat->attr.links > 0;
  Result<Handle> handle = handles_.make_top(stat->id);
  if (!handle) return std::move(handle).error();
  top_handle_ = std::move(*handle);
  table_.adopt(top_handle_, std::move(*path), *stat);
  return {};
}

bool Operations::is_own_folder(const At& directory, std::string_view name) const {
  return name.substr(0, name.find('/')) == kOwnFolder && directory.file->id == top_id_;
}

Result<void> Operations::may_make(const At& directory, const std::string& name) const {
  if (!is_own_folder(directory, name)) return {};
  return Error(EPERM, fmt::format("the name {} is the server's own", kOwnFolder));
}

// ---- Names ----

Result<Reply> Operations::lookup(At& at, Request& r) {
  if (is_own_folder(at, r.name)) return Error(ENOENT);
  if (auto ok = identity_.become(*r.caller); !ok) return ok.error();
  return made(at, r.name);
}

Result<Reply> Operations::mkdir(At& at, Request& r) {
  if (auto ok = may_make(at, r.name); !ok) return ok.error();
  const auto make = [&] { return ::mkdirat(at.fd(), r.name.c_str(), r.mode); };
  if (auto ok = act(*r.caller, make, r.name); !ok) return ok.error();
  return made(at, r.name);
}

Result<Reply> Operations::symlink(At& at, Request& r) {
  if (auto ok = may_make(at, r.name); !ok) return ok.error();
  const auto make = [&] { return ::symlinkat(r.data.c_str(), at.fd(), r.name.c_str()); };
  if (auto ok = act(*r.caller, make, r.name); !ok) return ok.error();
  return made(at, r.name);
}

Result<Reply> Operations::readlink(At& at, Request&) {
  if (at.file->type != FileType::symlink) return Error(EINVAL);
  char text[PATH_MAX];
  const ssize_t n = ::readlinkat(at.fd(), "", text, sizeof text);
  if (n < 0) return failed("readlink");
  Reply reply;
  reply.data.assign(text, static_cast<size_t>(n));
  return reply;
}

Result<Reply> Operations::link(At& file, Request& r) {
  Result<At> directory = at(r.handle2);
  if (!directory) return std::move(directory).error();
  if (auto ok = may_make(*directory, r.name2); !ok) return ok.error();
  if (file.file->hidden) {
    const Result<Attr> attr = attr_of(file);
    if (attr && attr->links == 0) return Error(ENOENT, "the file was removed");
  }
  const NameLocks locks = lock_names({*directory, r.name2});
  // With the descriptor itself (AT_EMPTY_PATH) the kernel wants a capability that callers lack.
  const auto make = [&] {
    return ::linkat(AT_FDCWD, ProcPath(file.fd()).c_str(), directory->fd(), r.name2.c_str(),
                    AT_SYMLINK_FOLLOW);
  };
  if (auto ok = act(*r.caller, make, r.name2); !ok) return ok.error();
  Result<Attr> attr = attr_of(file);
  if (!attr) return std::move(attr).error();
  Reply reply;
  reply.attr = *attr;
  return reply;
}

// ---- Files that lose a name ----

Operations::NameLocks Operations::lock_names(const Place& one, const Place& other) {
  const auto index = [this](const Place& place) {
    const size_t hash =
        InodeIdHash()(place.directory.file->id) ^ std::hash<std::string_view>()(place.name);
    return hash % naming_.size();
  };
  const auto [first, second] = std::minmax({index(one), index(other)});
  NameLocks locks;
  locks[0] = std::unique_lock(naming_[first]);
  if (second != first) locks[1] = std::unique_lock(naming_[second]);
  return locks;
}

// Looks at what the name is, and if that is open gives it a link in the own folder.
Operations::Losing Operations::before_loss(const At& directory, const std::string& name,
                                           const Caller& caller, Fd& lost) {
  if (!identity_.become(caller)) return {};
  Result<Fd> path = with_room([&] { return open_path(directory.fd(), name); });
  if (!path) return {};
  lost = Fd(::fcntl(path->get(), F_DUPFD_CLOEXEC, 0));
  Result<FileStat> stat = stat_of(path->get());
  if (!stat) return {};
  Losing it;
  it.lock = std::unique_lock(losing(stat->id));
  // Again: others may have taken other names of the file.
  stat = stat_of(path->get());
  if (!stat) return {};
  it.file = table_.find(stat->id);
  if (!it.file) return it;
  it.ours = !unlinked_.contains(stat->id);
  it.last = stat->attr.type == FileType::directory || stat->attr.links <= (it.ours ? 1 : 2);
  it.open = it.file->has_rights();
  // Another name keeps a kernel handle alive, but not a path handle.
  if (!it.open || (!it.last && handles_.kernel())) return it;
  it.pinned = in_application_ && table_.pin(it.file, std::move(*path));
  if (it.pinned) return it;
  identity_.become_server();
  it.linked = unlinked_.keep(path->get(), stat->id).has_value();
  return it;
}

// The name is gone. An open file that could not be linked lives on in its descriptors, if it has
// any; one that is not open, and has no other name, is gone too.
void Operations::lost_name(const Losing& it) {
  if (!it.file) return;
  if (it.linked) {
    it.file->hidden = true;
  } else if (it.pinned || (it.open && it.last && table_.pin(it.file))) {
    it.file->orphan = true;
  } else if (it.last) {
    table_.drop(it.file);
  }
}

// The kernel refused: the link that we made is taken back.
void Operations::still_named(const Losing& it) {
  if (!it.linked || !it.ours) return;
  identity_.become_server();
  unlinked_.erase(it.file->id);
}

Result<Reply> Operations::remove(At& at, Request& r) {
  if (is_own_folder(at, r.name)) return Error(ENOENT);
  const bool directory = (r.flags & kFlagDirectory) != 0;
  Fd lost;
  const NameLocks locks = lock_names({at, r.name});
  const Losing it = before_loss(at, r.name, *r.caller, lost);
  const auto unlink = [&] {
    return ::unlinkat(at.fd(), r.name.c_str(), directory ? AT_REMOVEDIR : 0);
  };
  if (auto ok = act(*r.caller, unlink, r.name); !ok) {
    still_named(it);
    return ok.error();
  }
  lost_name(it);
  return Reply{};
}

Result<Reply> Operations::rename(At& from, Request& r) {
  if (is_own_folder(from, r.name)) return Error(ENOENT);
  Result<At> to = at(r.handle2);
  if (!to) return std::move(to).error();
  if (auto ok = may_make(*to, r.name2); !ok) return ok.error();
  const bool replaces = (r.flags & (kFlagExchange | kFlagNoReplace)) == 0;
  Fd lost;
  const NameLocks locks = lock_names({from, r.name}, {*to, r.name2});
  Losing it;
  if (replaces) it = before_loss(*to, r.name2, *r.caller, lost);
  const unsigned flags = r.flags & kFlagExchange    ? RENAME_EXCHANGE
                         : r.flags & kFlagNoReplace ? RENAME_NOREPLACE
                                                    : 0;
  // Before, so that no handle is lost in between; a place that turns out wrong is only tried in
  // vain.
  remember_rename(from, *to, r);
  const auto move = [&] {
    return ::renameat2(from.fd(), r.name.c_str(), to->fd(), r.name2.c_str(), flags);
  };
  if (auto ok = act(*r.caller, move, r.name + " to " + r.name2); !ok) {
    still_named(it);
    return ok.error();
  }
  // Two names of one file, or the same twice: nothing has happened.
  struct stat st;
  const bool kept = it.last && lost && ::fstat(lost.get(), &st) == 0 && S_ISREG(st.st_mode) &&
                    st.st_nlink > (it.linked ? 1u : 0u);
  kept ? still_named(it) : lost_name(it);
  return Reply{};
}

void Operations::remember_rename(const At& from, const At& to, const Request& r) {
  if (handles_.kernel()) return;
  const auto place = [&](const At& directory,
                         const std::string& name) -> std::optional<std::string> {
    const Result<std::string> path = handles_.path_of(directory.fd());
    if (!path) return std::nullopt;
    return path->empty() ? name : *path + "/" + name;
  };
  const auto old_place = place(from, r.name), new_place = place(to, r.name2);
  if (!old_place || !new_place) return;
  handles_.renamed(*old_place, *new_place, (r.flags & kFlagExchange) != 0);
}

}  // namespace forebay::posix
