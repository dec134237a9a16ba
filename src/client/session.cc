// What is unanswered, from submit() to completion, and through lost connections. The frames are in
// session_frames.cc.
#include "client/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "client/flight.h"
#include "client/shortcuts.h"
#include "transport/shared_region.h"

namespace forebay {

namespace {

Error lost_outcome(const Request& request, std::string_view why) {
  const char* op = op_info(request.op).name;
  const std::string what = request.name.empty() ? op : fmt::format("{} {}", op, request.name);
  return Error::outcome_unknown(fmt::format("{}: {}; it may or may not have happened", what, why));
}

// Less than a server remembers what it has done for a client (server/shared_state.h).
constexpr Duration kRemembered = std::chrono::minutes(10);

// How often those who hold locks look whether the server is still there: several times in the grace
// period in which they are reclaimed.
constexpr Duration kLeastLook = std::chrono::milliseconds(50);
constexpr Duration kMostLook = std::chrono::seconds(1);

// A name that no other client has.
Once random_client() {
  std::random_device device;
  const auto number = [&] { return uint64_t{device()} << 32 | device(); };
  return {number(), number()};
}

}  // namespace

Session::Session(Loop& loop, Transport& transport, const RemoteOptions& options, bool patient)
    : loop_(loop),
      client_(random_client()),
      relays_(options.relay != nullptr),
      link_(loop, transport, options, *this, patient) {}

Session::~Session() {
  FOREBAY_ASSERT(idle(), fmt::format("{} requests are unanswered", live_));
}

RemoteStore::Stats Session::stats() const {
  return {reconnects_.get(),
          resent_.get(),
          requests_.get(),
          lent_requests_.get(),
          in_area_.get(),
          in_boxes_.get(),
          0};
}

void Session::submit(Request&& request, Completion&& done, bool background, Count* counted) {
  if (Result<void> ok = check(request); !ok) {
    if (counted) --*counted;
    return done(std::move(ok).error());
  }
  if (request.op == Op::unlock) {
    done = unlocks(request, std::move(done));
  } else if (is_lock(request.op)) {
    if (auto loss = locks_.take_loss(request)) {
      if (counted) --*counted;
      return done(std::move(*loss));
    }
  }
  const bool first = needs_no_server();
  auto flight = std::make_unique<Flight>(std::move(request), std::move(done));
  ++live_;
  background_ += background;
  requests_.add();
  flight->background = background;
  flight->counted = counted;
  flight->number = ++submitted_;
  flight->since = loop_.now();
  if (flight->message.request.op == Op::lease) {
    flight->asked = since_boot();
    ++lease_asks_;
  }
  if (Request& r = flight->message.request; r.stop.stop_possible()) {
    flight->stop.emplace(std::move(r.stop), StopRelay{&loop_, alive_, flight->number});
  }
  queue_.push_back(std::move(flight));
  if (link_.up()) {
    delivering_ || gathering_ ? pump_soon() : pump();
  } else if (first) {
    link_.want();
  }
}

// Once and for all: however often it is sent, and to whatever life of the server.
void Session::name_once(Flight& flight) {
  Request& r = flight.message.request;
  if (!takes_once(r) || !r.once.empty()) return;
  if (free_lanes_.empty()) {
    if (lanes_.size() >= kMaxLanes) return;  // as many as no server has slots for
    free_lanes_.push_back(static_cast<uint16_t>(lanes_.size()));
    lanes_.push_back(0);
  }
  flight.lane = free_lanes_.back();
  free_lanes_.pop_back();
  r.once = {client_.client, client_.client2, ++lanes_[*flight.lane], *flight.lane};
}

void Session::when_up(Up up) {
  if (link_.up()) return up(welcome_.root);
  const bool first = needs_no_server();
  up_waiters_.push_back(std::move(up));
  if (first) link_.want();
}

void Session::when_idle(Task task) {
  idle_waiters_.push_back(std::move(task));
  check_idle();
}

void Session::check_idle() {
  if (!idle() || idle_waiters_.empty()) return;
  for (Task& task : std::exchange(idle_waiters_, {})) task();
}

bool Session::busy_with(const Handle& file) const {
  const auto about = [&](const FlightRef& f) { return f && f->message.request.handle == file; };
  return uncommitted_.knows(file) || std::ranges::any_of(queue_, about) ||
         std::ranges::any_of(begun_, about) ||
         std::ranges::any_of(slots_, [&](const Slot& slot) { return about(slot.flight); });
}

// Invariants 3, 6, 7 and 8.
bool Session::must_wait(const Request& r) const {
  if (!begun_.empty() && meets_begun(r)) return true;
  if (boxed_ != 0 && meets(r, true)) return true;
  const bool writes = r.op == Op::write || r.op == Op::resize || r.op == Op::fallocate;
  if (!(writes && reads_ + joints_ != 0) && !(r.op == Op::read && joints_ != 0)) return false;
  for (const Slot& slot : slots_) {
    if (!slot.flight || slot.flight->message.request.handle != r.handle) continue;
    const wire::RequestMessage& m = slot.flight->message;
    if (slot.flight->members.empty() && !(writes && m.request.op == Op::read)) continue;
    if ((r.op != Op::write && r.op != Op::read) || m.list_blocks != 0) return true;
    if (may_touch(m.request, r)) return true;
  }
  return false;
}

// Must it come after something that is in a box, or that is not? Two handles may be of one file,
// which the server knows, and orders what comes as frames.
bool Session::meets(const Request& r, bool in_box) const {
  const auto of_data = [](const Request& q) { return op_info(q.op).kind == OpKind::data; };
  for (const Slot& slot : slots_) {
    if (!slot.flight || slot.flight->boxed != in_box) continue;
    const wire::RequestMessage& m = slot.flight->message;
    if (m.request.handle != r.handle && !(of_data(m.request) && of_data(r))) continue;
    if (!is_transfer(r.op) || !is_transfer(m.request.op) || m.list_blocks != 0) return true;
    if (may_touch(m.request, r)) return true;
  }
  return false;
}

void Session::pump() {
  while (link_.up() && !in_parts_ && !queue_.empty() && !free_slots_.empty() &&
         !must_wait(queue_.front()->message.request) &&
         (boxed_ == 0 || !queue_.front()->parts)) {  // where its parts lie is not in the request
    if (report_loss()) continue;
    if (waits_for_shortcut() || asks_for_shortcut() || waits_for_thread()) return;
    FlightRef flight = next_flight();
    if (written_here(flight) || begun_here(flight)) continue;
    if (shortcuts_) shortcuts_->sending(flight->message.request);
    issue(std::move(flight));
  }
}

// When everything that has arrived is delivered.
void Session::pump_soon() {
  if (queue_.empty() || gathering_ || std::exchange(pump_posted_, true)) return;
  loop_.post([weak = std::weak_ptr<Session*>(alive_)] {
    const auto session = weak.lock();
    if (!session) return;
    (*session)->pump_posted_ = false;
    (*session)->pump();
  });
}

// Invariant 4, of the front of the queue. A close is sent whatever was lost, and reports it when it
// is done.
bool Session::report_loss() {
  if (uncommitted_.empty()) [[likely]]
    return false;
  const Request& r = queue_.front()->message.request;
  if (op_info(r.op).kind != OpKind::data) return false;
  std::optional<Error> loss = uncommitted_.take_loss(r.handle);
  if (!loss) return false;
  FlightRef flight = std::move(queue_.front());
  queue_.pop_front();
  if (flight->parts) loss = std::move(*loss).with_done(flight->parts->done());
  complete(std::move(flight), std::move(*loss));
  return true;
}

// ---- Ending ----

// The reply is here; the flight may still be sending what the server no longer needs.
void Session::answered(Flight& flight, Result<Reply>&& result) {
  flight.result = std::move(result);
  if (flight.sends == 0) finish(flight.message.id.slot);
}

void Session::finish(uint16_t slot) {
  FlightRef flight = std::move(slots_[slot].flight);
  reads_ -= flight->message.request.op == Op::read;
  joints_ -= !flight->members.empty();
  boxed_ -= flight->boxed;
  lock_waits_ -= (flight->message.request.flags & kFlagWait) != 0;
  if (flight->message.eager) eager_left_ += flight->total;
  if (flight->parts) in_parts_ = false;
  const Result<Reply>& result = *flight->result;
  // After any other error the server has answered when it was done with the memory.
  if (!result && result.error().code() != ETIMEDOUT && !result.error().is_outcome_unknown()) {
    flight->lent = false;
  } else if (!result && flight->boxed && result.error().is_outcome_unknown()) {
    spent_boxes_ |= uint64_t(1) << slot;
  }
  // Slots without a box are taken last.
  const bool spent = slot < kBoxes && (spent_boxes_ >> slot & 1) != 0;
  free_slots_.insert(spent ? free_slots_.begin() : free_slots_.end(), slot);
  // What the server reports of earlier writes, once, is not the joint's own failure: it is passed
  // on.
  if (!flight->members.empty() && !result && !uncommitted_.knows(flight->message.request.handle)) {
    part_joint(std::move(flight));
  } else if ((flight->tries || flight->gives_way) && retries_lock(flight)) {
  } else if (goes_on(*flight)) {
    flight->result.reset();
    queue_.push_front(std::move(flight));
  } else {
    Flight& done = *flight;
    if (is_lock(done.message.request.op)) note_lock(done, result);
    if (done.message.request.op == Op::lease) note_lease(done, result);
    complete(std::move(flight), std::move(*done.result));
  }
  delivering_ || gathering_ ? pump_soon() : pump();
}

// Is there another part to do? If not, flight.result is that of the whole.
bool Session::goes_on(Flight& flight) {
  Result<Reply>& result = *flight.result;
  if (!result && result.error().code() == E2BIG && flight.message.list_blocks != 0) {
    if (!flight.parts) flight.cut(flight.list.blocks().size());
    if (flight.parts->shrink()) return true;
  }
  if (!flight.parts) return false;
  if (!result) {
    const uint64_t done = flight.parts->done() + result.error().done();
    result = std::move(result).error().with_done(done);
    return false;
  }
  if (!flight.parts->advance(result->count)) return true;
  result->count = flight.parts->done();
  return false;
}

void Session::complete(FlightRef flight, Result<Reply>&& result) {
  if (!flight->members.empty()) {
    uint64_t start = 0;  // of the member in the joint's stream
    for (FlightRef& member : std::exchange(flight->members, {})) {
      const uint64_t length = member->message.request.file.total().value;
      Result<Reply> own = result;
      if (own) {
        own->count = length;
      } else {
        const uint64_t done = result.error().done();
        own = Error(result.error()).with_done(std::min(done - std::min(done, start), length));
      }
      start += length;
      member->lent = flight->lent;
      complete(std::move(member), std::move(own));
    }
    return;
  }
  --live_;
  background_ -= flight->background;
  flight->uncount();
  if (flight->lent && !result) lent_->detach(flight->message.request.memory);
  if (flight->lane) free_lanes_.push_back(*flight->lane);
  if (flight->message.request.op == Op::lease && --lease_asks_ == 0) recalled_early_.clear();
  flight->done(std::move(result));
  flight.reset();
  check_idle();
}

// ---- Cancel ----

void Session::cancel(uint64_t number) {
  const auto is = [number](const FlightRef& f) { return f && f->number == number; };
  const auto queued = std::find_if(queue_.begin(), queue_.end(), is);
  if (queued != queue_.end()) {
    FlightRef flight = std::move(*queued);
    queue_.erase(queued);
    Error why(ECANCELED);
    if (flight->may_have_begun()) why = std::move(why).with_unknown_outcome();
    if (flight->parts) why = std::move(why).with_done(flight->parts->done());
    return complete(std::move(flight), std::move(why));
  }
  const auto tried = std::find_if(tried_locks_.begin(), tried_locks_.end(), is);
  if (tried != tried_locks_.end()) {
    FlightRef flight = std::move(*tried);
    tried_locks_.erase(tried);
    return complete(std::move(flight), Error(ECANCELED));
  }
  if (const auto begun = std::ranges::find_if(begun_, is); begun != begun_.end()) {
    (*begun)->cancelled = true;
    (*begun)->given_up.request_stop();
    return;
  }
  // One that travels with others is given up if it has to be sent alone after all.
  for (const Slot& s : slots_) {
    if (!s.flight) continue;
    for (const FlightRef& member : s.flight->members) member->cancelled |= is(member);
  }
  const auto slot =
      std::find_if(slots_.begin(), slots_.end(), [&](const Slot& s) { return is(s.flight); });
  if (slot == slots_.end() || slot->flight->cancelled) return;
  slot->flight->cancelled = true;
  if (link_.up()) return link_.send(wire::encode(wire::Cancel{slot->flight->message.id}));
  abandon(*slot->flight);
}

// There is no server to ask. Whoever waits for names or attributes is told so at once; the request
// stays in its slot, for the server that knows of it. Data waits, because its memory is in use, and
// locks, because they might be granted to nobody.
void Session::abandon(Flight& flight) {
  if (is_transfer(flight.message.request.op) || flight.message.request.op == Op::lock) return;
  Error why(ECANCELED);
  if (flight.may_have_begun()) why = std::move(why).with_unknown_outcome();
  std::exchange(flight.done, [](Result<Reply>&&) {})(std::move(why));
}

// ---- Up and down ----

void Session::on_up(const wire::Welcome& welcome, bool resumed) {
  if (link_.connects() > 1) reconnects_.add();
  std::vector<FlightRef> failed;
  if (!resumed) {
    // A server that lives on and has forgotten us may have done it: once means once.
    const bool same_life = welcome.boot == welcome_.boot;
    const bool same_state = welcome.state != 0 && welcome.state == welcome_.state;
    const auto remembered = [&](const Flight& flight) {
      return same_state && !flight.message.request.once.empty() &&
             loop_.now() - flight.since < kRemembered;
    };
    if (!same_life) uncommitted_.server_restarted();
    std::vector<FlightRef> again;
    for (FlightRef& flight : take_slots()) {
      flight->sent_before |= std::exchange(flight->sent_now, false);
      const bool known = remembered(*flight);
      const bool unsure = same_life && flight->may_have_begun() && !known;
      auto& to = flight->may_be_sent_anew(known) && !unsure ? again : failed;
      to.push_back(std::move(flight));
    }
    // Of what was sent before an earlier server said goodbye.
    for (FlightRef& flight : queue_) {
      if (!flight->may_be_sent_anew(remembered(*flight))) failed.push_back(std::move(flight));
    }
    std::erase(queue_, nullptr);
    requeue(std::move(again));
    open_slots(welcome);
    reclaim_locks();
  }
  welcome_ = welcome;
  look_every_ =
      std::clamp<Duration>(std::chrono::milliseconds(welcome.grace_ms) / 8, kLeastLook, kMostLook);
  region_ = link_.shared();
  shares_memory_ = region_ != nullptr;
  if (resumed) resend();
  fail_unknown(std::move(failed));
  for (Up& up : std::exchange(up_waiters_, {})) up(welcome_.root);
  check_idle();
  pump();
}

void Session::on_down(bool farewell, bool written) {
  ++lost_connections_;
  lose_leases();
  recalled_early_.clear();
  landing_ = nullptr;
  // What was answered before a goodbye may be seen after it.
  if (region_) on_posts(~uint64_t(0));
  region_.reset();
  shares_memory_ = false;
  for (Slot& slot : slots_) {
    if (slot.flight) slot.flight->boxed = false;
  }
  boxed_ = spent_boxes_ = 0;
  if (written) uncommitted_.all_written();
  if (farewell && !written) uncommitted_.server_restarted();
  for (uint16_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].flight && slots_[i].flight->result) finish(i);
  }
  if (!farewell) {
    for (Slot& slot : slots_) {
      if (slot.flight) slot.flight->sent_before = true;
    }
    return;
  }
  std::vector<FlightRef> again, failed;
  for (FlightRef& flight : take_slots()) {
    flight->sent_now = false;
    // What was sent over an earlier connection is for the successor, if that remembers: on_up() of
    // it says so.
    auto& to = flight->may_be_sent_anew(!flight->message.request.once.empty()) ? again : failed;
    to.push_back(std::move(flight));
  }
  requeue(std::move(again));
  fail_unknown(std::move(failed));
}

