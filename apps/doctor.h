// What `forebay doctor` knows of a program before it runs: can the preload serve it? Looks at the
// file, and runs nothing.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"

namespace forebay {

struct Diagnosis {
  std::string path;                     // what was looked at: of a script, its interpreter
  std::vector<std::string> not_served;  // why nothing of it is served
  std::vector<std::string> partly;      // what of it may not be
  bool covered() const { return not_served.empty() && partly.empty(); }
};

// `program` is a path, or a name in PATH.
Result<Diagnosis> diagnose(const std::string& program);

}  // namespace forebay
