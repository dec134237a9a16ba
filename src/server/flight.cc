#include "server/flight.h"

#include <fmt/format.h>

#include "server/bulk.h"
#include "server/lease_flight.h"
#include "server/lent_flight.h"
#include "server/lock_flight.h"
#include "server/lock_waits_flight.h"
#include "server/name_flight.h"
#include "server/relay_flight.h"
#include "server/session.h"
#include "server/shortcut_flight.h"

namespace forebay::server {
namespace {

// Where a client is told of what it lost: at whatever presents a right or settles.
bool may_tell(Op op) {
  return op_info(op).kind == OpKind::data || op == Op::close;
}

// Calls that may take long are worth a token with which to take them back; for the others it would
// be an allocation per request.
bool may_take_long(Op op) {
  return op_info(op).kind == OpKind::data || op == Op::commit || op == Op::lock;
}

// It waits for what is under way: what its holder will have to write must not wait for that, and so
// for clients that may be slow, while others wait for the lease.
bool takes_write_lease(const Request& r) {
  return r.op == Op::lease && (r.flags & (kFlagShared | kFlagReclaim)) == 0;
}

// It waits until nobody writes to the file unknown to us.
bool takes_read_lease(const Request& r) {
  return r.op == Op::lease && (r.flags & (kFlagShared | kFlagReclaim)) == kFlagShared;
}

}  // namespace

std::shared_ptr<Flight> Flight::make(std::shared_ptr<Session> session,
                                     wire::RequestMessage&& message, SmallData&& data) {
  const bool bulk_write = message.request.op == Op::write && !message.eager && message.total > 0;
  const bool bulk_read = message.request.op == Op::read && message.total > 0 && !data.share;
  // What the client can still write to must not go on to another server, whose frames are sealed.
  if (message.place != wire::kNoArea && session->lives_here(message.request.handle)) {
    auto lent = session->lent();
    return std::make_shared<LentFlight>(std::move(session), std::move(message), std::move(lent));
  }
  if (is_lock(message.request.op)) {
    return std::make_shared<LockFlight>(std::move(session), std::move(message));
  }
  if (message.request.op == Op::lock_waits) {
    return std::make_shared<LockWaitsFlight>(std::move(session), std::move(message));
  }
  if (message.request.op == Op::lease) {
    return std::make_shared<LeaseFlight>(std::move(session), std::move(message));
  }
  if (message.request.op == Op::shortcut) {
    return std::make_shared<ShortcutFlight>(std::move(session), std::move(message));
  }
  if ((bulk_write || bulk_read) && RelayFlight::takes(*session, message)) {
    return std::make_shared<RelayFlight>(std::move(session), std::move(message));
  }
  if (bulk_write) return std::make_shared<WriteFlight>(std::move(session), std::move(message));
  if (bulk_read) return std::make_shared<ReadFlight>(std::move(session), std::move(message));
  if (NameFlight::takes(message.request)) {
    return std::make_shared<NameFlight>(std::move(session), std::move(message));
  }
  return std::make_shared<CallFlight>(std::move(session), std::move(message), std::move(data));
}

Flight::Flight(std::shared_ptr<Session> session, wire::RequestMessage&& message)
    : id(message.id),
      op(message.request.op),
      session_(std::move(session)),
      request_(std::move(message.request)),
      total_(message.total),
      resized_to_(request_.length.value),
      here_(session_->lives_here(request_.handle)),
      under_lease_(op == Op::write ? std::exchange(request_.cookie, 0) : 0) {
  presented_ = session_->use(request_);
  if (may_tell(op) && exported().store().used()) owed_ = request_.handle;
  if (op == Op::resize || op == Op::setattr) changes_ = request_.handle;
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
  if (!exported().leases->writers() || !held_back()) go();
}

void Flight::go() {
  if (here_ && !may_write()) return;
  if (here_ && (request_.flags & kFlagAppend) != 0) return ask_place();
  if (here_ && op == Op::resize) return wait_for_resize();
  if (here_) note_end();
  if (reserve()) granted();
}

// ---- What another client may have written and not told us (lease_table.h) ----

// True: go() follows.
bool Flight::held_back() {
  switch (op) {
    case Op::write:
      if (under_lease_ != 0) return false;
      [[fallthrough]];
    case Op::read:
    case Op::getattr:
    case Op::setattr:
    case Op::resize:
    case Op::fallocate:
    case Op::open:
    case Op::link:
      break;
    case Op::lease:
      if (request_.flags & kFlagReclaim) return false;
      break;
    case Op::lookup:
    case Op::create:
      return scout(), true;
    case Op::readdir:
      if (!(request_.flags & kFlagPlus)) return false;
      return scout(), true;
    default:
      return false;
  }
  gates_ = 1;
  return !exported().leases->conflicts(leased(request_.handle), session_->id(), loop(),
                                       [self = shared_from_this()] { self->gate_open(); });
}

// Which files a request is about that names them.
void Flight::scout() {
  Request look;
  look.op = op == Op::readdir ? Op::readdir : Op::lookup;
  look.caller = request_.caller;
  look.handle = request_.handle;
  look.name = request_.name;
  if (op == Op::readdir) {
    look.flags = request_.flags;
    look.cookie = request_.cookie;
    look.length = request_.length;
  }
  session_->submit(std::move(look), [self = shared_from_this()](Result<Reply>&& found) {
    self->loop().post([self, files = std::move(found)] { self->scouted(files); });
  });
}

void Flight::scouted(const Result<Reply>& found) {
  if (answered_) return;
  gates_ = 1;
  const auto wait_for = [&](const Handle& file) {
    if (file.empty()) return;
    ++gates_;
    const bool through = exported().leases->conflicts(
        leased(file), session_->id(), loop(), [self = shared_from_this()] { self->gate_open(); });
    if (through) --gates_;
  };
  if (found) {
    wait_for(found->handle);
    for (const Entry& entry : found->entries) wait_for(entry.handle);
  }
  gate_open();
}

void Flight::gate_open() {
  if (--gates_ > 0 || answered_) return;
  touch();
  go();
}

// ---- Appends, and what else moves the end of a file (shared_state.h) ----

// Before the end moves for it: what somebody may not do must leave no trace. False: it is answered.
bool Flight::may_write() {
  const bool appends = (request_.flags & kFlagAppend) != 0;
  const bool writes = op == Op::write || op == Op::fallocate;
  if (!writes || (!appends && !exported().state().keeps_ends())) return true;
  auto good = exported().store().admits(request_);
  if (!good) fail(std::move(good).error());
  return good.has_value();
}

void Flight::ask_place() {
  append_.emplace(request_.handle, request_.once);
  exported().state().place(request_, total_, loop(),
                           [self = shared_from_this()](Result<SharedState::Place> place) {
                             self->placed(std::move(place));
                           });
}

// From here on it is a write like any other; but what it says is written is.
void Flight::placed(Result<SharedState::Place> place) {
  if (!place || place->done || total_ == 0) {
    if (place) append_->place = *place;
    if (!place) append_.reset();
    if (answered_) return;
    if (!place) return fail(std::move(place).error());
    if (place->done) {
      Reply reply;
      reply.count = total_;
      return answer(std::move(reply));
    }
  }
  append_->place = *place;
  if (answered_) return settle_place(nullptr);
  touch();
  request_.flags = (request_.flags & ~uint32_t(kFlagAppend | kFlagBehind)) | kFlagStable;
  request_.once = {};
  if (total_ > 0) request_.file = Extents({Offset(place->offset), Length(total_)});
  if (reserve()) granted();
}

void Flight::settle_place(const Result<Reply>* result) {
  if (!append_ || append_->place.done || total_ == 0) return;
  using Settled = SharedState::Settled;
  const bool untouched = busy_ == 0 && !append_->touched.load(std::memory_order_relaxed);
  const Settled how = result && *result ? Settled::written
                      : untouched       ? Settled::untouched
                                        : Settled::lost;
  exported().state().settle(append_->handle, append_->once, append_->place.offset, how, loop());
}

void Flight::wait_for_resize() {
  exported().state().resizes(request_.handle, loop(), [self = shared_from_this()] {
    self->resizes_ = self->request_.handle;
    if (self->answered_) return void(self->tell_resized(false));
    if (self->reserve()) self->granted();
  });
}

void Flight::note_end() {
  uint64_t end = 0;
  if (op == Op::write) {
    const Result<Extents> all = list_ ? list_->reserved() : Result<Extents>(request_.file);
    if (all) end = all->bounds().end().value;
  } else if (op == Op::fallocate && (request_.flags & (kFlagKeepSize | kFlagPunchHole)) == 0) {
    end = request_.offset.value + request_.length.value;
  }
  if (end != 0 && exported().state().writes_to(request_.handle, end)) {
    moved_.emplace(End{request_.handle, end});
  }
}

// Returns the record that must be written before the resize is answered.
uint64_t Flight::tell_resized(bool done) {
  if (!resizes_) return 0;
  const Handle handle = std::move(*resizes_);
  resizes_.reset();
  return exported().state().resized(handle, done ? std::optional(resized_to_) : std::nullopt);
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
  if (op == Op::lease) return Extents::make({{Offset(0), Length(kMaxOffset)}});
  return Extents();
}

// True if the request may go on at once.
bool Flight::reserve() {
  const bool reads_under_lease = takes_read_lease(request_);
  if (!is_transfer(op) && op != Op::resize && op != Op::fallocate && !takes_write_lease(request_) &&
      !(reads_under_lease && exported().shortcuts.any())) {
    return true;
  }
  if ((request_.flags & kFlagAppend) != 0) return true;  // its home will say where it goes
  request_.owns_holes = exported().wants_holes(request_);
  Result<Extents> extents = wanted();
  if (!extents) return fail(std::move(extents).error()), false;
  if (extents->empty()) return true;
  using Mode = ReservationTable::Mode;
  const bool whole = op == Op::write && one_call() && !list_ && !request_.owns_holes &&
                     (request_.flags & kFlagBehind) == 0 && extents->pieces() == 1 &&
                     exported().store().writes_whole(request_.handle) &&
                     !exported().store().keeps_all(session_->near());
  const Mode mode = op == Op::read || reads_under_lease ? Mode::read
                    : whole                             ? Mode::whole
                                                        : Mode::write;
  return exported().reservations.add(reservation_, exported().store().identity(request_.handle),
                                     mode, std::move(*extents), loop(),
                                     [self = shared_from_this()] { self->granted(); });
}

void Flight::granted() {
  if (answered_) return;
  // Only now: whoever waited for the lease in vain reserves later (lease_table.h).
  if (under_lease_ != 0 &&
      !exported().leases->writes(session_->id(), under_lease_,
                                 exported().store().identity(request_.handle))) {
    return fail(Error(ESTALE, "what was kept under a lease came too late: it was lost"));
  }
  touch();
  if (append_ && !append_->written) {
    // Its bytes must not be there before the grant is: it might be granted again.
    return exported().state().when_written(append_->place.record, loop(),
                                           [self = shared_from_this()](Result<void> written) {
                                             self->append_->written = true;
                                             if (self->answered_) return;
                                             if (written) return self->granted();
                                             self->fail(std::move(written).error());
                                           });
  }
  if (list_) {
    charge_list();
  } else {
    begin();
  }
}

// Only now, and not while it waits for its reservation: a charge that waits for a reservation whose
// owner waits for a charge would never end.
void Flight::charge_list() {
  charge_ticket_ = exported().pool_for(here_).charge(
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
  if (append_ && (result || result.error().done() != 0 || result.error().is_outcome_unknown())) {
    append_->touched.store(true, std::memory_order_relaxed);
  }
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
    tell_holders();
    release();
    session_->retired(*this);
  }
}

void Flight::answer(const Result<Reply>& result, SmallData&& data) {
  FOREBAY_ASSERT(!answered_);
  const auto alive = shared_from_this();
  answered_ = true;
  if (charge_ticket_) exported().pool_for(here_).forget(charge_ticket_);
  let_go();
  settle_place(&result);
  if (result) moved_.reset();
  const std::optional<Handle> file = changed();
  if (busy_ == 0) release();
  if (!file || busy_ > 0) return reply(result, std::move(data));
  recalls_ = true;
  const bool nobody =
      exported().leases->changed(leased(*file), session_->id(), loop(), [this, alive, result] {
        if (std::exchange(recalls_, false)) reply(result, {});
      });
  if (!nobody) return;
  recalls_ = false;
  reply(result, std::move(data));
}

void Flight::reply(const Result<Reply>& result, SmallData&& data) {
  if (!append_ || !result) return session_->answer(*this, result, std::move(data));
  Result<Reply> with_place = result;
  with_place->value = append_->place.offset;
  session_->answer(*this, with_place, std::move(data));
}

LeaseTable::File Flight::leased(const Handle& file) const {
  return {exported().store().identity(file), file};
}

// The file of which others may have copies (lease_table.h), if it has done something to it.
std::optional<Handle> Flight::changed() const {
  if (!begun_ || !exported().leases->any() || !exported().has_store()) return std::nullopt;
  if (!changes_.empty()) return changes_;
  if (!made_.empty()) return made_;
  const bool data = op == Op::write || op == Op::fallocate;
  if (!data || !presented_) return std::nullopt;
  return presented_->holder.handle;
}

// Of a change that nobody waits for any more.
void Flight::tell_holders() {
  if (const auto file = changed()) {
    exported().leases->changed(leased(*file), session_->id(), loop(), [] {});
  }
}

void Flight::release() {
  tell_resized(false);  // unless it was told that it is done
  if (const auto moved = std::exchange(moved_, std::nullopt)) {
    exported().state().not_written(moved->handle, moved->end);
  }
  reservation_.release();
  list_.reset();
  charge_.reset();
  request_.file = Extents();
  list_share.release();
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
  const auto alive = shared_from_this();
  if (std::exchange(recalls_, false)) return session_->aborted(*this);
  if (answered_) return;
  stop_.request_stop();
  answered_ = true;
  if (charge_ticket_) exported().pool_for(here_).forget(charge_ticket_);
  let_go();
  settle_place(nullptr);
  if (busy_ == 0) tell_holders(), release();
  session_->aborted(*this);
}

CallFlight::CallFlight(std::shared_ptr<Session> session, wire::RequestMessage&& message,
                       SmallData&& data)
    : Flight(std::move(session), std::move(message)), data_(std::move(data)) {
  eager_bytes = data_.size;
}

Result<void> Flight::vouched() {
  if (!presented_) return Error(EBADF, "the right is not one of this file");
  const Holder& holder = presented_->holder;
  if (holder.handle == request_.handle && holder.caller->same_identity(*request_.caller)) return {};
  Request probe;
  probe.caller = request_.caller;
  probe.handle = request_.handle;
  probe.right = request_.right;
  probe.op = Op::read;
  if (exported().store().admits(probe)) return {};
  probe.op = Op::write;
  return exported().store().admits(probe);
}

void CallFlight::begin() {
  if (op_info(op).kind == OpKind::shared) return begin_shared();
  if (op == Op::read) {
    data_.bytes = std::make_unique_for_overwrite<std::byte[]>(total_);
    data_.size = static_cast<uint32_t>(total_);
  }
  if (is_transfer(op)) request_.memory = Memory::of(data_.span());
  if (op == Op::open || op == Op::create) {
    caller_ = request_.caller;
    handle_ = request_.handle;
    truncates_ = (request_.flags & kFlagTruncate) != 0;
  }
  const bool used = op == Op::close && !session_->let_go(request_.right);
  used ? settle(std::move(request_), 0) : submit(std::move(request_), 0);
}

void CallFlight::begin_shared() {
  if (!here_) return submit(std::move(request_), 0);
  if (auto good = vouched(); !good) return answer(std::move(good).error());
  exported().state().submit(std::move(request_), returns(0), &loop());
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
  if (result && op == Op::resize && here_) return cut();
  if (result && truncates_) {
    made_ = result->handle;
    if (session_->lives_here(made_)) return cut();
  }
  if (op != Op::read || !result) return answer(result);
  FOREBAY_ASSERT(result->count <= data_.size);
  data_.size = static_cast<uint32_t>(result->count);
  answer(result, std::move(data_));
}

// The file is shorter than it was: those who append must never hear of the old end again.
void CallFlight::cut() {
  const uint64_t record =
      op == Op::resize ? tell_resized(true) : exported().state().truncated((**result_).handle);
  exported().state().when_written(record, loop(), [me = self<CallFlight>()](Result<void> written) {
    if (me->answered()) return;
    written ? me->answer(*me->result_) : me->answer(std::move(written).error());
  });
}

// An open that succeeds after its client was told otherwise: nobody else will close it.
void CallFlight::late(unsigned) {
  if (opened()) session_->close_right(opener(), (**result_).right);
  if (*result_ && truncates_) made_ = (**result_).handle;
}

// A call that is out answers by itself.
void CallFlight::fail(Error error) {
  if (busy() == 0) answer(std::move(error));
}

}  // namespace forebay::server
