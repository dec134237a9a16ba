#include "mpiio/signal_word.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace forebay::mpiio {
namespace {

// No wake-up is lost as long as all ranks live; and whoever waits has other things to look after.
constexpr timespec kSleep = {.tv_sec = 0, .tv_nsec = 1'000'000};

}  // namespace

void SignalWord::yield() {
  ::sched_yield();
}

// Not the private kind: other processes wait on the same memory.
void SignalWord::wake() {
  ::syscall(SYS_futex, &value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void SignalWord::sleep_on(uint32_t seen) {
  ::syscall(SYS_futex, &value, FUTEX_WAIT, seen, &kSleep, nullptr, 0);
}

}  // namespace forebay::mpiio
