#include "bench/ibcs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include "bench/ibcs_run.h"
#include "bench/load.h"

namespace forebay::bench {

namespace {

constexpr std::array kStrategies = {Strategy::even, Strategy::ibcs, Strategy::cyclic,
                                    Strategy::rotated};
constexpr uint32_t kProcesses = 6;  // of the paper's Figures 8 and 9
constexpr const char* kState = "simulated: Gigabit Ethernet, a disk for each target, virtual time";

const char* verb(bool write) {
  return write ? "write" : "read";
}

// One workload by all strategies.
struct Outcome {
  std::array<IbcsResult, kStrategies.size()> by;

  const IbcsResult& even() const { return by[0]; }
  const IbcsResult& ibcs() const { return by[1]; }
  double gain(Strategy over = Strategy::even) const {
    return ibcs().rate() / by[static_cast<size_t>(over)].rate();
  }
  // All bytes once; IBCS never with two aggregators at a target, and nobody deals with anybody else
  // than before.
  bool verified() const {
    return std::ranges::all_of(by, &IbcsResult::verified) && ibcs().most_at_a_target == 1 &&
           ibcs().pairs == even().pairs;
  }
};

Outcome outcome_of(const IbcsModel& model, const IbcsLoad& load, bool write) {
  Outcome outcome;
  for (size_t i = 0; i < kStrategies.size(); ++i) {
    outcome.by[i] = simulate(model, load, kStrategies[i], write);
  }
  return outcome;
}

Json details_of(const Outcome& outcome) {
  Json::Object details;
  for (size_t i = 0; i < kStrategies.size(); ++i) {
    const IbcsResult& r = outcome.by[i];
    details.emplace_back(
        name_of(kStrategies[i]),
        Json::Object{{"mb_per_s", r.rate()},
                     {"iterations", r.iterations},
                     {"messages", r.messages},
                     {"crossing_mb", static_cast<double>(r.crossing_bytes) / 1e6},
                     {"seeks", r.seeks},
                     {"revocations", r.revocations},
                     {"most_aggregators_at_a_target", uint64_t(r.most_at_a_target)},
                     {"pairs", uint64_t(r.pairs.size())}});
  }
  return details;
}

Row row_of(const std::string& id, const std::string& what, const Outcome& outcome,
           Strategy against) {
  const IbcsResult& ours = outcome.ibcs();
  const IbcsResult& theirs = outcome.by[static_cast<size_t>(against)];
  Row row;
  row.id = id, row.what = what, row.against = name_of(against);
  row.ours = ours.rate(), row.theirs = theirs.rate(), row.ratio = row.ours / row.theirs;
  row.unit = "MB/s";
  row.verified = outcome.verified();
  row.at_least = against == Strategy::even ? 1 : 0;  // the others only to compare with
  row.note = fmt::format(
      "messages {} and {}, between nodes {:.0f} and {:.0f} MB; seeks {} and {}; revoked locks {} "
      "and {}",
      ours.messages, theirs.messages, static_cast<double>(ours.crossing_bytes) / 1e6,
      static_cast<double>(theirs.crossing_bytes) / 1e6, ours.seeks, theirs.seeks, ours.revocations,
      theirs.revocations);
  row.details = details_of(outcome);
  return row;
}

// A figure of the paper: bars in groups, one for each strategy.
class Bars {
 public:
  Bars(std::string figure, std::string title, std::string x) {
    for (const Strategy strategy : kStrategies) {
      lines_.push_back({.figure = figure,
                        .title = title,
                        .line = name_of(strategy),
                        .x = x,
                        .y = "MB/s",
                        .state = kState,
                        .points = {}});
    }
  }

  void add(const std::string& label, const Outcome& outcome) {
    for (size_t i = 0; i < lines_.size(); ++i) {
      lines_[i].points.emplace_back(double(lines_[i].points.size()), outcome.by[i].rate());
      lines_[i].labels.push_back(label);
    }
  }

  void into(Report& report) const {
    report.series.insert(report.series.end(), lines_.begin(), lines_.end());
  }

