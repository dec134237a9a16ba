// What every benchmark prints: rows that set our figure beside another's of the same run, as a
// table for people or as JSON. A ratio above 1 means that ours is better.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace forebay::bench {

struct Row {
  std::string id;
  std::string what;  // for people
  double ours = 0;
  std::string against;  // what `theirs` is
  double theirs = 0;
  double ratio = 0;
  std::optional<double> cpu_ratio;  // our CPU over theirs, for the same work
  std::string unit;
  bool verified = false;  // the data was checked, byte by byte
  double at_least = 0;    // the floor of the ratio
  std::optional<double> cpu_at_most;
};

struct Report {
  std::string name;
  std::string mode;  // what lies below: file system, cache state
  std::vector<Row> rows;

  std::string json() const;
  std::string table() const;
  bool verified() const;  // every row
};

double median(std::vector<double> values);

}  // namespace forebay::bench
