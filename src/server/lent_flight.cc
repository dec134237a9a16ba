#include "server/lent_flight.h"

#include <algorithm>

#include "server/session.h"

namespace forebay::server {

namespace {

// Chunks that one task of the loop may move: on a Store that works inline they take their time.
constexpr unsigned kChunksPerTask = 4;
constexpr uint64_t kLastPart = 256_KiB;

}  // namespace

LentFlight::LentFlight(std::shared_ptr<Session> session, wire::RequestMessage&& message,
                       std::shared_ptr<SharedPages> lent)
    : Flight(std::move(session), std::move(message)),
      lent_(std::move(lent)),
      at_(lent_->bytes().data() + message.place) {}

bool LentFlight::one_call() const {
  return total_ <= std::min<uint64_t>(kLastPart, session_->chunk());
}

void LentFlight::begin() {
  // A stream that writes a byte twice keeps its order; so does one that may.
  const bool inline_calls = exported().store().concurrency() == 0;
  const bool one = inline_calls || (op == Op::write && !request_.file.contiguous());
  parts_ = std::vector<Part>(one ? 1 : exported().options.in_flight);
  part_size_ = session_->chunk() * (inline_calls && op == Op::write ? kChunksPerTask : 1);
  cursor_.emplace(request_.file);
  advance();
}

// Whatever completes inside comes back here and only leaves a mark.
void LentFlight::advance() {
  again_ = true;
  if (advancing_) return;
  const auto alive = shared_from_this();
  advancing_ = true;
  while (std::exchange(again_, false) && !answered()) {
    for (unsigned i = 0; i < parts_.size(); ++i) {
      if (issued_ >= kChunksPerTask * session_->chunk()) break;
      if (!parts_[i].busy && !error_ && !cursor_->done() && cursor_->position().value < end_) {
        issue(i);
      }
    }
  }
  advancing_ = false;
  if (answered() || busy() != 0) return;
  const bool more = !error_ && !cursor_->done() && cursor_->position().value < end_;
  more ? advance_soon() : finish();
}

void LentFlight::advance_soon() {
  loop().post([self = self<LentFlight>()] {
    self->issued_ = 0;
    if (!self->answered()) self->advance();
  });
}

// Of a write, what is known to be in the Store.
uint64_t LentFlight::written() const {
  if (op != Op::write || !cursor_) return 0;
  uint64_t done = std::min({end_, behind_, cursor_->position().value});
  for (const Part& part : parts_) {
    if (part.busy) done = std::min(done, part.position);
  }
  return done;
}

void LentFlight::issue(unsigned call) {
  Part& part = parts_[call];
  part.position = cursor_->position().value;
  part.busy = true;
  Request request;
  // The last part is a small one, during which the client may wake up.
  const uint64_t left = total_ - part.position;
  const uint64_t size = left > 2 * kLastPart ? std::min(part_size_, left - kLastPart) : part_size_;
  if (left <= size) session_->announce();
  request.file = cursor_->take_list(Length(size), kMaxPieces);
  part.length = request.file.total().value;
  issued_ += std::max(part.length, request.file.bounds().length.value);
  request.op = op;
  request.flags = request_.flags;
  request.length = request_.length;
  request.caller = request_.caller;
  request.handle = request_.handle;
  request.right = request_.right;
  request.stop = request_.stop;
  request.owns_holes = request_.owns_holes;
  request.memory = Memory::of(std::span(at_ + part.position, part.length));
  submit(std::move(request), call);
}

void LentFlight::keep(unsigned call, Result<Reply>&& result) {
  parts_[call].result.emplace(std::move(result));
}

void LentFlight::done(unsigned call) {
  Part& part = parts_[call];
  part.busy = false;
  if (!advancing_) issued_ = 0;  // the Store has told later, in another task
  const Result<Reply>& result = *part.result;
  const uint64_t moved = result ? result->count : result.error().done();
  if (moved < part.length) end_ = std::min(end_, part.position + moved);
  if (!result && !error_) error_ = result.error();
  if (result && op == Op::write && moved < part.length && !error_) {
    error_ = Error(EIO, "the store wrote less than it was given");
  }
  if (result && result->verifier != 0) {
    verifier_ = result->verifier;
    behind_ = std::min(behind_, part.position);
  }
  advance();
}

void LentFlight::finish() {
  if (error_) return answer(std::move(*error_).with_done(written()));
  Reply reply;
  reply.count = std::min(end_, total_);
  reply.verifier = verifier_;
  answer(std::move(reply));
}

void LentFlight::fail(Error error) {
  if (!error_) error_ = std::move(error);
  if (busy() == 0) finish();
}

}  // namespace forebay::server
