#include "loop/epoll_loop.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/assert.h"
#include "core/log.h"
#include "loop/marked.h"
#include "loop/spin.h"
#include "loop/timer_queue.h"

namespace forebay {

namespace {

// Turns that may run only tasks and timers before descriptors are looked at again: tasks that keep
// posting tasks must not starve the network, and a look costs a system call.
constexpr unsigned kTurnsWithoutLook = 8;

// Turns in which a poller found nothing, after which it is not worth looking at in every turn.
constexpr unsigned kLivelyTurns = 256;
constexpr unsigned kLeastLivelyTurns = 64;

// While a loop waits awake: looks at its pollers for each yield of the core, and for each look at
// its descriptors.
constexpr unsigned kLooksPerYield = 4;
constexpr unsigned kLooksPerFetch = 64;

// In a turn that has lasted so long nobody is left asleep until it ends: what it does is work, a
// copy or a file system's call, and whoever sleeps could do the next part of it meanwhile.
constexpr Duration kLongTurn = std::chrono::microseconds(15);

// A loop whose news comes through memory looks at its descriptors after so long, or so many times.
constexpr Duration kMemorySleep = std::chrono::milliseconds(20);
constexpr unsigned kSleepsWithoutFetch = 64;

// Longer delays are cut to this, so that sums of times do not overflow.
constexpr Duration kLongest = std::chrono::hours(24 * 365);

// A guarded loop looks so often whether its descriptors are still its own, if nothing comes.
constexpr Duration kGuardEvery = std::chrono::seconds(1);

int checked(int result, const char* what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return result;
}

int milliseconds(Duration wait) {
  if (wait == Duration::max()) return -1;
  const auto up = std::chrono::ceil<std::chrono::milliseconds>(std::min(wait, kLongest));
  return static_cast<int>(std::min<int64_t>(up.count(), INT32_MAX));
}

}  // namespace

struct EpollLoop::Impl {
  int epoll = -1;
  int bell = -1;  // changes under the mutex
  bool guarded = false;
  std::atomic<bool> lost{false};  // descriptors are not ours any more
  Time guarded_at{};
  struct Watched {
    int fd = -1;
    uint32_t events = 0;
  };
  std::unordered_map<Ready*, Watched> watched;
  SteadyClock clock;
  TimerQueue timers;
  Spin spin;
  uint64_t timers_made = 0;
  unsigned turns_without_look = 0;
  unsigned sleeps_without_fetch = 0;
  bool shares_core = false;
  Time turn_began{};
  std::atomic<std::thread::id> runner{};

  struct Lively {
    Poller* poller;  // null: forgotten meanwhile
    unsigned idle;   // turns without news
  };
  std::vector<Lively> lively;
  std::vector<Poller*> told;  // to be told that the turn has ended; null: forgotten meanwhile

  // Events fetched and not yet delivered; unwatch() takes its own out.
  std::array<epoll_event, 64> events;
  int fetched = 0, delivered = 0;

  // A poster sets `filled` and then looks at `waiting`; the runner sets `waiting` and then looks at
  // `filled`: at least one of them sees the other, so no task is left behind a sleeping runner.
  std::atomic<bool> filled{false};    // something is posted
  std::atomic<bool> wake_due{false};  // the next wait must not block
  std::atomic<bool> waiting{false};   // the runner is, or is about to be, in the kernel
  std::mutex mutex;
  Poller* sleeper = nullptr;  // the runner sleeps on it
  std::vector<Task> posted;
  std::vector<Task> batch;  // kept for its capacity

