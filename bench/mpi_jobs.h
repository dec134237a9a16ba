// mpi_io_bench (bench/mpi) under mpiexec, with the MPI's own MPI-IO or with ours preloaded, and
// what it said. One thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace forebay::bench {

// A way to run it.
struct MpiSide {
  std::string mpi;                          // "mpich" or "openmpi"
  std::string name;                         // "ours", "romio" ...
  bool ours = false;                        // preloaded
  std::vector<std::string> words = {};      // for mpiexec
  std::vector<std::string> variables = {};  // "NAME=value" for the program
};

// What all its runs said of one workload and one way: "write", "read", "limit_write" ..., "open".
struct MpiFigures {
  std::vector<double> figures;  // MB/s, or us
  std::vector<double> cpu;      // s/GB, or us
  bool verified = true;
};

class MpiJobs {
 public:
  // Why programs of this MPI cannot be run here, if they cannot, and what to do.
  static std::optional<std::string> missing(const std::string& mpi);

  // Throws if the program fails; what it said until then counts.
  void run(const MpiSide& side, int ranks, const std::vector<std::string>& arguments);

  // Null if nothing is known.
  const MpiFigures* find(const MpiSide& side, const std::string& workload,
                         const std::string& way) const;

 private:
  void keep(const MpiSide& side, const std::string& line);

  std::map<std::string, MpiFigures> figures_;
};

}  // namespace forebay::bench
