// The work of the demonstration: processes that write one shared file in interleaved blocks, wait
// for each other, and read each other's blocks back, checking every byte. Once through a server,
// once directly on the directory that it serves.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "core/result.h"
#include "core/types.h"

namespace forebay {

struct DemoPattern {
  unsigned processes = 8;
  uint64_t block = 64_KiB;
  uint64_t blocks = 512;        // of each process
  uint64_t blocks_at_once = 1;  // in one request: a strided list
  uint64_t total() const { return processes * block * blocks; }
};

// One open file, seen by one process. Blocks are counted per process, from `first`.
class DemoFile {
 public:
  virtual ~DemoFile() = default;
  virtual Result<void> write(const DemoPattern& p, unsigned rank, uint64_t first,
                             std::span<const std::byte> data) = 0;
  virtual Result<void> read(const DemoPattern& p, unsigned rank, uint64_t first,
                            std::span<std::byte> data) = 0;
};
// Runs in each process, so each has a connection of its own.
using OpenDemoFile = std::function<Result<std::unique_ptr<DemoFile>>()>;

struct DemoTimes {
  double write_seconds = 0, read_seconds = 0;
};

// Forks the processes and waits for them; an error says which one failed, and at which byte. When
// `give_up` says so they are ended, and it fails with EINTR.
Result<DemoTimes> run_demo_work(const DemoPattern& pattern, const OpenDemoFile& open,
                                const std::function<bool()>& give_up);

OpenDemoFile direct_file(const std::string& path);

}  // namespace forebay
