#include "transfer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

namespace forebay {
namespace {

// Enough to keep a server and its disk busy while we touch the local file: a server moves chunks of
// about 1 MiB and has some four under way for each request.
constexpr uint64_t kPiece = 4_MiB;
constexpr size_t kUnderWay = 4;
constexpr auto kLook = std::chrono::milliseconds(100);  // how often we look up while waiting

// A ring of requests under way, oldest first, each with a buffer of its own.
class Ring {
 public:
  Ring(Store& store, const CallerRef& caller, const OpenFile& file, const Watch& watch)
      : store_(store), caller_(caller), file_(file), watch_(watch) {}
  ~Ring() {  // the Store owns the buffers until the last request has completed
    stop_.request_stop();
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return pending_ == 0; });
  }
  Ring(const Ring&) = delete;

  bool full() const { return used_ == kUnderWay; }
  bool empty() const { return used_ == 0; }

  // The buffer of the next submit(). Not when full().
  std::span<std::byte> buffer() {
    Slot& slot = slots_[(first_ + used_) % kUnderWay];
    if (!slot.memory) slot.memory = std::make_unique_for_overwrite<std::byte[]>(kPiece);
    return {slot.memory.get(), kPiece};
  }

  void submit(Op op, Offset offset, Length length) {
    const std::span<std::byte> bytes = buffer().first(length.value);
    Slot& slot = slots_[(first_ + used_++) % kUnderWay];
    slot.length = length;
    {
      std::lock_guard lock(mutex_);
      slot.result.reset();
      ++pending_;
    }
    store_.submit({.op = op,
                   .caller = caller_,
                   .handle = file_.handle,
                   .right = file_.right,
                   .file = Extents(Extent{offset, length}),
                   .memory = Memory::of(bytes),
                   .stop = stop_.get_token()},
                  [this, &slot](Result<Reply>&& result) {
                    std::lock_guard lock(mutex_);
                    slot.result.emplace(std::move(result));
                    --pending_;
                    arrived_.notify_one();
                  });
  }

  // Waits for the oldest; returns what it moved, which must be all that was asked for. The bytes
  // stay valid until the next submit().
  Result<std::span<std::byte>> oldest() {
    Slot& slot = slots_[first_];
    std::unique_lock lock(mutex_);
    while (!arrived_.wait_for(lock, kLook, [&] { return slot.result.has_value(); })) {
      lock.unlock();
      watch_.moved(0);
      if (watch_.give_up()) return Error(EINTR);
      lock.lock();
    }
    first_ = (first_ + 1) % kUnderWay;
    --used_;
    if (!*slot.result) return slot.result->error();
    const uint64_t count = (*slot.result)->count;
    if (count != slot.length.value)
      return Error(EIO, fmt::format("the file changed meanwhile: {} bytes instead of {}", count,
                                    slot.length.value));
    return std::span(slot.memory.get(), count);
  }

 private:
  struct Slot {
    std::unique_ptr<std::byte[]> memory;
    Length length;
    std::optional<Result<Reply>> result;
  };

  Store& store_;
  const CallerRef& caller_;
  const OpenFile& file_;
  const Watch& watch_;
  std::array<Slot, kUnderWay> slots_;
  size_t first_ = 0, used_ = 0;
  std::stop_source stop_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  size_t pending_ = 0;
};

// Fills the buffer as far as the descriptor goes: a pipe gives less than asked before its end.
Result<size_t> read_fully(int fd, std::span<std::byte> into, const Watch& watch) {
  size_t got = 0;
  while (got < into.size()) {
    if (watch.give_up()) return Error(EINTR);
    const ssize_t n = ::read(fd, into.data() + got, into.size() - got);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error(errno, "reading the local file");
    if (n == 0) break;
    got += static_cast<size_t>(n);
  }
  return got;
}

Result<void> write_fully(int fd, std::span<const std::byte> from, const Watch& watch) {
  while (!from.empty()) {
    if (watch.give_up()) return Error(EINTR);
    const ssize_t n = ::write(fd, from.data(), from.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error(errno, "writing the local file");
    from = from.subspan(static_cast<size_t>(n));
  }
  return {};
}

}  // namespace

Result<uint64_t> write_file(Store& store, const CallerRef& caller, const OpenFile& file, int from,
                            const Watch& watch) {
  Ring ring(store, caller, file, watch);
  uint64_t position = 0;
  for (bool more = true; more || !ring.empty();) {
    if (more && !ring.full()) {
      auto got = read_fully(from, ring.buffer(), watch);
      if (!got) return got.error();
      more = *got == kPiece;
      if (*got > 0) ring.submit(Op::write, Offset(position), Length(*got));
      position += *got;
      continue;
    }
    auto landed = ring.oldest();
    if (!landed) return landed.error();
    watch.moved(landed->size());
  }
  return position;
}

Result<void> read_file(Store& store, const CallerRef& caller, const OpenFile& file, uint64_t size,
                       int to, const Watch& watch) {
  Ring ring(store, caller, file, watch);
  uint64_t asked = 0;
  while (asked < size || !ring.empty()) {
    if (asked < size && !ring.full()) {
      const Length length(std::min(kPiece, size - asked));
      ring.submit(Op::read, Offset(asked), length);
      asked += length.value;
      continue;
    }
    auto bytes = ring.oldest();
    if (!bytes) return bytes.error();
    if (auto written = write_fully(to, *bytes, watch); !written) return written;
    watch.moved(bytes->size());
  }
  return {};
}

}  // namespace forebay
