#include "bench/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/assert.h"

namespace forebay::bench {

std::string Report::json() const {
  std::string rows_text;
  for (const Row& row : rows) {
    rows_text += fmt::format(
        R"({}    {{"id": "{}", "ours": {:.6g}, "against": "{}", "theirs": {:.6g}, "ratio": {:.4g}, "cpu_ratio": {}, "unit": "{}", "verified": {}}})",
        rows_text.empty() ? "" : ",\n", row.id, row.ours, row.against, row.theirs, row.ratio,
        row.cpu_ratio ? fmt::format("{:.4g}", *row.cpu_ratio) : "null", row.unit, row.verified);
  }
  return fmt::format("{{\n  \"bench\": \"{}\",\n  \"mode\": \"{}\",\n  \"rows\": [\n{}\n  ]\n}}\n",
                     name, mode, rows_text);
}

namespace {

std::string figure(double value) {
  if (value >= 1000) return fmt::format("{:.0f}", value);
  return fmt::format("{:.3g}", value);
}

std::string verdict(const Row& row) {
  if (!row.verified) return "WRONG DATA";
  const bool slow = row.ratio < row.at_least;
  const bool dear = row.cpu_at_most && row.cpu_ratio && *row.cpu_ratio > *row.cpu_at_most;
  return slow ? "below" : dear ? "too much CPU" : "ok";
}

}  // namespace

std::string Report::table() const {
  std::string out =
      fmt::format("{}: {}\n\n{:<20} {:>10} {:>10} {:<8} {:>7} {:>7} {:>7} {:>7}\n", name, mode,
                  "id", "ours", "theirs", "unit", "ratio", "floor", "cpu", "most");
  for (const Row& row : rows) {
    out +=
        fmt::format("{:<20} {:>10} {:>10} {:<8} {:>7.2f} {:>7.2f} {:>7} {:>7}  {}\n", row.id,
                    figure(row.ours), figure(row.theirs), row.unit, row.ratio, row.at_least,
                    row.cpu_ratio ? fmt::format("{:.2f}", *row.cpu_ratio) : "",
                    row.cpu_at_most ? fmt::format("{:.2f}", *row.cpu_at_most) : "", verdict(row));
  }
  out += "\nratio: how many times better ours is. cpu: our CPU over theirs, both ends together.\n";
  for (const Row& row : rows) {
    out += fmt::format("{:<20} {}; against {}\n", row.id, row.what, row.against);
  }
  return out;
}

bool Report::verified() const {
  return std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.verified; });
}

double median(std::vector<double> values) {
  FOREBAY_ASSERT(!values.empty());
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace forebay::bench