  Impl();
  ~Impl();
  void open_own();
  void close_own() const;
  bool owns(int fd) const { return !guarded || is_marked(fd); }
  bool add(int fd, uint32_t events, Ready* ready, int how) const;
  void look_at_own();
  void repair();
  bool run_timers();
  bool run_posted();
  bool look(Duration most);
  bool look_awake();
  void yield();
  void give_way();
  void end_turn();
  bool poll_lively(bool may_rest);
  bool all_rest();
  bool sleep_on_memory(Duration& wait);
  int fetch(Duration wait);
  bool deliver();
  Duration until_next_timer(Duration most);
  void ring();
};

EpollLoop::Impl::Impl() {
  open_own();
}

EpollLoop::Impl::~Impl() {
  close_own();
}

void EpollLoop::Impl::open_own() {
  epoll = checked(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
  bell = checked(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd");
  checked(add(bell, EPOLLIN, nullptr, EPOLL_CTL_ADD) ? 0 : -1, "epoll_ctl");
  if (guarded) guarded = mark_descriptor(epoll) && mark_descriptor(bell);
}

void EpollLoop::Impl::close_own() const {
  for (const int fd : {bell, epoll}) {
    if (owns(fd)) ::close(fd);
  }
}

bool EpollLoop::Impl::add(int fd, uint32_t wanted, Ready* ready, int how) const {
  epoll_event event{};
  event.events = wanted;
  event.data.ptr = ready;
  return ::epoll_ctl(epoll, how, fd, &event) == 0;
}

// The epoll each time, because by its number there might be another one; the rest now and then.
void EpollLoop::Impl::look_at_own() {
  bool all = !lost.load() && owns(epoll);
  if (all && clock.now() - guarded_at >= kGuardEvery) {
    guarded_at = clock.now();
    all = owns(bell) &&
          std::ranges::all_of(watched, [&](const auto& one) { return owns(one.second.fd); });
  }
  if (!all) repair();
}

void EpollLoop::Impl::repair() {
  log::warn("this program has closed descriptors of forebay's, which are made anew");
  {
    std::lock_guard lock(mutex);
    lost.store(false);
    close_own();
    open_own();
  }
  fetched = delivered = 0;
  std::vector<Ready*> gone;
  for (const auto& [ready, at] : watched) {
    if (!owns(at.fd) || !add(at.fd, at.events, ready, EPOLL_CTL_ADD)) gone.push_back(ready);
  }
  for (Ready* const ready : gone) {
    if (watched.erase(ready) > 0) ready->lost();  // unless one before has ended it
  }
}

bool EpollLoop::Impl::run_timers() {
  if (timers.size() == 0) return false;
  // Only what was due at the start: a timer that rearms itself with no delay must not hold the
  // loop.
  const Time now = clock.now();
  bool ran = false;
  while (Task task = timers.pop_due(now)) {
    task();
    ran = true;
  }
  return ran;
}

bool EpollLoop::Impl::run_posted() {
  if (!filled.load()) return false;
  {
    std::lock_guard lock(mutex);
    batch.swap(posted);
    filled.store(false);
  }
  for (Task& task : batch) {
    task();
    task = nullptr;  // what it owns dies in order, before the next one runs
  }
  batch.clear();
  return true;
}

Duration EpollLoop::Impl::until_next_timer(Duration most) {
  if (const auto due = timers.next_due()) {
    return std::clamp(*due - clock.now(), Duration::zero(), std::max(most, Duration::zero()));
  }
  return std::max(most, Duration::zero());
}

// Lets descriptors have what they are ready for, waiting for it if there is nothing.
bool EpollLoop::Impl::look(Duration most) {
  turns_without_look = 0;
  if (guarded) look_at_own();
  Duration wait = until_next_timer(most);
  bool came = false;
  if (wait > Spin::kLongest && spin.due(clock.now())) {
    came = look_awake();
    spin.end(came, clock.now());
    if (came) wait = Duration::zero();
  }
  if (fetched == 0) {
    if (wait > Duration::zero() && !all_rest()) wait = Duration::zero();
    if (wait > Duration::zero()) {
      waiting.store(true);
      if (filled.load() || wake_due.load()) wait = Duration::zero();
    }
    const bool woken = (came && !lively.empty()) || sleep_on_memory(wait);
    if (!woken || ++sleeps_without_fetch >= kSleepsWithoutFetch) {
      sleeps_without_fetch = 0;
      fetched = fetch(woken ? Duration::zero() : wait);
    }
    waiting.store(false);
  }
  wake_due.store(false);
  turn_began = clock.now();
  return deliver();
}

// Looks again and again for a moment; true if there is something to do. Whoever else wants this
// core may have it in between.
bool EpollLoop::Impl::look_awake() {
  spin.begin(clock.now());
  for (unsigned i = 1;; ++i) {
    if (poll_lively(false) || filled.load() || wake_due.load()) return true;
    // A look into memory costs nothing beside one at the descriptors, or a yield.
    if (lively.empty() || i % kLooksPerFetch == 0) {
      fetched = fetch(Duration::zero());
      if (fetched > 0) return true;
    }
    if (!lively.empty() && i % kLooksPerYield != 0) continue;
    ::sched_yield();
    if (!spin.go_on(clock.now())) return false;
  }
}

void EpollLoop::Impl::end_turn() {
  for (size_t i = 0; i < told.size(); ++i) {
    if (!told[i]) continue;
    told[i]->due_ = false;
    told[i]->turn_ended();
  }
  told.clear();
}

// In the middle of a turn that has taken long: those who wait awake for this loop must not take it
// for one who computes.
void EpollLoop::Impl::give_way() {
  if (clock.now() - turn_began < spin.slice() / 5) return;
  end_turn();
  yield();
  turn_began = clock.now();
}

// Unless somebody who computes would take the core for long.
void EpollLoop::Impl::yield() {
  const Time begin = clock.now();
  if (!spin.due(begin)) return;
  ::sched_yield();
  const Time end = clock.now();
  if (end - begin >= spin.slice()) spin.lose_slice(end);
}

// True if there was something to do. Whoever is called may add and forget others.
bool EpollLoop::Impl::poll_lively(bool may_rest) {
  bool any = false;
  // The more there are, the sooner an idle one is a burden to the others; but a look costs a
  // hundredth of what it costs to be rung.
  const size_t most = std::max<size_t>(kLivelyTurns / (lively.size() + 1), kLeastLivelyTurns);
  for (size_t i = 0; i < lively.size(); ++i) {
    Poller* const poller = lively[i].poller;
    if (!poller) continue;
    const bool did = poller->poll();
    any = any || did;
    if (did && shares_core) give_way();
    if (lively[i].poller != poller) continue;
    lively[i].idle = did ? 0 : lively[i].idle + may_rest;
    if (lively[i].idle > most && poller->rest()) {
      poller->lively_ = false;
      lively[i].poller = nullptr;
    }
  }
  std::erase_if(lively, [](const Lively& l) { return !l.poller; });
  if (shares_core) spin.crowd(static_cast<unsigned>(lively.size()));
  return any;
}

bool EpollLoop::Impl::all_rest() {
  for (const Lively& one : lively) {
    if (one.poller && !one.poller->rest()) return false;
  }
  return true;
}

// Where all news but those of descriptors, which are rare, comes through one poller's memory, the
// loop sleeps on that, for a while, which is then taken from `wait`. True: it was woken.
bool EpollLoop::Impl::sleep_on_memory(Duration& wait) {
  if (wait < kMemorySleep || lively.size() != 1 || !lively.front().poller) return false;
  Poller& poller = *lively.front().poller;
  {
    std::lock_guard lock(mutex);
    sleeper = &poller;
  }
  // Whoever has posted since has seen that the runner waits, but not that it sleeps there.
  const bool woken = !waiting.load() || poller.sleep(kMemorySleep);
  if (!woken && wait != Duration::max()) wait -= kMemorySleep;
  std::lock_guard lock(mutex);
  sleeper = nullptr;
  return woken;
}

int EpollLoop::Impl::fetch(Duration wait) {
  // Closing an epoll does not wake whoever waits for it.
  if (guarded) wait = std::min(wait, kGuardEvery);
  const int n =
      ::epoll_wait(epoll, events.data(), static_cast<int>(events.size()), milliseconds(wait));
  if (n < 0 && guarded && errno != EINTR) lost.store(true);
  FOREBAY_ASSERT(n >= 0 || guarded || errno == EINTR, std::strerror(errno));
  return std::max(n, 0);
}

bool EpollLoop::Impl::deliver() {
  bool ran = false;
  for (delivered = 0; delivered < fetched;) {
    const epoll_event event = events[static_cast<size_t>(delivered++)];
    auto* ready = static_cast<Ready*>(event.data.ptr);
    if (ready) {
      ready->ready(event.events);
      ran = true;
    } else if (uint64_t rung; event.events == EPOLLIN) {
      // The bell, or a descriptor that is watched no more: emptying the bell is harmless.
      [[maybe_unused]] const ssize_t n = owns(bell) ? ::read(bell, &rung, sizeof rung) : 0;
    }
  }
  fetched = delivered = 0;
  return ran;
}

// With the mutex held: until it is free the runner cannot take what was posted, which may be what
// lets somebody destroy the loop.
void EpollLoop::Impl::ring() {
  const uint64_t one = 1;
  if (waiting.exchange(false)) {
    const bool ours = owns(bell);
    if (!ours) lost.store(true);
    [[maybe_unused]] const ssize_t n = ours ? ::write(bell, &one, sizeof one) : 0;
    if (sleeper) sleeper->interrupt();
  }
}

EpollLoop::EpollLoop() : impl_(std::make_unique<Impl>()) {}

EpollLoop::~EpollLoop() {
  // What a dropped task owns may post, or destroy things bound to this loop: while it still works.
  Impl& m = *impl_;
  for (bool more = true; more;) {
    m.timers.clear();
    std::vector<Task> dropped;
    std::lock_guard lock(m.mutex);
    dropped.swap(m.posted);
    more = !dropped.empty();
  }
}

void EpollLoop::post(Task task) {
  std::lock_guard lock(impl_->mutex);
  impl_->posted.push_back(std::move(task));
  impl_->filled.store(true);
  impl_->ring();
}

void EpollLoop::wake() {
  std::lock_guard lock(impl_->mutex);
  impl_->wake_due.store(true);
  impl_->ring();
}

Loop::TimerId EpollLoop::after(Duration d, Task task) {
  const Time due = impl_->clock.now() + std::clamp(d, Duration::zero(), kLongest);
  return impl_->timers.add(due, impl_->timers_made++, std::move(task));
}

void EpollLoop::cancel(TimerId id) {
  impl_->timers.cancel(id);
}

Time EpollLoop::now() const {
  return impl_->clock.now();
}

bool EpollLoop::on_loop() const {
  return impl_->runner.load(std::memory_order_relaxed) == std::this_thread::get_id();
}

bool EpollLoop::run_one(Duration most) {
  Impl& m = *impl_;
  FOREBAY_ASSERT(!on_loop(), "a task must not run its own loop");
  m.runner.store(std::this_thread::get_id(), std::memory_order_relaxed);
  m.turn_began = m.clock.now();
  const bool timers_ran = m.run_timers();
  // What came is looked at before what was posted, which may be waiting for it.
  const bool polled = m.poll_lively(true);
  const bool posted_ran = m.run_posted();
  m.end_turn();
  if (m.shares_core && (polled || posted_ran)) m.yield();
  bool ran = polled || posted_ran || timers_ran;
  if (!ran || ++m.turns_without_look >= kTurnsWithoutLook) {
    ran = m.look(ran ? Duration::zero() : most) || ran;
    m.end_turn();
  }
  m.runner.store(std::thread::id(), std::memory_order_relaxed);
  return ran;
}

void EpollLoop::watch(int fd, uint32_t events, Ready& ready, bool known) {
  Impl& m = *impl_;
  if (m.guarded) m.watched[&ready] = {fd, events};
  const bool done = m.owns(m.epoll) && m.owns(fd) &&
                    m.add(fd, events, &ready, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD);
  if (!done && m.guarded) return m.lost.store(true);  // it is told when the loop looks next
  FOREBAY_ASSERT(done, std::strerror(errno));
}

void EpollLoop::guard() {
  impl_->guarded = mark_descriptor(impl_->epoll) && mark_descriptor(impl_->bell);
}

void EpollLoop::adopt(int fd) const {
  if (impl_->guarded) mark_descriptor(fd);
}

bool EpollLoop::owns(int fd) const {
  return impl_->owns(fd);
}

void EpollLoop::share_core() {
  impl_->shares_core = true;
}

unsigned EpollLoop::crowd() const {
  return static_cast<unsigned>(impl_->lively.size());
}

void EpollLoop::set_crowd(unsigned others) {
  impl_->spin.crowd(others);
}

void EpollLoop::expect() {
  impl_->spin.expect();
}

void EpollLoop::poll(Poller& poller) {
  if (std::exchange(poller.lively_, true)) return;
  impl_->lively.push_back({&poller, 0});
}

void EpollLoop::tell_at_end(Poller& poller) {
  if (impl_->clock.now() - impl_->turn_began >= kLongTurn) return poller.turn_ended();
  if (std::exchange(poller.due_, true)) return;
  impl_->told.push_back(&poller);
}

void EpollLoop::forget(Poller& poller) {
  if (std::exchange(poller.due_, false)) std::ranges::replace(impl_->told, &poller, nullptr);
  if (!std::exchange(poller.lively_, false)) return;
  for (Impl::Lively& one : impl_->lively) {
    if (one.poller == &poller) one.poller = nullptr;
  }
}

void EpollLoop::unwatch(int fd, Ready& ready) {
  impl_->watched.erase(&ready);
  if (impl_->owns(impl_->epoll)) ::epoll_ctl(impl_->epoll, EPOLL_CTL_DEL, fd, nullptr);
  for (int i = impl_->delivered; i < impl_->fetched; ++i) {
    epoll_event& event = impl_->events[static_cast<size_t>(i)];
    if (event.data.ptr == &ready) event.data.ptr = nullptr, event.events = 0;
  }
}

}  // namespace forebay
