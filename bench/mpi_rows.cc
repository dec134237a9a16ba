#include "bench/mpi_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "bench/bed.h"
#include "bench/gluster.h"
#include "bench/mpi_jobs.h"
#include "core/types.h"

namespace forebay::bench {

namespace {

struct Workload {
  std::string id;
  std::string spec, quick;  // for the program; quick: empty if it takes too long for that
  int ranks = 8;
  bool independent = false;
  uint64_t piece = 0;  // bytes, if the ranks' pieces alternate in the file and are dense in memory
};

const std::vector<Workload> kCollective{
    {"ior-seg", "ior-seg", "ior-seg"},
    {"ior-strided-4k", "ior-strided:4096", "ior-strided:4096", 8, false, 4_KiB},
    {"ior-strided-64k", "ior-strided:65536", "ior-strided:65536", 8, false, 64_KiB},
    {"ior-strided-1m", "ior-strided:1048576", "ior-strided:1048576", 8, false, 1_MiB},
    {"ior-strided-64m", "ior-strided:67108864", "", 8, false, 64_MiB},
    {"btio", "btio:64:5", "btio:32:3", 9},  // a square number of ranks
    {"flash", "flash:40", "flash:10"},
    {"hpio", "hpio:512:4096:128", "hpio:512:1024:128"},
    {"sliding", "sliding:4096:64", "sliding:4096:16", 8, false, 4_KiB},
    {"timestep", "timestep:128:32", "timestep:64:16"},
    {"coll64", "coll64", "coll64", 8, false, 64},
};

const std::vector<Workload> kIndependent{
    {"independent/contiguous", "contiguous", "contiguous", 8, true},
    {"independent/strided-4k", "strided-4k", "strided-4k", 8, true},
    {"independent/strided-64", "strided-64", "strided-64", 8, true},
    {"independent/block-3d", "block-3d", "block-3d", 8, true},
    {"independent/ghosted", "ghosted", "ghosted", 8, true},
    {"independent/memory-8-of-16", "memory-8-of-16", "memory-8-of-16", 8, true},
    {"independent/open", "open", "open", 16, true},
};

// Independent calls through a server, where the file system below is slow with small pieces.
const std::vector<Workload> kServed{
    {"served/strided-4k", "strided-4k", "strided-4k", 8, true},
    {"served/block-3d", "block-3d", "block-3d", 8, true},
    {"served/ghosted", "ghosted", "ghosted", 8, true},
};

const std::vector<std::string> kMpis{"mpich", "openmpi"};

std::vector<MpiSide> peers_of(const std::string& mpi) {
  if (mpi == "mpich") return {{mpi, "romio"}};
  return {{mpi, "ompio", false, {"--mca", "io", "ompio"}},
          {mpi, "romio321", false, {"--mca", "io", "romio321"}}};
}

MpiSide ours_of(const std::string& mpi) {
  return {mpi, "ours", true};
}

bool wants(const BenchOptions& options, const Workload& workload) {
  if (options.quick && workload.quick.empty()) return false;
  const std::string below = workload.id + "/";
  return wanted(options, workload.id) ||
         std::ranges::any_of(options.only, [&](const auto& id) { return id.starts_with(below); });
}

class MpiBench {
 public:
  MpiBench(const BenchOptions& options, Report& report, std::string directory, bool gluster)
      : options_(options), report_(report), directory_(std::move(directory)), gluster_(gluster) {
    for (const std::string& mpi : kMpis) {
      if (!options.mpis.empty() && !std::ranges::count(options.mpis, mpi)) continue;
      if (const auto why = MpiJobs::missing(mpi))
        report.left_out.push_back(mpi + ": " + *why);
      else
        mpis_.push_back(mpi);
    }
  }

  void collective() {
    std::vector<MpiSide> sides;
    for (const std::string& mpi : mpis_) {
      sides.push_back(ours_of(mpi));
      std::ranges::copy(peers_of(mpi), std::back_inserter(sides));
    }
    measure(kCollective, sides);
    if (gluster_) measure(chosen({"sliding", "timestep"}), forgetful());
    for (const Workload& workload : kCollective) rows(workload);
    if (gluster_) return persistence_rows();
    if (options_.only.empty()) mean_rows();
  }

