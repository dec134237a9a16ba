#include "client/driver.h"

#include <signal.h>

#include <algorithm>
#include <system_error>

#include "core/log.h"

namespace forebay {

namespace {

constexpr Duration kForever = Duration::max();
constexpr Duration kGoodbyeTime = std::chrono::seconds(1);

// So long the background thread leaves small requests to whoever may come and wait for them.
constexpr auto kGrace = std::chrono::milliseconds(2);
constexpr uint64_t kSmall = 32_KiB;

// So long nobody has called before the background thread listens for recalls: who is woken for a
// call has had its wait already.
constexpr auto kQuiet = std::chrono::microseconds(500);

constexpr int kLookTurns = 16;
constexpr int kTestTurns = 16;  // that a test, which does not wait, may do for others

// All that it needs of the client is sent with it.
bool is_small(const Request& r) {
  return !is_transfer(r.op) || r.file.total().value <= kSmall;
}

std::shared_ptr<LentMemory> make_lent(uint64_t bytes) {
  if (bytes == 0) return nullptr;
  auto lent = LentMemory::create(bytes);
  if (lent) return std::move(*lent);
  log::debug("{}; going on without", lent.error().message());
  return nullptr;
}

}  // namespace

Driver::Driver(const RemoteOptions& options, const RemoteRuntime& runtime, bool patient)
    : own_loop_(runtime.loop ? nullptr : runtime.make_loop()),
      loop_(own_loop_ ? *own_loop_ : *runtime.loop),
      transport_(runtime.make_transport(loop_)),
      lent_(make_lent(runtime.lent)),
      session_(std::make_unique<Session>(loop_, *transport_, options, patient)) {
  if (own_loop_ && !options.relay) {
    shortcuts_ = std::make_unique<Shortcuts>(Shortcuts::Parts{
        [this](Request&& request) { return ask_shortcut(std::move(request)); },
        [this](Request&& request, Shortcuts::Parts::Answered answered) {
          ask_shortcut_later(std::move(request), std::move(answered));
        },
        [this] { return session_->connection(); }, [this] { return session_->descriptor(); }});
    session_->use(shortcuts_.get());
    gathered_ = std::make_unique<GatherQueue>(
        *shortcuts_, GatherQueue::Sender{sent_,
                                         [this](Request&& request, Completion&& done) {
                                           send_later(std::move(request), std::move(done));
                                         },
                                         [this](Completion&& done, Result<Reply>&& result) {
                                           --submitted_;
                                           done(std::move(result));
                                         }});
  }
  if (!lent_) return;
  transport_->lend(lent_->pages());
  session_->lend(lent_);
}

Driver::~Driver() {
  leaving_ = true;
  settle_gathered();
  if (shortcuts_) shortcuts_->give_back();
  Waiter waiter;
  run(waiter, [&] { session_->when_idle([&] { finish(waiter); }); });
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    inbox_.emplace_back([] {});  // it may be listening
    nudge();
    background_changed_.notify_one();
  }
  if (background_.joinable()) background_.join();
  leave();
}

void Driver::leave() {
  session_->leave();
  const Time end = loop_.now() + kGoodbyeTime;
  while (session_->unsent() != 0 && loop_.now() < end) {
    if (!loop_.run_one(end - loop_.now()) && !own_loop_) break;
  }
  session_.reset();
}

Result<Reply> Driver::call(Request&& request) {
  settle_gathered();
  if (shortcuts_ && session_->shares_memory() && submitted_.load() == 0) {
    if (auto done = shortcuts_->call(request)) return std::move(*done);
  }
  return send(std::move(request));
}

Result<Reply> Driver::send(Request&& request) {
  Waiter waiter;
  std::optional<Result<Reply>> answer;
  run(waiter, [&] {
    settle(request);
    session_->submit(
        std::move(request),
        [&](Result<Reply>&& result) {
          answer.emplace(std::move(result));
          finish(waiter);
        },
        false);
  });
  return std::move(*answer);
}

