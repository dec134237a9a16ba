#include "bench/measure.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "bench/bed.h"

namespace forebay::bench {

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void Side::add(const FleetResult& fleet, double figure, double server_cpu) {
  figures.push_back(figure);
  cpu.push_back((fleet.cpu + server_cpu) / static_cast<double>(fleet.operations));
  verified = verified && fleet.verified;
}

void measure(Side& side, pid_t server, int clients, const Worker& worker, const Figure& figure) {
  FleetResult fleet;
  const double before = server ? cpu_seconds(server) : 0;
  if (auto error = run_fleet(clients, worker, fleet)) throw std::runtime_error(*error);
  side.add(fleet, figure(fleet), server ? cpu_seconds(server) - before : 0);
}

void compare(Row& row, const Side& ours, const Side& theirs, bool less_is_better) {
  row.ours = median(ours.figures), row.theirs = median(theirs.figures);
  row.ratio = less_is_better ? row.theirs / row.ours : row.ours / row.theirs;
  row.cpu_ratio = median(ours.cpu) / median(theirs.cpu);
  row.verified = ours.verified && theirs.verified;
}

double anonymous_bytes(pid_t pid) {
  std::ifstream in(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("RssAnon:")) return std::stod(line.substr(8)) * 1024;
  }
  return 0;
}

bool wanted(const BenchOptions& options, const std::string& id) {
  return options.only.empty() ||
         std::find(options.only.begin(), options.only.end(), id) != options.only.end();
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
  if (!wanted(options, id)) return;
  fmt::print(stderr, "bench: {} ...\n", id);
  report.rows.push_back(measured());
}

void remove_scratch(const std::string& folder) {
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

Result<void> run_suite(const std::string& name, const BenchOptions& options, const Suite& suite) {
  raise_descriptors();
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
    suite(options, scratch, report);
    fmt::print("{}", options.json ? report.json() : report.table());
    if (!report.verified())
      result = Error(EIO, "data was wrong; see the rows that are not verified");
  } catch (const std::exception& error) {
    result = Error(EIO, error.what());
  }
  remove_scratch(scratch);
  return result;
}

}  // namespace forebay::bench
