#include "plan/told_views.h"

namespace forebay::plan {

// The last one first: that it is the same is seen at a glance as long as the program sets none.
ToldViews::View* ToldViews::find(const TiledMap& view) {
  const auto is_it = [&](const View& one) { return one.last_use > 0 && one.map.same(view); };
  if (is_it(views_[slot_])) return &views_[slot_];
  const auto found = std::find_if(views_.begin(), views_.end(), is_it);
  return found == views_.end() ? nullptr : &*found;
}

// Than the current one. None of these is left: null.
ToldViews::View* ToldViews::oldest_other() {
  View* oldest = nullptr;
  for (View& one : views_)
    if (&one != &views_[slot_] && one.numbers > 0 && (!oldest || one.last_use < oldest->last_use))
      oldest = &one;
  return oldest;
}

void ToldViews::drop(View& view) {
  if (view.known) let_go_ |= 1u << (&view - views_.data());
  view = View();
}

bool ToldViews::use(const TiledMap& view) {
  View* found = find(view);
  if (found != &views_[slot_] && views_[slot_].numbers == 0) drop(views_[slot_]);
  if (!found) {
    found = &*std::min_element(views_.begin(), views_.end(), [](const View& a, const View& b) {
      return a.last_use < b.last_use;
    });
    drop(*found);
    found->map = view;
  }
  found->last_use = ++uses_;
  slot_ = static_cast<uint32_t>(found - views_.data());
  return found->known;
}

// For the current one.
void ToldViews::make_room() {
  uint64_t all = 0;
  for (const View& one : views_) all += one.numbers;
  while (all > most_) {
    View* const oldest = oldest_other();
    if (!oldest) return;
    all -= oldest->numbers;
    drop(*oldest);
  }
}

bool ToldViews::describe(std::vector<int64_t>& numbers) {
  View& view = views_[slot_];
  if (view.too_long) return false;
  const size_t before = numbers.size();
  view.too_long = !view.map.encode(numbers, most_);
  if (view.too_long) return false;
  const bool again = view.numbers > 0;
  view.numbers = numbers.size() - before;
  make_room();
  if (view.numbers > kShort && !again) {
    numbers.resize(before);
    return false;
  }
  let_go_ |= 1u << slot_;  // until they have it for certain
  return true;
}

void ToldViews::told_whole() {
  views_[slot_].known = true;
  let_go_ = 0;
}

void ToldViews::forget() {
  for (View& one : views_) one.known = false;
  let_go_ = 0;
}

}  // namespace forebay::plan
