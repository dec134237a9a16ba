// Advisory locks of a session (session.h, "Locks that wait").
#include <algorithm>

#include "client/flight.h"
#include "core/log.h"

namespace forebay {

namespace {

constexpr Duration kTryAgain = std::chrono::milliseconds(20);

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
  flight.tries = (flags & kFlagWait) && lock_waits_ >= std::max<size_t>(1, slots_.size() / 4);
  if (flight.tries) flags &= ~kFlagWait;
  lock_waits_ += (flags & kFlagWait) != 0;
}

// True: it has been taken, to be tried again.
bool Session::retries_lock(FlightRef& flight) {
  const Result<Reply>& result = *flight->result;
  if (result || result.error().code() != EAGAIN) return false;
  if (flight->cancelled) return flight->result = Error(ECANCELED), false;
  flight->result.reset();
  flight->sent_now = false;
  tried_locks_.push_back(std::move(flight));
  if (tried_locks_.size() > 1) return true;  // there is a timer
  loop_.after(kTryAgain, [weak = std::weak_ptr<Session*>(alive_)] {
    const auto session = weak.lock();
    if (!session) return;
    Session& self = **session;
    for (FlightRef& lock : std::exchange(self.tried_locks_, {}))
      self.queue_.push_back(std::move(lock));
    self.pump();
  });
  return true;
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
