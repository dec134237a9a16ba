// Advisory locks of a session (session.h, "Locks that wait").
#include <algorithm>

#include "client/flight.h"
#include "core/log.h"

namespace forebay {

namespace {

constexpr Duration kTryAgain = std::chrono::milliseconds(20);
constexpr Duration kTurn = std::chrono::seconds(2);  // that a lock waits while others are tried

}  // namespace

// Until it is done the lock is held: if a server's next life does not give it back, that is known
// before, and told. Afterwards nobody will want it back, whatever became of the request.
Completion Session::unlocks(const Request& request, Completion&& done) {
  Request about;
  about.handle = request.handle;
  about.cookie = request.cookie;
  about.flags = request.flags;
  about.offset = request.offset;
  about.length = request.length;
  return [this, about = std::move(about), done = std::move(done)](Result<Reply>&& result) mutable {
    std::optional<Error> loss = locks_.take_loss(about);
    locks_.unlocked(about);
    loss ? done(std::move(*loss)) : done(std::move(result));
  };
}

// It has a slot: may it wait there?
void Session::queue_lock(Flight& flight) {
  uint32_t& flags = flight.message.request.flags;
  if (flight.tries) flags |= kFlagWait;
  const bool full = lock_waits_ >= std::max<size_t>(1, slots_.size() / 4);
  const bool passes = std::exchange(flight.gives_way, false);
  flight.tries = (flags & kFlagWait) && (full || passes);
  if (flight.tries) flags &= ~kFlagWait;
  if ((flags & kFlagWait) == 0) return;
  ++lock_waits_;
  flight.waits = loop_.now();
}

// True: it has been taken, to be tried again.
bool Session::retries_lock(FlightRef& flight) {
  const Result<Reply>& result = *flight->result;
  if (result || result.error().code() != (flight->tries ? EAGAIN : ECANCELED)) return false;
  if (flight->cancelled) return flight->result = Error(ECANCELED), false;
  flight->result.reset();
  flight->sent_now = false;
  tried_locks_.push_back(std::move(flight));
  if (tried_locks_.size() > 1) return true;  // there is a timer
  loop_.after(kTryAgain, [weak = std::weak_ptr<Session*>(alive_)] {
    const auto session = weak.lock();
    if (!session) return;
    Session& self = **session;
    auto locks = std::exchange(self.tried_locks_, {});
    std::ranges::stable_sort(locks, {}, [](const FlightRef& lock) { return lock->waits; });
    for (FlightRef& lock : locks) self.queue_.push_back(std::move(lock));
    self.give_way();
    self.pump();
  });
  return true;
}

// Only of those that wait a server knows whom they wait for, and whether that is a circle. So all
// have their turn.
void Session::give_way() {
  if (!link_.up()) return;
  Flight* longest = nullptr;
  for (const Slot& slot : slots_) {
    Flight* const lock = slot.flight.get();
    if (!lock || lock->message.request.op != Op::lock || lock->gives_way || lock->cancelled ||
        !(lock->message.request.flags & kFlagWait) || loop_.now() - lock->waits < kTurn) {
      continue;
    }
    if (!longest || lock->waits < longest->waits) longest = lock;
  }
  if (!longest) return;
  longest->gives_way = true;
  link_.send(wire::encode(wire::Cancel{longest->message.id}));
}

void Session::note_lock(const Flight& flight, const Result<Reply>& result) {
  const Request& r = flight.message.request;
  if (r.op != Op::lock) return;
  if (result) {
    locks_.granted(r, flight.caller, *result);
  } else if (flight.reclaims) {
    log::warn("a lock could not be reclaimed after the server's restart: {}",
              result.error().message());
    locks_.lost(r);
  }
}

// From a server that has just begun another life, before anything else.
void Session::reclaim_locks() {
  // What was to be reclaimed from the life before is asked for anew.
  const size_t stale = std::erase_if(queue_, [](const FlightRef& f) { return f->reclaims; });
  live_ -= stale;
  background_ -= stale;
  std::vector<FlightRef> flights;
  for (Request& r : locks_.reclaims()) {
    auto flight = std::make_unique<Flight>(std::move(r), [](Result<Reply>&&) {});
    ++live_;
    ++background_;
    requests_.add();
    flight->number = ++submitted_;
    flight->background = flight->reclaims = true;
    flights.push_back(std::move(flight));
  }
  queue_.insert(queue_.begin(), std::make_move_iterator(flights.begin()),
                std::make_move_iterator(flights.end()));
}

// The link has given up, and nobody waits; but a server that comes back may still have our locks.
void Session::come_back_later() {
  if (locks_.empty() || std::exchange(coming_back_, true)) return;
  loop_.after(look_every_, [weak = std::weak_ptr<Session*>(alive_)] {
    const auto session = weak.lock();
    if (!session) return;
    Session& self = **session;
    self.coming_back_ = false;
    if (!self.locks_.empty()) self.link_.want();
  });
}

}  // namespace forebay
