#include "mpiio/outcomes.h"

namespace forebay::mpiio {
namespace {

constexpr uint32_t kCodeBits = 16;
static_assert(kPointers + 2 * Outcomes::kCalls == kSlots);

Slot arrivals(uint64_t number) {
  return Slot(kPointers + static_cast<uint32_t>(number % Outcomes::kCalls));
}
Slot failures(uint64_t number) {
  return Slot(kPointers + static_cast<uint32_t>(Outcomes::kCalls + number % Outcomes::kCalls));
}

// The next call's number, so that none at all is 0.
uint64_t packed(uint64_t number, uint32_t code) {
  return (number + 1) << kCodeBits | code;
}

}  // namespace

// `calls`: of those that have this value, how many.
Result<bool> Outcomes::all_arrived(uint64_t calls, Slot at) {
  auto arrived = state_.get(at);
  if (!arrived) return std::move(arrived).error();
  return *arrived >= calls * ranks_;
}

// The larger of what is kept of this call and `code`; what is kept of a later one stays.
Result<void> Outcomes::keep(uint64_t number, uint32_t code) {
  const uint64_t mine = packed(number, code);
  auto seen = state_.get(failures(number));
  while (seen && *seen < mine) {
    const uint64_t expected = *seen;
    seen = state_.compare_and_swap(failures(number), expected, mine);
    if (seen && *seen == expected) break;
  }
  if (!seen) return std::move(seen).error();
  return {};
}

Result<std::optional<uint32_t>> Outcomes::try_arrive(uint64_t number, uint32_t code) {
  Result<std::optional<uint32_t>> before = std::optional(0u);
  if (number >= kAhead) before = worst(number - kAhead);
  if (!before || !*before) return before;
  if (code != 0) {
    FOREBAY_ASSERT(code < 1u << kCodeBits);
    if (auto kept = keep(number, code); !kept) return kept.error();
  }
  auto arrived = state_.fetch_and_add(arrivals(number), 1);
  if (!arrived) return std::move(arrived).error();
  return before;
}

Result<std::optional<uint32_t>> Outcomes::worst(uint64_t number) {
  const auto all = all_arrived(number / kCalls + 1, arrivals(number));
  if (!all) return all.error();
  if (!*all) return std::optional<uint32_t>();
  auto kept = state_.get(failures(number));
  if (!kept) return std::move(kept).error();
  const bool of_this = *kept >> kCodeBits == number + 1;
  return std::optional(of_this ? static_cast<uint32_t>(*kept & ((1u << kCodeBits) - 1)) : 0u);
}

}  // namespace forebay::mpiio
