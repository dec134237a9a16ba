// The frames of a session, sent and received.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "client/flight.h"
#include "transport/shared_region.h"

namespace forebay {

namespace {

Error broken(std::string_view what) {
  return Error(EPROTO, fmt::format("the server broke the protocol: {}", what));
}

bool moves_data(Op op) {
  return op == Op::read || op == Op::write;
}

// Is [position, position + length) within the first `total` bytes?
bool within(uint64_t position, uint64_t length, uint64_t total) {
  return position <= total && length <= total - position;
}

}  // namespace

// ---- Sending ----

void Session::issue(FlightRef ref) {
  Flight& flight = *ref;
  const uint16_t slot = free_slots_.back();
  flight.boxed = fits_box(flight);
  free_slots_.pop_back();
  flight.message.id = {slot, ++slots_[slot].sequence};
  if (flight.message.request.op == Op::lock) queue_lock(flight);
  flight.order = ++transmitted_;
  name_once(flight);
  flight.known = uncommitted_.now();
  slots_[slot].flight = std::move(ref);
  reads_ += flight.message.request.op == Op::read;
  joints_ += !flight.members.empty();
  shape(flight);
  FOREBAY_ASSERT(!flight.boxed || flight.message.eager);
  flight.boxed ? put_in_box(flight) : transmit(flight);
}

// Decides how the request travels on this connection: whole or in parts, with its list or without,
// with its data or without.
void Session::shape(Flight& flight) {
  wire::RequestMessage& m = flight.message;
  Request& r = m.request;
  const bool ourselves = flight.caller->same_identity(*link_.self());
  r.caller = ourselves ? nullptr : flight.caller;
  if (!moves_data(r.op)) return;

  flight.unlist();
  const uint64_t most =
      std::max<uint64_t>(welcome_.max_list_bytes / wire::kBlockBytes, wire::kMaxInlineBlocks);
  if (flight.parts) {
    flight.parts->limit(most);
  } else if (r.file.blocks().size() > most) {
    flight.cut(most);
  }
  if (flight.parts) {
    Parts::Part part = flight.parts->next();
    r.file = std::move(part.file);
    r.memory = std::move(part.memory);
    in_parts_ = true;
  }

  m.total = flight.total = r.file.total().value;
  if (r.file.blocks().size() > wire::kMaxInlineBlocks) {
    m.list_blocks = r.file.blocks().size();
    m.list_loops.assign(r.file.loops().begin(), r.file.loops().end());
    m.list_bounds = r.file.bounds();
    flight.list = std::exchange(r.file, {});
  }
  m.place = place_of(flight);
  m.eager = r.op == Op::write && m.place == wire::kNoArea && m.list_blocks == 0 && m.total != 0 &&
            m.total <= welcome_.eager_max && m.total <= eager_left_;
  if (m.eager) eager_left_ -= m.total;
}

// Where the server of this connection finds the request's memory.
uint64_t Session::place_of(const Flight& flight) const {
  // An append may have to go on to another server, as one request.
  if (!lent_ || (flight.message.request.flags & kFlagAppend) != 0) return wire::kNoArea;
  if (!region_ || region_->lent() != lent_->pages()) return wire::kNoArea;
  return lent_->place_of(flight.message.request).value_or(wire::kNoArea);
}

void Session::transmit(Flight& flight) {
  flight.sent_now = true;
  const wire::RequestMessage& m = flight.message;
  if (m.place != wire::kNoArea) {
    flight.lent = true;
    lent_requests_.add();
  }
  if (m.eager) {
    ++flight.sends;
    link_.send(wire::encode(m, static_cast<uint32_t>(m.total)), m.request.memory,
               [this, &flight](Result<void> ok) { sent(flight, ok.has_value()); });
  } else {
    link_.send(wire::encode(m));
  }
  if (flight.cancelled || flight.gives_way) link_.send(wire::encode(wire::Cancel{m.id}));
}

bool Session::fits_box(const Flight& flight) const {
  const Request& r = flight.message.request;
  const uint64_t most = std::min<uint64_t>({kBoxBytes, welcome_.eager_max, eager_left_});
  if (!region_ || free_slots_.back() >= kBoxes || (spent_boxes_ >> free_slots_.back() & 1) != 0 ||
      r.op != Op::write || r.file.pieces() != 1 || r.file.total().value > most ||
      flight.cancelled || flight.parts) {
    return false;
  }
  if ((r.flags & ~uint32_t{kFlagStable}) != 0 || r.length.value != 0 || r.cookie != 0 ||
      r.handle.empty() || r.right.empty() ||
      r.handle.bytes.size() + r.right.bytes.size() > kBoxNames) {
    return false;
  }
  if (!flight.caller->same_identity(*link_.self()) || place_of(flight) != wire::kNoArea) {
    return false;
  }
  const size_t under_way = slots_.size() - free_slots_.size();
  return under_way == boxed_ || !meets(r, false);
}

void Session::put_in_box(Flight& flight) {
  const wire::RequestMessage& m = flight.message;
  const Request& r = m.request;
  const size_t i = m.id.slot;
  BoxRequest& box = region_->box(i).request;
  box.sequence = m.id.sequence;
  box.offset = r.file.bounds().offset.value;
  box.length = static_cast<uint16_t>(m.total);
  box.stable = (r.flags & kFlagStable) != 0;
  box.handle_size = static_cast<uint16_t>(r.handle.bytes.size());
  box.right_size = static_cast<uint16_t>(r.right.bytes.size());
  std::memcpy(box.names, r.handle.bytes.data(), box.handle_size);
  std::memcpy(box.names + box.handle_size, r.right.bytes.data(), box.right_size);
  copy_out(r.memory, region_->box_data(i).first(m.total));
  flight.sent_now = true;
  ++boxed_;
  in_boxes_.add();
  link_.post(uint64_t(1) << i);
}

void Session::sent(Flight& flight, bool ok) {
  --flight.sends;
  // If not, the connection is closing, and on_down() finishes what was answered.
  if (ok && flight.sends == 0 && flight.result) finish(flight.message.id.slot);
}

void Session::resend() {
  std::vector<Flight*> flights;
  for (Slot& slot : slots_) {
    if (slot.flight) flights.push_back(slot.flight.get());
  }
  std::sort(flights.begin(), flights.end(),
            [](const Flight* a, const Flight* b) { return a->order < b->order; });
  for (Flight* flight : flights) {
    resent_.add();
    if (flight->lent) flight->message.place = place_of(*flight);
    transmit(*flight);
  }
}

// ---- Receiving ----

Result<Memory> Session::on_frame(const wire::FrameHeader& header,
                                 std::span<const std::byte> message) {
  delivering_ = true;
  Result<Memory> taken = dispatch(header, message);
  delivering_ = false;
  return taken;
}

Result<Memory> Session::dispatch(const wire::FrameHeader& header,
                                 std::span<const std::byte> message) {
  switch (header.type) {
    case wire::FrameType::reply:
      return on_reply(message, header.payload_size);
    case wire::FrameType::data:
      return on_data(message, header.payload_size);
    case wire::FrameType::pull:
      if (Result<void> ok = on_pull(message); !ok) return std::move(ok).error();
      return Memory{};
    case wire::FrameType::recall:
      if (Result<void> ok = on_recall(message); !ok) return std::move(ok).error();
      return Memory{};
    default:
      return broken(fmt::format("a frame of type {}", static_cast<int>(header.type)));
  }
}

Result<Session::Flight*> Session::find(const wire::RequestId& id) {
  if (id.slot >= slots_.size() || !slots_[id.slot].flight ||
      slots_[id.slot].sequence != id.sequence || slots_[id.slot].flight->result) {
    return broken(fmt::format("slot {}, sequence {} is not under way", id.slot, id.sequence));
  }
  return slots_[id.slot].flight.get();
}

Result<Memory> Session::on_reply(std::span<const std::byte> message, uint32_t payload) {
  wire::ReplyMessage reply;
  if (auto good = wire::decode_reply_into(reply, message); !good) return std::move(good).error();
  Result<Flight*> found = find(reply.id);
  if (!found) return std::move(found).error();
  Flight& flight = **found;
  const Request& r = flight.message.request;
  Result<Reply>& result = reply.result;
  if (moves_data(r.op) && result && result->count > flight.total) {
    return broken(fmt::format("a count of {} for {} bytes", result->count, flight.total));
  }
  if (payload == 0) {
    note_stability(flight, result);
    answered(flight, std::move(result));
    return Memory{};
  }
  if (r.op != Op::read || !result || result->count != payload) {
    return broken("a reply with a payload that is not its data");
  }
  landing_ = &flight;
  landing_reply_ = std::move(result);
  return r.memory.slice(Length(0), Length(payload));
}

void Session::on_posts(uint64_t bits) {
  const Gathering together(*this);
  for (; bits != 0 && region_; bits &= bits - 1) {
    const auto i = static_cast<size_t>(std::countr_zero(bits));
    if (i >= std::min(kBoxes, slots_.size())) continue;
    Flight* const flight = slots_[i].flight.get();
    const BoxAnswer& answer = region_->box(i).answer;
    if (!flight || !flight->boxed || flight->result ||
        answer.sequence.load(std::memory_order_acquire) != slots_[i].sequence) {
      continue;  // not of this one
    }
    Result<Reply> result(std::in_place);
    result->count = flight->total;
    result->verifier = answer.verifier.load(std::memory_order_relaxed);
    note_stability(*flight, result);
    answered(*flight, std::move(result));
  }
}

void Session::note_stability(const Flight& flight, Result<Reply>& result) {
  if (!result || relays_) return;
  const Request& r = flight.message.request;
  if (r.op == Op::write && result->verifier != 0) {
    uncommitted_.acknowledged(r.handle, result->verifier);
  } else if (r.op == Op::commit || r.op == Op::close) {
    auto loss = uncommitted_.settled(r.handle, flight.known, result->verifier);
    if (loss) result = std::move(*loss);
  }
}

void Session::on_payload() {
  if (Flight* flight = std::exchange(landing_, nullptr)) {
    delivering_ = true;
    answered(*flight, std::exchange(landing_reply_, Reply{}));
    delivering_ = false;
  }
}

Result<Memory> Session::on_data(std::span<const std::byte> message, uint32_t payload) {
  Result<wire::Data> data = wire::decode_data(message);
  if (!data) return std::move(data).error();
  Result<Flight*> found = find(data->id);
  if (!found) return std::move(found).error();
  const Flight& flight = **found;
  if (flight.message.request.op != Op::read || data->part != wire::Part::stream ||
      !within(data->position, uint64_t(payload) + data->length, flight.total)) {
    return broken("data that was not asked for");
  }
  if (data->area != wire::kNoArea) {
    if (payload != 0) return broken("data both in the shared area and behind the message");
    if (auto copied = copy_out_of_area(flight, *data); !copied) return std::move(copied).error();
    return Memory{};
  }
  if (payload == 0) return Memory{};
  return flight.message.request.memory.slice(Length(data->position), Length(payload));
}

// The bytes at a place of the area that this connection shares.
Result<std::span<std::byte>> Session::in_area(uint64_t place, uint64_t length) const {
  if (!region_ || !within(place, length, region_->area().size())) {
    return broken("a place outside the shared area");
  }
  return region_->area().subspan(place, length);
}

Result<void> Session::copy_out_of_area(const Flight& flight, const wire::Data& data) {
  const auto from = in_area(data.area, data.length);
  if (!from) return from.error();
  copy_in(*from, flight.message.request.memory.slice(Length(data.position), Length(data.length)));
  in_area_.add();
  link_.send(wire::encode(wire::Taken{data.area}));
  return {};
}

Result<void> Session::on_pull(std::span<const std::byte> message) {
  Result<wire::Pull> pull = wire::decode_pull(message);
  if (!pull) return std::move(pull).error();
  Result<Flight*> found = find(pull->id);
  if (!found) return std::move(found).error();
  if (pull->length > welcome_.chunk) return broken("a pull longer than a chunk");
  return pull->part == wire::Part::list ? send_list(**found, *pull) : send_stream(**found, *pull);
}

Result<void> Session::send_stream(Flight& flight, const wire::Pull& pull) {
  const wire::RequestMessage& m = flight.message;
  if (m.request.op != Op::write || m.eager || !within(pull.position, pull.length, flight.total)) {
    return broken("a pull of data that there is not");
  }
  const Memory memory = m.request.memory.slice(Length(pull.position), Length(pull.length));
  if (pull.area != wire::kNoArea) {
    const auto to = in_area(pull.area, pull.length);
    if (!to) return to.error();
    copy_out(memory, *to);
    in_area_.add();
    link_.send(
        wire::encode(wire::Data{pull.id, pull.part, pull.position, pull.area, pull.length}, 0));
    return {};
  }
  ++flight.sends;
  link_.send(wire::encode(wire::Data{pull.id, pull.part, pull.position}, pull.length), memory,
             [this, &flight](Result<void> ok) { sent(flight, ok.has_value()); });
  return {};
}

Result<void> Session::send_list(Flight& flight, const wire::Pull& pull) {
  // The server may pull what came with the request, if it has not kept that.
  const wire::RequestMessage& m = flight.message;
  const auto blocks = m.list_blocks == 0 ? m.request.file.blocks() : flight.list.blocks();
  if (!is_transfer(m.request.op) || pull.position % wire::kBlockBytes != 0 ||
      pull.length % wire::kBlockBytes != 0 ||
      !within(pull.position, pull.length, blocks.size() * wire::kBlockBytes)) {
    return broken("a pull of a list that there is not");
  }
  std::vector<std::byte> bytes(pull.length);
  wire::encode_blocks(
      blocks.subspan(pull.position / wire::kBlockBytes, pull.length / wire::kBlockBytes), bytes);
  const Memory payload = Memory::of(std::span<const std::byte>(bytes));
  link_.send(wire::encode(wire::Data{pull.id, pull.part, pull.position}, pull.length), payload,
             [bytes = std::move(bytes)](auto) {});
  return {};
}

}  // namespace forebay
