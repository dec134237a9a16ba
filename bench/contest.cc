#include "bench/contest.h"

#include <fmt/format.h>

namespace forebay::bench {

namespace {

constexpr uint64_t kPrepared = 0;  // the salt of what reads find

bool by_bytes(const Load& load) {
  return load.request >= 64_KiB;
}

}  // namespace

Contestant direct(const std::string& directory) {
  return {direct_door(directory), 0, 1};
}

Contestant forwarded(const Bed& bed, Socket kind) {
  return {store_door(bed, kind), bed.server()};
}

Contestant allocated(const Bed& bed) {
  return {alloc_door(bed), bed.server()};
}

void run_once(const BenchOptions& options, const Load& load, const std::string& directory,
              const Contestant& who, uint64_t salt, Side& side) {
  if (options.give_up()) throw std::runtime_error("interrupted");
  Load mine = load;
  if (who.in_flight) mine.in_flight = who.in_flight;
  const uint64_t expected = load.write ? salt : kPrepared;
  if (load.fresh) remove_files(load, directory);
  FleetResult fleet;
  const auto error =
      run_fleet(mine.clients, client_of(mine, expected, who.server, who.open), fleet, who.server);
  if (error) throw std::runtime_error(*error);
  if (load.write) fleet.verified = holds(mine, directory, salt, fleet.done);
  side.add(fleet, static_cast<double>(fleet.operations) / fleet.seconds);
}

std::vector<Side> contest(const BenchOptions& options, const Load& load,
                          const std::string& directory,
                          const std::vector<Contestant>& contestants) {
  prepare(load, directory, kPrepared);
  std::vector<Side> sides(contestants.size());
  uint64_t salt = kPrepared;
  for (int round = 0; round < options.rounds; ++round) {
    for (size_t i = 0; i < contestants.size(); ++i) {
      // Nobody is always the first, or always after the same one.
      const size_t who = (i + static_cast<size_t>(round)) % contestants.size();
      run_once(options, load, directory, contestants[who], ++salt, sides[who]);
    }
  }
  remove_files(load, directory);
  return sides;
}

void fill(Row& row, const Load& load, const Side& ours, const Side& theirs) {
  compare(row, ours, theirs, false);
  const auto request = static_cast<double>(load.request);
  const double scale = by_bytes(load) ? request / 1e6 : 1e-3;
  row.ours *= scale, row.theirs *= scale;
  row.unit = by_bytes(load) ? "MB/s" : "kop/s";
  const double cpu_scale = by_bytes(load) ? 1e9 / request : 1e6;
  row.cpu = median(ours.cpu) * cpu_scale, row.their_cpu = median(theirs.cpu) * cpu_scale;
  row.cpu_unit = by_bytes(load) ? "s/GB" : "us/op";
}

std::string state_of(const Load& load, const std::string& directory) {
  const std::string below = file_system_of(directory) + ", page cache, ";
  if (load.fresh) return below + "fresh files, every block written once, not synced";
  return fmt::format("{}{} MiB {}", below, load.bytes / 1_MiB,
                     load.write ? "overwritten in place, not synced" : "reread");
}

}  // namespace forebay::bench
