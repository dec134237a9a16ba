// fsck through the interface: walks the tree from the top and compares what readdir, lookup and
// getattr say with each other, and link counts with the names found. Throws Wrong (env.h).
#pragma once

#include "env.h"

namespace forebay::conformance {

void fsck(Env& env, bool has_folders);

}  // namespace forebay::conformance