// Without a server that shares memory there is nothing to ask; and what is under way comes first.
Shortcuts::Answer Driver::ask_shortcut(Request&& request) {
  Waiter waiter;
  Shortcuts::Answer answer{Error(EAGAIN), nullptr, 0};
  const Handle file = request.handle;
  run(waiter, [&] {
    if (!session_->region() || session_->busy_with(file)) return finish(waiter);
    session_->submit(
        std::move(request),
        [&](Result<Reply>&& result) {
          const bool of_use = !session_->busy_with(file);
          answer = session_->shortcut_answer(std::move(result), of_use);
          finish(waiter);
        },
        false);
  });
  return answer;
}

// On the loop, of requests that are being sent: after them.
void Driver::ask_shortcut_later(Request&& request, Shortcuts::Parts::Answered answered) {
  loop_.post([this, request = std::move(request), answered = std::move(answered)]() mutable {
    const Handle file = request.handle;
    if (leaving_ || !session_->region() || session_->lacks(file)) {
      return answered({Error(EAGAIN), nullptr, 0});
    }
    session_->submit(
        std::move(request),
        [this, file, answered = std::move(answered)](Result<Reply>&& result) mutable {
          const bool of_use = !session_->lacks(file);
          answered(session_->shortcut_answer(std::move(result), of_use));
        },
        true);
  });
}

RemoteStore::Stats Driver::stats() const {
  RemoteStore::Stats stats = session_->stats();
  if (shortcuts_) {
    stats.by_shortcut = shortcuts_->done();
    stats.gathered = shortcuts_->gathered();
  }
  return stats;
}

Result<Handle> Driver::root() {
  Waiter waiter;
  std::optional<Result<Handle>> answer;
  run(waiter, [&] {
    session_->when_up([&](Result<Handle> root) {
      answer = std::move(root);
      finish(waiter);
    });
  });
  return std::move(*answer);
}

// What is called from now on comes after it: not by a shortcut before it is done.
void Driver::submit(Request&& request, Completion&& done) {
  if (!shortcuts_ || request.handle.empty()) return enqueue(std::move(request), std::move(done));
  ++submitted_;
  shortcuts_->submitting();
  if (gathers(request, done)) return;
  settle_gathered();
  ++sent_;
  send_later(std::move(request), std::move(done));
}

// It is counted in submitted_ and sent_.
void Driver::send_later(Request&& request, Completion&& done) {
  Completion counted = [this, done = std::move(done)](Result<Reply>&& result) mutable {
    --submitted_;
    done(std::move(result));
  };
  enqueue(std::move(request), std::move(counted), &sent_);
}

bool Driver::gathers(Request& request, Completion& done) {
  const GatherQueue::Added added = gathered_->add(request, done);
  if (added == GatherQueue::Added::first) {
    std::lock_guard lock(mutex_);
    ++gatherings_;
    begin_background();
    if (led_) nudge();  // it may be the background thread itself
    call_background();
  }
  return added != GatherQueue::Added::no;
}

// What is called or sent after it comes after all that was gathered before.
void Driver::settle_gathered() {
  if (gathered_) gathered_->settle();
}

void Driver::enqueue(Request&& request, Completion&& done, Session::Count* counted) {
  if (!own_loop_ || leader_.load(std::memory_order_relaxed) == std::this_thread::get_id()) {
    return session_->submit(std::move(request), std::move(done), true, counted);
  }
  std::unique_lock lock(mutex_);
  begin_background();
  const bool small = is_small(request);
  urgent_ = urgent_ || !small;
  if (led_ || (helped_ && small && (background_left_ || !inbox_.empty()))) {
    inbox_.push_back(
        [this, request = std::move(request), done = std::move(done), counted]() mutable {
          session_->submit(std::move(request), std::move(done), true, counted);
        });
    nudge();
    if (!led_) call_background();
    return;
  }
  take_lead();
  lock.unlock();
  drain();
  settle(request);
  session_->submit(std::move(request), std::move(done), true, counted);
  let_go();
}

