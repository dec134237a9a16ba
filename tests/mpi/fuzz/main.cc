// mpiio_fuzz: random MPI-IO programs, compared byte by byte with a serial oracle. See ../README.md.
#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>

#include "case.h"
#include "watchdog.h"

namespace {

// What one rank decides, all do.
bool agree(bool mine) {
  int flag = mine;
  MPI_Bcast(&flag, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return flag;
}

// Whoever has a file open for the first time has to reach its server.
void say_ready(const fuzz::Options& options, int rank) {
  MPI_File file;
  const std::string path = options.dir + "/first";
  const int mode = MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE;
  if (MPI_File_open(MPI_COMM_WORLD, path.c_str(), mode, MPI_INFO_NULL, &file) == MPI_SUCCESS)
    MPI_File_close(&file);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) std::ofstream(options.ready) << '\n';
}

int run(fuzz::Options options) {
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks > 9) throw std::invalid_argument("at most 9 ranks");
  auto begin = std::chrono::steady_clock::now();
  if (options.seed == 0)
    options.seed = static_cast<uint64_t>(begin.time_since_epoch().count()) % 1000000000 + 1;
  MPI_Bcast(&options.seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);

  if (!options.ready.empty()) say_ready(options, rank);
  fuzz::Watchdog watchdog(options.timeout);
  int64_t first = options.only_case >= 0 ? options.only_case : options.from;
  int64_t last = options.only_case >= 0 ? first + 1 : first + options.cases;
  last = first + (last - first) * options.times;
  int64_t done = 0, failed = 0;
  for (int64_t n = first; n < last; ++n) {
    std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    if (agree(options.seconds > 0 && passed.count() > options.seconds)) break;
    ++done;
    if (fuzz::run_case(options, options.seed, first + (n - first) / options.times, watchdog))
      continue;
    ++failed;
    if (!options.keep_going) break;
  }
  if (rank == 0)
    std::printf("fuzz: %lld cases, %d ranks, seed %llu: %s\n", static_cast<long long>(done), ranks,
                static_cast<unsigned long long>(options.seed),
                failed ? (std::to_string(failed) + " FAILED").c_str() : "all as the oracle says");
  return failed ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int code = 2;
  try {
    fuzz::Options options = fuzz::parse_options(argc, argv);
    if (options.help) {
      std::fputs(fuzz::usage(), stdout);
      code = 0;
    } else {
      code = run(options);
    }
  } catch (const std::invalid_argument& e) {
    std::fprintf(stderr, "mpiio_fuzz: %s\n%s", e.what(), fuzz::usage());
  }
  MPI_Finalize();
  return code;
}
