// Order: which storage target each aggregator serves in which iteration of a collective call, so
// that no target serves two aggregators at once (IBCS; paper 3, section III.B).
//
// 1. In an iteration each target has one aggregator at most. With fewer targets than aggregators,
//    at most that many are active; with more, an aggregator drives several, up to targets /
//    aggregators, rounded up, and no more than its buffer has stripes for. It then divides its
//    buffer among them, into whole stripes: what an aggregator has under way in one iteration is
//    never more than (1 + threshold) x buffer. (In the paper's cases the buffer has stripes for
//    all. Where it has not, parts of stripes would be many small requests, and save no iteration.)
// 2. The bytes of an aggregator on a target, its group, go out by rising offset, in items of the
//    buffer (or of its part). A remainder above threshold x that is an item of its own, a smaller
//    one is part of the last item, for which the buffer is extended.
// 3. Nobody's bytes become somebody else's: realms, and so who talks to whom, stay as they were.
// 4. The number of iterations is the least that rule 1 allows: the most items of a target, or those
//    of an aggregator divided by how many it may drive. For the paper's balanced cases (Table I)
//    this is what each aggregator needs anyway; the paper's own method reaches it in these, this
//    one always (open_shop.h).
// 5. An aggregator begins with its smallest groups, as in the paper, and stays with a target until
//    the group is done or the target is needed elsewhere to keep rule 4.
// 6. What one aggregator does in an iteration is as even as it can be: its items over the number of
//    iterations, rounded up or down.
//
// Pure, and the same on every rank that is given the same numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace forebay::plan {

struct OrderInput {
  size_t aggregators = 0, targets = 0;
  std::vector<uint64_t> bytes;  // [aggregator * targets + target]: of its realm, on that target
  uint64_t buffer = 0;          // of an aggregator (cb_buffer_size)
  uint64_t stripe = 1;          // bytes; 1: not known
  double threshold = 0.25;      // at least 0, less than 1
};

// The next `bytes`, by rising offset, of the aggregator's group of this target.
struct OrderItem {
  uint32_t target = 0;
  uint64_t bytes = 0;
  bool operator==(const OrderItem&) const = default;
};

// iterations[i][a]: what aggregator `a` does in iteration `i`: nothing, an item, or several of
// different targets. Costs memory for the items only.
class Iterations {
 public:
  class One {
   public:
    std::span<const OrderItem> operator[](size_t aggregator) const;

   private:
    friend class Iterations;
    One(std::span<const uint32_t> who, const OrderItem* items) : who_(who), items_(items) {}
    std::span<const uint32_t> who_;  // rising: whose each item is
    const OrderItem* items_;
  };

  size_t size() const { return ends_.size(); }
  bool empty() const { return ends_.empty(); }
  One operator[](size_t iteration) const;

  // Into the iteration that is being made, by rising aggregator.
  void add(uint32_t aggregator, OrderItem item);
  void end_iteration() { ends_.push_back(items_.size()); }

 private:
  std::vector<uint32_t> who_;
  std::vector<OrderItem> items_;
  std::vector<size_t> ends_;  // of each iteration, in items_
};

Iterations order_by_target(const OrderInput& input);

}  // namespace forebay::plan
