// Helpers of tests, header only: nothing here is part of forebay_core, and it needs no test
// framework.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>

#include "core/assert.h"
#include "core/extent_set.h"

namespace forebay {

// The seed of a random test: FOREBAY_SEED if it is set, so that a failure can be replayed, or a new
// one. Printed, so that every failure shows it.
inline uint64_t test_seed() {
  const char* given = std::getenv("FOREBAY_SEED");
  const uint64_t seed = given ? std::strtoull(given, nullptr, 0)
                              : (uint64_t{std::random_device{}()} << 32 | std::random_device{}());
  std::printf("seed %llu (replay with FOREBAY_SEED=%llu)\n", static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  return seed;
}

inline Extent ext(uint64_t offset, uint64_t length) {
  return {Offset(offset), Length(length)};
}

// A directory of its own under $TMPDIR or /tmp, removed with everything in it when destroyed.
class TempDir {
 public:
  TempDir() {
    const char* base = std::getenv("TMPDIR");
    std::string pattern = std::string(base && *base ? base : "/tmp") + "/forebay-test-XXXXXX";
    FOREBAY_ASSERT(::mkdtemp(pattern.data()) != nullptr, "mkdtemp " + pattern);
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace forebay
