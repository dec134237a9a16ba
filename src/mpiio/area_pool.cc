#include "mpiio/area_pool.h"

#include <algorithm>
#include <utility>

namespace forebay::mpiio {

// The one that was used last, since its pages are the likeliest to be in a cache. None: no area.
template <class Wanted>
WindowArea AreaPool::take(Wanted&& wanted) {
  std::lock_guard lock(mutex_);
  const auto found = std::find_if(kept_.rbegin(), kept_.rend(), wanted);
  if (found == kept_.rend()) return {};
  WindowArea area = std::move(*found);
  kept_.erase(std::next(found).base());
  return area;
}

Result<WindowArea> AreaPool::make(const WindowArea::Shape& shape) {
  WindowArea kept =
      take([&](const WindowArea& area) { return area.own() && area.shape() == shape; });
  if (kept) return kept;
  return WindowArea::make(shape);
}

Result<WindowArea> AreaPool::attach(const SharedMemory::Place& place) {
  WindowArea kept = take([&](const WindowArea& area) { return area.place().mark == place.mark; });
  if (kept) return kept;
  return WindowArea::attach(place);
}

void AreaPool::give_back(WindowArea area) {
  if (!area || area.place().bytes > kMostBytes) return;
  WindowArea oldest;  // goes without the lock
  std::lock_guard lock(mutex_);
  kept_.push_back(std::move(area));
  if (kept_.size() <= kMostAreas) return;
  oldest = std::move(kept_.front());
  kept_.pop_front();
}

}  // namespace forebay::mpiio
