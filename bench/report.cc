#include "bench/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/assert.h"

namespace forebay::bench {

namespace {

// Six digits are more than any of these figures is worth.
Json number(double value) {
  return std::stod(fmt::format("{:.6g}", value));
}

Json number(const std::optional<double>& value) {
  return value ? number(*value) : Json();
}

Json json_of(const Row& row) {
  return Json::Object{{"id", row.id},
                      {"what", row.what},
                      {"ours", number(row.ours)},
                      {"against", row.against},
                      {"theirs", number(row.theirs)},
                      {"ratio", number(row.ratio)},
                      {"at_least", number(row.at_least)},
                      {"cpu_ratio", number(row.cpu_ratio)},
                      {"cpu_at_most", number(row.cpu_at_most)},
                      {"cpu", number(row.cpu)},
                      {"their_cpu", number(row.their_cpu)},
                      {"cpu_unit", row.cpu_unit},
                      {"unit", row.unit},
                      {"verified", row.verified},
                      {"state", row.state},
                      {"note", row.note},
                      {"details", row.details}};
}

Json json_of(const Series& series) {
  Json::Array points;
  for (const auto& [x, y] : series.points) points.push_back(Json::Array{x, number(y)});
  const Json::Array labels(series.labels.begin(), series.labels.end());
  return Json::Object{{"figure", series.figure}, {"title", series.title}, {"line", series.line},
                      {"x", series.x},           {"y", series.y},         {"state", series.state},
                      {"points", points},        {"labels", labels}};
}

}  // namespace

std::string Report::json() const {
  Json::Array all_rows, all_series, all_left_out;
  for (const Row& row : rows) all_rows.push_back(json_of(row));
  for (const Series& one : series) all_series.push_back(json_of(one));
  for (const std::string& one : left_out) all_left_out.push_back(one);
  const Json whole = Json::Object{{"bench", name},
                                  {"mode", mode},
                                  {"rows", all_rows},
                                  {"left_out", all_left_out},
                                  {"series", all_series}};
  return whole.dump(2) + "\n";
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
  const bool has_bar = row.at_least > 0 || row.cpu_at_most;
  return slow ? "below" : dear ? "too much CPU" : has_bar ? "ok" : "";
}

}  // namespace

std::string Report::table() const {
  size_t wide = 24;
  for (const Row& row : rows) wide = std::max(wide, row.id.size());
  std::string out =
      fmt::format("{}: {}\n\n{:<{}} {:>10} {:>10} {:<8} {:>7} {:>7} {:>7} {:>7}\n", name, mode,
                  "id", wide, "ours", "theirs", "unit", "ratio", "floor", "cpu", "most");
  for (const Row& row : rows) {
    out +=
        fmt::format("{:<{}} {:>10} {:>10} {:<8} {:>7.2f} {:>7} {:>7} {:>7}  {}\n", row.id, wide,
                    figure(row.ours), figure(row.theirs), row.unit, row.ratio,
                    row.at_least > 0 ? fmt::format("{:.2f}", row.at_least) : "",
                    row.cpu_ratio ? fmt::format("{:.2f}", *row.cpu_ratio) : "",
                    row.cpu_at_most ? fmt::format("{:.2f}", *row.cpu_at_most) : "", verdict(row));
  }
  out += "\nratio: how many times better ours is. cpu: our CPU over theirs, both ends together.\n";
  for (const Row& row : rows) {
    if (row.what.empty() && row.note.empty()) continue;  // its id says it
    out += fmt::format("{:<24} {}; against {}{}{}\n", row.id, row.what, row.against,
                       row.state.empty() ? "" : "; " + row.state,
                       row.note.empty() ? "" : "; " + row.note);
  }
  for (const std::string& one : left_out) out += fmt::format("left out: {}\n", one);
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
