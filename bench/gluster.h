// A GlusterFS volume for the time of a benchmark: four bricks, no performance translators, mounted
// with direct I/O. tools/gluster starts it and ends it when we do, however we do.
#pragma once

#include <sys/types.h>

#include <string>

#include "core/result.h"

namespace forebay::bench {

class GlusterVolume {
 public:
  static constexpr const char* kWhat =
      "GlusterFS, 4 bricks, no performance translators, mounted with direct I/O";

  // In a folder of its own. The error says why there is none and what to do.
  static Result<GlusterVolume> start(const std::string& folder);
  GlusterVolume(GlusterVolume&& other) noexcept;
  ~GlusterVolume();  // unmounts and ends it

  const std::string& mount() const { return mount_; }

 private:
  GlusterVolume(pid_t keeper, int hold) : keeper_(keeper), hold_(hold) {}
  pid_t keeper_;
  int hold_;  // the volume ends when the last one that has this open is gone
  std::string mount_;
};

}  // namespace forebay::bench
