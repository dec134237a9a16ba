#include "plan/sieve.h"

#include <utility>

namespace forebay::plan {

namespace {

// Of one stretch: whoever reads it may make a list of them.
constexpr uint64_t kMostPieces = 8192;

}  // namespace

bool likely_sieved(const Extents& file, const SieveCosts& costs) {
  if (file.contiguous()) return false;
  const uint64_t total = file.total().value, span = file.bounds().length.value;
  const uint64_t hole = span > total ? (span - total) / (file.pieces() - 1) : 0;
  const uint64_t copy = total / file.pieces() / costs.copies;
  return hole < costs.call && copy < costs.call && hole + copy < costs.call;
}

Sieve::Sieve(const Extents& file, SieveCosts costs)
    : costs_(costs), total_(file.total()), cursor_(file) {
  look_ahead();
}

void Sieve::look_ahead() {
  ahead_ = {};
  if (cursor_.done()) return;
  Length most = total_;
  if (costs_.grid) most = Length(costs_.grid - cursor_.current().offset.value % costs_.grid);
  ahead_ = cursor_.take(most);
}

// Do they lie in different parts of the grid?
bool Sieve::apart(const Run& run) const {
  if (!costs_.grid) return false;
  return run.range.offset.value / costs_.grid != ahead_.offset.value / costs_.grid;
}

// A piece belongs to a run if the call that it saves is dearer than the hole before it and its
// copy; the first one, if its copy alone would not eat up what its neighbour saves.
Sieve::Run Sieve::take_run() {
  Run run{.range = {ahead_.offset, Length(0)}, .stream = {}};
  for (;;) {
    run.range.length = ahead_.end() - run.range.offset;
    run.stream += ahead_.length;
    run.lost += copy_cost(ahead_.length);
    ++run.pieces;
    run.large = copy_cost(ahead_.length) >= costs_.call;
    look_ahead();
    if (run.large || ahead_.empty() || ahead_.offset < run.range.end() || apart(run)) break;
    const uint64_t hole = (ahead_.offset - run.range.end()).value;
    if (hole >= costs_.call || hole + copy_cost(ahead_.length) >= costs_.call) break;
    if ((ahead_.end() - run.range.offset).value > costs_.window) break;
    run.lost += hole;
    run.saved += costs_.call;
  }
  taken_ += run.stream;
  return run;
}

// Every side on which a window cuts the request makes one more request of the Store, which costs
// about as much as a call does.
bool Sieve::pays(const Run& run) const {
  if (costs_.grid) return !run.large;
  const uint64_t cuts = (run.stream < taken_ ? 1 : 0) + (taken_ < total_ ? 1 : 0);
  return run.saved > run.lost + costs_.begin + cuts * costs_.call;
}

std::optional<SieveStep> Sieve::next() {
  if (found_) return std::exchange(found_, std::nullopt);
  SieveStep stretch;
  for (uint64_t pieces = 0; !ahead_.empty() && pieces < kMostPieces;) {
    const Run run = take_run();
    if (pays(run)) {
      found_ = SieveStep{run.range, run.stream};
      break;
    }
    stretch.stream += run.stream;
    pieces += run.pieces;
  }
  if (stretch.stream) return stretch;
  return std::exchange(found_, std::nullopt);
}

}  // namespace forebay::plan
