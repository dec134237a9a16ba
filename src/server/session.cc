#include "server/session.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/log.h"
#include "transport/shared_region.h"

namespace forebay::server {
namespace {

constexpr size_t kMaxRights = 65536;           // of one session; EMFILE beyond
constexpr size_t kMaxRelayedRights = 1 << 20;  // of another server's clients
constexpr size_t kFewBlocks = 16;              // of a list that nobody counts
constexpr size_t kSinkBytes = 64 * 1024;

// What changes something must not be done twice. The rest is done again rather than remembered: it
// is cheaper to do than to keep, and may be large.
bool remembered(Op op) {
  return op_info(op).changes || op_info(op).kind == OpKind::session;
}

// "It is not there" is the answer that many a lookup is made for.
bool is_failure(Op op, const Error& error) {
  return !(op == Op::lookup && error.code() == ENOENT) &&
         !(op == Op::shortcut && (error.code() == EAGAIN || error.code() == EOPNOTSUPP));
}

// Will the session hold one more right if it succeeds?
bool opens(const Request& request) {
  return request.op == Op::open || (request.op == Op::create && request.access != Access::none);
}

}  // namespace

Session::Session(Parts parts) : parts_(std::move(parts)), slots_(parts_.options->slots) {}

Session::~Session() = default;

// ---- Frames ----

Result<Memory> Session::on_message(const wire::FrameHeader& header, wire::Bytes message) {
  landing_ = Landing::nowhere;
  const uint32_t payload = header.payload_size;
  if (closing_ || leaving_ || ended_) return sink(payload);
  switch (header.type) {
    case wire::FrameType::request:
      return take_request(message, payload);
    case wire::FrameType::data:
      return take_data(message, payload);
    case wire::FrameType::cancel:
      return take_cancel(message, payload);
    case wire::FrameType::taken:
      return take_back(message, payload);
    case wire::FrameType::released:
      return take_released(message, payload);
    case wire::FrameType::goodbye:
      // (Another server's goodbye is not its clients'.)
      if (client_.sequence == 1 && !parts_.relayed) exported().state().forget(client_, loop());
      exported().leases->lose(
          id(), parts_.relayed ? LeaseTable::Left::out_of_reach : LeaseTable::Left::for_good,
          loop());
      // Its next life will reclaim the locks of its clients.
      if (parts_.relayed && exported().locks.knows(id())) return sink(payload);
      post_end();
      return sink(payload);
    default:
      return refuse(Error(EPROTO, fmt::format("a frame of type {} has no place in a session",
                                              static_cast<int>(header.type))),
                    payload);
  }
}

Memory Session::take_request(wire::Bytes message, uint32_t payload) {
  if (payload != 0 && take_small_write(message, payload)) {
    return Memory::of(incoming_small_->data);
  }
  wire::RequestMessage decoded;
  if (auto good = wire::decode_request_into(decoded, message); !good) {
    return refuse(std::move(good).error(), payload);
  }
  if (auto wrong = misused(decoded, payload)) return refuse(std::move(*wrong), payload);
  parts_.info->requests.add();
  if (payload == 0) return admit(std::move(decoded), {}), Memory{};
  parts_.info->bytes_in.add(payload);
  exported().bytes_in.add(payload);
  if (repeats(decoded.id) || decoded.bad) {
    admit(std::move(decoded), {});
    return sink(payload);
  }
  // The request begins when its data is here: nothing else of this client can come in between.
  incoming_.emplace(Incoming{std::move(decoded),
                             {std::make_unique_for_overwrite<std::byte[]>(payload), payload}});
  landing_ = Landing::eager;
  return Memory::of(incoming_->data.span());
}

bool Session::repeats(const wire::RequestId& id) const {
  return id.sequence == slots_[id.slot].sequence;
}

// Breaks of the protocol; what is merely wrong with a request is its reply's business.
std::optional<Error> Session::misused(const wire::RequestMessage& m, uint32_t payload) const {
  const uint16_t slot = m.id.slot;
  const uint64_t sequence = m.id.sequence;
  const auto wrong = [&](const std::string& text) {
    return Error(EPROTO, fmt::format("request {} of slot {}: {}", sequence, slot, text));
  };
  if (slot >= slots_.size()) return wrong(fmt::format("there are {} slots", slots_.size()));
  const Slot& s = slots_[slot];
  if (sequence == 0 || (sequence != s.sequence && sequence != s.sequence + 1)) {
    return wrong(fmt::format("the last one was {}", s.sequence));
  }
  if (sequence == s.sequence + 1 && (s.flight || s.small || s.sending)) {
    return wrong("the one before is not answered");
  }
  if (!m.bad && payload != (m.eager ? m.total : 0)) {
    return wrong(fmt::format("{} bytes of payload, {} expected", payload, m.eager ? m.total : 0));
  }
  if (m.place != wire::kNoArea && !m.bad) {
    const auto memory = lent();
    if (!memory || m.place > memory->bytes().size() || m.total > memory->bytes().size() - m.place) {
      return wrong("a place outside the memory that is lent");
    }
  }
  if (payload > options().eager_max) return wrong("more eager data than a request may carry");
  if (!repeats(m.id) && eager_used_ + payload > parts_.welcome.eager_bytes) {
    return wrong("more eager data in flight than the session's credit");
  }
  return std::nullopt;
}

Memory Session::take_data(wire::Bytes message, uint32_t payload) {
  Result<wire::Data> data = wire::decode_data(message);
  if (!data) return refuse(std::move(data).error(), payload);
  if (pulls_.empty()) return refuse(Error(EPROTO, "data that was not asked for"), payload);
  const wire::Pull& pull = pulls_.front().pull;
  const bool in_area = pull.area != wire::kNoArea;
  if (data->id != pull.id || data->part != pull.part || data->position != pull.position ||
      data->area != pull.area || payload != (in_area ? 0 : pull.length) ||
      data->length != (in_area ? pull.length : 0)) {
    return refuse(Error(EPROTO, fmt::format("data of {} bytes at {} of request {}, slot {}, where "
                                            "{} bytes at {} of request {}, slot {}, were due",
                                            payload + data->length, data->position,
                                            data->id.sequence, data->id.slot, pull.length,
                                            pull.position, pull.id.sequence, pull.id.slot)),
                  payload);
  }
  if (in_area) return pulled(), Memory{};
  landing_ = Landing::pulled;
  Memory memory = pulls_.front().flight->landing(pull);
  return memory.shape.empty() ? sink(payload) : memory;
}

// The client has copied what we gave it, and the place is ours again.
Memory Session::take_back(wire::Bytes message, uint32_t payload) {
  Result<wire::Taken> taken = wire::decode_taken(message);
  if (!taken) return refuse(std::move(taken).error(), payload);
  if (payload != 0) return refuse(Error(EPROTO, "a payload where there is none"), payload);
  const auto found = given_.find(taken->area);
  if (found == given_.end()) return refuse(Error(EPROTO, "took what was not given"), payload);
  Connection::Sent sent = std::move(found->second.sent);
  given_.erase(found);
  sent(Result<void>());
  return {};
}

Memory Session::take_cancel(wire::Bytes message, uint32_t payload) {
  Result<wire::Cancel> cancel = wire::decode_cancel(message);
  if (!cancel) return refuse(std::move(cancel).error(), payload);
  if (payload != 0 || cancel->id.slot >= slots_.size()) {
    return refuse(Error(EPROTO, "a cancel for no slot, or with a payload"), payload);
  }
  Slot& slot = slots_[cancel->id.slot];
  slot.cancelled = cancel->id.sequence;  // what it is for may lie in a box, unseen
  if (slot.sequence == cancel->id.sequence) this->cancel(cancel->id.slot);
  return {};
}

void Session::cancel(uint16_t number) {
  Slot& slot = slots_[number];
  slot.cancelled = 0;
  if (slot.flight) std::shared_ptr<Flight>(slot.flight)->cancel();
  if (const SmallWriteRef small = slot.small; small && exported().small_writes.drop(*small)) {
    small->error = Error(ECANCELED, "cancelled by the client");
    written(*small);
  }
}

void Session::on_payload() {
  const Landing landing = std::exchange(landing_, Landing::nowhere);
  if (landing == Landing::eager) {
    Incoming incoming = std::move(*incoming_);
    incoming_.reset();
    if (!closing_) admit(std::move(incoming.message), std::move(incoming.data));
  } else if (landing == Landing::small) {
    begin_small(std::move(incoming_small_));
  } else if (landing == Landing::pulled) {
    pulled();
  }
}

// What was asked for first is here.
void Session::pulled() {
  const Owed owed = std::move(pulls_.front());
  pulls_.pop_front();
  last_data_ = last_moved_ = loop().now();
  parts_.info->bytes_in.add(owed.pull.length);
  exported().bytes_in.add(owed.pull.length);
  owed.flight->landed(owed.pull);
  if (stopping_) shed(), leave_if_drained();
}

// ---- Requests ----

void Session::admit(wire::RequestMessage&& message, SmallData&& data) {
  Slot& slot = slots_[message.id.slot];
  if (message.id.sequence == slot.sequence) return repeat(slot, std::move(message));
  if (stopping_) return;  // not begun, not answered: for our successor
  slot.sequence = message.id.sequence;
  slot.reply.clear();
  slot.wrote.reset();
  slot.told = {};
  begin(std::move(message), std::move(data));
}

void Session::repeat(Slot& slot, wire::RequestMessage&& message) {
  if (const std::shared_ptr<Flight> flight = slot.flight) {
    flight->spoken = true;
    return flight->recalls() ? void() : flight->repeated();
  }
  if (slot.small) {
    slot.small->spoken = true;
    return;
  }
  if (slot.wrote) {
    slot.reply = wire::encode_reply(message.id, slot.wrote->reply());
    slot.wrote.reset();
  }
  if (slot.sending) return;  // it is on its way
  if (!slot.reply.empty()) {
    slot.sending = true;
    arm_sweep();
    return send(slot.reply, {},
                [this, id = message.id](Result<void>) { slots_[id.slot].sending = false; });
  }
  if (!stopping_) begin(std::move(message), {});
}

void Session::begin(wire::RequestMessage&& message, SmallData&& data) {
  const wire::RequestId id = message.id;
  const Op op = message.request.op;
  const Handle file = op == Op::shortcut ? message.request.handle : Handle();
  if (message.bad) return reply(id, op, true, std::move(*message.bad), {});
  exported().ops[static_cast<size_t>(op)]->add();
  parts_.info->ops[static_cast<size_t>(op)].add();
  SmallMemory::Share list_share = take_shares(message, data);
  if (auto permitted = permit(message, data); !permitted) {
    return reply(id, op, true, std::move(permitted).error(), {});
  }
  if (op_info(op).kind == OpKind::data && op != Op::commit) {
    if (auto loss = exported().store().take_loss(this->id(), message.request.handle)) {
      return tell(id, op, true, std::move(*loss), message.request.handle);
    }
  }
  if (!message.request.once.empty()) note_client(message.request.once);
  const auto flight = Flight::make(shared_from_this(), std::move(message), std::move(data));
  flight->list_share = std::move(list_share);
  slots_[id.slot].flight = flight;
  flights_changed(+1);
  eager_used_ += flight->eager_bytes;
  arm_sweep();
  if (op == Op::shortcut) note_writes(file);
  if (small_ > 0) issue_small();
  flight->start();
}

// Requests of a client have its name, which the state remembers until it says goodbye; but one that
// passes on those of others has many, and they may come again another way.
void Session::note_client(const Once& once) {
  const bool same = client_.client == once.client && client_.client2 == once.client2;
  if (client_.sequence == 0)
    client_ = {once.client, once.client2, 1};
  else if (!same)
    client_.sequence = 2;
}

// What a small read takes, if there is enough left, in `data`; and what the list takes that came
// with the request, or else it is pulled again when its memory is charged against the pool.
SmallMemory::Share Session::take_shares(wire::RequestMessage& message, SmallData& data) {
  const std::shared_ptr<SmallMemory>& small = exported().small;
  Request& r = message.request;
  if (!is_transfer(r.op)) return {};
  const bool lent = message.place != wire::kNoArea && lives_here(r.handle);
  if (r.op == Op::read && !lent && message.total <= options().eager_max) {
    data.share = SmallMemory::take(small, message.total);
  }
  const size_t blocks = r.file.blocks().size();
  const uint64_t bytes = blocks * wire::kBlockBytes;
  if (blocks <= kFewBlocks || bytes > exported().pool.max_charge()) return {};
  auto share = SmallMemory::take(small, 2 * bytes);  // once more in its reservation
  if (share) return share;
  message.list_blocks = blocks;
  message.list_bounds = r.file.bounds();
  message.list_loops.assign(r.file.loops().begin(), r.file.loops().end());
  r.file = Extents();
  return {};
}

// May the request be begun at all?
Result<void> Session::permit(wire::RequestMessage& message, const SmallData& data) {
  if (auto known = identify(message.request); !known) return known;
  if (auto good = check_arguments(message.request); !good) return good;
  if (message.list_blocks != 0 && (message.request.flags & kFlagAppend) != 0) {
    return Error(EINVAL, "write: file: must be one extent from 0 if it is to be appended");
  }
  if ((message.request.flags & kFlagAppend) != 0 && message.total > exported().pool.max_charge() &&
      !lives_here(message.request.handle)) {
    return Error(EMSGSIZE, fmt::format("an append of {} bytes to a file that lives at another "
                                       "server: at most {}, a part of the export's pool",
                                       message.total, exported().pool.max_charge()));
  }
  if (message.list_blocks > exported().pool.max_charge() / wire::kBlockBytes) {
    return Error(E2BIG, fmt::format("a list of {} extents: export '{}' takes {} in one request",
                                    message.list_blocks, exported().options.name,
                                    exported().pool.max_charge() / wire::kBlockBytes));
  }
  // Small data is with the Store at once; what waits for its client must not hold others up unless
  // it may. And a right that is presented for the first time is remembered, so it must be one.
  if (message.list_blocks != 0 || message.place != wire::kNoArea ||
      (!message.eager && !data.share && message.total > 0) ||
      (is_transfer(message.request.op) && !holds(message.request))) {
    if (auto good = exported().store().admits(message.request); !good) return good;
  }
  if (rights_.size() >= (parts_.relayed ? kMaxRelayedRights : kMaxRights) &&
      (opens(message.request) || !holds(message.request))) {
    return Error(EMFILE, fmt::format("this session holds {} open files", rights_.size()));
  }
  if (zombies_ >= slots_.size()) {
    return Error(ETIMEDOUT, fmt::format("the back end of export '{}' has not answered {} requests",
                                        exported().options.name, zombies_));
  }
  return {};
}

Result<void> Session::identify(Request& request) {
  const CallerRef said = std::exchange(request.caller, parts_.caller);
  if (!said || said->same_identity(*parts_.caller)) return {};
  if (!may_speak_for_others_) {
    return Error(EPERM,
                 fmt::format("user {} may not speak for user {}", parts_.caller->uid, said->uid));
  }
  if (!other_caller_ || !(*other_caller_ == *said)) other_caller_ = said;
  request.caller = other_caller_;
  return {};
}

// ---- Replies ----

void Session::answer(Flight& flight, const Result<Reply>& result, SmallData&& data) {
  forget_flight(flight);
  parts_.info->latency.add(static_cast<uint64_t>((loop().now() - flight.arrived()).count()));
  std::optional<Error> loss;
  // A failure is worth telling as it is, and the loss the next time; after a close there is none.
  if (!flight.owed().empty() && (result || flight.op == Op::close)) {
    loss = exported().store().take_loss(id(), flight.owed());
  }
  if (loss) {
    tell(flight.id, flight.op, flight.spoken, std::move(*loss), flight.owed());
  } else {
    reply(flight.id, flight.op, flight.spoken, result, std::move(data));
  }
  leave_if_drained();
}

// Once, and so remembered, whatever the operation: if the reply is lost it is not done again.
void Session::tell(wire::RequestId id, Op op, bool spoken, Error loss, const Handle& file) {
  Slot& slot = slots_[id.slot];
  slot.told = file;
  reply(id, op, spoken, loss, {});
  if (slot.reply.empty()) slot.reply = wire::encode_reply(id, std::move(loss));
}

void Session::reply(wire::RequestId id, Op op, bool spoken, const Result<Reply>& result,
                    SmallData&& data) {
  if (!result && is_failure(op, result.error())) exported().errors.add();
  const uint32_t payload = data.size;
  std::string head = wire::encode_reply(id, result, payload);
  const bool send_it = spoken && connected();
  if (remembered(op)) {
    if (!send_it) return void(slots_[id.slot].reply = std::move(head));
    slots_[id.slot].reply = head;
  }
  if (!send_it) return;
  // The connection is ours and runs no callback after it is gone. A client that does not take its
  // replies is so held to one for each slot.
  slots_[id.slot].sending = true;
  if (payload == 0) {
    return send(std::move(head), {}, [this, id](Result<void>) { slots_[id.slot].sending = false; });
  }
  parts_.info->bytes_out.add(payload);
  exported().bytes_out.add(payload);
  const Memory memory = Memory::of(data.span());
  send(std::move(head), memory,
       [this, id, held = std::move(data)](Result<void>) { slots_[id.slot].sending = false; });
}

std::shared_ptr<SharedPages> Session::lent() const {
  return region_ ? region_->lent() : nullptr;
}

uint64_t Session::place_in_area(const std::byte* at) const {
  return static_cast<uint64_t>(at - region_->area().data());
}

void Session::pull(std::shared_ptr<Flight> flight, wire::Part part, uint64_t position,
                   uint32_t length, const std::byte* into) {
  wire::Pull pull{flight->id, part, position, length};
  if (into) pull.area = place_in_area(into);
  pulls_.push_back({std::move(flight), pull, loop().now()});
  send(wire::encode(pull));
}

void Session::push(wire::RequestId id, uint64_t position, std::span<std::byte> bytes, bool in_area,
                   Connection::Sent sent) {
  const auto size = static_cast<uint32_t>(bytes.size());
  parts_.info->bytes_out.add(size);
  exported().bytes_out.add(size);
  wire::Data data{id, wire::Part::stream, position};
  if (!in_area) return send(wire::encode(data, size), Memory::of(bytes), std::move(sent));
  data.area = place_in_area(bytes.data());
  data.length = size;
  given_.emplace(data.area, Given{std::move(sent), loop().now()});
  send(wire::encode(data, 0));
}

void Session::announce() {
  if (connection_ && exported().store().concurrency() == 0) connection_->announce();
}

void Session::send(std::string head, Memory payload, Connection::Sent sent) {
  if (!connection_) return;
  handed_ += head.size() + payload.shape.total().value;
  connection_->send(std::move(head), std::move(payload), std::move(sent));
}

// Says why, and closes when the client has had a moment to read it. The connection goes, the
// session stays: the client may be right after a reconnect.
Memory Session::refuse(Error why, uint32_t payload) {
  if (!closing_ && connection_) {
    log::info("session {}: {}", parts_.info->id, why.message());
    send(wire::encode_refused(why));
    closing_ = true;
    loop().after(kLinger, [weak = weak_from_this(), attachment = attachment_, why] {
      const auto self = weak.lock();
      if (self && self->connection_ && self->attachment_ == attachment) {
        self->connection_->close(why);
      }
    });
  }
  return sink(payload);
}

// A place for bytes that nobody wants: the same small memory over and over.
Memory Session::sink(uint32_t payload) {
  if (payload == 0) return {};
  sink_.resize(kSinkBytes);
  std::vector<Extent> blocks;
  for (uint64_t left = payload; left > 0; left -= blocks.back().length.value) {
    blocks.push_back({Offset(0), Length(std::min<uint64_t>(left, kSinkBytes))});
  }
  Result<Extents> shape = Extents::make(std::move(blocks));
  FOREBAY_ASSERT(shape.has_value());
  return {sink_.data(), std::move(*shape)};
}

void Session::submit(Request&& request, Completion&& done) {
  const ScheduledStore::Origin from = origin();
  if (!exported().relay || parts_.relayed) {
    return exported().store().submit(std::move(request), std::move(done), from);
  }
  exported().relay->submit(std::move(request), std::move(done), from);
}

void Session::look(Request&& request, Completion&& done) {
  exported().store().submit(std::move(request), std::move(done), origin());
}

void Session::submit_at(const std::string& server, Request&& request, Completion&& done) {
  exported().relay->submit_at(server, std::move(request), std::move(done), origin());
}

void Session::settle(Request&& close, Completion&& done) {
  const ScheduledStore::Origin from = origin();
  if (!exported().relay || parts_.relayed) {
    return exported().store().settle(std::move(close), std::move(done), from);
  }
  exported().relay->settle(std::move(close), std::move(done), from);
}

// ---- Leases ----

void Session::send_recalls(const std::vector<LeaseTable::Number>& leases) {
  for (const LeaseTable::Number lease : leases) send(wire::encode(wire::Recall{lease}));
}

Memory Session::take_released(wire::Bytes message, uint32_t payload) {
  Result<wire::Released> released = wire::decode_released(message);
  if (!released) return refuse(std::move(released).error(), payload);
  exported().leases->give_back(id(), released->lease);  // it may have ended meanwhile
  return sink(payload);
}

// It may come back, without what it held.
void Session::cut_off_holder() {
  if (connected())
    refuse(Error(ETIMEDOUT, "a lease or shortcut was not given back in time: cut off"), 0);
}

// ---- Rights ----

// Does it hold the right that the request presents, if it presents one?
bool Session::holds(const Request& request) const {
  return request.right.empty() || request.op == Op::close || rights_.contains(request.right.bytes);
}

// One that a request presents for the first time. Rubbish is not worth remembering. Of a read or
// write permit() has asked.
bool Session::good_right(const Request& request) const {
  if (is_transfer(request.op)) return true;
  Request probe;
  probe.caller = request.caller;
  probe.handle = request.handle;
  probe.right = request.right;
  for (const Op use : {Op::read, Op::write}) {
    probe.op = use;
    if (exported().store().admits(probe)) return true;
  }
  return false;
}

void Session::hold(const Right& right, Holder holder) {
  FOREBAY_ASSERT(!gone_);
  auto& held = rights_[right.bytes];
  if (held) return;
  held = std::make_shared<HeldRight>(HeldRight{right, std::move(holder)});
  exported().holders.hold(right.bytes, exported().store().identity(held->holder.handle));
}

std::shared_ptr<HeldRight> Session::use(const Request& request) {
  if (request.right.empty() || request.op == Op::close) return nullptr;
  // A renewal is of all leases that there are: the file that it names may be closed by now.
  if (request.op == Op::lease && (request.flags & kFlagReclaim) != 0) return nullptr;
  auto found = rights_.find(request.right.bytes);
  if (found == rights_.end()) {
    if (!good_right(request)) return nullptr;
    hold(request.right, {request.caller, request.handle});
    found = rights_.find(request.right.bytes);
  }
  ++found->second->users;
  return found->second;
}

void Session::end_use(HeldRight& held) {
  if (--held.users > 0 || !held.closed) return;
  give_up(held);
  if (!exported().holders.held(held.right.bytes)) close_right(held.holder, held.right);
}

bool Session::let_go(const Right& right) {
  shortcuts_.close(right.bytes);
  if (const auto found = rights_.find(right.bytes); found != rights_.end()) {
    const std::shared_ptr<HeldRight> held = std::move(found->second);
    rights_.erase(found);
    held->closed = true;
    if (held->users == 0) give_up(*held);
  }
  return !exported().holders.held(right.bytes);
}

// Another server that is gone leaves clients of its own, which may have the file open still.
void Session::give_up(const HeldRight& held) {
  if (!exported().holders.let_go(held.right.bytes) || stopping_ || dropped_) return;
  exported().state().unused(held.holder.handle, held.closed || !parts_.relayed);
}

void Session::close_right(const Holder& holder, const Right& right) {
  if (dropped_) return;
  Request request;
  request.op = Op::close;
  request.caller = holder.caller;
  request.handle = holder.handle;
  request.right = right;
  submit(std::move(request), [held = parts_.exported](Result<Reply>) {});
}

}  // namespace forebay::server
