#include "transport/frame_stream.h"

#include <array>

#include "core/log.h"

namespace forebay {

namespace {

// Bytes that one connection moves in a row before others get their turn.
constexpr uint64_t kBudget = 4_MiB;
// While the handler is being called, sends gather up to this and then go out anyway.
constexpr uint64_t kGather = 64_KiB;
constexpr size_t kSendIovecs = 128;

}  // namespace

FrameStream::FrameStream(Loop& loop, std::unique_ptr<ByteStream> bytes, Peer peer, FrameRules rules)
    : loop_(&loop),
      peer_(std::move(peer)),
      bytes_(std::move(bytes)),
      seals_(std::move(rules.seals)) {
  in_.limit_first(rules.first_message);
  if (seals_) {
    if (!seals_->first.empty()) out_.push(std::move(seals_->first), {}, {});
    in_.set_seal(seals_->in);
    out_.set_seal(seals_->out);
  }
  bytes_->attach(loop, *this);
}

void FrameStream::start(ConnectionHandler& handler) {
  FOREBAY_ASSERT(!handler_);
  handler_ = &handler;
  if (closing_ || in_.has_staged()) {
    receive_later_ = true;
    bytes_->defer();
  } else {
    bytes_->await_readable();
  }
}

void FrameStream::send(std::string head, Memory payload, Connection::Sent sent) {
  if (finished_ || abandoned_) {
    if (sent) sent(lost(ENOTCONN));
    return;
  }
  out_.push(std::move(head), std::move(payload), std::move(sent));
  if (closing_ || broken_) return;
  if (delivering_ && out_.bytes() < kGather && bytes_->calls_are_dear()) return;
  flush();
}

void FrameStream::close(Error why) {
  if (closing_ || abandoned_) return;
  if (delivering_) push_out();  // what the handler sent before it closed
  if (closing_) return;
  closing_ = std::move(why);
  bytes_->shut();
  bytes_->defer();
}

void FrameStream::abandon() {
  if (abandoned_) return;
  if (delivering_ && !closing_) push_out();
  abandoned_ = true;
  handler_ = nullptr;
  bytes_.reset();
}

void FrameStream::detach() {
  FOREBAY_ASSERT(!delivering_ && !calling_sent_ && out_.empty());
  handler_ = nullptr;
  bytes_->detach();
}

void FrameStream::attach(Loop& loop) {
  loop_ = &loop;
  bytes_->attach(loop, *this);
}

void FrameStream::readable() {
  const auto keep = shared_from_this();
  receive();
}

void FrameStream::writable() {
  const auto keep = shared_from_this();
  awaiting_writable_ = false;
  if (closing_ || broken_) return;
  push_out();
  if (!out_.empty() && !broken_) await_writable();
  run_finished();
}

void FrameStream::deferred() {
  const auto keep = shared_from_this();
  if (closing_) return finish();
  if (!handler_ || !std::exchange(receive_later_, false)) return;
  deliver();
  if (open()) receive();
}

void FrameStream::posted(uint64_t bits) {
  const auto keep = shared_from_this();
  if (open()) handler_->on_posts(bits);
}

void FrameStream::receive() {
  uint64_t budget = kBudget;
  while (open()) {
    if (!receive_once(budget)) return;
    if (budget == 0) {
      receive_later_ = true;
      bytes_->defer();
      return;
    }
  }
}

// True: there may be more to receive.
bool FrameStream::receive_once(uint64_t& budget) {
  std::array<iovec, FrameReceiver::kIovecs> space;
  const auto d = in_.space(space, !bytes_->calls_are_dear());
  const ssize_t n = bytes_->receive(std::span(space).first(d.count));
  if (n < 0 && errno == EINTR) return true;
  if (n < 0 && errno == EAGAIN) return drained(), false;
  if (n <= 0) {
    close(broken_ ? *broken_ : lost(n == 0 ? ECONNRESET : errno));
    return false;
  }
  in_.received(n);
  budget -= std::min<uint64_t>(budget, n);
  deliver();
  if (open() && static_cast<uint64_t>(n) < d.bytes) return drained(), false;
  return true;
}

void FrameStream::drained() {
  if (broken_) return close(*broken_);
  bytes_->await_readable();
}

void FrameStream::deliver() {
  delivering_ = true;
  while (open()) {
    auto more = in_.step(*handler_);
    if (!more) {
      if (more.error().code() == EBADMSG) log::warn("{}: {}", peer_.where, more.error().what());
      close(std::move(more).error());
      break;
    }
    if (!*more) break;
  }
  delivering_ = false;
  flush();
}

// Sends what there is, unless the kernel is known to be full, and runs the `sent` calls due.
void FrameStream::flush() {
  if (!closing_ && !abandoned_ && !broken_ && !awaiting_writable_) {
    push_out();
    if (!out_.empty() && !broken_) await_writable();
  }
  run_finished();
}

// Hands bytes to the kernel until it takes no more or the budget is spent.
void FrameStream::push_out() {
  uint64_t budget = kBudget;
  std::array<iovec, kSendIovecs> bytes;
  while (!out_.empty() && !broken_ && budget != 0) {
    const ssize_t n = bytes_->send(std::span(bytes).first(out_.gather(bytes)));
    if (n >= 0) {
      out_.took(n);
      budget -= std::min<uint64_t>(budget, n);
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      send_failed(errno);
    }
  }
}

void FrameStream::await_writable() {
  awaiting_writable_ = true;
  bytes_->await_writable();
}

void FrameStream::send_failed(int code) {
  broken_ = lost(code == EPIPE ? ECONNRESET : code);
  if (!handler_) {
    close(*broken_);
    return;
  }
  receive_later_ = true;
  bytes_->defer();
}

void FrameStream::run_finished() {
  if (calling_sent_) return;  // whoever calls goes on with what was added
  calling_sent_ = true;
  while (!abandoned_ && out_.has_finished()) out_.take_finished()(Result<void>());
  calling_sent_ = false;
}

void FrameStream::finish() {
  if (finished_ || !handler_) return;  // without a handler start() comes back to it
  run_finished();
  while (!abandoned_ && !out_.empty()) {
    if (auto sent = out_.take_unfinished()) sent(*closing_);
  }
  if (abandoned_) return;
  finished_ = true;
  handler_->on_closed(*closing_);
}

Error FrameStream::lost(int code) const {
  const char* what = code == ECONNRESET ? "closed by peer" : "connection lost";
  return Error(code, std::string(what) + " (" + peer_.where + ")");
}

}  // namespace forebay
