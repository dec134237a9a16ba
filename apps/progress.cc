#include "progress.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "assembly/units.h"
#include "printable.h"

namespace forebay {
namespace {

constexpr int kBar = 24;
constexpr auto kRedraw = std::chrono::milliseconds(200);

// Signal handlers can reach nothing else.
volatile sig_atomic_t g_signal = 0;

void remember(int signal) {
  g_signal = signal;
}

}  // namespace

Progress::Progress(const std::string& what, uint64_t total, When when)
    : what_(printable(what)),
      total_(total),
      wanted_(when == When::always || (when == When::on_terminal && ::isatty(STDERR_FILENO))),
      patience_(when == When::always ? std::chrono::seconds(0) : std::chrono::seconds(2)) {}

Progress::~Progress() {
  if (visible_) std::fputs("\r\x1b[K", stderr);
}

void Progress::moved(uint64_t bytes) {
  done_ += bytes;
  const auto now = Clock::now();
  if (!wanted_ || now - began_ < patience_ || now - drawn_ < kRedraw) return;
  drawn_ = now;
  draw(std::chrono::duration<double>(now - began_).count());
}

void Progress::draw(double seconds) {
  visible_ = true;
  fmt::print(stderr, "\r{}\x1b[K", progress_line(what_, done_, total_, seconds));
  std::fflush(stderr);
}

std::string progress_line(const std::string& what, uint64_t done, uint64_t total, double seconds) {
  const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  const std::string speed = about_size(static_cast<uint64_t>(rate)) + "/s";
  if (total == 0) return fmt::format("{}  {}  {}", what, about_size(done), speed);
  const double part = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const int full = static_cast<int>(part * kBar);
  std::string bar = std::string(static_cast<size_t>(full), '=');
  if (full < kBar) bar += '>';
  bar.resize(kBar, ' ');
  std::string line = fmt::format("{}  [{}] {:3.0f}%  {} of {}  {}", what, bar, part * 100,
                                 about_size(done), about_size(total), speed);
  if (rate > 0 && done < total)
    line += fmt::format("  {:.0f} s left", static_cast<double>(total - done) / rate);
  return line;
}

void catch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = remember;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // not SA_RESTART: a waiting read must return
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
}

bool interrupted() {
  return g_signal != 0;
}
int interrupted_by() {
  return g_signal;
}

}  // namespace forebay
