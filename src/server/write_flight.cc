#include <algorithm>

#include "server/bulk.h"
#include "server/session.h"

namespace forebay::server {
namespace {

// Does every piece lie behind the one before? (No for some that do not overlap either.)
bool rises(const Extents& extents) {
  uint64_t end = 0, first = UINT64_MAX;
  for (const Extent& block : extents.blocks()) {
    if (block.empty()) continue;
    if (block.offset.value < end) return false;
    first = std::min(first, block.offset.value);
    end = block.end().value;
  }
  uint64_t span = end - std::min(first, end);
  const auto loops = extents.loops();
  for (auto loop = loops.rbegin(); loop != loops.rend(); ++loop) {
    if (loop->count == 1) continue;
    if (loop->stride < 0 || static_cast<uint64_t>(loop->stride) < span) return false;
    span += (loop->count - 1) * static_cast<uint64_t>(loop->stride);
  }
  return true;
}

}  // namespace

void WriteFlight::begin() {
  // A byte may be written twice, and the later one counts.
  if (!rises(request_.file)) in_order_ = true;
  start_stream();
  advance();
}

void WriteFlight::step() {
  // Chunks land in order, so none before the first is still to come.
  for (Chunk* chunk; may_store() && (chunk = first(State::landed));) store(*chunk);
  while (!error_ && session_->connected() && may_transfer()) {
    // In the order of the stream: what was lost comes before what was never asked for.
    Chunk* chunk = first(State::lost);
    if (chunk ? !furnish(*chunk) : !(chunk = next_to_ask())) break;
    if (chunk->state != State::lost) assign(*chunk);
    ask(*chunk);
  }
  const bool under_way =
      busy() > 0 || count(State::pulled) > 0 || count(State::landed) > 0 || count(State::lost) > 0;
  if (under_way || !(error_ || all_issued())) return;
  if (error_) return answer(std::move(*error_).with_done(written()));
  Reply reply;
  reply.count = total_;
  reply.verifier = verifier_;
  answer(std::move(reply));
}

// Half a window at a time: a client that sleeps meanwhile is woken for many chunks, not for each,
// and has the other half of the time to bring them.
WriteFlight::Chunk* WriteFlight::next_to_ask() {
  if (all_issued()) return nullptr;
  asking_ = asking_ || count(State::pulled) + count(State::landed) <= chunks_.size() / 2;
  Chunk* const chunk = asking_ ? ready_chunk() : nullptr;
  asking_ = chunk != nullptr;
  return chunk;
}

void WriteFlight::ask(Chunk& chunk) {
  chunk.state = State::pulled;
  session_->pull(shared_from_this(), wire::Part::stream, chunk.position, chunk.length,
                 chunk.room.area() ? chunk.room.bytes().data() : nullptr);
}

WriteFlight::Chunk* WriteFlight::pulled_at(uint64_t position) {
  for (Chunk& chunk : chunks_) {
    if (chunk.state == State::pulled && chunk.position == position) return &chunk;
  }
  return nullptr;
}

Memory WriteFlight::stream_landing(const wire::Pull& pull) {
  Chunk* chunk = pulled_at(pull.position);
  FOREBAY_ASSERT(chunk != nullptr && chunk->length == pull.length);
  return Memory::of(chunk->room.bytes().first(chunk->length));
}

void WriteFlight::stream_landed(const wire::Pull& pull) {
  Chunk& chunk = *pulled_at(pull.position);
  if (error_) {
    lose(chunk, 0);
    idle(chunk, false);
  } else {
    chunk.state = State::landed;
  }
  advance();
}

void WriteFlight::store(Chunk& chunk) {
  chunk.state = State::storing;
  if (all_issued() && count(State::pulled) + count(State::landed) == 0) session_->announce();
  submit(part_of_request(chunk), index_of(chunk));
}

void WriteFlight::done(unsigned call) {
  Chunk& chunk = chunks_[call];
  if (!chunk.error && chunk.count != chunk.length) {
    chunk.error = Error(EIO, "the store wrote less than it was given").with_done(chunk.count);
  }
  if (chunk.error) {
    lose(chunk, chunk.error->done());
    if (!error_) error_ = std::move(*chunk.error);
  } else if (chunk.verifier != 0) {
    verifier_ = chunk.verifier;
    lose(chunk, 0);  // should the request fail: an error has no verifier that would vouch for it
  }
  idle(chunk, !error_ && !all_issued());
  if (error_) drop_lost();
  advance();
}

// What a request that has failed need not store any more.
void WriteFlight::drop_lost() {
  for (Chunk& chunk : chunks_) {
    if (chunk.state != State::landed && chunk.state != State::lost) continue;
    lose(chunk, 0);
    idle(chunk, false);
  }
}

void WriteFlight::lose(const Chunk& chunk, uint64_t landed) {
  lost_at_ = std::min(lost_at_, chunk.position + std::min<uint64_t>(landed, chunk.length));
}

// From the start of the stream, without a gap.
uint64_t WriteFlight::written() const {
  if (chunks_.empty()) return 0;
  uint64_t upto = std::min(lost_at_, issued());
  for (const Chunk& chunk : chunks_) {
    if (chunk.state != State::idle) upto = std::min(upto, chunk.position);
  }
  return upto;
}

void WriteFlight::fail(Error error) {
  if (!error_) error_ = std::move(error);
  drop_lost();
  if (chunks_.empty()) return answer(std::move(*error_));
  advance();
}

// What was asked for will not come on this connection any more: its buffers are worth more to
// others than to a client that may not come back. Of a request that has failed it is not missed.
void WriteFlight::detached() {
  BulkFlight::detached();
  for (Chunk& chunk : chunks_) {
    if (chunk.state == State::idle) chunk.room.release();
    if (chunk.state != State::pulled) continue;
    chunk.state = State::lost;
    chunk.room.release();
  }
  if (error_) drop_lost();
  if (!chunks_.empty()) advance();  // what has landed waits no longer for what was lost
}

void WriteFlight::attached() {
  Flight::attached();
  if (!chunks_.empty()) advance();
}

}  // namespace forebay::server
