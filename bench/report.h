// What every benchmark prints: rows that set our figure beside another's of the same run, as a
// table for people or as JSON. A ratio above 1 means that ours is better.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "assembly/json.h"

namespace forebay::bench {

struct Row {
  std::string id;
  std::string what;  // for people; empty if the id says it all
  double ours = 0;
  std::string against;  // what `theirs` is
  double theirs = 0;
  double ratio = 0;
  std::optional<double> cpu_ratio;       // our CPU over theirs, for the same work
  std::optional<double> cpu, their_cpu;  // of both ends together
  std::string cpu_unit;                  // "s/GB" or "us/op"
  std::string unit;
  bool verified = false;  // the data was checked, byte by byte
  double at_least = 0;    // the floor of the ratio
  std::optional<double> cpu_at_most;
  std::string state;  // of the files and caches below, where it is not the report's mode
  std::string note;   // what else there is to know
  Json details;       // and its numbers
};

// A line of a plot: tools/plot_bench makes one picture of all lines of a figure.
struct Series {
  std::string figure;  // the name of the picture
  std::string title;
  std::string line;
  std::string x, y;   // what the axes show
  std::string state;  // of the files and caches below
  std::vector<std::pair<double, double>> points;
  std::vector<std::string> labels = {};  // of the points; with them they are bars
};

struct Report {
  std::string name;
  std::string mode;  // what lies below: file system, cache state
  std::vector<Row> rows;
  std::vector<Series> series;
  std::vector<std::string> left_out;  // rows that could not be measured, why, and what to do
  bool failed = false;                // one of them could not because something went wrong

  std::string json() const;
  std::string table() const;
  bool verified() const;  // every row
};

double median(std::vector<double> values);

}  // namespace forebay::bench
