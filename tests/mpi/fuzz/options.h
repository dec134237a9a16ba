// The command line.
#pragma once

#include <cstdint>
#include <set>
#include <string>

namespace fuzz {

struct Options {
  uint64_t seed = 0;  // 0: from the clock
  int64_t cases = 200;
  int64_t only_case = -1;
  int64_t from = 0;
  int64_t times = 1;   // each case
  double seconds = 0;  // 0: no limit
  std::string only;    // a kind of case; empty: all in turn
  std::string dir = ".";
  std::string ready;  // a file that is made when every rank has had a file open; empty: none
  std::set<std::string> without;
  int timeout = 60;    // seconds for one case
  bool zeros = false;  // what was never written must read as zeros
  bool verbose = false;
  bool keep_going = false;
  bool help = false;

  bool with(const char* feature) const { return !without.count(feature); }
  // What must be repeated to play a case again, besides --seed and --case.
  std::string replay() const;
};

// Throws std::invalid_argument with what is wrong.
Options parse_options(int argc, char** argv);
const char* usage();

}  // namespace fuzz
