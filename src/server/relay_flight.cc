#include "server/relay_flight.h"

#include "server/session.h"

namespace forebay::server {
namespace {

constexpr uint64_t kWindow = 4;  // chunks on their way at once

}  // namespace

bool RelayFlight::takes(const Session& session, const wire::RequestMessage& message) {
  return !session.lives_here(message.request.handle) && message.list_blocks == 0 &&
         message.total <= session.exported().pool_for(false).max_charge();
}

RelayFlight::RelayFlight(std::shared_ptr<Session> session, wire::RequestMessage&& message)
    : Flight(std::move(session), std::move(message)) {}

RelayFlight::~RelayFlight() = default;

void RelayFlight::begin() {
  ticket_ = exported().pool_for(false).charge(
      total_, [me = self<RelayFlight>()](BufferPool::Charge charge) {
        me->loop().post([me, held = std::move(charge)]() mutable { me->charged(std::move(held)); });
      });
}

void RelayFlight::charged(BufferPool::Charge charge) {
  ticket_ = 0;
  if (answered()) return;
  touch();
  charge_.emplace(std::move(charge));
  memory_ = std::make_unique_for_overwrite<std::byte[]>(total_);
  op == Op::write ? ask() : send_on();
}

// To the home.
void RelayFlight::send_on() {
  request_.memory = Memory::of(std::span(memory_.get(), total_));
  Request request = request_;
  submit(std::move(request), 0);
}

// ---- From the client ----

void RelayFlight::ask() {
  if (!session_->connected()) return;
  const uint64_t chunk = session_->chunk();
  while (asked_ < total_ && asked_ - landed_ < kWindow * chunk) {
    const auto length = static_cast<uint32_t>(std::min(chunk, total_ - asked_));
    const uint64_t position = std::exchange(asked_, asked_ + length);
    session_->pull(shared_from_this(), wire::Part::stream, position, length);
  }
}

Memory RelayFlight::stream_landing(const wire::Pull& pull) {
  return Memory::of(std::span(memory_.get() + pull.position, pull.length));
}

void RelayFlight::stream_landed(const wire::Pull& pull) {
  landed_ += pull.length;
  landed_ == total_ ? send_on() : ask();
}

// ---- To the client ----

void RelayFlight::push() {
  const uint64_t count = (**result_).count;
  const uint64_t chunk = session_->chunk();
  while (pushing_ && given_ < count && given_ - taken_ < kWindow * chunk) {
    const uint64_t length = std::min(chunk, count - given_);
    const uint64_t position = std::exchange(given_, given_ + length);
    session_->push(id, position, std::span(memory_.get() + position, length), false,
                   [me = self<RelayFlight>(), round = round_, length](Result<void> sent) {
                     if (sent) me->pushed(round, length);
                   });
    if (answered()) return;  // it was taken at once
  }
  if (!pushing_ || taken_ < count) return;
  Reply reply;
  reply.count = count;
  answer(std::move(reply));
}

void RelayFlight::pushed(uint32_t round, uint64_t bytes) {
  if (answered() || round != round_) return;
  touch();
  taken_ += bytes;
  push();
}

// ---- Its life ----

void RelayFlight::keep(unsigned, Result<Reply>&& result) {
  result_.emplace(std::move(result));
}

void RelayFlight::done(unsigned) {
  if (op == Op::write || !*result_) return answer(*result_);
  push();
}

bool RelayFlight::waits_for_client() const {
  if (Flight::waits_for_client()) return true;
  if (op == Op::write) return memory_ && busy() == 0 && landed_ < total_;
  return result_ && !answered();
}

void RelayFlight::detached() {
  Flight::detached();
  asked_ = landed_;
  ++round_;
  pushing_ = false;
  given_ = taken_ = 0;
}

void RelayFlight::attached() {
  Flight::attached();
  if (op == Op::write && memory_ && landed_ < total_) ask();
}

// From the start: nothing that was sent is known to have arrived.
void RelayFlight::repeated() {
  if (pushing_) return;
  pushing_ = true;
  if (op == Op::read && result_ && busy() == 0) push();
}

// A call that is out answers by itself.
void RelayFlight::fail(Error error) {
  if (busy() == 0) answer(std::move(error));
}

void RelayFlight::let_go() {
  if (ticket_) exported().pool_for(false).forget(ticket_);
}

}  // namespace forebay::server
