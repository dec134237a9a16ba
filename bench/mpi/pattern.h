// Pattern: how the data of one rank lies in its memory and in the file that all ranks share.
//
// Data is 8-byte words, in steps as a simulation writes them: one call of each rank writes a step.
// The patterns know by themselves, without MPI's datatypes, where each word belongs, so that what
// an MPI-IO did can be looked at with other means.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <string>
#include <vector>

namespace bench {

class Pattern {
 public:
  struct Sizes {
    int rank, ranks;
    uint64_t words;  // of one rank in one step, about
    uint64_t steps;
  };
  static const std::vector<std::string>& names();
  static Pattern make(const std::string& name, const Sizes& sizes);
  Pattern(Pattern&& other) noexcept;
  ~Pattern();

  // The view, the same for all steps, and what a call passes. `step_etypes` from one step to the
  // next.
  MPI_Offset displacement = 0;
  MPI_Datatype etype = MPI_DOUBLE, filetype = MPI_DOUBLE;
  MPI_Offset step_etypes = 0;
  MPI_Datatype memory_type = MPI_DOUBLE;
  int memory_count = 0;
  uint64_t memory_words = 0;  // that a step takes in memory, gaps included

  // Of each word of the step 0, in the stream's order: its place in the file and in memory.
  std::vector<uint64_t> in_file, in_memory;
  uint64_t file_step = 0;   // words from a word to the same one of the next step
  uint64_t file_words = 0;  // of the whole file

 private:
  explicit Pattern(const Sizes& sizes) : sizes_(sizes) {}
  void contiguous();
  void interleaved(uint64_t block);
  void blocks_3d(bool ghosts);
  void every_second_in_memory();
  void dense_in_memory();
  MPI_Datatype keep(MPI_Datatype type);

  Sizes sizes_;
  std::vector<MPI_Datatype> made_;
};

}  // namespace bench
