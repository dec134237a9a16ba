// What a session has done here, by shortcuts (shortcuts.h), instead of sending it.
#include <algorithm>

#include "client/flight.h"
#include "client/shortcuts.h"
#include "transport/shared_shortcut.h"

namespace forebay {

namespace {

constexpr Duration kDrain = std::chrono::milliseconds(20);

}  // namespace

Shortcuts::Answer Session::shortcut_answer(Result<Reply>&& reply, bool of_use) {
  Fd handed;
  if (reply && (reply->value & kGathering) != 0) handed = link_.take_handed(reply->attr.rdev);
  if (reply && !of_use) reply = Error(EAGAIN);
  return {std::move(reply), region_, connection(), std::move(handed)};
}

// The front of the queue can be done here as soon as what is in boxes is answered.
bool Session::waits_for_shortcut() const {
  const Request& r = queue_.front()->message.request;
  if (!shortcuts_ || boxed_ == 0 || !Shortcuts::may_write_here(r)) return false;
  if (!shortcuts_->has(r)) return false;
  bool any = false;
  for (const Slot& slot : slots_) {
    if (!slot.flight || slot.flight->message.request.handle != r.handle) continue;
    if (!slot.flight->boxed) return false;
    any = true;
  }
  return any;
}

// Must it come after something that was sent? Two handles may be of one file.
bool Session::follows_sent(const Request& r) const {
  return std::ranges::any_of(slots_, [&](const Slot& s) {
    if (!s.flight) return false;
    const wire::RequestMessage& m = s.flight->message;
    return m.request.handle == r.handle || m.request.op == Op::resize ||
           m.request.op == Op::fallocate ||
           (is_transfer(m.request.op) && (m.list_blocks != 0 || may_touch(m.request, r)));
  });
}

// What its completion submits is sent, or done, when all have completed.
bool Session::written_here(FlightRef& flight) {
  Request& r = flight->message.request;
  if (!shortcuts_ || !region_ || flight->parts || flight->cancelled || lacks(r.handle) ||
      !Shortcuts::may_write_here(r)) {
    return false;
  }
  r.caller = flight->caller;
  std::optional<Result<Reply>> result;
  if (!follows_sent(r)) result = shortcuts_->write_here(r);
  if (!result) {
    if (flight->background || !flight->members.empty()) shortcuts_->ask_later(r);
    return false;
  }
  if (!*result && !flight->members.empty()) return part_joint(std::move(flight)), true;
  flight->result = std::move(*result);
  flight->uncount();
  written_.push_back(std::move(flight));
  if (written_.size() > 1) return true;
  loop_.post([weak = std::weak_ptr<Session*>(alive_)] {
    const auto alive = weak.lock();
    if (!alive) return;
    Session& session = **alive;
    const Gathering together(session);
    for (FlightRef& done : std::exchange(session.written_, {})) {
      Result<Reply> of = std::move(*done->result);
      session.complete(std::move(done), std::move(of));
    }
  });
  return true;
}

// Is a large request of the front of the queue worth a question first? It is asked when nothing of
// the file is under way: those who keep several requests under way would never leave a moment in
// which it is nobody's. But not for long, because what is under way may wait for somebody else; nor
// by holders of leases, who may have to write before others go on.
bool Session::asks_for_shortcut() {
  const Flight& front = *queue_.front();
  const Request& r = front.message.request;
  if (!shortcuts_ || !region_ || !Shortcuts::may_begin(r) || front.parts || front.cancelled ||
      lacks(r.handle) || !leases_.empty() || lease_asks_ != 0) {
    return false;
  }
  if (asking_) return r.handle == asked_;
  const auto busy = [&](const Slot& s) {
    return s.flight && s.flight->message.request.handle == r.handle &&
           op_info(s.flight->message.request.op).kind == OpKind::data;
  };
  Request asker;
  asker.op = r.op;
  asker.caller = front.caller;
  asker.handle = r.handle;
  asker.right = r.right;
  asker.file = r.file;
  if (!shortcuts_->worth_asking(asker)) return false;
  const bool waits = std::ranges::any_of(slots_, busy);
  if (waits && !drained_by_) {
    drained_by_ = loop_.now() + kDrain;
    loop_.after(kDrain, [weak = std::weak_ptr<Session*>(alive_)] {
      if (const auto session = weak.lock()) (*session)->pump();
    });
  }
  if (waits && loop_.now() < *drained_by_) return true;
  drained_by_.reset();
  Request question = shortcuts_->question(asker);
  if (waits) return false;  // another time
  asking_ = true;
  asked_ = r.handle;
  auto flight =
      std::make_unique<Flight>(Request(question), [this, question](Result<Reply>&& result) {
        asking_ = false;
        const bool of_use = !lacks(question.handle);
        shortcuts_->answered(question, shortcut_answer(std::move(result), of_use));
      });
  ++live_;
  requests_.add();
  flight->number = ++submitted_;
  flight->since = loop_.now();
  issue(std::move(flight));
  return true;
}

// More of a file would only keep others waiting who want it back.
bool Session::waits_for_thread() const {
  const Request& r = queue_.front()->message.request;
  if (begun_.size() < Shortcuts::kMostBegun || !Shortcuts::may_begin(r)) return false;
  const auto of_file = [&](const FlightRef& f) { return f->message.request.handle == r.handle; };
  return begun_.size() >= Shortcuts::kMostThreads ||
         std::ranges::count_if(begun_, of_file) >= int{Shortcuts::kMostBegun};
}

// By a thread of the shortcuts, which tells the loop.
bool Session::begun_here(FlightRef& flight) {
  Request& r = flight->message.request;
  if (!shortcuts_ || !region_ || !Shortcuts::may_begin(r) || flight->parts || flight->cancelled ||
      !flight->members.empty() || lacks(r.handle) || follows_sent(r)) {
    return false;
  }
  r.caller = flight->caller;
  flight->given_up = std::stop_source();
  r.stop = flight->given_up.get_token();
  const Flight* const which = flight.get();
  const auto ended = [this, which](std::optional<Result<Reply>> result) {
    loop_.post([this, which, result = std::move(result)]() mutable {
      ended_here(which, std::move(result));
    });
  };
  if (!shortcuts_->begin(r, ended)) {
    r.stop = {};
    return false;
  }
  begun_.push_back(std::move(flight));
  return true;
}

// Of those that are unanswered: need nobody's answer.
size_t Session::here() const {
  size_t n = begun_.size();
  for (const FlightRef& flight : written_) n += std::max<size_t>(1, flight->members.size());
  return n;
}

void Session::ended_here(const Flight* which, std::optional<Result<Reply>> result) {
  const auto found = std::ranges::find(begun_, which, &FlightRef::get);
  const bool first = needs_no_server();
  FlightRef flight = std::move(*found);
  begun_.erase(found);
  flight->message.request.stop = {};
  if (!result && flight->cancelled) {
    result = op_info(flight->message.request.op).changes ? Error(ECANCELED).with_unknown_outcome()
                                                         : Error(ECANCELED);
  }
  if (result) {
    const Gathering together(*this);
    return complete(std::move(flight), std::move(*result));
  }
  queue_.push_front(std::move(flight));
  if (link_.up()) return pump();
  if (first) link_.want();
}

// Must it come after something that is done here, and may be sent after all?
bool Session::meets_begun(const Request& r) const {
  if (op_info(r.op).kind != OpKind::data || r.op == Op::commit) return false;
  return std::ranges::any_of(begun_, [&](const FlightRef& flight) {
    const Request& begun = flight->message.request;
    if (!is_transfer(r.op)) return true;
    if (r.op == Op::read && begun.op == Op::read) return false;
    return may_touch(begun, r) && (begun.handle == r.handle || !shortcuts_->differ(begun, r));
  });
}

}  // namespace forebay
