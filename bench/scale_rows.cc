// scale-256: does the server do as much for 256 clients as for fewer? (The server of paper 1, with
// 32 threads for 4 cores, collapsed: section V.B and its figures 12 and 13.)
#include <fmt/format.h>

#include "bench/contest.h"
#include "bench/forward_rows.h"

namespace forebay::bench {

namespace {

const int kClients[] = {1, 8, 64, 256};
constexpr const char* kState = "256 MiB in the page cache, overwritten in place or reread";
constexpr int kMostRounds = 3;

struct Curve {
  std::string name;
  std::vector<double> rates;  // MB/s, by kClients
  bool verified = true;

  double last() const { return rates.back(); }
  double peak() const { return *std::ranges::max_element(rates); }
  double ratio() const { return last() / peak(); }
};

// However many clients, the files have the same size together: else one client would work in a
// processor's cache, and 256 would not.
std::vector<Load> loads(bool write, uint64_t request, double seconds) {
  std::vector<Load> all;
  for (const int clients : kClients) {
    all.push_back(
        {.write = write, .request = request, .clients = clients, .seconds = seconds, .warm = 0.1});
  }
  return all;
}

Curve measure_curve(const Bed& bed, const BenchOptions& options, bool write, uint64_t request) {
  const auto all = loads(write, request, options.seconds);
  const std::string& directory = bed.directory();
  for (const Load& load : all) prepare(load, directory, 0);
  std::vector<Side> sides(all.size());
  uint64_t salt = 0;
  for (int round = 0; round < std::min(options.rounds, kMostRounds); ++round) {
    for (size_t i = 0; i < all.size(); ++i) {
      run_once(options, all[i], directory, forwarded(bed), ++salt, sides[i]);
    }
  }
  for (const Load& load : all) remove_files(load, directory);
  Curve curve;
  curve.name = size_text(request) + (write ? " write" : " read");
  for (const Side& side : sides) {
    curve.rates.push_back(median(side.figures) * static_cast<double>(request) / 1e6);
    curve.verified = curve.verified && side.verified;
  }
  return curve;
}

Row scale_row(const std::vector<Curve>& curves) {
  const Curve& worst = *std::ranges::min_element(curves, {}, &Curve::ratio);
  Row row;
  row.id = "scale-256";
  row.what =
      "256 clients, files of their own, one in flight each, 4 KiB and 1 MiB, write and "
      "read: the worst of the four, here " +
      worst.name;
  row.against = "the best of 1, 8, 64 and 256 clients";
  row.ours = worst.last(), row.theirs = worst.peak(), row.ratio = worst.ratio();
  row.unit = "MB/s";
  row.at_least = 0.85;
  row.state = kState;
  row.verified = std::ranges::all_of(curves, &Curve::verified);
  Json::Object details;
  for (const Curve& curve : curves) {
    Json::Array rates(curve.rates.begin(), curve.rates.end());
    details.emplace_back(curve.name, rates);
    row.note += fmt::format("{}{} {:.2f}", row.note.empty() ? "" : ", ", curve.name, curve.ratio());
  }
  row.details = details;
  return row;
}

Series series_of(const Curve& curve) {
  Series series{.figure = "clients",
                .title = "One server, clients with files of their own, one request in flight each",
                .line = curve.name,
                .x = "clients",
                .y = "MB/s",
                .state = kState,
                .points = {}};
  for (size_t i = 0; i < curve.rates.size(); ++i) {
    series.points.emplace_back(kClients[i], curve.rates[i]);
  }
  return series;
}

}  // namespace

void scale_rows(Forward& forward) {
  forward.add({"scale-256"}, [&] {
    const Bed bed(forward.scratch + "/scale", "posix", Forward::kPool, true);
    std::vector<Curve> curves;
    for (const uint64_t request : {4_KiB, 1_MiB}) {
      for (const bool write : {true, false}) {
        curves.push_back(measure_curve(bed, forward.options, write, request));
        forward.report.series.push_back(series_of(curves.back()));
      }
    }
    forward.saw(bed);
    return std::vector<Row>{scale_row(curves)};
  });
}

}  // namespace forebay::bench
