// mpi_io_bench: plain MPI-IO, whose ever it is. Writes and reads back shared files as the workloads
// of workload.h do, looks at every byte, and prints a line of JSON for each workload.
//
// A time is from a barrier until the slowest rank has done its calls, views included, and of writes
// has closed the file: what a library kept in memory counts. Opening is outside of it. CPU seconds
// are those of all ranks between the same points. Every round writes a new file, and reads it back
// as the page cache has it. The file is looked at with POSIX too, so that a view that is wrong both
// ways does not pass.
#include <unistd.h>

#include <stdexcept>

#include "job.h"
#include "shared_pointer.h"

namespace {

using bench::give_up, bench::json_list, bench::Measured, bench::measure, bench::must;

struct Options {
  bench::JobOptions job;
  std::vector<std::string> workloads;
  int opens = 100, records = 512;
};

constexpr const char* kUsage =
    "mpi_io_bench [--dir D] [--mib N] [--rounds N] [--opens N] [--records N] [--independent]\n"
    "             [--limit] --workloads A,B,...\n"
    "--mib: the size of files that have none of their own. --limit: also what POSIX calls do.\n"
    "open: one file opened and closed by all ranks --opens times. shared, ordered: --records of "
    "each\n"
    "rank at the shared file pointer. Workloads:\n";

[[noreturn]] void explain(const std::string& why) {
  give_up(why + "\n" + kUsage + "open shared ordered " + bench::kWorkloads);
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (char c : text) c == ',' ? parts.emplace_back() : parts.back() += c;
  return parts;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string key = argv[i];
    if (key == "--independent" || key == "--limit") {
      (key == "--limit" ? options.job.limit : options.job.independent) = true;
      continue;
    }
    if (i + 1 == argc) explain("what is " + key + "?");
    const std::string value = argv[++i];
    if (key == "--dir")
      options.job.directory = value;
    else if (key == "--workloads")
      options.workloads = split(value);
    else if (key == "--mib")
      options.job.mib = std::stoull(value);
    else if (key == "--rounds")
      options.job.rounds = std::stoi(value);
    else if (key == "--opens")
      options.opens = std::stoi(value);
    else if (key == "--records")
      options.records = std::stoi(value);
    else
      explain("what is " + key + "?");
  }
  if (options.workloads.empty()) explain("which workloads?");
  return options;
}

void run_job(const Options& options, const std::string& name, bench::Seat seat) {
  bench::Job job(options.job, name, seat);
  job.run();
  job.print();
}

// The ranks connect and the libraries find their memory at the first exchange, whose ever turn it
// is.
void warm_up(const Options& options, bench::Seat seat) {
  const bench::JobOptions small{.directory = options.job.directory, .mib = 16, .rounds = 1};
  bench::Job(small, "ior-strided", seat).run();
}

// One file, there already, opened and closed by all.
void run_opens(const Options& options, bench::Seat seat) {
  const std::string path = options.job.directory + "/mpi_io_bench.open";
  const auto once = [&] {
    MPI_File file;
    must(MPI_File_open(MPI_COMM_WORLD, path.c_str(), MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL,
                       &file),
         "open");
    must(MPI_File_close(&file), "close");
  };
  once();
  std::vector<Measured> rounds;
  for (int round = 0; round < options.job.rounds; ++round) {
    rounds.push_back(measure([&] {
      for (int i = 0; i < options.opens; ++i) once();
    }));
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (seat.rank != 0) return;
  ::unlink(path.c_str());
  const auto time = json_list(
      "open_us", rounds, [&](const Measured& one) { return one.seconds * 1e6 / options.opens; });
  const auto cpu = json_list("open_cpu_us", rounds,
                             [&](const Measured& one) { return one.cpu * 1e6 / options.opens; });
  std::printf("{\"workload\": \"open\", \"ranks\": %llu, %s, %s, \"verified\": true}\n",
              static_cast<unsigned long long>(seat.ranks), time.c_str(), cpu.c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const bench::Seat seat{static_cast<uint64_t>(rank), static_cast<uint64_t>(ranks)};
  try {
    const Options options = parse(argc, argv);
    if (options.workloads.front() != "open") warm_up(options, seat);
    for (const std::string& name : options.workloads) {
      if (name == "open")
        run_opens(options, seat);
      else if (name == "shared" || name == "ordered")
        bench::run_shared_pointer(options.job, name, options.records, seat);
      else
        run_job(options, name, seat);
    }
  } catch (const std::invalid_argument& error) {
    explain(error.what());
  }
  MPI_Finalize();
}
