#include "server/lock_flight.h"

#include "server/session.h"

namespace forebay::server {

namespace {

// Most circles are closed by who waits last. Who comes with nothing in its hands waits for others,
// and nobody for it, unless it has several threads.
constexpr Duration kFirstSearch = std::chrono::milliseconds(100);
constexpr Duration kSearchPause = std::chrono::milliseconds(6400);

}  // namespace

void LockFlight::begin() {
  if (!here_) return relay();
  if (op == Op::unlock) return unlock();
  if (op == Op::lock_test) return test();
  lock();
}

std::string_view LockFlight::file() const {
  return exported().store().identity(request_.handle);
}

LockTable::Owner LockFlight::owner() const {
  return {session_->id(), request_.cookie};
}

LockTable::Lock LockFlight::wanted() const {
  const uint64_t from = request_.offset.value;
  const Length length(request_.length.value == 0 ? kMaxOffset - from : request_.length.value);
  const bool whole = request_.flags & kFlagWhole;
  return {whole ? LockTable::Kind::whole : LockTable::Kind::range,
          !(request_.flags & kFlagShared),
          {request_.offset, length}};
}

// As fcntl(2) has it, a shared lock needs a file that is open for reading, an exclusive one for
// writing; flock(2) takes either.
Result<void> LockFlight::admitted() const {
  Request probe;
  probe.caller = request_.caller;
  probe.handle = request_.handle;
  probe.right = request_.right;
  probe.op = request_.flags & kFlagShared ? Op::read : Op::write;
  auto good = exported().store().admits(probe);
  if (good || !(request_.flags & kFlagWhole)) return good;
  probe.op = probe.op == Op::read ? Op::write : Op::read;
  return exported().store().admits(probe);
}

void LockFlight::lock() {
  if (auto good = admitted(); !good) return answer(std::move(good).error());
  LockTable& locks = exported().locks;
  std::optional<uint64_t> reclaim;
  if (request_.flags & kFlagReclaim) reclaim = request_.value;
  const Duration grace = locks.grace_left(loop().now());
  if (grace > Duration::zero() && !reclaim) {
    loop().after(grace, [self = self<LockFlight>()] {
      if (!self->answered()) self->lock();
    });
    return;
  }
  const bool wait = request_.flags & kFlagWait;
  LockTable::Ask ask{
      file(),           owner(), wanted(), wait, reclaim, session_->pid(), session_->relayed(),
      holds_elsewhere()};
  ask.look = [weak = weak_from_this()] {
    if (const auto self = weak.lock()) static_cast<LockFlight&>(*self).look();
  };
  const auto ticket = locks.lock(ask, loop(), [self = self<LockFlight>()] {
    self->waits_ = 0;
    if (!self->answered()) self->answer_granted();
  });
  if (!ticket) return answer(ticket.error());
  waits_ = *ticket;
  waits_ == 0 ? answer_granted() : watch();
}

// ---- While it waits ----

bool LockFlight::holds_elsewhere() const {
  if (session_->relayed()) return (request_.flags & kFlagHolds) != 0;
  return session_->relayed_locks().holds(request_.cookie);
}

// (flock(2) knows no deadlocks.)
void LockFlight::watch() {
  if (!exported().relay || (request_.flags & kFlagWhole) != 0) return;
  const bool holds = holds_elsewhere() || exported().locks.holds(owner());
  pause_ = holds ? kFirstSearch : kSearchPause;
  look_later();
}

void LockFlight::look_later() {
  look_timer_ = loop().after(pause_, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    static_cast<LockFlight&>(*self).look_timer_ = 0;
    static_cast<LockFlight&>(*self).look();
  });
  pause_ = std::min(2 * pause_, kSearchPause);
}

void LockFlight::look() {
  if (answered() || waits_ == 0 || search_) return;
  loop().cancel(std::exchange(look_timer_, 0));
  const auto search =
      LockSearch::make(exported(), loop(), waits_,
                       [self = self<LockFlight>()](bool refuse) { self->looked(refuse); });
  search_ = search;
  search->start();
}

void LockFlight::looked(bool refuse) {
  search_.reset();
  if (answered() || waits_ == 0) return;
  if (!refuse) return look_later();
  if (!exported().locks.give_up(waits_)) return;  // it was granted meanwhile
  waits_ = 0;
  answer(Error(EDEADLK,
               "its holder waits, directly or through others, at several servers, for a "
               "lock of this owner"));
}

// With what it takes to reclaim it.
void LockFlight::answer_granted() {
  Reply reply;
  reply.value = exported().locks.life();
  reply.verifier = request_.cookie;
  answer(reply);
}

void LockFlight::relay() {
  RelayedLocks& there = session_->relayed_locks();
  request_.flags &= ~uint32_t{kFlagHolds};
  if (op == Op::lock && (there.holds(request_.cookie) || exported().locks.holds(owner()))) {
    request_.flags |= kFlagHolds;
  }
  const auto relayed = there.owner_of(request_);
  if (!relayed) return answer(relayed.error());
  if (op == Op::lock) exported().locks.known_as(owner(), *relayed);
  request_.cookie = *relayed;
  request_.expected = 0;
  undo_.op = op;
  undo_.caller = request_.caller;
  undo_.handle = request_.handle;
  undo_.cookie = request_.cookie;
  undo_.flags = request_.flags & kFlagWhole;
  undo_.offset = request_.offset;
  undo_.length = request_.length;
  submit(std::move(request_), 0);
}

void LockFlight::done(unsigned) {
  if (op != Op::lock_test) ended(result_.has_value());
  answer(result_);
}

void LockFlight::ended(bool done) {
  const auto owner = session_->relayed_locks().ended(undo_, done);
  if (owner) exported().locks.known_no_more({session_->id(), *owner});
}

// Granted when nobody wants it any more.
void LockFlight::late(unsigned) {
  if (op == Op::lock_test) return;
  ended(op == Op::unlock && result_);
  if (op == Op::unlock || !result_) return;
  undo_.op = Op::unlock;
  session_->submit(std::move(undo_), [](Result<Reply>&&) {});
}

void LockFlight::unlock() {
  const LockTable::Lock lock = wanted();
  exported().locks.unlock(file(), owner(), lock.kind, lock.range);
  answer(Reply{});
}

void LockFlight::test() {
  Reply reply;
  uint32_t pid = 0;
  if (const auto held = exported().locks.test(file(), owner(), wanted(), pid)) {
    reply.count = 1;
    const Extent& range = held->lock.range;
    const bool to_the_end = range.end().value == kMaxOffset;
    reply.locked = {range.offset, to_the_end ? Length(0) : range.length, !held->lock.exclusive,
                    pid};
  }
  answer(reply);
}

// If it was granted meanwhile, that is its answer.
void LockFlight::fail(Error error) {
  if (busy() > 0) return;  // it is with its home, which will answer
  if (waits_ == 0 || exported().locks.give_up(std::exchange(waits_, 0))) answer(std::move(error));
}

void LockFlight::let_go() {
  loop().cancel(std::exchange(look_timer_, 0));
  if (search_) std::exchange(search_, nullptr)->stop();
  if (waits_ != 0) exported().locks.give_up(std::exchange(waits_, 0));
}

}  // namespace forebay::server
