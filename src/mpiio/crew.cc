#include "mpiio/crew.h"

#include "mpiio/process.h"

namespace forebay::mpiio {

void Crew::run() {
  plan_windows();
  for (uint32_t i = 0; aggregates() && i < WindowArea::kAhead; ++i) plan_next();
  const size_t count = open_.size();
  const size_t first = static_cast<size_t>(file_.rank) % count;
  while (open_count_ > 0)
    for (size_t i = 0; i < count; ++i)
      if (const size_t a = (first + i) % count; open_[a]) visit(a);
  transfer_.set_moved(reading() ? moved_ : bytes_.part().length.value);
}

void Crew::plan_next() {
  if (planned_last_) return;
  const std::vector<Extent> runs = next_runs();
  WindowAbout about{.ranks = static_cast<uint32_t>(file_.ranks), .last = no_more_windows()};
  for (const Extent& run : runs) about.bytes += run.length.value;
  about.unshared = reading() && some_may_own_pieces() && plan::nobody_shares(kept_.parts_, runs);
  own_area().plan(runs, about);
  planned_last_ = about.last;
}

void Crew::visit(size_t aggregator) {
  WindowArea& area = kept_.areas_[aggregator];
  const uint32_t window = kept_.next_window_[aggregator]++;
  area.enter(window, progress);
  if (static_cast<int>(aggregator) == kept_.index_) plan_next();
  if (area.see(window).about.last) open_[aggregator] = 0, --open_count_;
  reading() ? read_window(area, window) : write_window(area, window);
}

void Crew::read_window(WindowArea& area, uint32_t window) {
  plan::OwnPieces own(least_own());
  if (area.take(window)) fill(area, window, own);
  area.wait_until_filled(window, progress);
  copy(area.see(window), own);
  if (area.leave(window)) area.release(window);
}

void Crew::fill(WindowArea& area, uint32_t window, plan::OwnPieces& own) {
  const auto seen = area.see(window);
  if (seen.about.unshared && may_own_pieces())
    for_each_own(seen.runs, [&](uint64_t place, Extent memory) { own.take(place, memory); });
  Result<uint64_t> there = 0;
  if (seen.about.bytes > 0 && !failed()) there = move_window(seen.runs, seen.buffer, own);
  if (!there) fail(there.error());
  area.filled(window, there ? *there : 0);
}

// Who finds that all others have left is the one that moves it.
void Crew::write_window(WindowArea& area, uint32_t window) {
  plan::OwnPieces own(area.others_have_left(window) ? least_own() : UINT64_MAX);
  auto seen = area.see(window);
  seen.there = seen.about.bytes;
  copy(seen, own);
  if (!area.leave(window)) return;
  if (seen.about.bytes > 0 && !failed())
    if (auto moved = move_window(seen.runs, seen.buffer, own); !moved) fail(moved.error());
  area.release(window);
}

void Crew::copy(const WindowArea::Seen& seen, plan::OwnPieces& own) {
  moved_ += may_own_pieces() ? copy_but_own(seen, own)
                             : bytes_.copy(seen.runs, seen.buffer, seen.there, way());
}

}  // namespace forebay::mpiio
