// Random datatypes, nested, of any constructor.
#pragma once

#include <functional>

#include "rng.h"
#include "type.h"

namespace fuzz {

struct TypeRules {
  std::function<TypePtr(Rng&)> leaf;
  // Every hole is a multiple of this (for a file type the etype's extent; in memory the alignment).
  int64_t gap = 1;
  // A file type: displacements begin at 0 or above and only grow (MPI-4.0, 14.1.1).
  bool file = false;
  // lb other than 0, that is displacements below or above it at the beginning.
  bool any_lb = true;
  bool empty_blocks = true;
  int depth = 2;
  int64_t max_extent = 4096;
};

TypePtr random_type(Rng& rng, const TypeRules& rules);

}  // namespace fuzz
