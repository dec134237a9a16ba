#include "assembly/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <span>

namespace forebay {
namespace {

struct Unit {
  std::string_view name;
  uint64_t factor;
};

constexpr std::array<Unit, 10> kSizes = {{{"B", 1},
                                          {"KiB", 1ull << 10},
                                          {"MiB", 1ull << 20},
                                          {"GiB", 1ull << 30},
                                          {"TiB", 1ull << 40},
                                          {"K", 1ull << 10},
                                          {"M", 1ull << 20},
                                          {"G", 1ull << 30},
                                          {"T", 1ull << 40},
                                          {"", 1}}};
constexpr size_t kNamedSizes = 5;  // those that we write ourselves

constexpr std::array<Unit, 6> kDurations = {{{"us", 1'000},
                                             {"ms", 1'000'000},
                                             {"s", 1'000'000'000},
                                             {"min", 60'000'000'000},
                                             {"h", 3'600'000'000'000},
                                             {"m", 60'000'000'000}}};
constexpr size_t kNamedDurations = 5;

// Number, optional blanks, unit. No value if the text has another shape or the result overflows.
std::optional<uint64_t> parse(std::string_view text, std::span<const Unit> units, uint64_t most) {
  uint64_t number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc()) return std::nullopt;
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  unit.remove_prefix(std::min(unit.find_first_not_of(' '), unit.size()));
  if (number == 0 && unit.empty()) return 0;
  const auto found =
      std::find_if(units.begin(), units.end(), [&](const Unit& u) { return u.name == unit; });
  if (found == units.end() || number > most / found->factor) return std::nullopt;
  return number * found->factor;
}

// In the largest of these units that divides it.
std::string exact(uint64_t value, std::span<const Unit> units) {
  const Unit* best = &units.front();
  for (const Unit& unit : units)
    if (value % unit.factor == 0 && value != 0) best = &unit;
  return fmt::format("{}{}", value / best->factor, best->name);
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row[b.size()];
}

}  // namespace

Result<uint64_t> parse_size(std::string_view text) {
  if (const auto bytes = parse(text, kSizes, INT64_MAX)) return *bytes;
  return Error(EINVAL, fmt::format("'{}' is not a size: write a whole number with B, KiB, MiB, GiB "
                                   "or TiB, such as 64MiB",
                                   text));
}

std::string size_text(uint64_t bytes) {
  return exact(bytes, std::span(kSizes).first(kNamedSizes));
}

std::string about_size(uint64_t bytes) {
  size_t unit = 0;
  double value = static_cast<double>(bytes);
  while (value >= 1000 && unit + 1 < kNamedSizes) value /= 1024, ++unit;
  const int digits = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", value, digits, kSizes[unit].name);
}

Result<Duration> parse_duration(std::string_view text) {
  if (const auto ns = parse(text, kDurations, INT64_MAX)) return Duration(*ns);
  return Error(
      EINVAL,
      fmt::format("'{}' is not a duration: write a whole number with us, ms, s, min or h, such "
                  "as 30s",
                  text));
}

std::string duration_text(Duration d) {
  const auto ns = static_cast<uint64_t>(d.count());
  return ns == 0 ? "0s" : exact(ns, std::span(kDurations).first(kNamedDurations));
}

std::string about_duration(Duration d) {
  const int64_t s = std::chrono::duration_cast<std::chrono::seconds>(d).count();
  if (s < 120) return fmt::format("{} s", s);
  if (s < 2 * 3600) return fmt::format("{} min", s / 60);
  if (s < 48 * 3600) return fmt::format("{} h {} min", s / 3600, s / 60 % 60);
  return fmt::format("{} d {} h", s / 86400, s / 3600 % 24);
}

std::string nearest(std::string_view wrong, const std::vector<std::string>& candidates) {
  std::string best;
  size_t least = std::max<size_t>(2, wrong.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(wrong, candidate);
    if (distance < least && distance < candidate.size()) least = distance, best = candidate;
  }
  return best;
}

}  // namespace forebay
