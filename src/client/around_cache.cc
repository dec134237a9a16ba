#include "client/around_cache.h"

#include <sys/uio.h>
#include <sys/utsname.h>

#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>

#include "store/posix_direct.h"

namespace forebay {

namespace {

constexpr size_t kMostOfMemory = 256;  // of memory

class ByTwo {
 public:
  ByTwo(Length total, Length step, const MoveStep& move)
      : total_(total.value), step_(step.value), move_(move), upto_(total.value) {}

  void help() {
    {
      std::lock_guard lock(mutex_);
      if (over_) return;  // the request is gone
      helping_ = true;
    }
    work();
    std::lock_guard lock(mutex_);
    helping_ = false;
    changed_.notify_one();
  }
  Result<uint64_t> run() {
    work();
    std::unique_lock lock(mutex_);
    over_ = true;
    changed_.wait(lock, [this] { return !helping_; });
    if (error_) return std::move(*error_).with_done(upto_);
    return upto_;
  }

 private:
  void work() {
    for (std::unique_lock lock(mutex_); next_ < upto_;) {
      const uint64_t from = next_, length = std::min(step_, total_ - from);
      next_ += length;
      lock.unlock();
      Result<uint64_t> moved = move_(Length(from), Length(length));
      lock.lock();
      const uint64_t end = from + (moved ? *moved : moved.error().done());
      if ((moved && *moved == length) || end >= upto_) continue;
      upto_ = end;  // the lowest counts
      error_.reset();
      if (!moved) error_ = std::move(moved).error();
    }
  }

  const uint64_t total_, step_;
  const MoveStep& move_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t next_ = 0, upto_;
  std::optional<Error> error_;
  bool helping_ = false, over_ = false;
};

}  // namespace

Result<uint64_t> move_by_two(Length total, Length step, const MoveStep& move, posix::Pool& pool) {
  const auto both = std::make_shared<ByTwo>(total, step, move);
  Task help = [both] { both->help(); };
  (void)pool.submit(help, both.get());
  return both->run();
}

bool is_blocks(const Request& r, uint64_t block) {
  if (r.file.empty() || !r.file.contiguous() || r.memory.shape.pieces() > kMostOfMemory)
    return false;
  const Extent at = r.file.bounds();
  if (at.offset.value % block != 0 || at.length.value % block != 0) return false;
  for (ExtentCursor memory(r.memory.shape); !memory.done();) {
    const Extent piece = memory.take(r.memory.shape.total());
    if (reinterpret_cast<uintptr_t>(r.memory.at(piece.offset)) % posix::kMemoryUnit != 0 ||
        piece.length.value % block != 0) {
      return false;
    }
  }
  return true;
}

bool may_read_around_cache() {
  static const bool may = [] {
    utsname is;
    unsigned major = 0, minor = 0;
    return ::uname(&is) == 0 && std::sscanf(is.release, "%u.%u", &major, &minor) == 2 &&
           std::pair(major, minor) >= std::pair(6u, 5u);
  }();
  return may;
}

Result<uint64_t> move_blocks(int fd, const Request& r, Length from, Length length, uint64_t block) {
  std::vector<iovec> pieces;
  const bool aligned =
      posix::aligned_pieces(r.memory.slice(from, length), block, kMostOfMemory, pieces);
  FOREBAY_ASSERT(aligned);
  const auto begin = static_cast<off_t>(r.file.bounds().offset.value + from.value);
  const bool write = r.op == Op::write;
  uint64_t done = 0;
  for (std::span<iovec> left(pieces); done < length.value;) {
    const auto count = static_cast<int>(left.size());
    const off_t at = begin + static_cast<off_t>(done);
    const ssize_t n =
        write ? ::pwritev(fd, left.data(), count, at) : ::preadv(fd, left.data(), count, at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error(errno).with_done(done);
    const auto moved = static_cast<uint64_t>(n);
    done += moved;
    if (done == length.value) break;
    if (moved == 0 && write) return Error(ENOSPC).with_done(done);
    if (moved % block != 0 || moved == 0) {
      if (write) return Error(ENOTCONN);
      break;  // the end of the file
    }
    for (uint64_t gone = moved; gone > 0;) {
      iovec& first = left.front();
      const uint64_t part = std::min<uint64_t>(gone, first.iov_len);
      first = {static_cast<std::byte*>(first.iov_base) + part, first.iov_len - part};
      if (first.iov_len == 0) left = left.subspan(1);
      gone -= part;
    }
  }
  return done;
}

}  // namespace forebay
