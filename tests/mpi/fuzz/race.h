// Finds an order of the ranks that explains what a race has given.
#pragma once

#include <map>
#include <optional>

#include "script.h"

namespace fuzz {

using Order = std::vector<AccessPtr>;
using Reads = std::map<int, Bytes>;  // what was read, by the access's id

// race_shared: records one after the other from the step's shared pointer on. Sets each access's
// spans.
void place_in_order(const Step& step, const Order& order);

// race_shared: an order of the records such that the file holds (or gave) them so. `file` is what
// the file holds after a race of writes, before and after a race of reads.
std::optional<Order> order_of_records(const Step& step, const FileModel& file, const Reads& reads,
                                      bool zeros);

// race_atomic: an order of the writes that leads from `before` to `after` and that has, between two
// of them, a place for each read.
std::optional<Order> order_of_atomic(const Step& step, const FileModel& before, const Bytes& after,
                                     const Reads& reads, bool zeros);

}  // namespace fuzz
