#include "mpiio/background.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <system_error>

namespace forebay::mpiio {
namespace {

void use_every_core() {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) CPU_SET(cpu, &all);
  pthread_setaffinity_np(pthread_self(), sizeof all, &all);  // the kernel keeps to what is allowed
}

// Signals are the program's own threads' business.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGSEGV);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

Background::~Background() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Background::begin(Callback<void()> work) {
  {
    std::lock_guard lock(mutex_);
    if (has_thread()) {
      queue_.push_back(std::move(work));
      changed_.notify_one();
      return;
    }
  }
  work();
}

bool Background::has_thread() {
  if (thread_.joinable()) return true;
  SignalsBlocked blocked;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    return false;  // a limit of processes or threads
  }
  return true;
}

void Background::run() {
  use_every_core();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ending_ || !queue_.empty(); });
    if (queue_.empty()) return;
    auto work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    work();
    work = {};
    lock.lock();
  }
}

}  // namespace forebay::mpiio
