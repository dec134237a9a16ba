// A progress bar on standard error, shown once a transfer takes longer than two seconds and
// somebody is there to see it; and the flag that Ctrl-C sets.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace forebay {

class Progress {
 public:
  enum class When { never, on_terminal, always };
  // `total` 0: not known.
  Progress(const std::string& what, uint64_t total, When when);
  ~Progress();  // clears the line
  Progress(const Progress&) = delete;

  void moved(uint64_t bytes);

 private:
  using Clock = std::chrono::steady_clock;
  void draw(double seconds);

  const std::string what_;
  const uint64_t total_;
  const bool wanted_;
  const Clock::duration patience_;
  const Clock::time_point began_ = Clock::now();
  Clock::time_point drawn_ = began_;
  uint64_t done_ = 0;
  bool visible_ = false;
};

// What is shown: "name  [=====>    ]  50%  1.00 GiB of 2.00 GiB  512 MiB/s  2 s left".
std::string progress_line(const std::string& what, uint64_t done, uint64_t total, double seconds);

// From now on the first SIGINT, SIGTERM or SIGHUP only sets a flag, so that what is under way can
// be cleaned up; the second one ends the program at once.
void catch_interrupts();
bool interrupted();
int interrupted_by();  // the signal, or 0

}  // namespace forebay
