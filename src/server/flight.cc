#include "server/flight.h"

#include <fmt/format.h>

#include "server/bulk.h"
#include "server/lent_flight.h"
#include "server/relay_flight.h"
#include "server/session.h"

namespace forebay::server {
namespace {

// Where a client is told of what it lost: at whatever presents a right or settles.
bool may_tell(Op op) {
  return op_info(op).kind == OpKind::data || op == Op::close;
}

// Calls that may take long are worth a token with which to take them back; for the others it would
// be an allocation per request.
bool may_take_long(Op op) {
  return op_info(op).kind == OpKind::data || op == Op::commit;
}

}  // namespace

std::shared_ptr<Flight> Flight::make(std::shared_ptr<Session> session,
                                     wire::RequestMessage&& message, SmallData&& eager) {
  const bool bulk_write = message.request.op == Op::write && !message.eager && message.total > 0;
  const bool bulk_read =
      message.request.op == Op::read && message.total > session->options().eager_max;
  if (message.place != wire::kNoArea) {
    auto lent = session->lent();
    return std::make_shared<LentFlight>(std::move(session), std::move(message), std::move(lent));
  }
  if ((bulk_write || bulk_read) && RelayFlight::takes(*session, message)) {
    return std::make_shared<RelayFlight>(std::move(session), std::move(message));
  }
  if (bulk_write) return std::make_shared<WriteFlight>(std::move(session), std::move(message));
  if (bulk_read) return std::make_shared<ReadFlight>(std::move(session), std::move(message));
  return std::make_shared<CallFlight>(std::move(session), std::move(message), std::move(eager));
}

Flight::Flight(std::shared_ptr<Session> session, wire::RequestMessage&& message)
    : id(message.id),
      op(message.request.op),
      session_(std::move(session)),
      request_(std::move(message.request)),
      total_(message.total) {
  presented_ = session_->use(request_);
  if (may_tell(op) && exported().store().used()) owed_ = request_.handle;
  if (may_take_long(op)) {
    stop_ = std::stop_source();
    request_.stop = stop_.get_token();
  }
  if (message.list_blocks > 0) {
    list_ = std::make_unique<ListPull>(ListPull::Announced{
        message.list_blocks, message.list_bounds, std::move(message.list_loops), Length(total_)});
  }
}

Export& Flight::exported() const {
  return session_->exported();
}
Loop& Flight::loop() const {
  return session_->loop();
}
void Flight::touch() {
  progress_ = loop().now();
}

void Flight::start() {
  touch();
  arrived_ = progress_;
  if (reserve()) granted();
}

// What a request must have for itself. A truncation takes everything beyond the new size.
Result<Extents> Flight::wanted() const {
  if (list_) return list_->reserved();
  if (request_.owns_holes) return Extents(request_.file.bounds());
  if (is_transfer(op)) return request_.file;
  if (op == Op::resize) {
    return Extents::make({{Offset(request_.length.value),
                           Length(kMaxOffset - std::min(kMaxOffset, request_.length.value))}});
  }
  if (op == Op::fallocate) return Extents::make({{request_.offset, request_.length}});
  return Extents();
}

// True if the request may go on at once.
bool Flight::reserve() {
  if (!is_transfer(op) && op != Op::resize && op != Op::fallocate) return true;
  request_.owns_holes = exported().wants_holes(request_);
  Result<Extents> extents = wanted();
  if (!extents) return fail(std::move(extents).error()), false;
  if (extents->empty()) return true;
  const auto mode = op == Op::read ? ReservationTable::Mode::read : ReservationTable::Mode::write;
  return exported().reservations.add(reservation_, exported().store().identity(request_.handle),
                                     mode, std::move(*extents), loop(),
                                     [self = shared_from_this()] { self->granted(); });
}

void Flight::granted() {
  if (answered_) return;
  touch();
  if (list_) {
    charge_list();
  } else {
    begin();
  }
}

// Only now, and not while it waits for its reservation: a charge that waits for a reservation whose
// owner waits for a charge would never end.
void Flight::charge_list() {
  charge_ticket_ = exported().pool.charge(
      list_->bytes(), [self = shared_from_this()](BufferPool::Charge charge) {
        self->loop().post(
            [self, held = std::move(charge)]() mutable { self->charged(std::move(held)); });
      });
}

void Flight::charged(BufferPool::Charge charge) {
  charge_ticket_ = 0;
  if (answered_) return;
  touch();
  charge_.emplace(std::move(charge));
  list_->allocate();
  pull_list();
}

void Flight::pull_list() {
  if (!list_->complete()) {
    list_asked_ = session_->connected();
    const auto piece = list_->next(session_->chunk());
    if (list_asked_) {
      session_->pull(shared_from_this(), wire::Part::list, piece.position, piece.length);
    }
    return;
  }
  const bool holes = list_->reserved().value().contiguous();
  Result<Extents> extents = list_->take();
  list_.reset();
  if (!extents) return fail(std::move(extents).error());
  request_.file = std::move(*extents);
  request_.owns_holes = holes && exported().wants_holes(request_);
  begin();
}

void Flight::attached() {
  if (charge_ && list_ && !list_asked_ && !answered_) pull_list();
}

Memory Flight::landing(const wire::Pull& pull) {
  if (answered_) return {};
  if (pull.part == wire::Part::stream) return stream_landing(pull);
  return list_ ? list_->landing({pull.position, pull.length}) : Memory{};
}

void Flight::landed(const wire::Pull& pull) {
  if (answered_) return;
  touch();
  if (pull.part == wire::Part::stream) return stream_landed(pull);
  if (!list_) return;
  list_asked_ = false;
  list_->landed({pull.position, pull.length});
  pull_list();
}

void Flight::submit(Request&& request, unsigned call) {
  session_->submit(std::move(request), returns(call));
}

void Flight::settle(Request&& close, unsigned call) {
  session_->settle(std::move(close), returns(call));
}

Completion Flight::returns(unsigned call) {
  begun_ = true;
  ++busy_;
  return [self = shared_from_this(), call](Result<Reply>&& result) {
    self->completed(call, std::move(result));
  };
}

// On the Store's thread, which may be ours.
void Flight::completed(unsigned call, Result<Reply>&& result) {
  keep(call, std::move(result));
  if (loop().on_loop()) return settle(call);
  loop().post([self = shared_from_this(), call] { self->settle(call); });
}

void Flight::settle(unsigned call) {
  const auto alive = shared_from_this();
  --busy_;
  touch();
  if (!answered_) return done(call);
  late(call);
  if (busy_ == 0) {
    release();
    session_->retired(*this);
  }
}

void Flight::answer(const Result<Reply>& result, SmallData&& data) {
  FOREBAY_ASSERT(!answered_);
  const auto alive = shared_from_this();
  answered_ = true;
  if (charge_ticket_) exported().pool.forget(charge_ticket_);
  let_go();
  if (busy_ == 0) release();
  session_->answer(*this, result, std::move(data));
}

void Flight::release() {
  reservation_.release();
  list_.reset();
  charge_.reset();
  request_.file = Extents();
  if (const auto held = std::exchange(presented_, nullptr)) session_->end_use(*held);
}

void Flight::proved() {
  if (presented_ && session_->lives_here(presented_->holder.handle)) presented_->writes = true;
}

void Flight::cancel() {
  stop_.request_stop();
  if (!answered_) fail(Error(ECANCELED, "cancelled by the client"));
}

void Flight::time_out(const std::string& why) {
  const std::string text = fmt::format("{}: {}", op_info(op).name, why);
  stop_.request_stop();
  Error error(ETIMEDOUT, text);
  if (busy_ > 0 && op_info(op).changes) error = std::move(error).with_unknown_outcome();
  answer(std::move(error).with_done(written()));
}

void Flight::abort() {
  if (answered_) return;
  const auto alive = shared_from_this();
  stop_.request_stop();
  answered_ = true;
  if (charge_ticket_) exported().pool.forget(charge_ticket_);
  let_go();
  if (busy_ == 0) release();
  session_->aborted(*this);
}

CallFlight::CallFlight(std::shared_ptr<Session> session, wire::RequestMessage&& message,
                       SmallData&& data)
    : Flight(std::move(session), std::move(message)), data_(std::move(data)) {
  eager_bytes = data_.size;
}

void CallFlight::begin() {
  if (op == Op::read) {
    data_ = {std::make_unique_for_overwrite<std::byte[]>(total_), static_cast<uint32_t>(total_)};
  }
  if (is_transfer(op)) request_.memory = Memory::of(data_.span());
  if (op == Op::open || op == Op::create) {
    caller_ = request_.caller;
    handle_ = request_.handle;
  }
  const bool used = op == Op::close && !session_->let_go(request_.right);
  used ? settle(std::move(request_), 0) : submit(std::move(request_), 0);
}

void CallFlight::keep(unsigned, Result<Reply>&& result) {
  result_.emplace(std::move(result));
}

bool CallFlight::opened() const {
  return *result_ && (op == Op::open || op == Op::create) && !(**result_).right.empty();
}

Holder CallFlight::opener() const {
  return {caller_, op == Op::open ? handle_ : (**result_).handle};
}

void CallFlight::done(unsigned) {
  const Result<Reply>& result = *result_;
  if (opened()) session_->hold(result->right, opener());
  if (op == Op::write && result) proved();
  if (op != Op::read || !result) return answer(result);
  FOREBAY_ASSERT(result->count <= data_.size);
  data_.size = static_cast<uint32_t>(result->count);
  answer(result, std::move(data_));
}

// An open that succeeds after its client was told otherwise: nobody else will close it.
void CallFlight::late(unsigned) {
  if (opened()) session_->close_right(opener(), (**result_).right);
}

// A call that is out answers by itself.
void CallFlight::fail(Error error) {
  if (busy() == 0) answer(std::move(error));
}

}  // namespace forebay::server