void Driver::hold_leases(LeaseHolder* holder) {
  if (own_loop_ && holder) {
    std::lock_guard lock(mutex_);
    begin_background();
  }
  Waiter waiter;
  run(waiter, [&] {
    session_->hold_leases(holder);
    finish(waiter);
  });
}

void Driver::give_back(uint64_t lease) {
  if (!own_loop_ || leader_.load(std::memory_order_relaxed) == std::this_thread::get_id()) {
    return session_->give_back(lease);
  }
  std::unique_lock lock(mutex_);
  if (led_) {
    inbox_.push_back([this, lease] { session_->give_back(lease); });
    return nudge();
  }
  take_lead();
  lock.unlock();
  drain();
  session_->give_back(lease);
  let_go();
}

// Nobody listens to an idle connection. Before the first request in a while that must not be done
// twice, hear whether the server has gone meanwhile: otherwise it would be sent to a dead server,
// and its outcome be unknown for no reason.
void Driver::settle(const Request& request) {
  if (!own_loop_ || !session_->idle() || repeatable(request)) return;
  look();
}

// ---- Leading and following ----

// begin() runs on the leader's thread; returns when finish(waiter) has been called.
template <class Begin>
void Driver::run(Waiter& waiter, Begin&& begin) {
  if (!own_loop_) {
    begin();
    while (!waiter.done) {
      const bool ran = loop_.run_one(kForever);
      FOREBAY_ASSERT(ran, "the simulation has nothing left to run, and a request is unanswered");
    }
    return;
  }
  std::unique_lock lock(mutex_);
  if (led_) {
    inbox_.push_back(Task([&begin] { begin(); }));
    nudge();
    return follow(lock, waiter);
  }
  take_lead();
  lock.unlock();
  leading_for_ = &waiter;
  drain();
  begin();
  lead(waiter);
}

void Driver::finish(Waiter& waiter) {
  if (leading_for_ == &waiter || !own_loop_) {
    waiter.done = true;
    return;
  }
  std::lock_guard lock(mutex_);
  waiter.done = true;
  std::erase(followers_, &waiter);
  waiter.changed.notify_one();  // under the lock: the waiter may be gone as soon as it is free
}

void Driver::follow(std::unique_lock<std::mutex>& lock, Waiter& waiter) {
  followers_.push_back(&waiter);
  while (!waiter.done) {
    if (led_) {
      waiter.changed.wait(lock);
      continue;
    }
    std::erase(followers_, &waiter);
    take_lead();
    lock.unlock();
    leading_for_ = &waiter;
    return lead(waiter);
  }
}

void Driver::lead(Waiter& waiter) {
  Callback<bool()> done = [&] { return waiter.done; };
  while (!waiter.done) turn(done);
  leading_for_ = nullptr;
  let_go();
}

void Driver::turn(Callback<bool()>& enough) {
  drain();
  if (enough()) return;
  asleep_.store(true);
  if (!inbox_filled_.load()) loop_.run_one(kForever);
  asleep_.store(false);
}

void Driver::drain() {
  while (inbox_filled_.load()) {
    std::vector<Task> tasks;
    {
      std::lock_guard lock(mutex_);
      tasks.swap(inbox_);
      inbox_filled_.store(false);
    }
    visited_ = true;
    const Session::Gathering together(*session_);
    for (Task& task : tasks) task();
  }
}

void Driver::help(Callback<bool()> enough, bool wait) {
  if (!own_loop_) return;
  settle_gathered();
  if (enough()) {
    helped_ = true;
    return;
  }
  {
    std::lock_guard lock(mutex_);
    helped_ = true;
    if (led_) {
      urgent_ = urgent_ || wait;  // it does not come back when the leader has gone
      return;
    }
    take_lead();
  }
  drain();
  if (wait) {
    while (!enough()) turn(enough);
  } else {
    for (int i = 0; i < kTestTurns && !enough() && loop_.run_one(Duration::zero()); ++i) {
    }
  }
  let_go();
}

