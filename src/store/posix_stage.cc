#include "store/posix_stage.h"

#include <chrono>
#include <cstdlib>
#include <memory>
#include <new>

namespace forebay::posix {
namespace {

constexpr uint64_t kSmallestPage = 4096;
constexpr uint64_t kBehind = 32;  // bytes behind the source, from which on all is well
constexpr uint64_t kAhead = 64;   // where in its page our buffer begins
constexpr uint64_t kWorthIt = 64_KiB;

struct Freed {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Pages = std::unique_ptr<std::byte[], Freed>;

Pages pages(uint64_t bytes) {
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kSmallestPage, bytes));
  if (!memory) throw std::bad_alloc();
  return Pages(memory);
}

#ifdef __x86_64__
// The kernel's way to copy.
void copy_as_kernel(void* to, const void* from, size_t n) {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}

// The best of a few, in nanoseconds.
int64_t copy_time(std::byte* to, const std::byte* from, size_t n) {
  using Clock = std::chrono::steady_clock;
  int64_t best = INT64_MAX;
  for (int i = 0; i < 4; ++i) {
    const auto begin = Clock::now();
    copy_as_kernel(to, from, n);
    best = std::min<int64_t>(best, (Clock::now() - begin) / std::chrono::nanoseconds(1));
  }
  return best;
}

bool measure() {
  constexpr size_t kCopied = 16_KiB;
  const Pages from = pages(kCopied), to = pages(kCopied + kSmallestPage);
  copy_as_kernel(from.get(), to.get(), kCopied);  // touches both
  copy_as_kernel(to.get() + kAhead, from.get(), kCopied);
  return copy_time(to.get() + kBehind / 2, from.get(), kCopied) >
         2 * copy_time(to.get() + kAhead, from.get(), kCopied);
}
#else
bool measure() {
  return false;
}
#endif

bool this_processor_is_slow() {
  static const bool slow = measure();  // of the machine; it stays as it is
  return slow;
}

}  // namespace

std::byte* ReadStage::pages_of_thread() {
  thread_local const Pages memory = pages(kBytes + kSmallestPage);
  return memory.get();
}

std::byte* ReadStage::of_thread() {
  return pages_of_thread() + kAhead;
}

bool copied_slowly(const Extents& file, const Memory& memory) {
  if (file.total().value < kWorthIt || memory.shape.empty()) return false;
  const auto to = reinterpret_cast<uintptr_t>(memory.at(memory.shape.blocks().front().offset));
  const uint64_t behind = (to - file.blocks().front().offset.value) % kSmallestPage;
  return behind > 0 && behind < kBehind && this_processor_is_slow();
}

}  // namespace forebay::posix
