#include <algorithm>

#include "server/bulk.h"
#include "server/session.h"

namespace forebay::server {

void ReadFlight::begin() {
  start_stream();
  read_in_.assign(chunks_.size(), 0);
  advance();
}

bool ReadFlight::over() const {
  return error_ || all_issued() || end_ <= issued();
}

void ReadFlight::step() {
  if (!pushing_) return keep_no_buffers();
  while (!over() && may_store()) {
    Chunk* chunk = ready_chunk();
    if (!chunk) break;
    assign(*chunk);
    chunk->state = State::storing;
    read_in_[index_of(*chunk)] = round_;
    if (all_issued()) session_->announce();
    submit(part_of_request(*chunk), index_of(*chunk));
  }
  for (Chunk* chunk; may_transfer() && (chunk = first(State::landed));) push(*chunk);
  if (busy() > 0 || !over()) return;
  if (error_) return answer(std::move(*error_));
  Reply reply;
  reply.count = std::min(total_, end_);
  answer(std::move(reply));
}

void ReadFlight::done(unsigned call) {
  Chunk& chunk = chunks_[call];
  if (read_in_[call] != round_ || !pushing_) {
    idle(chunk, pushing_);
  } else if (chunk.error) {
    if (!error_) error_ = std::move(*chunk.error);
    idle(chunk, false);
  } else {
    FOREBAY_ASSERT(chunk.count <= chunk.length);
    if (chunk.count < chunk.length) end_ = std::min(end_, chunk.position + chunk.count);
    if (chunk.count == 0 || chunk.position >= end_) {
      idle(chunk, !over());
    } else if (apart()) {
      chunk.state = State::landed;  // until the round is read
    } else {
      push(chunk);
    }
  }
  advance();
}

void ReadFlight::push(Chunk& chunk) {
  chunk.state = State::sending;
  const std::span<std::byte> bytes = chunk.room.bytes().first(chunk.count);
  const bool in_area = chunk.room.area() != nullptr;
  session_->push(id, chunk.position, bytes, in_area,
                 [me = self<ReadFlight>(), call = index_of(chunk), round = round_,
                  held = std::move(chunk.room)](Result<void> result) mutable {
                   me->sent(call, round, std::move(held), result.has_value());
                 });
}

// A buffer that comes back when the flight is answered, or from a connection that is lost, just
// returns to its pool.
void ReadFlight::sent(unsigned call, uint32_t round, Room room, bool taken) {
  if (answered() || round != round_) return;
  Chunk& chunk = chunks_[call];
  chunk.room = std::move(room);
  idle(chunk, taken && !over());
  touch();
  if (taken) advance();
}

// Nothing that was sent is known to have arrived. The pool's buffers are worth more to others than
// to a client that may not come back.
void ReadFlight::detached() {
  BulkFlight::detached();
  ++round_;
  pushing_ = false;
  for (Chunk& chunk : chunks_) {
    if (chunk.state == State::sending || chunk.state == State::landed) chunk.state = State::idle;
  }
  keep_no_buffers();
}

void ReadFlight::keep_no_buffers() {
  for (Chunk& chunk : chunks_) {
    if (chunk.state == State::idle) chunk.room.release();
  }
}

void ReadFlight::repeated() {
  if (pushing_) return;
  pushing_ = true;
  if (chunks_.empty()) return;  // it has not begun: it still waits for its turn
  error_.reset();
  end_ = std::numeric_limits<uint64_t>::max();
  start_stream();
  advance();
}

void ReadFlight::fail(Error error) {
  if (!error_) error_ = std::move(error);
  if (chunks_.empty() || !pushing_) return answer(std::move(*error_));
  advance();
}

}  // namespace forebay::server
