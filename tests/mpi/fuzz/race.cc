#include "race.h"

#include <algorithm>

namespace fuzz {
namespace {

class Records {
 public:
  Records(const Step& step, const FileModel& file, const Reads& reads, bool zeros)
      : step_(step), file_(file), reads_(reads), zeros_(zeros), next_(step.turns.size(), 0) {}

  bool search(int64_t at) {
    bool any = false;
    for (size_t r = 0; r < next_.size(); ++r) {
      const auto& mine = step_.turns[r].accesses;
      if (next_[r] == mine.size()) continue;
      any = true;
      const AccessPtr& a = mine[next_[r]];
      if (!matches(*a, at)) continue;
      order_.push_back(a);
      ++next_[r];
      if (search(at + a->bytes())) return true;
      --next_[r];
      order_.pop_back();
    }
    return !any;
  }
  Order take() { return std::move(order_); }

 private:
  bool matches(const Access& a, int64_t at) const {
    Bytes there = file_.read(step_.turns[0].view.spans(at, a.bytes()));
    return a.write ? there == a.data : same(there, reads_.at(a.id), zeros_);
  }

  const Step& step_;
  const FileModel& file_;
  const Reads& reads_;
  const bool zeros_;
  std::vector<size_t> next_;
  Order order_;
};

int64_t first_byte(const Step& step) {
  return step.turns[0].number * step.turns[0].view.etype->size;
}

bool reads_fit(const std::vector<AccessPtr>& readers, const Reads& reads, const FileModel& state,
               bool zeros, std::vector<bool>& fit) {
  for (size_t i = 0; i < readers.size(); ++i)
    if (same(state.read(readers[i]->spans), reads.at(readers[i]->id), zeros)) fit[i] = true;
  return std::all_of(fit.begin(), fit.end(), [](bool b) { return b; });
}

}  // namespace

void place_in_order(const Step& step, const Order& order) {
  int64_t at = first_byte(step);
  for (const AccessPtr& a : order) {
    a->spans = step.turns[0].view.spans(at, a->bytes());
    at += a->bytes();
  }
}

std::optional<Order> order_of_records(const Step& step, const FileModel& file, const Reads& reads,
                                      bool zeros) {
  Records records(step, file, reads, zeros);
  if (!records.search(first_byte(step))) return std::nullopt;
  return records.take();
}

std::optional<Order> order_of_atomic(const Step& step, const FileModel& before, const Bytes& after,
                                     const Reads& reads, bool zeros) {
  Order writers, readers;
  for (const Turn& turn : step.turns)
    for (const AccessPtr& a : turn.accesses) (a->write ? writers : readers).push_back(a);
  auto by_id = [](const AccessPtr& a, const AccessPtr& b) { return a->id < b->id; };
  std::sort(writers.begin(), writers.end(), by_id);
  do {
    FileModel state = before;
    std::vector<bool> fit(readers.size());
    bool all = reads_fit(readers, reads, state, zeros, fit);
    for (const AccessPtr& a : writers) {
      state.write(a->spans, a->data);
      all = reads_fit(readers, reads, state, zeros, fit);
    }
    if (all && same(state.bytes(), after, zeros)) return writers;
  } while (std::next_permutation(writers.begin(), writers.end(), by_id));
  return std::nullopt;
}

}  // namespace fuzz
