#include "bench/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/forward_rows.h"

namespace forebay::bench {

namespace {

constexpr int kClients = 8;
constexpr int kMostRounds = 3;

std::vector<uint64_t> sizes(const BenchOptions& options) {
  if (options.quick) return {4_KiB, 64_KiB, 1_MiB, 16_MiB};
  return {4_KiB, 16_KiB, 64_KiB, 256_KiB, 1_MiB, 4_MiB, 16_MiB, 64_MiB};
}

Load load_of(const BenchOptions& options, bool write, uint64_t request) {
  return {.write = write,
          .request = request,
          .clients = kClients,
          .layout = Load::Layout::strided,
          .bytes = 64_MiB,
          .seconds = options.seconds / 2,
          .warm = options.seconds / 4};
}

}  // namespace

std::string Sweep::Cell::text() const {
  return fmt::format("{} {}", size_text(request), write ? "write" : "read");
}

size_t Sweep::line(const std::string& name) const {
  return static_cast<size_t>(std::ranges::find(lines, name) - lines.begin());
}

Sweep sweep(const BenchOptions& options, const std::string& directory, const std::string& state,
            const std::vector<Line>& lines) {
  Sweep result;
  result.state = state;
  BenchOptions few = options;
  few.rounds = std::min(few.rounds, kMostRounds);
  std::vector<Contestant> contestants;
  for (const Line& line : lines) {
    result.lines.push_back(line.name);
    contestants.push_back(line.who);
  }
  for (const bool write : {true, false}) {
    for (const uint64_t request : sizes(options)) {
      const Load load = load_of(options, write, request);
      Sweep::Cell cell{write, request, {}, true};
      fmt::print(stderr, "bench:   {} ...\n", cell.text());
      for (const Side& side : contest(few, load, directory, contestants)) {
        cell.rates.push_back(median(side.figures) * static_cast<double>(request) / 1e6);
        cell.verified = cell.verified && side.verified;
      }
      result.cells.push_back(std::move(cell));
    }
  }
  return result;
}

void plot(const Sweep& sweep, const std::string& figure, const std::string& title, Report& report) {
  for (const bool write : {true, false}) {
    const char* verb = write ? "write" : "read";
    for (size_t i = 0; i < sweep.lines.size(); ++i) {
      Series series{.figure = fmt::format("{}-{}", figure, verb),
                    .title = fmt::format("{}, {}", title, verb),
                    .line = sweep.lines[i],
                    .x = "message size",
                    .y = "MB/s",
                    .state = sweep.state,
                    .points = {}};
      for (const Sweep::Cell& cell : sweep.cells) {
        if (cell.write != write) continue;
        series.points.emplace_back(static_cast<double>(cell.request), cell.rates[i]);
      }
      report.series.push_back(std::move(series));
    }
  }
}

namespace {

// Without shortcuts: what clients do themselves has no scheduler.
std::vector<Override> settings(const std::string& directory, const std::string& scheduler) {
  return {{"export.bench.path", directory},
          {"export.bench.scheduler", scheduler},
          {"export.bench.shortcuts", "false"}};
}

}  // namespace

Policies::Policies(const std::string& scratch, const std::string& directory)
    : directory_(directory),
      fifo_(scratch + "/fifo", "posix", Forward::kPool, true, settings(directory, "fifo")),
      hbrr_(scratch + "/hbrr", "posix", Forward::kPool, true, settings(directory, "hbrr")),
      automatic_(scratch + "/auto", "posix", Forward::kPool, true, settings(directory, "auto")) {}

double Policies::peak_memory() const {
  return std::max({fifo_.peak_memory(), hbrr_.peak_memory(), automatic_.peak_memory()});
}

std::vector<Line> Policies::lines() const {
  return {{"direct", direct(directory_)},
          {"fifo", forwarded(fifo_)},
          {"hbrr", forwarded(hbrr_)},
          {"auto", forwarded(automatic_)}};
}

std::vector<Row> auto_rows(const std::string& id, const Sweep& sweep) {
  const size_t fifo = sweep.line("fifo"), hbrr = sweep.line("hbrr"), automatic = sweep.line("auto");
  Row mean, worst;
  worst.ratio = INFINITY;
  double ours = 0, best = 0;  // sums of logarithms
  Json::Object details;
  mean.verified = true;
  for (const Sweep::Cell& cell : sweep.cells) {
    const double a = cell.rates[automatic], b = std::max(cell.rates[fifo], cell.rates[hbrr]);
    ours += std::log(a), best += std::log(b);
    mean.verified = mean.verified && cell.verified;
    details.emplace_back(
        cell.text(),
        Json::Object{{"auto", a}, {"fifo", cell.rates[fifo]}, {"hbrr", cell.rates[hbrr]}});
    if (a / b >= worst.ratio) continue;
    worst.ratio = a / b, worst.ours = a, worst.theirs = b;
    worst.note = "the worst is " + cell.text();
  }
  const auto n = static_cast<double>(sweep.cells.size());
  mean.ours = std::exp(ours / n), mean.theirs = std::exp(best / n);
  mean.ratio = mean.ours / mean.theirs;
  mean.details = details;
  mean.id = id, worst.id = id + "-worst";
  mean.at_least = 0.95, worst.at_least = 0.88;
  worst.verified = mean.verified;
  for (Row* row : {&mean, &worst}) {
    row->what = fmt::format("auto, {} clients strided in one file, 4 KiB to 64 MiB, write and read",
                            kClients);
    row->against = "the better of fifo and hbrr";
    row->unit = "MB/s";
    row->state = sweep.state;
  }
  return {mean, worst};
}

}  // namespace forebay::bench
