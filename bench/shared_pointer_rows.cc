#include "bench/shared_pointer_rows.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "bench/bed.h"
#include "bench/mpi_jobs.h"
#include "core/types.h"

namespace forebay::bench {

namespace {

constexpr int kRanks = 8;
const std::vector<std::string> kWays{"shared", "ordered"};

// Of one MPI: its own MPI-IO, ours without a server, and ours with one.
struct Contest {
  std::string peer, mpi;
  std::vector<std::string> words;  // for mpiexec, of the peer
  double least, least_served;
};
const std::vector<Contest> kContests{{"romio", "mpich", {}, 5, 5},
                                     {"ompio", "openmpi", {"--mca", "io", "ompio"}, 1, 0}};

class SharedPointerBench {
 public:
  SharedPointerBench(const BenchOptions& options, const std::string& scratch)
      : options_(options),
        bed_(scratch + "/server", "posix", 64_MiB, true),
        directory_(scratch + "/direct") {
    std::filesystem::create_directories(directory_);
  }

  std::vector<Row> rows(const Contest& contest) {
    const MpiSide peer{contest.mpi, contest.peer, false, contest.words};
    const MpiSide ours{contest.mpi, "ours", true};
    const MpiSide served{
        contest.mpi, "served", true, {}, {"FOREBAY_CLIENT_SERVER=" + bed_.run_dir()}};
    for (int round = 0; round < options_.rounds; ++round) {
      run(peer, directory_);
      run(ours, directory_);
      run(served, bed_.directory());
    }
    std::vector<Row> all;
    for (const std::string& way : kWays) {
      all.push_back(row(contest, way, ours, peer, contest.least));
      all.push_back(row(contest, way, served, peer, contest.least_served));
    }
    return all;
  }

  static std::vector<std::string> ids(const Contest& contest) {
    std::vector<std::string> all;
    for (const std::string& way : kWays) {
      for (const char* side : {"", "-served"})
        all.push_back(fmt::format("shared-fp/{}/{}{}", contest.peer, way, side));
    }
    return all;
  }

 private:
  void run(const MpiSide& side, const std::string& directory) {
    if (options_.give_up()) throw std::runtime_error("interrupted");
    jobs_.run(side, kRanks,
              {"--dir", directory, "--rounds", options_.quick ? "1" : "3", "--records",
               options_.quick ? "32" : "512", "--workloads", "shared,ordered"});
  }

  Row row(const Contest& contest, const std::string& way, const MpiSide& ours,
          const MpiSide& theirs, double least) const {
    const MpiFigures* const mine = jobs_.find(ours, way, "write");
    const MpiFigures* const other = jobs_.find(theirs, way, "write");
    if (!mine || !other) throw std::runtime_error("nothing was measured");
    const bool served = ours.name == "served";
    Row row;
    row.id = fmt::format("shared-fp/{}/{}{}", contest.peer, way, served ? "-served" : "");
    row.what = fmt::format("MPI_File_write_{}, {} ranks, 4 KiB records, {}", way, kRanks,
                           served ? "through a server" : "no server");
    row.against = contest.peer + " on " + contest.mpi;
    compare(row, {mine->figures, mine->cpu, mine->verified},
            {other->figures, other->cpu, mine->verified}, false);
    row.unit = "MB/s";
    row.cpu = median(mine->cpu), row.their_cpu = median(other->cpu), row.cpu_unit = "s/GB";
    if (served)
      row.cpu_ratio = row.cpu = row.their_cpu = std::nullopt;  // the server's is not in it
    row.at_least = least;
    if (!other->verified) row.note = "their data was wrong";
    return row;
  }

  const BenchOptions& options_;
  const Bed bed_;
  const std::string directory_;
  MpiJobs jobs_;
};

}  // namespace

void shared_pointer_rows(const BenchOptions& options, const std::string& scratch, Report& report) {
  for (const Contest& contest : kContests) {
    const auto ids = SharedPointerBench::ids(contest);
    if (std::ranges::none_of(ids, [&](const auto& id) { return wanted(options, id); })) continue;
    if (const auto why = MpiJobs::missing(contest.mpi)) {
      report.left_out.push_back(fmt::format("shared-fp/{}: {}", contest.peer, *why));
      continue;
    }
    add_rows(options, report, ids, [&] {
      return SharedPointerBench(options, scratch + "/shared-" + contest.peer).rows(contest);
    });
  }
}

}  // namespace forebay::bench
