#include "server/bulk.h"

#include <algorithm>

#include "server/session.h"

namespace forebay::server {
namespace {

// Of a chunk, where it is shorter than a buffer: some 20 us of copying.
constexpr uint64_t kShortest = 128_KiB;

}  // namespace

BulkFlight::BulkFlight(std::shared_ptr<Session> session, wire::RequestMessage&& message)
    : Flight(std::move(session), std::move(message)),
      in_order_(exported().options.pipeline == Pipeline::serial) {}

size_t BulkFlight::window() const {
  if (!apart()) return exported().options.in_flight;
  return std::min((total_ - 1) / session_->chunk() + 1, exported().pool_for(here_).capacity());
}

void BulkFlight::start_stream() {
  if (chunks_.empty()) chunks_ = std::vector<Chunk>(window());
  cursor_.emplace(request_.file);
}

void BulkFlight::advance() {
  again_ = true;
  if (advancing_) return;
  const auto alive = shared_from_this();
  advancing_ = true;
  while (again_ && !answered()) {
    again_ = false;
    step();
  }
  advancing_ = false;
}

unsigned BulkFlight::count(State state) const {
  return static_cast<unsigned>(
      std::ranges::count_if(chunks_, [&](const Chunk& c) { return c.state == state; }));
}

BulkFlight::Chunk* BulkFlight::first(State state) {
  Chunk* found = nullptr;
  for (Chunk& chunk : chunks_) {
    if (chunk.state == state && (!found || chunk.position < found->position)) found = &chunk;
  }
  return found;
}

bool BulkFlight::may_store() const {
  if (in_order_ && busy() > 0) return false;
  return !apart() || count(State::pulled) + count(State::sending) == 0;
}

bool BulkFlight::may_transfer() const {
  return !apart() || busy() == 0;
}

bool BulkFlight::waits_for_client() const {
  return Flight::waits_for_client() || count(State::pulled) > 0 || count(State::lost) > 0 ||
         count(State::sending) > 0;
}

unsigned BulkFlight::owned() const {
  const auto owns = [](const Chunk& c) { return c.room || c.state == State::sending; };
  return static_cast<unsigned>(std::ranges::count_if(chunks_, owns)) + (spare_ ? 1 : 0);
}

// What the client can still write to must not go on to another server, whose frames are sealed.
std::shared_ptr<BufferPool> BulkFlight::area() const {
  return here_ ? session_->area() : nullptr;
}

BufferPool& BulkFlight::pool() const {
  return here_ && session_->area() ? *session_->area() : exported().pool_for(here_);
}

BulkFlight::Chunk* BulkFlight::ready_chunk() {
  Chunk* bare = nullptr;
  for (Chunk& chunk : chunks_) {
    if (chunk.state != State::idle) continue;
    if (chunk.room) return &chunk;
    bare = &chunk;
  }
  return bare && furnish(*bare) ? bare : nullptr;
}

bool BulkFlight::furnish(Chunk& chunk) {
  const auto idle_with_room = [](const Chunk& c) { return c.state == State::idle && c.room; };
  if (spare_) {
    chunk.room = std::move(spare_);
  } else if (auto other = std::ranges::find_if(chunks_, idle_with_room); other != chunks_.end()) {
    chunk.room = std::move(other->room);
  } else if (!ordered_) {
    chunk.room = Room(area(), pool().try_take());
    if (!chunk.room && owned() == 0) order_buffer();
  }
  return static_cast<bool>(chunk.room);
}

void BulkFlight::order_buffer() {
  ordered_ = area();
  const uint64_t order = ++orders_;
  ticket_ = pool().take([me = self<BulkFlight>(), area = area(), order](Buffer buffer) {
    Room room(area, std::move(buffer));
    me->loop().post(
        [me, order, held = std::move(room)]() mutable { me->got_buffer(order, std::move(held)); });
  });
}

void BulkFlight::got_buffer(uint64_t order, Room room) {
  if (!ordered_ || order != orders_) return;  // the order was cancelled
  ordered_.reset();
  if (answered()) return;
  touch();
  spare_ = std::move(room);
  advance();
}

void BulkFlight::cancel_order() {
  if (!ordered_) return;
  BufferPool& from = *ordered_ ? **ordered_ : exported().pool_for(here_);
  if (ticket_) from.forget(ticket_);
  ordered_.reset();
}

// The area goes with the connection.
void BulkFlight::detached() {
  Flight::detached();
  cancel_order();
  spare_.release();
}

// Short at both ends of the stream, where one side has nothing to do but wait for the other.
uint64_t BulkFlight::size_at(uint64_t position, uint64_t room) const {
  if (apart()) return room;
  const uint64_t wanted = std::min(position + kShortest, (total_ - position) / 2);
  return std::min(std::max(wanted / kShortest, uint64_t{1}) * kShortest, room);
}

bool WriteFlight::one_call() const {
  return total_ <= std::min<uint64_t>(kShortest, session_->chunk());
}

void BulkFlight::assign(Chunk& chunk) {
  const uint64_t room = std::min<uint64_t>(chunk.room.bytes().size(), session_->chunk());
  chunk.position = issued();
  chunk.error.reset();
  chunk.file = cursor_->take_list(Length(size_at(chunk.position, room)), kMaxPieces);
  chunk.length = static_cast<uint32_t>(issued() - chunk.position);
}

Request BulkFlight::part_of_request(Chunk& chunk) const {
  Request part;
  part.op = op;
  part.flags = request_.flags;
  part.length = request_.length;
  part.caller = request_.caller;
  part.handle = request_.handle;
  part.right = request_.right;
  part.file = std::move(chunk.file);
  part.memory = Memory::of(chunk.room.bytes().first(chunk.length));
  part.stop = request_.stop;
  part.owns_holes = request_.owns_holes;
  return part;
}

void BulkFlight::idle(Chunk& chunk, bool more) {
  chunk.state = State::idle;
  // Given back and asked for again, the buffer goes to whoever waits longest: with more requests
  // than buffers each gets its turn, chunk by chunk.
  const bool ours = chunk.room.area() == area();  // and not of a connection that is gone
  if (!more || !ours || owned() > 1 || pool().wanted()) chunk.room.release();
}

void BulkFlight::keep(unsigned call, Result<Reply>&& result) {
  Chunk& chunk = chunks_[call];
  if (result) {
    chunk.count = result->count;
    chunk.verifier = result->verifier;
  } else {
    chunk.error = std::move(result).error();
  }
}

void BulkFlight::late(unsigned call) {
  chunks_[call].state = State::idle;
  chunks_[call].room.release();
}

void BulkFlight::let_go() {
  cancel_order();
  spare_.release();
  for (Chunk& chunk : chunks_) {
    // The client may yet put bytes where it was asked to: until it has, or its connection is gone,
    // the place is not another's.
    const bool asked = chunk.state == State::pulled && chunk.room.area();
    if (chunk.state != State::storing && !asked) chunk.room.release();
  }
}

}  // namespace forebay::server