  void independent() {
    std::vector<MpiSide> sides;
    for (const std::string& mpi : mpis_) {
      sides.push_back(ours_of(mpi));
      std::ranges::copy(peers_of(mpi), std::back_inserter(sides));
    }
    measure(kIndependent, sides);
    for (const Workload& workload : kIndependent) rows(workload);
  }

  void served(const std::string& scratch) {
    const auto ids = served_ids();
    if (std::ranges::none_of(ids, [&](const auto& id) { return wanted(options_, id); })) return;
    const Bed bed(scratch + "/server", "posix", 64_MiB, true,
                  {{"export.bench.path", directory_},
                   {"export.bench.scheduler", "hbrr"},
                   {"export.bench.write_behind", "on"},
                   {"export.bench.write_behind_memory", "256MiB"}});
    std::vector<MpiSide> sides;
    for (const std::string& mpi : mpis_) {
      sides.push_back(ours_of(mpi));
      sides.back().name = "served";
      sides.back().variables = {"FOREBAY_CLIENT_SERVER=" + bed.run_dir()};
      sides.push_back(peers_of(mpi).back());
    }
    measure(kServed, sides);
    for (const Workload& workload : kServed) {
      for (size_t i = 0; i < sides.size(); i += 2) {
        for (const char* way : {"write", "read"}) {
          Row row = versus(workload, way, sides[i], sides[i + 1], sides[i + 1].name, 4);
          row.cpu_ratio = row.cpu = row.their_cpu = std::nullopt;  // the server's is not in it
          add(std::move(row));
        }
      }
    }
  }

 private:
  std::vector<std::string> served_ids() const {
    std::vector<std::string> ids;
    for (const Workload& workload : kServed) {
      ids.push_back(workload.id);  // also if there is no MPI here, which is told
      for (const std::string& mpi : mpis_) {
        for (const char* way : {"write", "read"})
          ids.push_back(row_id(workload, way, peers_of(mpi).back().name));
      }
    }
    return ids;
  }

  static std::string row_id(const Workload& workload, const std::string& way,
                            const std::string& name) {
    return fmt::format("{}/{}/{}", workload.id, way, name);
  }

  const std::string& spec(const Workload& workload) const {
    return options_.quick ? workload.quick : workload.spec;
  }

  static std::vector<Workload> chosen(const std::vector<std::string>& ids) {
    std::vector<Workload> some;
    std::ranges::copy_if(kCollective, std::back_inserter(some),
                         [&](const Workload& w) { return std::ranges::count(ids, w.id) > 0; });
    return some;
  }

  // Ours, without persistent realms.
  std::vector<MpiSide> forgetful() const {
    std::vector<MpiSide> sides;
    for (const std::string& mpi : mpis_)
      sides.push_back({mpi, "no-pfr", true, {}, {"FOREBAY_HINTS=romio_cb_pfr=disable"}});
    return sides;
  }

  // All sides in turn, for all rounds; workloads with the same number of ranks in one launch.
  void measure(const std::vector<Workload>& workloads, const std::vector<MpiSide>& sides) {
    std::map<int, std::string> by_ranks;
    for (const Workload& workload : workloads) {
      if (!wants(options_, workload)) continue;
      std::string& list = by_ranks[workload.ranks];
      list += (list.empty() ? "" : ",") + spec(workload);
    }
    for (int round = 0; round < options_.rounds; ++round) {
      for (const auto& [ranks, list] : by_ranks) {
        for (const MpiSide& side : sides) {
          if (options_.give_up()) throw std::runtime_error("interrupted");
          fmt::print(stderr, "bench: {}, {}, {} ranks, round {} of {} ...\n", side.mpi, side.name,
                     ranks, round + 1, options_.rounds);
          launch(side, ranks, list, workloads.front().independent);
        }
      }
    }
  }

