#include "core/assert.h"

#include <cstdio>
#include <cstdlib>

namespace forebay {

void assert_failed(const char* condition, const char* file, int line, const std::string& detail) {
  std::fprintf(stderr, "%s:%d: assertion failed: %s%s%s\n", file, line, condition,
               detail.empty() ? "" : ": ", detail.c_str());
  std::abort();
}

}  // namespace forebay
