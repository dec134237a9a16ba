// Turns a hang or a crash into a failure that says which case it was.
#pragma once

#include <string>

namespace fuzz {

// One per process: signals are.
class Watchdog {
 public:
  explicit Watchdog(int seconds);
  // From now on a signal prints `text`; the time begins anew.
  void watch(const std::string& text);
  // Where in it the process is now.
  void at(int rank, int step);
  void rest();

 private:
  int seconds_;
};

}  // namespace fuzz
