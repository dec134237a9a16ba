// Calls whose outcome depends on the order of the ranks, but is one of a few.
#include <algorithm>

#include "planner.h"

namespace fuzz {
namespace {
constexpr int most_records = 7;
constexpr int64_t record_limit = 600;
}  // namespace

// Every rank uses the shared pointer when it likes: whole records, in some order.
bool Planner::plan_race_shared() {
  if (!same_view_) plan_view(true);
  bool write = pick_write();
  fence();
  if (!write || shared_ > 20000) {  // from the beginning, so that there is something to read
    barrier_for_shared();
    add(Verb::seek_shared);
    shared_ = 0;
    shared_dirty_ = true;
  }
  barrier_for_shared();
  const View& view = views_[0];
  std::vector<Turn> turns(static_cast<size_t>(ranks_));
  int64_t total = 0, end = view.etypes_before(model_.size());
  for (int n = 0; n < most_records; ++n) {
    auto a = std::make_shared<Access>();
    a->id = next_id_++;
    a->write = write;
    a->where = Where::shared;
    a->race = true;
    random_memory(*a, view);
    a->count = std::min(a->count, record_limit / a->memory->size);
    a->offset = shared_;
    if (!write && shared_ + (total + a->bytes()) / view.etype->size > end) continue;
    if (write) {
      a->data.resize(static_cast<size_t>(a->bytes()));
      for (unsigned char& b : a->data) b = static_cast<unsigned char>(rng_.between(1, 255));
    }
    total += a->bytes();
    turns[static_cast<size_t>(rng_.below(ranks_))].accesses.push_back(a);
  }
  for (Turn& turn : turns) {
    turn.view = view;
    turn.number = shared_;
  }
  add(Verb::race_shared).turns = std::move(turns);
  shared_ += total / view.etype->size;
  add(Verb::barrier);
  for (Turn& turn : add(Verb::position_shared).turns) turn.expected = {shared_};
  shared_dirty_ = true;
  over_ = true;
  return true;
}

// In atomic mode overlapping writes, and reads beside them, come out as in some serial order.
bool Planner::plan_race_atomic() {
  if (!writable_ || ranks_ < 2) return false;
  fence();
  std::vector<int> order;
  for (int r = 0; r < ranks_; ++r) order.push_back(r);
  rng_.shuffle(order);
  size_t writers = static_cast<size_t>(rng_.between(2, std::min(ranks_, 4)));
  size_t readers = readable_ ? std::min<size_t>(2, order.size() - writers) : 0;
  int64_t target = random_offset(order[0], true);
  std::vector<Turn> turns(static_cast<size_t>(ranks_));
  for (Turn& turn : turns) turn.takes_part = false;
  for (size_t i = 0; i < writers + readers; ++i) {
    int r = order[i];
    const View& view = views_[static_cast<size_t>(r)];
    auto a = std::make_shared<Access>();
    a->id = next_id_++;
    a->write = i < writers;
    a->race = true;
    random_memory(*a, view);
    a->offset = std::max<int64_t>(0, target + rng_.between(-3, 3));
    a->spans = view.spans(a->offset * view.etype->size, a->bytes());
    int64_t end = end_of(a->spans);
    if (!conflicts_.allows(r, a->write, a->spans) || (!a->write && end > model_.size())) continue;
    if (a->write) {
      a->data.resize(static_cast<size_t>(a->bytes()));
      for (unsigned char& b : a->data) b = static_cast<unsigned char>(rng_.between(1, 255));
    }
    turns[static_cast<size_t>(r)].takes_part = true;
    turns[static_cast<size_t>(r)].accesses = {a};
  }
  add(Verb::race_atomic).turns = std::move(turns);
  add(Verb::barrier);
  over_ = true;
  return true;
}

}  // namespace fuzz