  void launch(const MpiSide& side, int ranks, const std::string& list, bool independent) {
    std::vector<std::string> arguments{"--dir",       directory_,
                                       "--mib",       options_.quick ? "16" : "64",
                                       "--rounds",    options_.quick ? "1" : "2",
                                       "--opens",     options_.quick ? "20" : "100",
                                       "--workloads", list};
    if (independent) arguments.push_back("--independent");
    if (side.name == "ours" && !independent) arguments.push_back("--limit");
    try {
      jobs_.run(side, ranks, arguments);
    } catch (const std::exception& error) {
      if (options_.give_up()) throw;
      report_.left_out.push_back(
          fmt::format("{}, {}, some of {}: {}", side.mpi, side.name, list, error.what()));
      report_.failed = true;
    }
  }

  double median_of(const Workload& workload, const std::string& way, const MpiSide& side) const {
    const MpiFigures* figures = jobs_.find(side, spec(workload), way);
    return figures ? median(figures->figures) : 0;
  }

  void rows(const Workload& workload) {
    if (spec(workload).empty()) return;
    const std::vector<std::string> ways = workload.spec == "open"
                                              ? std::vector<std::string>{"open"}
                                              : std::vector<std::string>{"write", "read"};
    for (const std::string& way : ways) {
      for (const std::string& mpi : mpis_) {
        for (const MpiSide& peer : peers_of(mpi))
          add(versus(workload, way, ours_of(mpi), peer, peer.name, floor(workload, way, mpi)));
        if (!workload.independent) add(limit_row(workload, way, mpi));
      }
    }
  }

  // Of the other MPI-IOs of an MPI the best one.
  double best(const Workload& workload, const std::string& way, const std::string& mpi) const {
    double most = 0;
    for (const MpiSide& peer : peers_of(mpi)) most = std::max(most, median_of(workload, way, peer));
    return most;
  }

  // It was measured beside ours under each MPI, and is no matter of MPI.
  MpiFigures limit_of(const Workload& workload, const std::string& way) const {
    MpiFigures all;
    for (const std::string& mpi : mpis_) {
      const MpiFigures* one = jobs_.find(ours_of(mpi), spec(workload), "limit_" + way);
      if (!one) continue;
      all.figures.insert(all.figures.end(), one->figures.begin(), one->figures.end());
      all.cpu.insert(all.cpu.end(), one->cpu.begin(), one->cpu.end());
    }
    return all;
  }

  // A peer that is near the limit cannot be passed by much.
  bool near_limit(const Workload& workload, const std::string& way, const std::string& mpi) const {
    const MpiFigures limit = limit_of(workload, way);
    return !limit.figures.empty() && best(workload, way, mpi) >= 0.8 * median(limit.figures);
  }

  double floor(const Workload& workload, const std::string& way, const std::string& mpi) const {
    if (workload.spec == "open") return 1 / 1.5;
    if (workload.independent) return workload.spec == "contiguous" ? 0.95 : 1.2;
    if (gluster_ && workload.id == "coll64") return 1.8;
    if (gluster_ && (workload.id == "timestep" || workload.id == "sliding")) return 3;
    return near_limit(workload, way, mpi) ? 0.95 : 1.1;
  }

  Row limit_row(const Workload& workload, const std::string& way, const std::string& mpi) {
    const double least = !gluster_ && workload.piece >= 4_KiB ? 0.7 : 0;
    const MpiFigures limit = limit_of(workload, way);
    return versus(workload, way, ours_of(mpi), limit.figures.empty() ? nullptr : &limit,
                  "POSIX calls, 1 MiB each, every rank in a part of its own", "limit-" + mpi,
                  least);
  }

  Row versus(const Workload& workload, const std::string& way, const MpiSide& ours,
             const MpiSide& theirs, const std::string& name, double least) const {
    return versus(workload, way, ours, jobs_.find(theirs, spec(workload), way), theirs.name, name,
                  least);
  }

