#include "server/name_flight.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/session.h"

namespace forebay::server {

namespace {

using attr::Named;

// A name's own byte of its directory.
Extent byte_of(std::string_view name) {
  return {Offset(std::hash<std::string_view>()(name) % kMaxOffset), Length(1)};
}

}  // namespace

bool NameFlight::takes(const Request& request) {
  return (takes_once(request) || request.op == Op::create) &&
         op_info(request.op).kind == OpKind::path;
}

NameFlight::NameFlight(std::shared_ptr<Session> session, wire::RequestMessage&& message)
    : CallFlight(std::move(session), std::move(message), {}),
      once_(request_.once),
      intent_{op, request_.handle, request_.handle2, request_.name, request_.name2} {}

// ---- The names, for itself ----

void NameFlight::begin() {
  const char* const whose = session_->relayed() ? "relayed:" : "";
  const auto place = [&](const Handle& dir, const std::string& name) {
    return std::pair(fmt::format("{}{}", whose, exported().store().identity(dir)), byte_of(name));
  };
  if (op != Op::link) places_.push_back(place(intent_.dir, intent_.name));
  if (op == Op::rename || op == Op::link) places_.push_back(place(intent_.dir2, intent_.name2));
  // All in one order, so that no two wait for each other.
  std::ranges::sort(places_, {}, [](const auto& p) { return std::pair(p.first, p.second.offset); });
  places_.erase(std::unique(places_.begin(), places_.end()), places_.end());
  reserve_names();
}

void NameFlight::reserve_names() {
  while (held_.size() < places_.size()) {
    if (answered()) return;
    const auto& [dir, byte] = places_[held_.size()];
    const bool now = exported().reservations.add(
        held_.emplace_back(), dir, ReservationTable::Mode::write, Extents(byte), loop(),
        [me = self<NameFlight>()] { me->reserve_names(); });
    if (!now) return;
  }
  if (!answered()) reserved();
}

void NameFlight::reserved() {
  touch();
  if (once_.empty()) return do_it();
  const auto before = exported().state().named_before(once_);
  if (!before) return answer(before.error());
  *before ? answer_again(**before) : look();
}

// ---- What is there ----

void NameFlight::look() {
  if (op == Op::link) {
    intent_.identity = exported().store().identity(intent_.dir);
    look_up(intent_.dir2, intent_.name2, kLookForNone);
  } else {
    const bool old = op == Op::rename || op == Op::remove;
    look_up(intent_.dir, intent_.name, old ? kLook : kLookForNone);
  }
}

void NameFlight::look_up(const Handle& dir, const std::string& name, Call call) {
  Request r;
  r.op = Op::lookup;
  r.caller = request_.caller;
  r.handle = dir;
  r.name = name;
  // What is there is the same at every server; only whoever wants to see it asks its home.
  call == kLookAgain ? submit(std::move(r), call) : session_->look(std::move(r), returns(call));
}

// Where it will fail there is nothing to remember.
void NameFlight::looked(bool for_none) {
  const Result<Reply>& there = *result_;
  const bool as_wanted = for_none ? !there && there.error().code() == ENOENT : there.has_value();
  if (!as_wanted) return do_it();
  if (!for_none) intent_.identity = exported().store().identity(there->handle);
  if (op == Op::remove && there->attr.type == FileType::file) loses_name_ = there->handle;
  if (session_->relays()) {
    const bool file = !for_none && there->attr.type == FileType::file;
    if (file) home_ = exported().relay->home_of(there->handle);
    if (op == Op::link) home_ = exported().relay->home_of(intent_.dir);
    if (op == Op::rename) return look_up(intent_.dir2, intent_.name2, kLookForTarget);
  }
  intend();
}

// What replaces a file is done at the home of that, where it may be open (relay.cc).
void NameFlight::looked_for_target() {
  const Result<Reply>& there = *result_;
  if (there && there->attr.type == FileType::file) home_ = exported().relay->home_of(there->handle);
  intend();
}

void NameFlight::intend() {
  intent_.home = home_;
  const Result<uint64_t> record =
      exported().state().intend(once_, request_.caller, intent_, loop());
  if (!record) return do_it();
  intended_ = true;
  exported().state().when_written(*record, loop(), [me = self<NameFlight>()](Result<void>) {
    if (!me->answered()) me->do_it();
  });
}

// ---- Doing it ----

void NameFlight::do_it() {
  touch();
  if (look_for_removed()) return;
  if (home_.empty()) return CallFlight::begin();
  session_->submit_at(home_, std::move(request_), returns(kDo));
}

// Which file will have a name less, so that the shared state may forget it. True: do_it() follows.
bool NameFlight::look_for_removed() {
  if ((op != Op::remove && op != Op::rename) || !home_.empty() || !loses_name_.empty() ||
      std::exchange(looked_for_removed_, true) || !exported().state().knows_files()) {
    return false;
  }
  if (op == Op::remove) look_up(intent_.dir, intent_.name, kLookForRemoved);
  if (op == Op::rename) look_up(intent_.dir2, intent_.name2, kLookForRemoved);
  return true;
}

void NameFlight::done(unsigned call) {
  switch (call) {
    case kLook:
    case kLookForNone:
      return looked(call == kLookForNone);
    case kLookForTarget:
      return looked_for_target();
    case kLookAgain:
      return answer(*result_);
    case kLookForRemoved:
      if (*result_ && (*result_)->attr.type == FileType::file) loses_name_ = (*result_)->handle;
      return do_it();
    default:
      break;
  }
  tell_outcome();
  if (again_ && !*result_) {
    return answer(Error(result_->error()).with_unknown_outcome());  // it is made, and not open
  }
  CallFlight::done(call);
}

void NameFlight::tell_outcome() {
  if (*result_ && !loses_name_.empty() && exported().has_store()) {
    exported().state().removed(loses_name_);
  }
  if (!std::exchange(intended_, false)) return;
  // Nobody can tell: the next life may, because it looks.
  if (!*result_ && result_->error().is_outcome_unknown()) return;
  exported().state().named(once_, *result_ ? Named::done : Named::undone);
}

// The client did not hear of it.
void NameFlight::answer_again(const SharedState::Before& before) {
  if (!before.home.empty() && session_->relays()) {
    home_ = before.home;
    intended_ = true;
    return do_it();
  }
  if (before.outcome == Named::unknown) return answer(Error::outcome_unknown(op_info(op).name));
  if (op == Op::rename || op == Op::remove) return answer(Reply());
  if (op == Op::link) return look_up(intent_.dir2, intent_.name2, kLookAgain);
  if (op != Op::create) return look_up(intent_.dir, intent_.name, kLookAgain);
  again_ = true;
  request_.flags &= ~uint32_t(kFlagExclusive | kFlagTruncate);
  request_.once = {};
  do_it();
}

void NameFlight::late(unsigned call) {
  if (call == kDo) {
    tell_outcome();
    CallFlight::late(call);
  }
  let_go();
}

void NameFlight::let_go() {
  if (busy() != 0) return;
  if (std::exchange(intended_, false)) exported().state().named(once_, Named::undone);
  held_.clear();
}

}  // namespace forebay::server
