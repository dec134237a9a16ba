// Small writes of a session, in frames or in boxes, which go the short way (small_writes.h).
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "server/session.h"
#include "transport/shared_region.h"
#include "wire/small_write.h"

namespace forebay::server {

// If it may go the short way, it is in incoming_small_. Whatever is unusual about it takes the long
// way, and has its answer there.
bool Session::take_small_write(wire::Bytes message, uint32_t payload) {
  if (!exported().gathers_writes()) return false;
  auto view = wire::view_small_write(message);
  if (!view || view->file.total().value != payload) return false;
  auto held = short_way(view->id, view->handle, view->right, payload);
  if (!held) return false;
  incoming_small_ = std::make_shared<SmallWrite>();
  SmallWrite& w = *incoming_small_;
  w.id = view->id;
  w.held = std::move(held);
  w.file = std::move(view->file);
  SmallData data{std::make_unique_for_overwrite<std::byte[]>(payload), payload};
  w.data = data.span();
  w.owner = std::move(data);
  landing_ = Landing::small;
  return true;
}

// The right that it presents, if a write may go the short way.
std::shared_ptr<HeldRight> Session::short_way(wire::RequestId id, std::string_view handle,
                                              std::string_view right, uint64_t size) const {
  if (stopping_ || zombies_ >= slots_.size() || !exported().gathers_writes()) return nullptr;
  if (exported().leases->writers()) return nullptr;  // it may have to wait for one
  if (id.slot >= slots_.size()) return nullptr;
  const Slot& slot = slots_[id.slot];
  if (id.sequence != slot.sequence + 1 || slot.flight || slot.small || slot.sending ||
      size > options().eager_max || eager_used_ + size > parts_.welcome.eager_bytes) {
    return nullptr;
  }
  const auto held = rights_.find(right);
  if (held == rights_.end() || !held->second->writes ||
      held->second->holder.handle.bytes != handle || held->second->holder.caller != parts_.caller) {
    return nullptr;
  }
  return held->second;
}

// ---- Boxes ----

void Session::on_posts(uint64_t bits) {
  for (; bits != 0 && region_ && !closing_ && !leaving_ && !ended_; bits &= bits - 1) {
    const auto slot = static_cast<uint16_t>(std::countr_zero(bits));
    take_box(slot);
    if (slot < slots_.size() && slots_[slot].cancelled == slots_[slot].sequence) cancel(slot);
  }
}

// A write without a frame. What the client can still reach is read once.
void Session::take_box(uint16_t slot) {
  if (slot >= std::min(kBoxes, slots_.size())) {
    return void(refuse(Error(EPROTO, fmt::format("there is no box {}", slot)), 0));
  }
  BoxRequest box;
  const BoxRequest& theirs = region_->box(slot).request;
  std::memcpy(&box, &theirs, offsetof(BoxRequest, names));
  const size_t names = size_t(box.handle_size) + box.right_size;
  Result<Extents> file = Extents::make({{Offset(box.offset), Length(box.length)}});
  if (names > kBoxNames || box.length == 0 || box.length > kBoxBytes || box.stable > 1 || !file) {
    return void(refuse(Error(EPROTO, fmt::format("box {} holds no write", slot)), 0));
  }
  std::memcpy(box.names, theirs.names, names);
  const auto* text = reinterpret_cast<const char*>(box.names);
  const std::string_view handle(text, box.handle_size);
  const std::string_view right(text + box.handle_size, box.right_size);
  const wire::RequestId id{slot, box.sequence};
  const std::span<std::byte> data = region_->box_data(slot).first(box.length);
  // What gathers is kept in memory if the export keeps all writes there.
  const bool kept = exported().options.write_behind.when == When::always;
  if (auto held = box.stable && kept ? nullptr : short_way(id, handle, right, box.length)) {
    auto w = std::make_shared<SmallWrite>();
    w->id = id;
    w->held = std::move(held);
    w->file = std::move(*file);
    w->data = data;
    w->owner = region_;
    w->boxed = true;
    return begin_small(std::move(w));
  }
  wire::RequestMessage message;
  message.id = id;
  message.request.op = Op::write;
  message.request.flags = box.stable ? kFlagStable : 0u;
  message.request.handle.bytes = handle;
  message.request.right.bytes = right;
  message.request.file = std::move(*file);
  message.total = box.length;
  message.eager = true;
  if (auto wrong = misused(message, box.length)) return void(refuse(std::move(*wrong), 0));
  if (repeats(id)) return void(refuse(Error(EPROTO, "a request is repeated in a box"), 0));
  parts_.info->requests.add();
  parts_.info->bytes_in.add(box.length);
  exported().bytes_in.add(box.length);
  SmallData copy{std::make_unique_for_overwrite<std::byte[]>(box.length), box.length};
  std::ranges::copy(data, copy.bytes.get());
  admit(std::move(message), std::move(copy));
}

// ---- Small writes ----

void Session::begin_small(SmallWriteRef w) {
  if (closing_ || stopping_) return;  // as admit(): for our successor
  Slot& slot = slots_[w->id.slot];
  slot.sequence = w->id.sequence;
  slot.reply.clear();
  slot.wrote.reset();
  slot.told = {};
  parts_.info->requests.add();
  parts_.info->bytes_in.add(w->data.size());
  exported().bytes_in.add(w->data.size());
  exported().ops[static_cast<size_t>(Op::write)]->add();
  parts_.info->ops[static_cast<size_t>(Op::write)].add();
  if (auto loss = exported().store().take_loss(id(), w->held->holder.handle)) {
    return tell(w->id, Op::write, true, std::move(*loss), w->held->holder.handle);
  }
  slot.small = w;
  ++small_;
  flights_changed(+1);
  eager_used_ += w->data.size();
  ++w->held->users;
  arm_sweep();
  w->arrived = loop().now();
  w->session = shared_from_this();
  w->near = near();
  exported().state().writes_to(w->held->holder.handle, w->file.bounds().end().value);
  exported().small_writes.add(std::move(w));
}

void Session::written(SmallWrite& w) {
  const auto alive = shared_from_this();
  Slot& slot = slots_[w.id.slot];
  const std::shared_ptr<HeldRight> held = w.held;
  if (w.error) not_written(w);
  if (w.state == SmallWrite::State::issued && !std::exchange(w.told, true) &&
      exported().leases->any() && exported().has_store()) {
    const SmallWriteRef ref = slot.small.get() == &w ? slot.small : nullptr;
    const Handle& file = held->holder.handle;
    const bool nobody = exported().leases->changed({exported().store().identity(file), file}, id(),
                                                   loop(), [alive, ref] {
                                                     if (ref) alive->written(*ref);
                                                   });
    if (!nobody && ref) return;
  }
  if (slot.small.get() != &w) {  // answered or aborted before
    end_use(*held);
    --zombies_;
    if (ended_ && zombies_ == 0) close_rights();
    return;
  }
  const SmallWriteRef mine = slot.small;
  forget_small(slot);
  end_use(*held);
  parts_.info->latency.add(static_cast<uint64_t>((loop().now() - w.arrived).count()));
  std::optional<Error> loss;
  if (!w.error) loss = exported().store().take_loss(id(), held->holder.handle);
  if (loss) {
    tell(w.id, Op::write, w.spoken, std::move(*loss), held->holder.handle);
  } else if (w.error) {
    reply(w.id, Op::write, w.spoken, std::move(*w.error), {});
  } else {
    answer_small(w);
  }
  leave_if_drained();
}

void Session::not_written(const SmallWrite& w) {
  exported().state().not_written(w.held->holder.handle, w.file.bounds().end().value);
}

void Session::answer_small(const SmallWrite& w) {
  if (w.boxed && connected()) {
    slots_[w.id.slot].wrote = {w.data.size(), w.verifier};
    region_->box(w.id.slot).answer.put(w.id.sequence, w.verifier);
    return connection_->post(uint64_t(1) << w.id.slot);
  }
  reply(w.id, Op::write, w.spoken, Wrote{w.data.size(), w.verifier}.reply(), {});
}

// What came before a flight goes before it.
void Session::issue_small() {
  for (Slot& slot : slots_) {
    if (const SmallWriteRef small = slot.small) exported().small_writes.issue_with(*small, loop());
  }
}

void Session::note_writes(const Handle& file) {
  amid_writes_ = std::ranges::any_of(slots_, [&](const Slot& slot) {
    return slot.small && slot.small->held->holder.handle == file;
  });
}

void Session::forget_small(Slot& slot) {
  eager_used_ -= slot.small->data.size();
  slot.small.reset();
  --small_;
  flights_changed(-1);
}

}  // namespace forebay::server
