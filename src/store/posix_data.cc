// Rights and bytes: open, close, create, read, write, and what else a right is used for.
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "store/posix_fill.h"
#include "store/posix_io.h"
#include "store/posix_mapped.h"
#include "store/posix_ops.h"

namespace forebay::posix {

namespace {

int open_flags(Access access) {
  switch (access) {
    case Access::write:
      return O_WRONLY;
    case Access::both:
      return O_RDWR;
    default:
      return O_RDONLY;
  }
}

Result<void> must_be_file(FileType type) {
  if (type == FileType::file) return {};
  if (type == FileType::directory) return Error(EISDIR);
  if (type == FileType::symlink) return Error(ELOOP);
  return Error(EOPNOTSUPP, "only regular files are opened, not fifos, sockets or devices");
}

}  // namespace

// ---- Rights ----

// A mapping needs a descriptor for both, whatever the right is for.
Result<Fd> Operations::open_for(const At& at, Access access, int flags) {
  const auto open = [&](Access want) {
    return with_room([&] { return reopen(at.fd(), at.file->type, open_flags(want) | flags); });
  };
  if (mapped_ && access == Access::write) {
    Result<Fd> both = open(Access::both);
    if (both || both.error().code() != EACCES) return both;
  }
  return open(access);
}

Result<Right> Operations::grant(At& at, const Request& r, const Handle& handle, Fd opened) {
  const Grant grant{r.caller->uid, r.access};
  Right right = rights_.make(handle, grant);
  // Whoever takes the last name either sees the right, and keeps the file, or is seen here.
  std::lock_guard lock(losing(at.file->id));
  const Result<FileStat> stat = stat_of(opened.get());
  if (!stat) return stat.error();
  if (counts_links_ && stat->attr.links == 0 && !at.file->has_rights())
    return Error(ESTALE, "the file was removed while it was opened");
  while (!table_.add_right(*at.file, right.bytes, grant)) {
    Result<At> again = this->at(handle);
    if (!again) return std::move(again).error();
    at = std::move(*again);
  }
  if (r.flags & kFlagDirect) at.file->direct = some_direct_ = true;
  const Access needed = allows(r.access, Access::write) ? Access::write : Access::read;
  table_.keep(at.file, r.access, std::move(opened), needed);
  return right;
}

Result<Reply> Operations::open(At& at, Request& r) {
  if (auto ok = must_be_file(at.file->type); !ok) return ok.error();
  if (auto ok = identity_.become(*r.caller); !ok) return ok.error();
  Result<Fd> opened = open_for(at, r.access);
  if (!opened) return std::move(opened).error();
  Result<Right> right = grant(at, r, r.handle, std::move(*opened));
  if (!right) return std::move(right).error();
  Result<Attr> attr = attr_of(at);
  if (!attr) return std::move(attr).error();
  Reply reply;
  reply.right = std::move(*right);
  reply.attr = *attr;
  return reply;
}

Result<Reply> Operations::close(Request& r) {
  FilePtr file = table_.find(r.handle.bytes);
  if (!file) {
    // Not open by this name: forged, gone (which is fine), or known by another handle.
    Result<At> found = at(r.handle);
    if (!found && found.error().code() != ESTALE) return std::move(found).error();
    if (found) file = found->file;
  }
  const File::Use known = file ? file->use(r.right.bytes, Access::read) : File::Use{};
  Result<Grant> grant = known.known ? Result<Grant>(known.grant) : rights_.open(r.handle, r.right);
  if (!grant) return std::move(grant).error();
  if (grant->uid != r.caller->uid) return Error(EACCES, "the right was granted to another user");
  if (!known.known) return Reply{};
  std::lock_guard lock(losing(file->id));
  if (!table_.remove_right(*file, r.right.bytes)) {
    // A file that is removed by others takes its space until nobody has it in hand.
    if (forgets_closed_) table_.drop(file);
    return Reply{};
  }
  identity_.become_server();
  unlinked_.erase(file->id);
  table_.drop(file);
  return Reply{};
}

// The grant behind a right that is not open here: it is of a former life, or was closed. From now
// on it is open.
Result<Grant> Operations::know_right(At& at, const Request& r) {
  Result<Grant> grant = rights_.open(r.handle, r.right);
  if (!grant) return grant;
  if (grant->uid != r.caller->uid) return Error(EACCES, "the right was granted to another user");
  while (!table_.add_right(*at.file, r.right.bytes, *grant)) {
    Result<At> again = this->at(r.handle);
    if (!again) return std::move(again).error();
    at = std::move(*again);
  }
  return grant;
}

// The right stands for the access check of open, so the server opens with its own rights. Where
// those count for nothing (a network file system that squashes root), the caller's have to do.
Result<DescriptorPtr> Operations::open_again(At& at, const Request& r, Grant grant, Access access) {
  identity_.become_server();
  // All that the right allows at once, if that can be had.
  for (const Access want : {grant.access, access}) {
    Result<Fd> fd = open_for(at, want);
    if (!fd && fd.error().code() == EACCES && identity_.become(*r.caller)) fd = open_for(at, want);
    if (fd) return table_.keep(at.file, want, std::move(*fd), access);
    if (want == access) return std::move(fd).error();
  }
  return Error(EACCES);
}

Result<Operations::Io> Operations::use_right(At& at, const Request& r, Access access) {
  File::Use use = at.file->use(r.right.bytes, access);
  if (!use.known) {
    Result<Grant> grant = know_right(at, r);
    if (!grant) return std::move(grant).error();
    use.grant = *grant;
  }
  if (use.grant.uid != r.caller->uid) return Error(EACCES, "the right was granted to another user");
  if (!allows(use.grant.access, access)) return Error(EBADF, "the right does not allow this");
  if (!use.io) {
    Result<DescriptorPtr> opened = open_again(at, r, use.grant, access);
    if (!opened) return std::move(opened).error();
    use.io = std::move(*opened);
  }
  return Io{at.file, std::move(use.io)};
}

Result<void> Operations::admits(const Request& r) const {
  const Access access = r.op == Op::read ? Access::read : Access::write;
  const FilePtr file = table_.find(r.handle.bytes);
  const File::Use use = file ? file->use(r.right.bytes, access) : File::Use{};
  Result<Grant> grant = use.known ? Result<Grant>(use.grant) : rights_.open(r.handle, r.right);
  if (!grant) return std::move(grant).error();
  if (grant->uid != r.caller->uid) return Error(EACCES, "the right was granted to another user");
  if (!allows(grant->access, access)) return Error(EBADF, "the right does not allow this");
  return {};
}

Result<Store::LocalFile> Operations::local_file(const Request& r) {
  if (auto served = identity_.serves(*r.caller); !served) return served.error();
  if (!local_) return Error(EOPNOTSUPP, "not a local file system");
  Result<At> found = at(r.handle);
  if (!found) return std::move(found).error();
  Result<Io> io = use_right(*found, r, r.op == Op::read ? Access::read : Access::write);
  if (!io) return std::move(io).error();
  struct stat stat;
  if (::fstat(io->fd(), &stat) != 0) return failed("fstat");
  if (stat.st_nlink == 0) return Error(EOPNOTSUPP, "the file has no name");
  Store::LocalFile file{std::string(PATH_MAX, '\0'), stat.st_dev, stat.st_ino};
  const ssize_t n = ::readlink(ProcPath(io->fd()).c_str(), file.path.data(), file.path.size());
  if (n < 0) return failed("readlink");
  if (static_cast<size_t>(n) >= file.path.size()) return Error(EOPNOTSUPP, "its path is too long");
  file.path.resize(static_cast<size_t>(n));
  if (is_direct(*found->file)) file.direct = static_cast<uint32_t>(block());
  return file;
}

// ---- Create ----

// A new file is created and opened in one step, as the caller, so that its mode does not matter
// yet. One that exists is opened in two, so that nothing but a regular file ever is.
Result<Reply> Operations::create(At& at, Request& r) {
  if (auto ok = may_make(at, r.name); !ok) return ok.error();
  const bool both = mapped_ && r.access == Access::write;  // as open_for()
  const int flags = open_flags(both ? Access::both : r.access) | O_CREAT | O_EXCL;
  constexpr int kTries = 100;
  for (int tries = 1;; ++tries) {
    Result<Fd> made = with_room([&]() -> Result<Fd> {
      Fd fd;
      const auto make = [&] {
        const NameLocks locks = lock_names({at, r.name});
        Result<Fd> opened = open_beneath(at.fd(), r.name, flags, r.mode, mounts_);
        if (!opened) return errno = opened.error().code(), -1;
        fd = std::move(*opened);
        return 0;
      };
      if (auto ok = act(*r.caller, make, r.name); !ok) return ok.error();
      return fd;
    });
    const bool exists = !made && made.error().code() == EEXIST;
    if (!made && (!exists || (r.flags & kFlagExclusive))) return std::move(made).error();
    Result<Reply> reply = made ? created(std::move(*made), r) : open_existing(at, r);
    // Removed by somebody before it was ours: as if they had come first.
    const int code = reply ? 0 : reply.error().code();
    if ((code != ESTALE && code != ENOENT) || tries == kTries) return reply;
  }
}

Result<Reply> Operations::created(Fd opened, Request& r) {
  // Through the descriptor, not the name, which may mean another file by now.
  Result<Fd> path = with_room([&] { return reopen(opened.get(), FileType::file, O_PATH); });
  if (!path) return std::move(path).error();
  Result<Named> named = name(std::move(*path));
  if (!named) return std::move(named).error();
  return with_right(std::move(*named), r, std::move(opened));
}

Result<Reply> Operations::open_existing(const At& directory, Request& r) {
  Result<Fd> path = with_room([&] { return open_path(directory.fd(), r.name, mounts_); });
  if (!path) return std::move(path).error();
  Result<Named> named = name(std::move(*path));
  if (!named) return std::move(named).error();
  At& at = named->at;
  if (auto ok = must_be_file(at.file->type); !ok) return ok.error();
  if (auto ok = identity_.become(*r.caller); !ok) return ok.error();
  const bool truncate = (r.flags & kFlagTruncate) != 0;
  if (r.access == Access::none && !truncate) return std::move(named->reply);
  const Access access = r.access == Access::none ? Access::write : r.access;
  Result<Fd> opened = open_for(at, access, truncate ? O_TRUNC : 0);
  if (!opened) return std::move(opened).error();
  Result<Attr> attr = attr_of(at);
  if (!attr) return std::move(attr).error();
  named->reply.attr = *attr;
  return with_right(std::move(*named), r, std::move(*opened));
}

Result<Reply> Operations::with_right(Named named, Request& r, Fd opened) {
  if (r.access == Access::none) return std::move(named.reply);
  Result<Right> right = grant(named.at, r, named.reply.handle, std::move(opened));
  if (!right) return std::move(right).error();
  named.reply.right = std::move(*right);
  return std::move(named.reply);
}

// ---- Bytes ----

bool Operations::is_direct(const File& file) const {
  return (all_direct_ || file.direct.load(std::memory_order_relaxed)) &&
         !direct_refused_.load(std::memory_order_relaxed);
}

bool Operations::is_direct(const Handle& handle) const {
  if (all_direct_) return !direct_refused_.load(std::memory_order_relaxed);
  if (!some_direct_.load(std::memory_order_relaxed)) return false;
  const FilePtr file = table_.find(handle.bytes);
  return file && is_direct(*file);
}

DescriptorPtr Operations::known_io(const File& file, const Request& r) const {
  const Access access = r.op == Op::read ? Access::read : Access::write;
  if (!identity_.serves(*r.caller)) return nullptr;
  File::Use use = file.use(r.right.bytes, access);
  const bool good = use.known && use.grant.uid == r.caller->uid && allows(use.grant.access, access);
  return good ? std::move(use.io) : nullptr;
}

DescriptorPtr Operations::ready_direct(const Request& r) const {
  const FilePtr file = table_.find(r.handle.bytes);
  DescriptorPtr io = file ? known_io(*file, r) : nullptr;
  return io && io->direct() >= 0 ? std::move(io) : nullptr;
}

std::weak_ptr<const Fd> Operations::at_hand(const Request& r) const {
  const FilePtr file = in_application_ && local_ ? table_.find(r.handle.bytes) : nullptr;
  if (!file || is_direct(*file)) return {};
  const DescriptorPtr io = known_io(*file, r);
  return io ? std::shared_ptr<const Fd>(io, &io->fd()) : nullptr;
}

void Operations::refuse_direct(const Error& why) {
  if (direct_refused_.exchange(true)) return;
  log::warn("{}: its file system refuses direct I/O ({}): data goes through the page cache",
            directory_, why.message());
}

int Operations::direct_twin(At& at, const Request& r, const Io& io) {
  if (io.descriptor->direct() != Descriptor::kNotTried) return io.descriptor->direct();
  const int flags = (::fcntl(io.fd(), F_GETFL) & O_ACCMODE) | O_DIRECT;
  identity_.become_server();
  Result<Fd> twin = with_room([&] { return reopen(at.fd(), at.file->type, flags); });
  if (!twin && twin.error().code() == EACCES && identity_.become(*r.caller))
    twin = reopen(at.fd(), at.file->type, flags);
  if (!twin && twin.error().code() == EINVAL) refuse_direct(twin.error());
  // One that may not be opened a second time (by its mode, and we are not root) goes without.
  return io.descriptor->keep_direct(twin ? std::move(*twin) : Fd());
}

void Operations::become_writer(const Request& r) const {
  identity_.leave_root(*r.caller);
  identity_.reduce();
}

Result<uint64_t> Operations::move_bytes(int fd, Request& r) {
  if (mapped_ && worth_mapping(r.file, mapping_.most_piece)) {
    const auto move = r.op == Op::read ? read_mapped : write_mapped;
    return move(fd, r.file, r.memory, mapping_);
  }
  return r.op == Op::read ? read_list(fd, r.file, r.memory, io_calls_, limits_)
                          : write_list(fd, r.file, r.memory, io_calls_, limits_);
}

Result<uint64_t> Operations::move_bytes(At& at, Request& r, const Io& io) {
  const int twin = is_direct(*at.file) ? direct_twin(at, r, io) : Descriptor::kNone;
  if (r.op == Op::write) become_writer(r);
  if (twin < 0) return move_bytes(io.fd(), r);
  const auto move = r.op == Op::read ? read_direct : write_direct;
  Result<uint64_t> count = move({twin, io.fd()}, r.file, r.memory, direct_);
  if (count || count.error().code() != EINVAL) return count;
  Result<uint64_t> without = move_bytes(io.fd(), r);
  if (without) refuse_direct(count.error());
  return without;
}

Result<Reply> Operations::read_list_of(At& at, Request& r, bool nowait) {
  Result<Io> io = use_right(at, r, Access::read);
  if (!io) return std::move(io).error();
  Result<uint64_t> count =
      nowait ? read_list(io->fd(), r.file, r.memory, io_calls_, {nowait}) : move_bytes(at, r, *io);
  if (!count) return std::move(count).error();
  Reply reply;
  reply.count = *count;
  return reply;
}

Result<Reply> Operations::read(At& at, Request& r) {
  return read_list_of(at, r, false);
}

Result<Reply> Operations::read_without_waiting(Request& request) {
  if (auto served = identity_.serves(*request.caller); !served) return served.error();
  Result<At> found = at(request.handle);
  if (!found) return std::move(found).error();
  if (!never_waits()) {
    Result<Reply> reply = read_list_of(*found, request, true);
    if (reply || reply.error().code() != EOPNOTSUPP) return reply;
    no_nowait_ = true;
  }
  return read_list_of(*found, request, false);
}

Result<Reply> Operations::write(At& at, Request& r) {
  Result<Io> io = use_right(at, r, Access::write);
  if (!io) return std::move(io).error();
  Result<uint64_t> count = move_bytes(at, r, *io);
  if (!count) return std::move(count).error();
  Reply reply;
  reply.count = *count;
  return reply;
}

Result<Reply> Operations::resize(At& at, Request& r) {
  if (at.file->type == FileType::directory) return Error(EISDIR);
  if (at.file->type != FileType::file) return Error(EINVAL);
  const auto size = static_cast<off_t>(r.length.value);
  if (r.right.empty()) {
    const auto cut = [&] { return ::truncate(ProcPath(at.fd()).c_str(), size); };
    if (auto ok = act(*r.caller, cut, "truncate"); !ok) return ok.error();
  } else {
    Result<Io> io = use_right(at, r, Access::write);
    if (!io) return std::move(io).error();
    become_writer(r);
    if (::ftruncate(io->fd(), size)) return failed("ftruncate");
  }
  return getattr(at, r);
}

// What others write meanwhile is looked at, so a right to write only wants a descriptor to read by,
// for the server's own eyes; the caller's identity where the server's counts for nothing.
Result<void> Operations::fill_space(At& at, const Request& r, int fd) {
  Fd own;
  const bool reads = (::fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR;
  if (!reads) {
    identity_.become_server();
    Result<Fd> reader = with_room([&] { return reopen(at.fd(), at.file->type, O_RDONLY); });
    if (!reader && reader.error().code() == EACCES && identity_.become(*r.caller))
      reader = reopen(at.fd(), at.file->type, O_RDONLY);
    if (reader) own = std::move(*reader);
    become_writer(r);
  }
  return fill(fd, reads ? fd : own.get(), {r.offset, r.length}, r.stop);
}

Result<Reply> Operations::fallocate(At& at, Request& r) {
  Result<Io> io = use_right(at, r, Access::write);
  if (!io) return std::move(io).error();
  int mode = r.flags & kFlagKeepSize ? FALLOC_FL_KEEP_SIZE : 0;
  if (r.flags & kFlagPunchHole) mode |= FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  if (r.flags & kFlagZeroRange) mode |= FALLOC_FL_ZERO_RANGE;
  become_writer(r);
  while (::fallocate(io->fd(), mode, static_cast<off_t>(r.offset.value),
                     static_cast<off_t>(r.length.value))) {
    if (errno == EINTR) continue;
    if ((r.flags & kFlagFill) == 0 || !reserves_nothing(errno)) return failed("fallocate");
    if (auto filled = fill_space(at, r, io->fd()); !filled) return filled.error();
    break;
  }
  return Reply{};
}

// Any descriptor of the file will do, so a right is not needed; but if one is given it must be
// good.
Result<Reply> Operations::commit(At& at, Request& r) {
  Fd own;
  Io io;
  if (r.right.empty()) {
    identity_.become_server();
    Result<Fd> opened = with_room([&] { return reopen(at.fd(), at.file->type, O_RDONLY); });
    if (!opened && opened.error().code() == EACCES)
      opened = reopen(at.fd(), at.file->type, O_WRONLY);
    if (!opened) return std::move(opened).error();
    own = std::move(*opened);
  } else {
    const File::Use use = at.file->use(r.right.bytes, Access::write);
    Result<Grant> grant = use.known ? Result<Grant>(use.grant) : know_right(at, r);
    if (!grant) return std::move(grant).error();
    const Access any = allows(grant->access, Access::write) ? Access::write : Access::read;
    Result<Io> granted = use_right(at, r, any);
    if (!granted) return std::move(granted).error();
    io = std::move(*granted);
  }
  const int fd = own ? own.get() : io.fd();
  while (r.flags & kFlagDataOnly ? ::fdatasync(fd) : ::fsync(fd)) {
    if (errno != EINTR) return failed("sync");
  }
  return Reply{};
}

}  // namespace forebay::posix
