// A sweep: the same load at every message size from 4 KiB to 64 MiB, written and read, through
// several doors in turn. (Paper 1, figures 6, 7 and 11 to 13, has the message size on its x axis.)
#pragma once

#include <string>
#include <vector>

#include "bench/contest.h"

namespace forebay::bench {

struct Sweep {
  struct Cell {
    bool write;
    uint64_t request;
    std::vector<double> rates;  // MB/s, by the contestants
    bool verified;
    std::string text() const;
  };
  std::vector<std::string> lines;  // the contestants' names
  std::vector<Cell> cells;
  std::string state;

  size_t line(const std::string& name) const;
};

struct Line {
  std::string name;
  Contestant who;
};

// Eight clients, strided in one file of `directory`, whose state is as said.
Sweep sweep(const BenchOptions& options, const std::string& directory, const std::string& state,
            const std::vector<Line>& lines);

// Two pictures, `figure`-write and `figure`-read, one line for each contestant.
void plot(const Sweep& sweep, const std::string& figure, const std::string& title, Report& report);

// The servers that rows about the scheduler compare, all with the same directory.
class Policies {
 public:
  Policies(const std::string& scratch, const std::string& directory);
  const Bed& fifo() const { return fifo_; }
  const Bed& hbrr() const { return hbrr_; }
  const Bed& automatic() const { return automatic_; }
  double peak_memory() const;
  std::vector<Line> lines() const;  // direct, fifo, hbrr, auto

 private:
  std::string directory_;
  Bed fifo_, hbrr_, automatic_;
};

// The rows `id` and `id`-worst: auto over the better of fifo and hbrr, in the geometric mean over
// all sizes, and at the worst of them.
std::vector<Row> auto_rows(const std::string& id, const Sweep& sweep);

}  // namespace forebay::bench
