#include "legal.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <span>

namespace forebay::order {

namespace {

class Search {
 public:
  Search(const std::vector<Happened>& history, const Cells& after)
      : history_(history), after_(after), before_(history.size()), order_(history.size()) {
    for (size_t i = 0; i < history.size(); ++i) {
      for (size_t k = 0; k < history.size(); ++k) {
        if (precedes(i, k)) before_[k] |= bit(i);
      }
    }
    std::iota(order_.begin(), order_.end(), 0);
    std::ranges::stable_sort(order_, {}, [&](size_t i) { return history[i].ended; });
  }

  // Can what is not in `done` follow, on a file that holds `content`?
  bool extend(uint32_t done, const Cells& content) {
    done = take_reads(done, content);
    if (done == bit(history_.size()) - 1) return content == after_;
    if (!seen_.emplace(done, content).second) return false;
    for (const size_t i : order_) {
      if (!history_[i].write || !ready(done, i)) continue;
      Cells next = content;
      apply(history_[i], next);
      if (extend(done | bit(i), next)) return true;
    }
    return false;
  }

 private:
  static uint32_t bit(size_t i) { return uint32_t{1} << i; }

  bool precedes(size_t i, size_t k) const {
    const Happened &a = history_[i], &b = history_[k];
    if (a.ended < b.sent) return true;
    const bool done_again = a.lost && !a.write && !b.write;
    return a.client == b.client && i < k && overlap(a.where, b.where) && !done_again;
  }

  bool ready(uint32_t done, size_t i) const {
    return !(done & bit(i)) && (before_[i] & ~done) == 0;
  }

  // A read that fits may come now: it changes nothing, and only lets others come.
  uint32_t take_reads(uint32_t done, const Cells& content) const {
    for (bool again = true; again;) {
      again = false;
      for (const size_t i : order_) {
        if (history_[i].write || !ready(done, i) || !fits(history_[i], content)) continue;
        done |= bit(i);
        again = true;
      }
    }
    return done;
  }

  static bool fits(const Happened& read, const Cells& content) {
    size_t at = 0;
    for (const Range& r : read.where) {
      const auto expected = std::span(content).subspan(r.at, r.count);
      if (!std::ranges::equal(expected, std::span(read.cells).subspan(at, r.count))) return false;
      at += r.count;
    }
    return true;
  }

  static void apply(const Happened& write, Cells& content) {
    auto from = write.cells.begin();
    for (const Range& r : write.where) {
      std::copy_n(from, r.count, content.begin() + r.at);
      from += r.count;
    }
  }

  const std::vector<Happened>& history_;
  const Cells& after_;
  std::vector<uint32_t> before_;  // of each request: those that come before it
  std::vector<size_t> order_;     // in which writes are tried
  std::set<std::pair<uint32_t, Cells>> seen_;
};

}  // namespace

bool overlap(const Ranges& a, const Ranges& b) {
  for (const Range& x : a) {
    for (const Range& y : b) {
      if (x.at < y.at + y.count && y.at < x.at + x.count) return true;
    }
  }
  return false;
}

bool legal(const std::vector<Happened>& history, const Cells& before, const Cells& after) {
  return Search(history, after).extend(0, before);
}

}  // namespace forebay::order
