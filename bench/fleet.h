// Processes that do the same measured work at the same time, and what they report.
//
// Each process prepares, waits until all are ready, works, and leaves its figures in memory shared
// with the parent. CPU time is that of the measured part alone.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace forebay::bench {

// CPU seconds that a process has used so far, user and system, all its threads.
double cpu_seconds(pid_t pid);

struct Shared {
  double cpu = 0;                           // of the measured part
  double began = 0, ended = 0;              // by one clock for all
  double server_begin = 0, server_end = 0;  // what the server had used then; see Stretch
  uint64_t operations = 0;
  bool verified = false;
  uint32_t samples = 0;
  static constexpr uint32_t kMostSamples = 20000;
  float latency[kMostSamples];  // seconds
  char error[256] = {};
};

// The measured part of a process's work. A worker that does other things before or after, such as
// warming up or looking at what it wrote, has one of its own; else it is from `go` to the end.
class Stretch {
 public:
  explicit Stretch(pid_t server);  // begins now; 0: there is no server
  void end(Shared& out) const;

 private:
  pid_t server_;
  double begin_, cpu_, server_cpu_;
};

struct FleetResult {
  double seconds = 0;     // from the first one's begin to the last one's end
  double cpu = 0;         // of all of them
  double server_cpu = 0;  // from the first one's begin to the last one's end
  uint64_t operations = 0;
  std::vector<uint64_t> done;  // operations of each
  double p50 = 0;              // of all samples
  bool verified = false;       // all of them
};

// What one process does: prepares, calls `go` (which waits for the others; each time, if it is
// called again by all), works, and fills `out`.
using Worker = std::function<void(int index, const std::function<void()>& go, Shared& out)>;

// A process of ours: it ends with its parent, and by signals that the parent may catch.
void become_child();

// Runs n processes; an error text if one of them failed, or a signal came. `server` is whom they
// use, 0: nobody.
std::optional<std::string> run_fleet(int n, const Worker& worker, FleetResult& result,
                                     pid_t server = 0);

// One process that serves until told to stop (a bare server). `ready` is called with its pid.
class Child {
 public:
  explicit Child(const std::function<void()>& body);
  ~Child();  // kills and reaps
  Child(const Child&) = delete;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

}  // namespace forebay::bench
