#include "store/posix_sigbus.h"

#include <pthread.h>
#include <setjmp.h>

#include <mutex>

#include "core/assert.h"

namespace forebay::posix {

namespace {

// The copy that a thread has under way. Initial-exec, because the handler may be the first to look
// at it on some thread of the application, where a lazy allocation could not be done.
struct Guarded {
  const std::byte* begin;
  const std::byte* end;
  sigjmp_buf back;
};
[[gnu::tls_model("initial-exec")]] thread_local Guarded* current = nullptr;

// Of the process, as the signal's disposition is.
std::mutex installing;
size_t guards = 0;
struct sigaction before =
    {};  // stays what it was after the last guard, for a handler still running

void to_default(int signal, const siginfo_t* info) {
  const bool fault = info->si_code > 0;  // not sent by a process
  if (before.sa_handler == SIG_IGN && !fault) return;
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  ::sigaction(signal, &action, nullptr);
  // A fault comes again when we return, with the right place for the core file.
  if (!fault) ::raise(signal);
}

// As the kernel would have called it.
void to_application(int signal, siginfo_t* info, void* context) {
  sigset_t mask = before.sa_mask, saved;
  if (!(before.sa_flags & SA_NODEFER)) ::sigaddset(&mask, signal);
  ::pthread_sigmask(SIG_BLOCK, &mask, &saved);
  if (before.sa_flags & SA_SIGINFO) {
    before.sa_sigaction(signal, info, context);
  } else {
    before.sa_handler(signal);
  }
  ::pthread_sigmask(SIG_SETMASK, &saved, nullptr);
}

void on_sigbus(int signal, siginfo_t* info, void* context) {
  const auto* at = static_cast<const std::byte*>(info->si_addr);
  if (Guarded* copy = current; copy && info->si_code > 0 && at >= copy->begin && at < copy->end) {
    current = nullptr;
    ::siglongjmp(copy->back, 1);
  }
  const bool handled = (before.sa_flags & SA_SIGINFO) ||
                       (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN);
  handled ? to_application(signal, info, context) : to_default(signal, info);
}

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) && action.sa_sigaction == on_sigbus;
}

void install() {
  struct sigaction now;
  ::sigaction(SIGBUS, nullptr, &now);
  if (is_ours(now)) return;  // somebody put it back
  before = now;
  struct sigaction ours = {};
  ours.sa_sigaction = on_sigbus;
  // Not blocked while it runs: it is left by a jump that restores no mask.
  ours.sa_flags = SA_SIGINFO | SA_NODEFER | (before.sa_flags & (SA_ONSTACK | SA_RESTART));
  ::sigemptyset(&ours.sa_mask);
  FOREBAY_ASSERT(::sigaction(SIGBUS, &ours, nullptr) == 0);
}

void uninstall() {
  struct sigaction now;
  ::sigaction(SIGBUS, nullptr, &now);
  if (is_ours(now)) ::sigaction(SIGBUS, &before, nullptr);
}

}  // namespace

BusGuard::BusGuard() {
  {
    std::lock_guard lock(installing);
    if (guards++ == 0) install();
  }
  sigset_t bus;
  ::sigemptyset(&bus);
  ::sigaddset(&bus, SIGBUS);
  ::pthread_sigmask(SIG_UNBLOCK, &bus, &mask_);
}

BusGuard::~BusGuard() {
  ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  std::lock_guard lock(installing);
  if (--guards == 0) uninstall();
}

bool BusGuard::run(std::span<const std::byte> window, void (*copy)(void*), void* context) {
  FOREBAY_ASSERT(!current, "one copy at a time");
  Guarded here;
  here.begin = window.data();
  here.end = window.data() + window.size();
  if (sigsetjmp(here.back, 0) != 0) return false;
  current = &here;
  copy(context);
  current = nullptr;
  return true;
}

}  // namespace forebay::posix
