// Sizes and durations as people write them: "64MiB", "30s". Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.h"
#include "core/result.h"

namespace forebay {

// A whole number with an optional unit: B, KiB, MiB, GiB, TiB, or K, M, G, T for the same.
Result<uint64_t> parse_size(std::string_view text);
// The largest unit that divides it: "64MiB", "1000B".
std::string size_text(uint64_t bytes);
// For people, with at most three digits that matter: "1.46 GiB".
std::string about_size(uint64_t bytes);

// A whole number with a unit: us, ms, s, m or min, h. "0" needs none.
Result<Duration> parse_duration(std::string_view text);
std::string duration_text(Duration d);
// For people, rounded: "2 h 5 min", "12 s".
std::string about_duration(Duration d);

// The candidate that `wrong` was probably meant to be (edit distance), or an empty string if none
// is near.
std::string nearest(std::string_view wrong, const std::vector<std::string>& candidates);

}  // namespace forebay