 private:
  std::vector<Series> lines_;
};

// How IOR meets the cluster. The paper has one gain for reads.
struct Case {
  const char* name;
  bool write, warm;
  double paper;  // gain, section IV.B
};
constexpr Case kCases[] = {
    {"write", true, false, 1.63}, {"read", false, false, 1.47}, {"read-warm", false, true, 1.47}};

// Figure 8.
std::vector<Row> ior_rows(Report& report) {
  const IbcsLoad load = ior(kProcesses);
  const std::string what = "IOR, 6 processes, aggregators and targets, 576 MiB each, 48 in a call";
  Bars bars("ibcs-ior", what, "");
  std::vector<Row> rows;
  for (const Case& one : kCases) {
    const Outcome outcome = outcome_of({.warm = one.warm}, load, one.write);
    bars.add(one.name, outcome);
    const std::string id = fmt::format("ior-{}", one.name);
    rows.push_back(row_of(id, what, outcome, Strategy::even));
    rows.push_back(row_of(id + "-cyclic", what, outcome, Strategy::cyclic));
    rows.push_back(row_of(id + "-rotated", what, outcome, Strategy::rotated));
  }
  bars.into(report);
  return rows;
}

// Figure 9.
std::vector<Row> buffer_rows(Report& report) {
  Bars bars("ibcs-buffer", "IOR write, 6 aggregators and targets", "collective buffer");
  std::vector<Row> rows;
  for (const uint64_t buffer : {512_KiB, 1_MiB, 4_MiB, 8_MiB}) {
    const Outcome outcome =
        outcome_of({.buffer = static_cast<double>(buffer)}, ior(kProcesses), true);
    bars.add(size_text(buffer), outcome);
    rows.push_back(row_of(fmt::format("buffer-{}k", buffer >> 10),
                          "IOR write with a collective buffer of " + size_text(buffer), outcome,
                          Strategy::even));
  }
  bars.into(report);
  return rows;
}

// Figure 10.
std::vector<Row> server_rows(Report& report) {
  Bars bars("ibcs-servers", "IOR write, as many aggregators as servers", "servers");
  std::vector<Row> rows;
  for (const uint32_t servers : {4u, 6u, 8u, 12u}) {
    const Outcome outcome = outcome_of({}, ior(servers), true);
    bars.add(std::to_string(servers), outcome);
    rows.push_back(row_of(fmt::format("servers-{}", servers),
                          fmt::format("IOR write with {} servers and aggregators", servers),
                          outcome, Strategy::even));
  }
  bars.into(report);
  return rows;
}

// Figure 11.
constexpr uint32_t kBtioProcesses[] = {9, 16, 25, 36};

std::string btio_id(uint32_t processes, bool write) {
  return fmt::format("btio-{}-{}", processes, verb(write));
}

std::vector<Row> btio_rows(Report& report) {
  Bars bars("ibcs-btio", "BTIO class C, 4 aggregators, 4 targets", "processes");
  std::vector<Row> rows;
  for (const bool write : {true, false}) {
    for (const uint32_t processes : kBtioProcesses) {
      const Outcome outcome = outcome_of({}, btio(processes), write);
      bars.add(fmt::format("{}\n{}", processes, verb(write)), outcome);
      const std::string id = btio_id(processes, write);
      const auto what = fmt::format("BTIO class C {} with {} processes", verb(write), processes);
      rows.push_back(row_of(id, what, outcome, Strategy::even));
      rows.push_back(row_of(id + "-cyclic", what, outcome, Strategy::cyclic));
    }
  }
  bars.into(report);
  return rows;
}

struct Constant {
  const char* name;
  double IbcsModel::*value;
};
constexpr Constant kConstants[] = {{"link rate", &IbcsModel::link},
                                   {"latency", &IbcsModel::latency},
                                   {"message cost", &IbcsModel::message},
                                   {"copy rate", &IbcsModel::copy},
                                   {"packet", &IbcsModel::packet},
                                   {"disk rate", &IbcsModel::disk},
                                   {"seek", &IbcsModel::seek},
                                   {"lock revocation", &IbcsModel::revoke},
                                   {"request cost", &IbcsModel::request},
                                   {"request size", &IbcsModel::rpc},
                                   {"stripe", &IbcsModel::stripe},
                                   {"buffer", &IbcsModel::buffer}};
constexpr double kFactors[] = {0.25, 0.5, 1, 2, 4};

struct Range {
  double lowest = INFINITY, highest = 0;
  void add(const Range& o) { add(o.lowest), add(o.highest); }
  void add(double value) { lowest = std::min(lowest, value), highest = std::max(highest, value); }
  std::string text() const { return fmt::format("{:.2f} to {:.2f}", lowest, highest); }
  Json json() const { return Json::Array{lowest, highest}; }
};

// The gains of IBCS while one constant varies.
struct Sensitivity {
  const char* name;
  std::vector<std::pair<double, double>> over_even;  // by factor
  Range even, cyclic, rotated;
  bool verified = true;
};

Sensitivity sensitivity_to(const Constant& constant, const Case& of, const Outcome& as_it_is) {
  Sensitivity result{constant.name, {}, {}, {}, {}};
  for (const double factor : kFactors) {
    IbcsModel model{.warm = of.warm};
    model.*constant.value *= factor;
    const Outcome outcome = factor == 1 ? as_it_is : outcome_of(model, ior(kProcesses), of.write);
    result.over_even.emplace_back(factor, outcome.gain());
    result.even.add(outcome.gain());
    result.cyclic.add(outcome.gain(Strategy::cyclic));
    result.rotated.add(outcome.gain(Strategy::rotated));
    result.verified = result.verified && outcome.verified();
  }
  return result;
}

Series line_of(const Case& of, std::string line, std::vector<std::pair<double, double>> points) {
  return {.figure = fmt::format("ibcs-sensitivity-{}", of.name),
          .title = fmt::format("Gain of IBCS over even realms, IOR {}", of.name),
          .line = std::move(line),
          .x = "times the constant",
          .y = "gain",
          .state = kState,
          .points = std::move(points)};
}

// Where the paper's gain lies in what any one of the constants can make of ours.
Row range_row(const Case& of, Report& report) {
  Row row;
  row.id = fmt::format("range-{}", of.name);
  row.what = fmt::format(
      "the gain of IBCS over even realms, IOR {}, each constant of the model from a quarter to "
      "four "
      "times: of all these the nearest to the paper's",
      of.name);
  row.against = "the paper's gain on its cluster";
  row.verified = true;
  report.series.push_back(line_of(of, "paper", {{kFactors[0], of.paper}, {kFactors[4], of.paper}}));
  const Outcome as_it_is = outcome_of({.warm = of.warm}, ior(kProcesses), of.write);
  Range all, cyclic, rotated;
  Json::Object details;
  for (const Constant& constant : kConstants) {
    const Sensitivity one = sensitivity_to(constant, of, as_it_is);
    report.series.push_back(line_of(of, one.name, one.over_even));
    all.add(one.even), cyclic.add(one.cyclic), rotated.add(one.rotated);
    details.emplace_back(one.name, Json::Object{{"over_even", one.even.json()},
                                                {"over_cyclic", one.cyclic.json()},
                                                {"over_rotated", one.rotated.json()}});
    row.note += fmt::format("{} {}, ", one.name, one.even.text());
    row.verified = row.verified && one.verified;
  }
  row.ours = std::clamp(of.paper, all.lowest, all.highest), row.theirs = of.paper;
  row.ratio = std::min(row.ours / row.theirs, row.theirs / row.ours);
  row.unit = "times";
  row.at_least = 1;
  row.note += fmt::format("all {}; over stripe-cyclic {}, rotated {}", all.text(), cyclic.text(),
                          rotated.text());
  row.details = details;
  return row;
}

std::vector<std::string> btio_ids() {
  std::vector<std::string> ids;
  for (const uint32_t processes : kBtioProcesses) {
    for (const bool write : {true, false}) {
      ids.push_back(btio_id(processes, write));
      ids.push_back(btio_id(processes, write) + "-cyclic");
    }
  }
  return ids;
}

void run_rows(const BenchOptions& options, const std::string&, Report& report) {
  report.mode = kState;
  const auto add = [&](const std::vector<std::string>& ids, auto measured) {
    if (options.give_up()) throw std::runtime_error("interrupted");
    add_rows(options, report, ids, measured);
  };
  add({"ior-write", "ior-write-cyclic", "ior-write-rotated", "ior-read", "ior-read-cyclic",
       "ior-read-rotated", "ior-read-warm", "ior-read-warm-cyclic", "ior-read-warm-rotated"},
      [&] { return ior_rows(report); });
  add({"buffer-512k", "buffer-1024k", "buffer-4096k", "buffer-8192k"},
      [&] { return buffer_rows(report); });
  add({"servers-4", "servers-6", "servers-8", "servers-12"}, [&] { return server_rows(report); });
  add(btio_ids(), [&] { return btio_rows(report); });
  for (const Case& one : kCases) {
    add({fmt::format("range-{}", one.name)},
        [&] { return std::vector<Row>{range_row(one, report)}; });
  }
}

}  // namespace

Result<void> run_bench_ibcs(const BenchOptions& options) {
  return run_suite("ibcs", options, run_rows);
}

}  // namespace forebay::bench