void Session::on_give_up(const Error& why) {
  std::vector<FlightRef> failed = take_slots();
  for (FlightRef& flight : queue_) failed.push_back(std::move(flight));
  for (FlightRef& flight : tried_locks_) failed.push_back(std::move(flight));
  queue_.clear();
  tried_locks_.clear();
  for (FlightRef& flight : failed) {
    Error error = why;
    if (flight->may_have_begun()) error = std::move(error).with_unknown_outcome();
    if (flight->parts) error = std::move(error).with_done(flight->parts->done());
    complete(std::move(flight), std::move(error));
  }
  for (Up& up : std::exchange(up_waiters_, {})) up(why);
  check_idle();
  if (!needs_no_server()) return link_.want();  // submitted by those who were told
  come_back_later();
}

void Session::fail_unknown(std::vector<FlightRef> flights) {
  for (FlightRef& flight : flights) {
    Error why = lost_outcome(flight->message.request, "the server was lost with it under way");
    complete(std::move(flight), std::move(why));
  }
}

// Every flight out of its slot, in the order sent.
std::vector<Session::FlightRef> Session::take_slots() {
  std::vector<FlightRef> flights;
  for (Slot& slot : slots_) {
    if (slot.flight) flights.push_back(std::move(slot.flight));
  }
  slots_.clear();
  free_slots_.clear();
  reads_ = joints_ = boxed_ = lock_waits_ = 0;
  in_parts_ = false;
  std::sort(flights.begin(), flights.end(),
            [](const FlightRef& a, const FlightRef& b) { return a->order < b->order; });
  return flights;
}

// What was sent comes before what was not.
void Session::requeue(std::vector<FlightRef> flights) {
  // Who had them before may still be at their memory.
  for (FlightRef& flight : flights) {
    if (std::exchange(flight->lent, false)) lent_->detach(flight->message.request.memory);
  }
  queue_.insert(queue_.begin(), std::make_move_iterator(flights.begin()),
                std::make_move_iterator(flights.end()));
}

void Session::open_slots(const wire::Welcome& welcome) {
  slots_.resize(welcome.slots);
  for (uint16_t i = welcome.slots; i-- > 0;) free_slots_.push_back(i);
  eager_left_ = welcome.eager_bytes;
}

}  // namespace forebay