  Row versus(const Workload& workload, const std::string& way, const MpiSide& ours,
             const MpiFigures* other, const std::string& against, const std::string& name,
             double least) const {
    Row row;
    row.id = row_id(workload, way, name);
    const MpiFigures* mine = jobs_.find(ours, spec(workload), way);
    if (!mine || !other) return row;
    const bool time = way == "open";
    compare(row, {mine->figures, mine->cpu, mine->verified},
            {other->figures, other->cpu, mine->verified}, time);
    row.against = against;
    row.unit = time ? "us" : "MB/s", row.cpu_unit = time ? "us" : "s/GB";
    row.cpu = median(mine->cpu), row.their_cpu = median(other->cpu);
    row.at_least = least;
    if (!other->verified) row.note = "their data was wrong";
    row.details = Json::Object{{"workload", spec(workload)},
                               {"mpi", ours.mpi},
                               {"ranks", workload.ranks},
                               {"samples", mine->figures.size()}};
    return row;
  }

  // A row that could not be measured has no unit; why it could not has been said.
  void add(Row row) {
    if (wanted(options_, row.id) && !row.unit.empty()) report_.rows.push_back(std::move(row));
  }

  void persistence_rows() {
    for (const Workload& workload : chosen({"sliding", "timestep"})) {
      for (const MpiSide& side : forgetful()) {
        for (const char* way : {"write", "read"}) {
          Row row = versus(workload, way, ours_of(side.mpi), side, "no-pfr-" + side.mpi, 3);
          row.against = "ours without persistent realms";
          add(std::move(row));
        }
      }
    }
  }

  void mean_rows() {
    for (const std::string& mpi : mpis_) {
      double logarithms = 0;
      int n = 0;
      bool verified = true;
      for (const Workload& workload : kCollective) {
        for (const std::string way : {"write", "read"}) {
          const MpiFigures* mine = jobs_.find(ours_of(mpi), spec(workload), way);
          const double other = best(workload, way, mpi);
          if (!mine || other == 0) continue;
          logarithms += std::log(median(mine->figures) / other);
          verified = verified && mine->verified;
          ++n;
        }
      }
      if (n == 0) continue;
      Row row;
      row.id = "mean/" + mpi;
      row.what = fmt::format("the geometric mean of {} ratios", n);
      row.against = mpi == "mpich" ? "romio" : "the better of ompio and romio321";
      row.ours = row.ratio = std::exp(logarithms / n);
      row.theirs = 1;
      row.unit = "times";
      row.verified = verified;
      row.at_least = mpi == "mpich" ? 2.0 : 1.3;
      report_.rows.push_back(std::move(row));
    }
  }

  const BenchOptions& options_;
  Report& report_;
  const std::string directory_;
  const bool gluster_;
  std::vector<std::string> mpis_;
  MpiJobs jobs_;
};

void run_rows(const BenchOptions& options, const std::string& scratch, Report& report) {
  std::string directory = scratch, below = file_system_of(scratch) + ", page cache";
  std::optional<GlusterVolume> volume;
  const bool there = file_system_of(scratch) == "GlusterFS", gluster = there || options.gluster;
  if (there) below = "GlusterFS, with the settings of its mount";
  if (options.gluster && !options.rehearsed) {
    auto started = GlusterVolume::start(scratch + "/gluster");
    if (!started)
      return report.left_out.push_back("all: no GlusterFS: " + started.error().message());
    volume.emplace(std::move(*started));
    directory = volume->mount(), below = GlusterVolume::kWhat;
  }
  report.mode =
      fmt::format("{}, {} cores, nobody syncs; medians of {} launches of each, interleaved", below,
                  std::thread::hardware_concurrency(), options.rounds);
  MpiBench bench(options, report, directory, gluster);
  bench.collective();
  gluster ? bench.served(scratch) : bench.independent();
}

}  // namespace

Result<void> run_bench_mpi(BenchOptions options) {
  if (options.rounds == 0) options.rounds = 3;  // each has two in it
  return run_suite("mpi", options, run_rows);
}

}  // namespace forebay::bench
