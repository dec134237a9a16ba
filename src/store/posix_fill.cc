#include "store/posix_fill.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "store/posix_io.h"
#include "store/posix_sys.h"

namespace forebay::posix {
namespace {

class Filling {
 public:
  Filling(int fd, int reader, Extent where, const std::stop_token& stop)
      : fd_(fd),
        reader_(reader),
        begin_(where.offset.value),
        end_(where.end().value),
        stop_(stop) {}

  Result<void> run() {
    Result<uint64_t> size = file_size();
    if (!size) return size.error();
    if (auto ok = fill_holes(std::min(*size, end_)); !ok) return ok;
    return grow(*size);
  }

 private:
  Result<uint64_t> file_size() const {
    struct stat st;
    if (::fstat(fd_, &st)) return failed("fstat");
    return static_cast<uint64_t>(st.st_size);
  }

  // The next place from `at` on that is such; or `end`, also where nobody knows.
  uint64_t next(int what, uint64_t at, uint64_t end) const {
    const off_t found = ::lseek(fd_, static_cast<off_t>(at), what);
    return found < 0 ? end : std::min(static_cast<uint64_t>(found), end);
  }

  // File systems have shown data as a hole that was not on its way to the device yet (ext4 without
  // extents, ZFS): so that is sent there first, and what others write from then on is looked at; or
  // sent there too, before each step, if nothing can be read.
  Result<void> fill_holes(uint64_t end) {
    if (next(SEEK_HOLE, begin_, end) >= end) return {};
    for (uint64_t at = begin_; at < end;) {
      if ((at == begin_ || reader_ < 0) && ::fdatasync(fd_)) return failed("fdatasync");
      const uint64_t hole = next(SEEK_HOLE, at, end);
      if (hole == end) return {};
      at = std::min(next(SEEK_DATA, hole, end), hole + kMostBytes);
      if (reader_ >= 0 && has_data(hole, at - hole)) continue;
      if (auto moved = write(hole, at - hole); !moved) return moved.error();
    }
    return {};
  }

  bool has_data(uint64_t at, uint64_t length) {
    read_.resize(length);
    const ssize_t there = ::pread(reader_, read_.data(), length, static_cast<off_t>(at));
    if (there < 0) return true;  // nobody knows
    const auto end = read_.begin() + there;
    return std::find_if(read_.begin(), end, [](std::byte b) { return b != std::byte(); }) != end;
  }

  Result<void> grow(uint64_t size) {
    if (size >= end_) return {};
    struct statvfs fs;
    const bool told = ::fstatvfs(fd_, &fs) == 0 && fs.f_blocks > 0 && fs.f_frsize > 0;
    if (told && (end_ - std::max(size, begin_)) / fs.f_frsize > fs.f_bfree)
      return Error(ENOSPC, "the file system has not so much room");
    while (size < end_) {
      const uint64_t from = std::max(size, begin_);
      const uint64_t length = std::min(kMostBytes, end_ - from);
      auto moved = from == size ? append(from, length) : write(from, length);
      if (!moved) return moved.error();
      Result<uint64_t> now = file_size();  // others may have made it longer
      if (!now) return now.error();
      size = std::max(*now, from + *moved);
    }
    return {};
  }

  Result<uint64_t> append(uint64_t end, uint64_t length) {
    if (!appends_) return write(end, length);
    auto moved = zeros(end, length, RWF_APPEND);
    if (moved || !reserves_nothing(moved.error().code())) return moved;
    appends_ = false;
    return write(end, length);
  }

  Result<uint64_t> write(uint64_t at, uint64_t length) {
    for (uint64_t done = 0; done < length;) {
      auto moved = zeros(at + done, length - done, 0);
      if (!moved) return moved;
      done += *moved;
    }
    return length;
  }

  Result<uint64_t> zeros(uint64_t at, uint64_t length, int flags) {
    if (stop_.stop_requested()) return Error(ECANCELED);
    if (zeros_.empty()) zeros_.resize(std::min(kMostBytes, end_ - begin_));
    const iovec memory{zeros_.data(), length};
    ssize_t moved;
    do {
      moved = ::pwritev2(fd_, &memory, 1, static_cast<off_t>(at), flags);
    } while (moved < 0 && errno == EINTR);
    if (moved < 0) return failed("pwrite of zeros");
    if (moved == 0) return Error(ENOSPC, "nothing is written");
    return static_cast<uint64_t>(moved);
  }

  const int fd_, reader_;
  const uint64_t begin_, end_;
  const std::stop_token& stop_;
  bool appends_ = true;
  std::vector<std::byte> zeros_, read_;
};

}  // namespace

bool reserves_nothing(int code) {
  return code == EOPNOTSUPP || code == ENOSYS;
}

Result<void> fill(int fd, int reader, Extent where, const std::stop_token& stop) {
  return Filling(fd, reader, where, stop).run();
}

}  // namespace forebay::posix