void Driver::take_lead() {
  led_ = true;
  ++leads_;
  visited_ = false;
  leader_.store(std::this_thread::get_id(), std::memory_order_relaxed);
}

void Driver::let_go() {
  const bool background_left = session_->background() != 0;
  const Duration quiet = session_->watches() ? Duration(kQuiet) : session_->looks_every();
  std::lock_guard lock(mutex_);
  leader_.store(std::thread::id(), std::memory_order_relaxed);
  led_ = false;
  background_left_ = background_left;
  if (own_loop_ && std::exchange(quiet_, quiet) != quiet && quiet != Duration::zero()) {
    begin_background();
    background_changed_.notify_one();
  }
  if (!followers_.empty()) {
    followers_.front()->changed.notify_one();
  } else if (background_left || !inbox_.empty() || (gathered_ && gathered_->any())) {
    call_background();
  }
}

// With mutex_ held. The application's signals are not for its thread. Where no thread can be had,
// things go on while somebody calls; it is tried again.
void Driver::begin_background() {
  if (background_.joinable()) return;
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);
  try {
    background_ = std::thread([this] { work_in_background(); });
  } catch (const std::system_error& e) {
    if (!std::exchange(warned_, true))
      log::warn("no thread for what goes on in the background: {}", e.what());
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// With mutex_ held.
void Driver::call_background() {
  if (background_idle_ || urgent_) background_changed_.notify_one();
}

// The inbox has something new; with mutex_ held.
void Driver::nudge() {
  inbox_filled_.store(true);
  if (asleep_.exchange(false)) loop_.wake();
}

// Until there is something to do, or to listen to: true.
bool Driver::await_work(std::unique_lock<std::mutex>& lock) {
  const auto wanted = [&] { return !led_ && (background_left_ || !inbox_.empty()); };
  background_idle_ = true;
  bool listen = false;
  while (!stopping_ && !wanted() && !listen) {
    if (gathered_ && gathered_->any()) {
      if (await_gathered(lock)) return false;
      continue;
    }
    if (quiet_ == Duration::zero()) {
      background_changed_.wait(lock);
      continue;
    }
    const uint64_t before = leads_;
    const Duration quiet = quiet_;
    const bool called = background_changed_.wait_for(lock, quiet) == std::cv_status::no_timeout;
    listen =
        !called && !led_ && quiet_ == quiet && leads_ == before && !(gathered_ && gathered_->any());
  }
  background_idle_ = false;
  if (listen || stopping_) return listen && !stopping_;
  if (helped_) background_changed_.wait_for(lock, kGrace, [&] { return stopping_ || urgent_; });
  return !stopping_ && wanted();
}

// What is gathered: left, for a moment, to whoever comes and waits for it. True: it has been seen
// to.
bool Driver::await_gathered(std::unique_lock<std::mutex>& lock) {
  background_idle_ = false;
  const uint64_t which = gatherings_;
  if (helped_) background_changed_.wait_for(lock, kGrace, [&] { return stopping_ || urgent_; });
  background_idle_ = true;
  if (helped_ && which != gatherings_) return false;
  background_idle_ = false;
  lock.unlock();
  settle_gathered();
  lock.lock();
  return true;
}

// Has anything happened to the connection?
void Driver::look() {
  for (int i = 0; i < kLookTurns && loop_.run_one(Duration::zero()); ++i) {
  }
}

void Driver::work_in_background() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (!await_work(lock)) continue;
    urgent_ = false;
    take_lead();
    lock.unlock();
    drain();
    if (!session_->watches()) look();
    Callback<bool()> none = [this] {
      return session_->background() == 0 && (visited_ || !session_->watches());
    };
    while (!none()) turn(none);
    let_go();
    lock.lock();
  }
}

}  // namespace forebay
