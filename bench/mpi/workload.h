// Workload: what the ranks write to shared files and read from them, call by call.
//
// A workload knows by itself, without MPI's datatypes, where each byte belongs, so that what an
// MPI-IO did can be looked at with other means. Lengths are bytes, multiples of 4. The datatypes
// live as long as the workload.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace bench {

struct Seat {
  uint64_t rank, ranks;
};

// Where bytes of a rank lie in the file and in its memory: pieces that loops repeat, outermost
// first.
struct Nest {
  struct Loop {
    uint64_t count, file, memory;  // and the strides of both
  };
  uint64_t file = 0, memory = 0, bytes = 0;
  std::vector<Loop> loops;

  uint64_t total() const;
  // visit(place in the file, place in memory) for each piece of `bytes`.
  template <class Visit>
  void each(Visit&& visit) const {
    descend(0, file, memory, visit);
  }

 private:
  template <class Visit>
  void descend(size_t depth, uint64_t in_file, uint64_t in_memory, Visit&& visit) const {
    if (depth == loops.size()) return visit(in_file, in_memory);
    for (uint64_t i = 0; i < loops[depth].count; ++i)
      descend(depth + 1, in_file + i * loops[depth].file, in_memory + i * loops[depth].memory,
              visit);
  }
};

struct View {
  MPI_Offset displacement = 0;
  MPI_Datatype etype = MPI_BYTE, filetype = MPI_BYTE;
  bool operator==(const View&) const = default;
};

// One call of one rank.
struct Call {
  View view;
  MPI_Offset at = 0;        // in etypes
  uint64_t memory = 0;      // where its buffer begins
  uint64_t memory_end = 0;  // gaps included
  MPI_Datatype type = MPI_BYTE;
  int count = 0;
  std::vector<Nest> where;
  // Of files that are changed in place: which change of a rank's bytes it finds, and which it
  // makes.
  uint64_t finds = 0, makes = 0;
};

// A part of the file that has one history in the end.
struct Stretch {
  uint64_t end;
  bool data;       // or a gap that nobody writes: MPI leaves open what is there then
  uint64_t stamp;  // which change was the last one
};

struct File {
  uint64_t bytes = 0;  // its size in the end
  std::vector<Call> calls;
  bool in_place = false;  // it is there already, and each call reads and then writes
  std::function<Stretch(uint64_t place)> stretch_at;  // none: all is data, changed once
};

// Datatypes to be freed.
class Types {
 public:
  Types() = default;
  Types(const Types&) = delete;
  ~Types();
  MPI_Datatype keep(MPI_Datatype type);  // commits it
  MPI_Datatype bytes(uint64_t n);
  MPI_Datatype resized(MPI_Datatype type, uint64_t extent);
  MPI_Datatype box(const std::vector<uint64_t>& whole, const std::vector<uint64_t>& part,
                   const std::vector<uint64_t>& first, MPI_Datatype cell);
  MPI_Datatype together(const std::vector<MPI_Datatype>& types,
                        const std::vector<uint64_t>& places);

 private:
  std::vector<MPI_Datatype> made_;
};

// The files of the workload that `spec` names: its name, then ":" and a number for each parameter
// that is not to be the usual one. `mib` is the size of those that have no size of their own.
// Throws std::invalid_argument.
std::vector<File> make_workload(const std::string& spec, Seat seat, uint64_t mib, Types& types);
extern const char* const kWorkloads;  // for people

// Those of applications.cc; see there for the parameters.
File btio(Seat seat, uint64_t side, uint64_t steps, Types& types);
std::vector<File> flash(Seat seat, uint64_t blocks, Types& types);
File hpio(Seat seat, uint64_t region, uint64_t count, uint64_t spacing, Types& types);
File sliding(Seat seat, uint64_t width, uint64_t rows, Types& types);
File timestep(Seat seat, uint64_t points, uint64_t steps, Types& types);

}  // namespace bench
