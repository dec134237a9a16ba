#include "options.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <stdexcept>

#include "planner.h"

namespace fuzz {
namespace {

const std::set<std::string> features = {"append",
                                        "atomic",
                                        "byte-offset",
                                        "collective",
                                        "eof",
                                        "get-status",
                                        "get-elements",
                                        "hints",
                                        "holey-etype",
                                        "icollective",
                                        "ishared",
                                        "lb",
                                        "nested-memory",
                                        "nested-view",
                                        "nonblocking",
                                        "ordered",
                                        "overlapping-reads",
                                        "own-collective",
                                        "partial-count",
                                        "preallocate",
                                        "race-atomic",
                                        "race-shared",
                                        "seek-end",
                                        "set-size",
                                        "shared",
                                        "split",
                                        "split-ordered",
                                        "waitsome",
                                        "wronly",
                                        "zero-blocks",
                                        "zero-count"};

int64_t number(const std::string& text) {
  char* end = nullptr;
  int64_t n = std::strtoll(text.c_str(), &end, 0);
  if (text.empty() || *end || n < 0) throw std::invalid_argument("not a number: " + text);
  return n;
}

void drop_features(Options& options, const std::string& names) {
  std::istringstream in(names);
  for (std::string name; std::getline(in, name, ',');) {
    if (!features.count(name)) throw std::invalid_argument("no such feature: " + name);
    options.without.insert(name);
  }
}

}  // namespace

std::string Options::replay() const {
  std::string s;
  if (zeros) s += " --zeros";
  if (!only.empty()) s += " --only " + only;
  for (const std::string& f : without) s += " --without " + f;
  return s;
}

Options parse_options(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    auto value = [&]() -> std::string {
      if (++i >= argc) throw std::invalid_argument(name + " wants a value");
      return argv[i];
    };
    if (name == "--seed")
      o.seed = static_cast<uint64_t>(number(value()));
    else if (name == "--case")
      o.only_case = number(value());
    else if (name == "--from")
      o.from = number(value());
    else if (name == "--ready")
      o.ready = value();
    else if (name == "--times")
      o.times = std::max<int64_t>(number(value()), 1);
    else if (name == "--cases")
      o.cases = number(value());
    else if (name == "--seconds")
      o.seconds = static_cast<double>(number(value()));
    else if (name == "--only")
      o.only = value();
    else if (name == "--dir")
      o.dir = value();
    else if (name == "--without")
      drop_features(o, value());
    else if (name == "--timeout")
      o.timeout = static_cast<int>(number(value()));
    else if (name == "--zeros")
      o.zeros = true;
    else if (name == "--verbose")
      o.verbose = true;
    else if (name == "--keep-going")
      o.keep_going = true;
    else if (name == "--help")
      o.help = true;
    else
      throw std::invalid_argument("unknown option " + name);
  }
  if (!o.only.empty() && kind_index(o.only) < 0)
    throw std::invalid_argument("no such kind: " + o.only);
  return o;
}

const char* usage() {
  return "mpiio_fuzz: random MPI-IO programs against a serial oracle. Run it under mpiexec.\n"
         "  --seed N       where the cases come from (default: the clock)\n"
         "  --cases N      how many cases (default 200)\n"
         "  --from K       begin with case K (to go on after a crash)\n"
         "  --seconds S    stop after S seconds, however many cases were run\n"
         "  --case K       only case K of the seed (same number of ranks, same --only and "
         "--without)\n"
         "  --ready FILE   make this file when every rank has had a file open\n"
         "  --times N      play each case so often, for what fails now and then\n"
         "  --only KIND    independent, collective, nonblocking, split, shared, ordered, atomic, "
         "mixed\n"
         "  --without F    leave a feature out (may be repeated, or a list with commas; see "
         "README.md)\n"
         "  --zeros        what was never written must read as zeros (MPI leaves it undefined)\n"
         "  --dir PATH     where the files go (default: here)\n"
         "  --timeout S    a case that takes longer has failed (default 60)\n"
         "  --keep-going   go on after a failed case\n"
         "  --verbose      print every script\n";
}

}  // namespace fuzz
