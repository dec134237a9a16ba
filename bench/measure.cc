#include "bench/measure.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "bench/bed.h"

namespace forebay::bench {

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void Side::add(const FleetResult& fleet, double figure) {
  figures.push_back(figure);
  cpu.push_back((fleet.cpu + fleet.server_cpu) / static_cast<double>(fleet.operations));
  verified = verified && fleet.verified;
}

void measure(Side& side, pid_t server, int clients, const Worker& worker, const Figure& figure) {
  FleetResult fleet;
  if (auto error = run_fleet(clients, worker, fleet, server)) throw std::runtime_error(*error);
  side.add(fleet, figure(fleet));
}

void compare(Row& row, const Side& ours, const Side& theirs, bool less_is_better) {
  row.ours = median(ours.figures), row.theirs = median(theirs.figures);
  row.ratio = less_is_better ? row.theirs / row.ours : row.ours / row.theirs;
  row.cpu_ratio = median(ours.cpu) / median(theirs.cpu);
  row.verified = ours.verified && theirs.verified;
}

namespace {

bool is_named(const std::string& id, const std::string& asked) {
  return id == asked || id.starts_with(asked + "/");
}

}  // namespace

bool wanted(const BenchOptions& options, const std::string& id) {
  if (options.rehearsed) {
    options.rehearsed->push_back(id);
    return false;
  }
  return options.only.empty() ||
         std::ranges::any_of(options.only, [&](const auto& one) { return is_named(id, one); });
}

namespace {

void raise_descriptors() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

void add_row(const BenchOptions& options, Report& report, const std::string& id,
             const std::function<Row()>& measured) {
  add_rows(options, report, {id}, [&] { return std::vector<Row>{measured()}; });
}

void add_rows(const BenchOptions& options, Report& report, const std::vector<std::string>& ids,
              const std::function<std::vector<Row>()>& measured) {
  if (std::ranges::none_of(ids, [&](const std::string& id) { return wanted(options, id); })) return;
  fmt::print(stderr, "bench: {} ...\n", ids.front());
  try {
    for (Row& row : measured()) {
      if (wanted(options, row.id)) report.rows.push_back(std::move(row));
    }
  } catch (const std::exception& error) {
    if (options.give_up()) throw;
    report.left_out.push_back(fmt::format("{}: {}", fmt::join(ids, ", "), error.what()));
    report.failed = true;
  }
}

void remove_scratch(const std::string& folder) {
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

namespace {

void save(const Report& report, const std::string& path) {
  std::ofstream out(path);
  out << report.json();
  if (!out.flush()) throw std::runtime_error("cannot write " + path);
}

// By what they begin with, each once: it may be asked for as well.
std::string first_parts(const std::vector<std::string>& ids) {
  std::vector<std::string> shown;
  for (const std::string& id : ids) {
    std::string one = id.substr(0, id.find('/'));
    if (std::ranges::find(shown, one) == shown.end()) shown.push_back(std::move(one));
  }
  return fmt::format("{}", fmt::join(shown, ", "));
}

// A mistyped id would otherwise be told after the others were measured, or never.
Result<void> check_ids(BenchOptions options, const std::string& scratch, const Suite& suite) {
  const std::vector<std::string> asked = std::exchange(options.only, {});
  if (asked.empty()) return {};
  const auto there = options.rehearsed = std::make_shared<std::vector<std::string>>();
  Report nothing;
  suite(options, scratch, nothing);
  for (const std::string& id : asked) {
    if (std::ranges::any_of(*there, [&](const auto& one) { return is_named(one, id); })) continue;
    return Error(EINVAL, fmt::format("unknown row '{}'; there are {}", id, first_parts(*there)));
  }
  return {};
}

// One that stands for others ("memory") cannot be measured alone.
void check_measured(const BenchOptions& options, const Report& report) {
  for (const std::string& id : options.only) {
    const auto named = [&](const auto& one) { return one.find(id) != std::string::npos; };
    if (std::ranges::any_of(report.rows, [&](const Row& row) { return is_named(row.id, id); }) ||
        std::ranges::any_of(report.series, named, &Series::figure) ||
        std::ranges::any_of(report.left_out, named)) {
      continue;
    }
    throw std::runtime_error(fmt::format("row '{}' was not measured", id));
  }
}

}  // namespace

Result<void> run_suite(const std::string& name, BenchOptions options, const Suite& suite) {
  raise_descriptors();
  if (options.rounds == 0) options.rounds = 5;
  if (options.quick) options.rounds = 1, options.seconds = std::min(options.seconds, 0.15);
  std::string scratch = (options.directory.empty() ? "/var/tmp" : options.directory) +
                        std::string("/forebay-bench-XXXXXX");
  if (mkdtemp(scratch.data()) == nullptr) {
    return Error(errno,
                 fmt::format("cannot make a scratch folder {}; give one with --dir", scratch));
  }
  Report report;
  report.name = name;
  report.mode =
      fmt::format("{}, page cache, {} cores, {} rounds interleaved, medians",
                  file_system_of(scratch), std::thread::hardware_concurrency(), options.rounds);
  Result<void> result;
  try {
    result = check_ids(options, scratch, suite);
    if (!result) return remove_scratch(scratch), result;
    suite(options, scratch, report);
    check_measured(options, report);
    fmt::print("{}", options.json ? report.json() : report.table());
    if (!options.save.empty()) save(report, options.save);
    if (!report.verified()) {
      result = Error(EIO, "data was wrong; see the rows that are not verified");
    } else if (report.failed) {
      result = Error(EIO, "not every row could be measured; see what is left out");
    }
  } catch (const std::exception& error) {
    result = Error(EIO, error.what());
  }
  remove_scratch(scratch);
  return result;
}

}  // namespace forebay::bench
