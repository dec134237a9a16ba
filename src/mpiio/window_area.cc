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
  auto memory =
      SharedMemory::make(pages(sizeof(Head)) + 2 * (runs_bytes(shape) + pages(shape.buffer)));
  if (!memory) return memory.error();
  WindowArea area;
  area.memory_ = std::move(*memory);
  new (area.memory_.data()) Head{.shape = shape, .opened = {}, .halves = {}};
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
                                   window % 2 * runs_bytes(shape()));
}

std::byte* WindowArea::buffer(uint32_t window) const {
  return memory_.data() + pages(sizeof(Head)) + 2 * runs_bytes(shape()) +
         window % 2 * pages(shape().buffer);
}

void WindowArea::open(std::span<const Extent> list, WindowAbout about, uint32_t ranks) {
  FOREBAY_ASSERT(list.size() <= shape().runs && about.bytes <= shape().buffer);
  const uint32_t window = opened();
  std::copy(list.begin(), list.end(), runs(window));
  about.runs = static_cast<uint32_t>(list.size());
  half(window).about = about;
  half(window).ranks = ranks;
  half(window).left.value.store(0);
  head().opened.add_and_wake();
}

WindowArea::Seen WindowArea::seen(uint32_t window) const {
  const WindowAbout& about = half(window).about;
  return {about, {runs(window), about.runs}, buffer(window)};
}

}  // namespace forebay::mpiio
