// Open files and their bytes.
#include <sys/uio.h>

#include <cstring>
#include <numeric>

#include "preload/serve.h"
#include "store/open_path.h"
#include "store/reserve.h"

namespace forebay::preload {
namespace {

constexpr uint64_t kMostAtOnce = 0x7ffff000;  // as the kernel's

Result<int64_t> keep(const Target& target, Opened&& opened, CallerRef caller, int flags,
                     bool directory) {
  const Handle handle = opened.handle;
  const Right right = opened.right;
  auto fd = OpenFiles::get().add({std::move(opened.handle), std::move(opened.right), caller,
                                  target.inside, target.shown, flags, directory});
  if (!fd && !right.empty())
    (void)Connection::get().call(
        {.op = Op::close, .caller = caller, .handle = handle, .right = right});
  if (!fd) return std::move(fd).error();
  return *fd;
}

// A directory, or with O_PATH anything: nothing is asked of the server but where it is.
Result<int64_t> open_place(const Target& target, Subject&& found, int flags) {
  const bool directory = found.attr.type == FileType::directory;
  if (!directory && (flags & O_DIRECTORY)) return Error(ENOTDIR);
  if (directory && !(flags & O_PATH)) {
    if ((flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC)) return Error(EISDIR);
    // Whoever may not read it hears so now.
    auto may = Connection::get().call(
        {.op = Op::readdir, .caller = found.caller, .handle = found.handle, .length = Length(1)});
    if (!may) return std::move(may).error();
  }
  return keep(target, {std::move(found.handle), {}, found.attr}, found.caller, flags, directory);
}

Result<int64_t> open_any(const Target& target, int flags, mode_t mode) {
  if ((flags & O_TMPFILE) == O_TMPFILE) return Error(EOPNOTSUPP);
  if ((flags & O_CREAT) && (flags & O_DIRECTORY)) return Error(EINVAL);
  if ((flags & O_ACCMODE) == O_ACCMODE) return Error(EINVAL);
  if (flags & (O_PATH | O_DIRECTORY)) {
    auto found = find(target);
    if (!found) return std::move(found).error();
    if (found->attr.type == FileType::symlink && !(flags & O_PATH))
      return Error(flags & O_DIRECTORY ? ENOTDIR : ELOOP);
    return open_place(target, std::move(*found), flags);
  }
  const Connection::Use store;
  if (!store) return store.error();
  const CallerRef caller = Connection::get().caller();
  // Of a file that is opened for reading, O_TRUNC wants the right to write all the same.
  const bool cut = (flags & O_TRUNC) && !(flags & O_CREAT) && (flags & O_ACCMODE) == O_RDONLY;
  const OpenHow how = {cut ? flags & ~O_TRUNC : flags, flags & O_CREAT ? masked(mode) : 0, 0};
  LinkedStore linked(*store);
  auto opened = open_path(linked, caller, target.inside, how);
  if (!opened) {
    if (opened.error().code() != EISDIR || (flags & O_CREAT)) return std::move(opened).error();
    auto found = find(target);
    if (!found) return std::move(found).error();
    return open_place(target, std::move(*found), flags);
  }
  if (cut) {
    auto reply =
        Connection::get().call({.op = Op::resize, .caller = caller, .handle = opened->handle});
    if (!reply) {
      (void)store->call(
          {.op = Op::close, .caller = caller, .handle = opened->handle, .right = opened->right});
      return std::move(reply).error();
    }
  }
  return keep(target, std::move(*opened), caller, flags, false);
}

Result<void> commit(const OpenFile& file, bool data_only) {
  auto reply = Connection::get().call(file.request(Op::commit, data_only ? kFlagDataOnly : 0u));
  if (!reply) return std::move(reply).error();
  return {};
}

// At `offset`, which it moves: reads.
Result<int64_t> read_into(OpenFile& file, Memory&& memory, uint64_t size, uint64_t& offset) {
  if (size == 0) return 0;
  if (offset >= kMaxOffset) return 0;
  size = std::min(size, kMaxOffset - offset);
  Request request = file.request(Op::read);
  request.file = Extents({Offset(offset), Length(size)});
  request.memory = memory.shape.total().value == size ? std::move(memory)
                                                      : memory.slice(Length(0), Length(size));
  auto reply = Connection::get().call(std::move(request));
  if (!reply) return std::move(reply).error();
  offset += reply->count;
  Connection::get().counts().read.fetch_add(reply->count, std::memory_order_relaxed);
  return static_cast<int64_t>(reply->count);
}

struct Writing {
  uint64_t size;
  bool append, safe;
};

// What is there is there: the program writes the rest again and hears why it cannot.
Result<int64_t> write_from(OpenFile& file, Memory&& memory, Writing how, uint64_t& offset) {
  if (how.size == 0) return 0;
  if (!how.append && offset > kMaxOffset - how.size) {
    if (offset >= kMaxOffset) return Error(EFBIG);
    how.size = kMaxOffset - offset;
    memory = memory.slice(Length(0), Length(how.size));
  }
  const auto call = [&](Memory&& part) {
    Request request = file.request(Op::write, kFlagStable | (how.append ? kFlagAppend : 0u));
    request.file = Extents({Offset(how.append ? 0 : offset), Length(how.size)});
    request.memory = std::move(part);
    return Connection::get().call(std::move(request));
  };
  auto reply = how.append ? call(Memory(memory)) : call(std::move(memory));
  // More than a server passes on to another whole: as much as it does, and the count says so.
  while (how.append && !reply && reply.error().code() == EMSGSIZE && how.size > 1) {
    how.size /= 2;
    reply = call(memory.slice(Length(0), Length(how.size)));
  }
  const uint64_t count = reply ? reply->count : reply.error().done();
  if (!reply && count == 0) return std::move(reply).error();
  if (how.append && reply) offset = reply->value;
  offset += count;
  Connection::get().counts().written.fetch_add(count, std::memory_order_relaxed);
  if (how.safe)
    if (auto safe = commit(file, true); !safe) return std::move(safe).error();
  return static_cast<int64_t>(count);
}

Result<int64_t> move_checked(OpenFile& file, const Transfer& t, uint64_t& offset) {
  if (file.flags() & O_PATH) return Error(EBADF);
  if (t.write ? !file.writes() : !file.reads()) return Error(EBADF);
  if (file.shared->directory) return Error(EISDIR);
  if (t.count < 0 || t.count > 1024) return Error(EINVAL);
  uint64_t size = 0;
  for (int i = 0; i < t.count; ++i) {
    if (t.pieces[i].iov_len > INT64_MAX - size) return Error(EINVAL);
    size += t.pieces[i].iov_len;
  }
  Memory memory;
  if (t.count == 1) {
    memory = Memory::of(std::span(static_cast<std::byte*>(t.pieces[0].iov_base), size));
  } else {
    auto many = Memory::of(std::span(t.pieces, static_cast<size_t>(t.count)));
    if (!many) return std::move(many).error();
    memory = std::move(*many);
  }
  if (size > kMostAtOnce) memory = memory.slice(Length(0), Length(size = kMostAtOnce));
  if (!t.write) return read_into(file, std::move(memory), size, offset);
  const bool append = t.append || (file.flags() & O_APPEND);
  const bool safe = t.sync || (file.flags() & O_DSYNC);
  return write_from(file, std::move(memory), {size, append, safe}, offset);
}

}  // namespace

int open_file(const Target& target, int flags, mode_t mode) {
  return static_cast<int>(run([&] { return open_any(target, flags, mode); }));
}

ssize_t move_bytes(const Transfer& t) {
  return run([&]() -> Result<int64_t> {
    const FileUse file(t.fd);
    if (!file) return Error(EBADF);
    if (t.placed) {
      uint64_t offset = static_cast<uint64_t>(t.at);
      return move_checked(*file, t, offset);
    }
    const OffsetLock alone(*file->shared);
    uint64_t offset = file->shared->offset.load();
    auto moved = move_checked(*file, t, offset);
    file->shared->offset.store(offset);
    return moved;
  });
}

Result<uint64_t> read_at(OpenFile& file, std::span<std::byte> to, uint64_t offset) {
  auto got = read_into(file, Memory::of(to), to.size(), offset);
  if (!got) return std::move(got).error();
  return static_cast<uint64_t>(*got);
}

namespace {

Result<int64_t> seek_from(OpenFile& file, off64_t by, int whence) {
  if (file.flags() & O_PATH) return Error(EBADF);
  const OffsetLock alone(*file.shared);
  int64_t start = 0;
  if (whence == SEEK_CUR) start = static_cast<int64_t>(file.shared->offset.load());
  if (whence == SEEK_END || whence == SEEK_DATA || whence == SEEK_HOLE) {
    auto now = Connection::get().call(file.request(Op::getattr));
    if (!now) return std::move(now).error();
    start = static_cast<int64_t>(now->attr.size);
  }
  int64_t to = 0;
  if (whence == SEEK_DATA || whence == SEEK_HOLE) {  // no holes are known but the one at the end
    if (by < 0 || by >= start) return Error(ENXIO);
    to = whence == SEEK_DATA ? by : start;
  } else if (whence != SEEK_SET && whence != SEEK_CUR && whence != SEEK_END) {
    return Error(EINVAL);
  } else if (__builtin_add_overflow(start, by, &to)) {
    return Error(EOVERFLOW);
  }
  if (to < 0) return Error(EINVAL);
  file.shared->offset.store(static_cast<uint64_t>(to));
  return to;
}

}  // namespace

off64_t seek(int fd, off64_t by, int whence) {
  return run([&]() -> Result<int64_t> {
    const FileUse file(fd);
    if (!file) return Error(EBADF);
    return seek_from(*file, by, whence);
  });
}

int truncate(const Target& target, off64_t size) {
  return static_cast<int>(run([&]() -> Result<int64_t> {
    if (size < 0) return Error(EINVAL);
    if (target.fd < 0) {
      auto found = find(target);
      if (!found) return std::move(found).error();
      if (found->attr.type == FileType::directory) return Error(EISDIR);
      return done(Connection::get().call({.op = Op::resize,
                                          .caller = found->caller,
                                          .handle = std::move(found->handle),
                                          .length = Length(static_cast<uint64_t>(size))}));
    }
    const FileUse file(target.fd);
    if (!file || (file->flags() & O_PATH)) return Error(EBADF);
    if (!file->writes()) return Error(EINVAL);
    Request request = file->request(Op::resize);
    request.length = Length(static_cast<uint64_t>(size));
    return done(Connection::get().call(std::move(request)));
  }));
}

int sync(int fd, bool data_only) {
  return static_cast<int>(run([&]() -> Result<int64_t> {
    const FileUse file(fd);
    if (!file || (file->flags() & O_PATH)) return Error(EBADF);
    if (auto safe = commit(*file, data_only); !safe) return std::move(safe).error();
    return 0;
  }));
}

int allocate(int fd, const Range& range) {
  return static_cast<int>(run([&]() -> Result<int64_t> {
    constexpr int kKnown = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE;
    const FileUse file(fd);
    if (!file || (file->flags() & O_PATH)) return Error(EBADF);
    if (range.at < 0 || range.length <= 0) return Error(EINVAL);
    const bool lonely_hole =
        (range.mode & FALLOC_FL_PUNCH_HOLE) && !(range.mode & FALLOC_FL_KEEP_SIZE);
    if ((range.mode & ~kKnown) || lonely_hole) return Error(EOPNOTSUPP);
    if (!file->writes()) return Error(EBADF);
    Request request =
        file->request(Op::fallocate, (range.mode & FALLOC_FL_KEEP_SIZE ? kFlagKeepSize : 0u) |
                                         (range.mode & FALLOC_FL_PUNCH_HOLE ? kFlagPunchHole : 0u) |
                                         (range.mode & FALLOC_FL_ZERO_RANGE ? kFlagZeroRange : 0u));
    request.offset = Offset(static_cast<uint64_t>(range.at));
    request.length = Length(static_cast<uint64_t>(range.length));
    const auto call = [](Request&& one) { return Connection::get().call(std::move(one)); };
    if (!range.fill) return done(call(std::move(request)));
    if (auto reserved = reserve(call, request); !reserved) return std::move(reserved).error();
    return 0;
  }));
}

int get_flags(int fd) {
  return static_cast<int>(run([&]() -> Result<int64_t> {
    const FileUse file(fd);
    if (!file) return Error(EBADF);
    return file->flags();
  }));
}

int set_flags(int fd, int flags) {
  return static_cast<int>(run([&]() -> Result<int64_t> {
    constexpr int kMay = O_APPEND | O_NONBLOCK | O_NOATIME;
    const FileUse file(fd);
    if (!file) return Error(EBADF);
    const int now = (file->flags() & ~kMay) | (flags & kMay);
    file->shared->flags.store(static_cast<uint32_t>(now));
    return 0;
  }));
}

int shown(int fd, char* path, size_t room) {
  return static_cast<int>(run([&]() -> Result<int64_t> {
    const FileUse file(fd);
    if (!file) return Error(EBADF);
    const size_t size = file->shared->shown_size;
    if (size + 1 > room) return Error(ERANGE);
    std::memcpy(path, file->shared->shown, size);
    path[size] = '\0';
    return 0;
  }));
}

}  // namespace forebay::preload
