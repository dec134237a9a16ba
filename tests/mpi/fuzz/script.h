// What a session (from open to close) does, rank by rank, with what the oracle expects of it. Every
// rank plans the same script from the seed and carries out its own part.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model.h"
#include "type.h"

namespace fuzz {

enum class Where {
  at,
  own,
  shared,
  ordered
};  // explicit offset, individual pointer, shared pointer
enum class How { blocking, nonblocking, split };

// One data call of one rank.
struct Access {
  int id = 0;
  bool write = false;
  bool collective = false;
  Where where = Where::at;
  How how = How::blocking;
  int64_t offset = 0;  // in etypes; where it lies for `at`, where the pointer stands otherwise
  TypePtr memory;
  int64_t count = 0;
  Spans spans;
  Bytes data;         // what is written, or what a read must give (short at the end of the file)
  bool race = false;  // what a read gives depends on the order of the ranks: only collected
  bool ignore_status = false;

  int64_t bytes() const { return memory->size * count; }
};
using AccessPtr = std::shared_ptr<Access>;

enum class Verb {
  open,
  close,
  set_view,
  access,
  wait,
  end_split,
  seek,
  seek_shared,
  position,
  position_shared,
  byte_offset,
  size,
  set_size,
  preallocate,
  fence,
  barrier,
  atomicity,
  race_shared,
  race_atomic
};
enum class WaitHow { wait, test, waitall, waitany, waitsome, get_status };

// One rank's part of a step.
struct Turn {
  bool takes_part = true;
  std::vector<AccessPtr> accesses;  // race_shared has several, the others at most one; wait: which
  View view;
  int64_t number = 0;  // of seek the offset, of byte_offset the offset, of sizes the size
  int whence = MPI_SEEK_SET;
  std::vector<int64_t> expected;  // any of these
  WaitHow how = WaitHow::wait;
};

struct Step {
  Verb verb;
  std::vector<Turn> turns;
  int amode = 0;
  std::map<std::string, std::string> hints;
  bool flag = false;  // atomicity: on; fence: with sync
};

struct Session {
  std::vector<Step> steps;
  bool deleted = false;  // by DELETE_ON_CLOSE
};

std::string describe(const Session& session);
std::string describe(const Access& access);

}  // namespace fuzz
