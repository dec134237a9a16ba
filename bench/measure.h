// What the suites of benchmarks share: their options, a scratch folder, and figures of two sides
// that take turns.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/fleet.h"
#include "bench/report.h"
#include "core/result.h"

namespace forebay::bench {

struct BenchOptions {
  bool json = false;
  std::string directory;          // scratch space; a folder of ours is made in it and removed
  std::vector<std::string> only;  // ids, or what they begin with up to a "/"; empty: all
  int rounds = 0;                 // 0: as the suite likes
  double seconds = 0.6;           // of one measurement
  bool quick = false;             // to see that it works: one round, short, fewer points
  std::string save;               // a file for the JSON, beside what is printed
  std::vector<std::string> mpis;  // of the suite mpi: which; empty: all that are here
  bool gluster = false;           // and: on a GlusterFS volume of its own
  std::function<bool()> give_up = [] { return false; };
  // A rehearsal: no row is wanted, and the ids of all that there are go here.
  std::shared_ptr<std::vector<std::string>> rehearsed;
};

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin);

template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message());
  return std::move(result).value();
}

// The figures of one side over the rounds.
struct Side {
  std::vector<double> figures, cpu;  // cpu: seconds for one operation, both ends together
  bool verified = true;
  void add(const FleetResult& fleet, double figure);
};

// Runs a fleet, against a server process if there is one (0), and adds what both used.
using Figure = std::function<double(const FleetResult&)>;
void measure(Side& side, pid_t server, int clients, const Worker& worker, const Figure& figure);

// Fills the figures of a row from both sides. `less_is_better`: a time rather than a rate.
void compare(Row& row, const Side& ours, const Side& theirs, bool less_is_better);

// Is the row asked for?
bool wanted(const BenchOptions& options, const std::string& id);

// Measures a row if it is asked for, and says so meanwhile. One that fails is left out, and the
// others go on.
void add_row(const BenchOptions& options, Report& report, const std::string& id,
             const std::function<Row()>& measured);
// The same for rows that come from one measurement; those that were not asked for are dropped.
void add_rows(const BenchOptions& options, Report& report, const std::vector<std::string>& ids,
              const std::function<std::vector<Row>()>& measured);

void remove_scratch(const std::string& folder);

// Makes a scratch folder, runs the suite in it, prints its report, and leaves nothing behind.
// EINVAL if a row is asked for that there is not, before any is measured: so a suite does nothing
// of weight before it has asked for a row.
using Suite = std::function<void(const BenchOptions&, const std::string& scratch, Report&)>;
Result<void> run_suite(const std::string& name, BenchOptions options, const Suite& suite);

}  // namespace forebay::bench
