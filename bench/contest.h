// One load through several doors in turn, and rows made of what they did.
#pragma once

#include <string>
#include <vector>

#include "bench/doors.h"
#include "bench/load.h"
#include "bench/measure.h"

namespace forebay::bench {

struct Contestant {
  OpenDoor open;
  pid_t server = 0;        // whose CPU counts as well
  unsigned in_flight = 0;  // 0: as the load says
};

Contestant direct(const std::string& directory);  // one request at a time: a call waits
Contestant forwarded(const Bed& bed, Socket kind = Socket::unix_socket);
Contestant allocated(const Bed& bed);

// Prepares the files in `directory`, lets all go in turn for the options' rounds, verifies after
// each run, and removes the files. Figures are requests per second.
std::vector<Side> contest(const BenchOptions& options, const Load& load,
                          const std::string& directory, const std::vector<Contestant>& contestants);

// One run of one of them; the files are there.
void run_once(const BenchOptions& options, const Load& load, const std::string& directory,
              const Contestant& who, uint64_t salt, Side& side);

// Figures and CPU of a row, by the load's size as MB/s and s/GB or as kop/s and us/op.
void fill(Row& row, const Load& load, const Side& ours, const Side& theirs);

// For the report: what the files below are like.
std::string state_of(const Load& load, const std::string& directory);

}  // namespace forebay::bench
