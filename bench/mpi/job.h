// Job: one workload, written and read back in rounds, timed and verified by all ranks together.
#pragma once

#include <string>
#include <vector>

#include "huge.h"
#include "measure.h"
#include "workload.h"

namespace bench {

struct JobOptions {
  std::string directory = ".";
  uint64_t mib = 64;
  int rounds = 2;
  bool independent = false;
  bool limit = false;  // also what POSIX calls do with as many bytes, contiguous
};

class Job {
 public:
  Job(const JobOptions& options, const std::string& spec, Seat seat);
  void run();          // all rounds
  void print() const;  // a line of JSON

 private:
  void one_round(uint64_t round);
  void fresh(const File& file, uint64_t round);
  void in_place(const File& file, uint64_t round);
  void prepare(const File& file, uint64_t round);
  void limit_round();
  MPI_File open(int mode) const;
  void move(MPI_File file, const Call& call, const View* before, bool write);
  void move_all(MPI_File file, const std::vector<Call>& calls, bool write);
  void clear();
  void fill(const Call& call, uint64_t stamp);
  void look_at_memory(const std::vector<Call>& calls, uint64_t stamp);
  void look_at_file(const File& file, uint64_t round);
  void expect(bool good, const char* what);
  void remove() const;

  const JobOptions& options_;
  const std::string spec_, path_;
  const Seat seat_;
  Types types_;
  const std::vector<File> files_;
  uint64_t moved_ = 0;  // bytes each way, of all ranks and files
  HugeVector<uint32_t> memory_;
  Measured write_, read_;  // of this round
  std::vector<Measured> writes_, reads_, limit_writes_, limit_reads_;
  bool verified_ = true;
};

}  // namespace bench
