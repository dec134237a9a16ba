#include "mpiio/window_area.h"

#include <algorithm>
#include <new>

namespace forebay::mpiio {
namespace {

constexpr uint64_t kPage = 4096;

uint64_t pages(uint64_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

uint64_t runs_bytes(const WindowArea::Shape& shape) {
  return pages(shape.runs * sizeof(Extent));
}

}  // namespace

Result<WindowArea> WindowArea::make(const Shape& shape) {
  auto memory = SharedMemory::make(pages(sizeof(Head)) + kPlans * runs_bytes(shape) +
                                   2 * pages(shape.buffer));
  if (!memory) return memory.error();
  WindowArea area;
  area.memory_ = std::move(*memory);
  Head* const head =
      new (area.memory_.data()) Head{.shape = shape, .planned = {}, .halves = {}, .plans = {}};
  head->halves[1].state.value.store(word(1, kOpen));
  return area;
}

Result<WindowArea> WindowArea::attach(const SharedMemory::Place& place) {
  auto memory = SharedMemory::attach(place);
  if (!memory) return memory.error();
  WindowArea area;
  area.memory_ = std::move(*memory);
  return area;
}

Extent* WindowArea::runs(uint32_t window) const {
  return reinterpret_cast<Extent*>(memory_.data() + pages(sizeof(Head)) +
                                   window % kPlans * runs_bytes(shape()));
}

std::byte* WindowArea::buffer(uint32_t window) const {
  return memory_.data() + pages(sizeof(Head)) + kPlans * runs_bytes(shape()) +
         window % 2 * pages(shape().buffer);
}

void WindowArea::plan(std::span<const Extent> list, WindowAbout about) {
  FOREBAY_ASSERT(list.size() <= shape().runs && about.bytes <= shape().buffer);
  const uint32_t window = planned();
  std::copy(list.begin(), list.end(), runs(window));
  about.runs = static_cast<uint32_t>(list.size());
  this->about(window) = about;
  head().planned.add_and_wake();
}

bool WindowArea::take(uint32_t window) {
  uint32_t open = word(window, kOpen);
  return half(window).state.value.compare_exchange_strong(open, word(window, kTaken));
}

void WindowArea::filled(uint32_t window, uint64_t bytes_there) {
  half(window).there.store(bytes_there, std::memory_order_relaxed);
  half(window).state.set_and_wake(word(window, kFilled));
}

WindowArea::Seen WindowArea::see(uint32_t window) const {
  const WindowAbout& what = about(window);
  return {what,
          half(window).there.load(std::memory_order_relaxed),
          {runs(window), what.runs},
          buffer(window)};
}

void WindowArea::release(uint32_t window) {
  half(window).left.value.store(0);
  half(window).state.set_and_wake(word(window + 2, kOpen));
}

}  // namespace forebay::mpiio
