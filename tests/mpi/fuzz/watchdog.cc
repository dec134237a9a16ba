#include "watchdog.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

namespace fuzz {
namespace {

// What a handler may use: nothing that allocates.
char message[1 << 16];
volatile size_t message_length = 0;
volatile int at_rank = 0, at_step = 0;

void put(const char* text, size_t length) {
  while (length > 0) {
    ssize_t n = write(STDERR_FILENO, text, length);
    if (n <= 0) return;
    text += n;
    length -= static_cast<size_t>(n);
  }
}

void put_number(int n) {
  char digits[12];
  size_t at = sizeof digits;
  do {
    digits[--at] = static_cast<char>('0' + n % 10);
    n /= 10;
  } while (n > 0);
  put(digits + at, sizeof digits - at);
}

void on_signal(int number) {
  signal(number, SIG_DFL);
  const char* what = number == SIGALRM ? "fuzz: no progress (hang) in " : "fuzz: crash in ";
  put(what, strlen(what));
  put(message, message_length);
  put("FAILED: rank ", 13);
  put_number(at_rank);
  put(" was at step ", 13);
  put_number(at_step);
  put("\n", 1);
  _exit(1);
}

}  // namespace

Watchdog::Watchdog(int seconds) : seconds_(seconds) {
  for (int number : {SIGALRM, SIGSEGV, SIGBUS, SIGFPE, SIGABRT}) signal(number, on_signal);
}

void Watchdog::watch(const std::string& text) {
  size_t length = text.size() < sizeof message ? text.size() : sizeof message;
  message_length = 0;
  memcpy(message, text.data(), length);
  message_length = length;
  alarm(static_cast<unsigned>(seconds_));
}

void Watchdog::at(int rank, int step) {
  at_rank = rank;
  at_step = step;
}

void Watchdog::rest() {
  alarm(0);
}

}  // namespace fuzz
