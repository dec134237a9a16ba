// How a session begins, loses its connection, waits, stops and ends.
#include <fmt/format.h>

#include <algorithm>

#include "core/log.h"
#include "core/process.h"
#include "server/session.h"
#include "transport/shared_region.h"

namespace forebay::server {

namespace {

// Its connection ends a little earlier than a process that is killed.
constexpr Duration kFirstLook = std::chrono::milliseconds(1);
constexpr Duration kLongestBetweenLooks = std::chrono::milliseconds(250);

}  // namespace

// What fn does may answer the flight, and so empty its slot.
template <class Fn>
void Session::each_flight(Fn&& fn) {
  for (Slot& slot : slots_) {
    if (const std::shared_ptr<Flight> flight = slot.flight) fn(*flight);
  }
}

bool Session::attach(std::unique_ptr<Connection>& connection, bool resumed) {
  if (ended_ || stopping_) return false;
  if (connection_) {
    detach(Error(ECONNRESET, "replaced by a new connection of the same client"),
           parts_.relayed ? LeaseTable::Left::out_of_reach : LeaseTable::Left::without_copies);
  }
  loop().cancel(std::exchange(grace_timer_, 0));
  connection_ = std::move(connection);
  region_ = connection_->shared();
  near_ = near_ || region_;
  parts_.info->shares(region_);
  if (region_ && region_->area().size() >= chunk()) {
    // The store lets go of the area before the area itself goes.
    auto prepared = exported().store().prepare(region_->area(), chunk());
    auto owner =
        std::make_shared<std::pair<std::shared_ptr<SharedRegion>, std::shared_ptr<const void>>>(
            region_, std::move(prepared));
    area_ = std::make_shared<BufferPool>(region_->area(), chunk(), std::move(owner));
  }
  ++attachment_;
  handed_ = taken_ = 0;
  attached_at_ = last_data_ = last_taken_ = loop().now();
  may_speak_for_others_ = connection_->peer().may_speak_for_others;
  parts_.info->connected = true;
  if (parts_.relayed) exported().locks.reaches(id(), true);
  connection_->start(*this);
  parts_.welcome.resumed = resumed;
  send(wire::encode(parts_.welcome));
  drop_stalled();
  each_flight([](Flight& flight) {
    if (!flight.recalls()) flight.attached();
  });
  if (flights_ > 0) arm_sweep();
  return true;
}

void Session::on_closed(const Error& why) {
  // Of a process on this node the kernel tells the end. Anybody else may merely be out of reach,
  // and so may those whom another server serves.
  const bool near = connection_->peer().pid != 0 && !parts_.relayed;
  detach(why, near && why.code() == ECONNRESET ? LeaseTable::Left::without_copies
                                               : LeaseTable::Left::out_of_reach);
}

// Not that of another server, whose clients come back through its next life; nor that of somebody
// who passes on what a client says, on another node perhaps. Memory cannot be passed on.
uint32_t Session::own_pid() const {
  const bool itself = region_ || kernel_pid() == pid();
  return itself && !parts_.relayed ? kernel_pid() : 0;
}

void Session::detach(const Error& why, LeaseTable::Left how) {
  log::debug("session {}: connection lost: {}", parts_.info->id, why.message());
  const uint32_t pid = own_pid();
  parts_.info->connected = false;
  if (parts_.relayed) exported().locks.reaches(id(), false);
  closing_ = false;
  exported().leases->lose(id(), how, loop());
  dropped_ ? shortcuts_.drop() : shortcuts_.recall_all();
  exported().shortcuts.used(parts_.info->by_shortcut());
  parts_.info->shares(nullptr);
  connection_.reset();  // before flights give back the buffers that it reads into and sends from
  const auto area = std::move(area_);  // until those who wait for a buffer of it have been told
  area_.reset();
  region_.reset();
  given_.clear();
  pulls_.clear();
  incoming_.reset();
  incoming_small_.reset();
  landing_ = Landing::nowhere;
  for (Slot& slot : slots_) slot.sending = false;
  if (ended_) return;
  for (Slot& slot : slots_) {
    if (slot.small) slot.small->spoken = slot.small->boxed = false;
  }
  each_flight([](Flight& flight) {
    flight.spoken = false;
    if (!flight.recalls()) flight.detached();
  });
  if (leaving_) return post_end();
  if (stopping_) return shed(), leave_if_drained();
  await_client({pid, loop().now() + options().grace, pid == 0 ? options().grace : kFirstLook});
}

void Session::await_client(Away away) {
  const Duration left = away.until - loop().now();
  grace_timer_ = loop().after(std::min(away.pause, left), [weak = weak_from_this(), away] {
    const auto self = weak.lock();
    if (!self) return;
    self->grace_timer_ = 0;
    self->look_for_client(away);
  });
}

void Session::look_for_client(Away away) {
  const bool gone = process_is_gone(away.pid);
  if (!gone && loop().now() < away.until) {
    away.pause = std::min(away.pause * 2, kLongestBetweenLooks);
    return await_client(away);
  }
  log::info("session {}: its client {}", parts_.info->id,
            gone ? "has ended without a word" : "has not come back");
  end(gone ? away.until - loop().now() : Duration::zero());
}

// A forked child may present the rights that it has inherited, of a file without a name too.
void Session::keep_rights(Duration time) {
  ++zombies_;
  rights_timer_ = loop().after(time, [self = shared_from_this()] { self->keep_rights_no_more(); });
}

void Session::keep_rights_no_more() {
  if (rights_timer_ == 0) return;
  loop().cancel(std::exchange(rights_timer_, 0));
  if (--zombies_ == 0) close_rights();
}

// ---- What it says of itself ----

ShortcutUse SessionInfo::by_shortcut() const {
  std::lock_guard lock(mutex_);
  return region_ ? ShortcutUse::said_in(*region_) : ShortcutUse();
}

void SessionInfo::shares(std::shared_ptr<SharedRegion> region) {
  std::lock_guard lock(mutex_);
  region_ = std::move(region);
}

// ---- Watching ----

void Session::arm_sweep() {
  if (sweep_timer_ != 0 || ended_) return;
  using namespace std::chrono_literals;
  const Duration shortest = std::min(options().stall, options().deadline) / 4;
  sweep_timer_ = loop().after(std::clamp<Duration>(shortest, 10ms, 1s), [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->sweep();
  });
}

void Session::sweep() {
  sweep_timer_ = 0;
  const Time now = loop().now();
  if (connected() && stalled(now)) {
    refuse(Error(ETIMEDOUT, fmt::format("no data moved for {} s: cut off",
                                        options().stall / std::chrono::seconds(1))),
           0);
  }
  each_flight([&](Flight& flight) { check_deadline(flight, now); });
  if (small_ > 0) check_small(now);
  if (flights_ > 0 || (connection_ && connection_->unsent() > 0)) arm_sweep();
}

// What waits for its client is the business of `stall` and `grace`; and what waits for its turn may
// wait for somebody else's client, so it is given that time as well.
void Session::check_deadline(Flight& flight, Time now) {
  if (flight.patient() || flight.recalls()) return;
  const bool away = !connection_ && flight.busy() == 0;
  if (!flight.waits_for_client() && !away) {
    const Duration turn = flight.busy() > 0 ? Duration(0) : options().stall + options().grace;
    // What flushes may have gigabytes to flush.
    const Duration most = options().deadline * (flight.op == Op::commit ? 10 : 1);
    if (now - flight.progress() >= most + turn) {
      flight.time_out(fmt::format("the back end of export '{}' did not answer in time",
                                  exported().options.name));
    }
  } else if (connected() && !flight.spoken && flight.op == Op::read &&
             now - attached_at_ >= options().stall) {
    flight.abort();  // the client came back and has not asked again: if it ever does, we read again
  }
}

// As of flights; but with the Store or waiting for its turn is not told apart.
void Session::check_small(Time now) {
  const Duration most = options().deadline + options().stall + options().grace;
  for (Slot& slot : slots_) {
    const SmallWriteRef small = slot.small;
    if (!small || now - small->arrived < most) continue;
    Error why(ETIMEDOUT, fmt::format("write: the back end of export '{}' did not answer in time",
                                     exported().options.name));
    if (exported().small_writes.drop(*small)) {
      small->error = std::move(why);
      written(*small);
      continue;
    }
    forget_small(slot);
    ++zombies_;
    // If it came in a box the Store may still read that: the client uses it no more.
    reply(small->id, Op::write, small->spoken, std::move(why).with_unknown_outcome(), {});
  }
  leave_if_drained();
}

// Does the client owe data, or not take what we send?
bool Session::stalled(Time now) {
  const uint64_t unsent = connection_->unsent();
  if (handed_ - unsent != taken_ || unsent == 0) {
    taken_ = handed_ - unsent;
    last_taken_ = now;
  }
  if (now - last_taken_ >= options().stall) return true;
  for (const auto& [place, given] : given_) {
    if (now - given.at >= options().stall) return true;
  }
  return !pulls_.empty() && now - std::max(pulls_.front().asked, last_data_) >= options().stall;
}

// What a client owed for so long that it has had its time to reconnect and its time to send: it is
// not asked again, because others may wait for the same bytes. Between connections nothing is on
// its way into a flight's memory.
void Session::drop_stalled() {
  const Duration most = options().stall + options().grace;
  each_flight([&](Flight& flight) {
    if (flight.recalls() || flight.op == Op::read || !flight.waits_for_client() ||
        flight.busy() > 0)
      return;
    if (attached_at_ - std::max(flight.progress(), last_moved_) >= most) {
      flight.time_out("its data did not come from the client in time");
    }
  });
}

// ---- Ending ----

void Session::forget_flight(Flight& flight) {
  Slot& slot = slots_[flight.id.slot];
  FOREBAY_ASSERT(slot.flight.get() == &flight);
  slot.flight.reset();
  flights_changed(-1);
  eager_used_ -= flight.eager_bytes;
  if (flight.busy() > 0) ++zombies_;
}

void Session::flights_changed(int by) {
  flights_ += static_cast<unsigned>(by);
  by > 0 ? parts_.info->flights.add() : parts_.info->flights.subtract();
  by > 0 ? exported().flights.add() : exported().flights.subtract();
}

// Never answered.
void Session::abort_small(Slot& slot) {
  const SmallWriteRef small = slot.small;
  forget_small(slot);
  if (exported().small_writes.drop(*small)) {
    not_written(*small);
    end_use(*small->held);
  } else {
    ++zombies_;
  }
}

void Session::aborted(Flight& flight) {
  forget_flight(flight);
}

void Session::retired(Flight&) {
  --zombies_;
  if (ended_ && zombies_ == 0) close_rights();
}

void Session::abort_all() {
  each_flight([](Flight& flight) { flight.abort(); });
  for (Slot& slot : slots_) {
    if (slot.small) abort_small(slot);
  }
}

// Out of whatever handler we are in: ending destroys the connection.
void Session::post_end() {
  leaving_ = true;
  loop().post([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->end();
  });
}

void Session::end(Duration rights_for) {
  if (ended_) return;
  const auto alive = shared_from_this();
  ended_ = true;
  loop().cancel(std::exchange(sweep_timer_, 0));
  loop().cancel(std::exchange(grace_timer_, 0));
  if (connection_)
    detach(Error(ECONNRESET, "the session has ended"), LeaseTable::Left::out_of_reach);
  abort_all();
  free_locks();
  pass_on_losses();
  parts_.tell(Parts::News::ended);
  if (rights_for > Duration::zero() && !rights_.empty()) {
    if (zombies_ == 0) parts_.tell(Parts::News::keeps_rights);
    keep_rights(rights_for);
  }
  if (zombies_ == 0) close_rights();
}

// What the client has not been told, or what it may not have heard, it learns if it comes back.
void Session::pass_on_losses() {
  for (Slot& slot : slots_) {
    if (!slot.told.empty()) exported().store().untold(std::exchange(slot.told, {}));
  }
  exported().store().forget(id());
}

// If the server stops they are reclaimed in its next life, at other servers too.
void Session::free_locks() {
  if (stopping_) return;
  exported().locks.forget(id());
  for (Request& unlock : relayed_locks_.take_unlocks()) {
    submit(std::move(unlock), [](Result<Reply>&&) {});
  }
}

void Session::close_rights() {
  if (std::exchange(gone_, true)) return;
  for (const auto& [right, held] : std::exchange(rights_, {})) {
    give_up(*held);
    if (!exported().holders.held(right)) close_right(held->holder, held->right);
  }
  if (!dropped_) parts_.tell(Parts::News::gone);
}

void Session::stop() {
  if (ended_) return keep_rights_no_more();
  stopping_ = true;
  shortcuts_.recall_all();
  shed();
  leave_if_drained();
}

// What has not begun is for our successor; what waits for a client that is not there has nobody to
// wait for.
void Session::shed() {
  each_flight([&](Flight& flight) {
    // The connection is writing into its memory: when that has landed we come back here.
    if (landing_ == Landing::pulled && pulls_.front().flight.get() == &flight) return;
    const bool orphan = !connection_ && flight.busy() == 0;
    if (!flight.begun() || orphan || flight.patient()) flight.abort();
  });
  for (Slot& slot : slots_) {
    if (slot.small && exported().small_writes.drop(*slot.small)) {
      end_use(*slot.small->held);
      forget_small(slot);
    }
  }
}

void Session::leave_if_drained() {
  if (!stopping_ || leaving_ || ended_ || flights_ > 0 || !shortcuts_.none()) return;
  leaving_ = true;
  // What was acknowledged is written before we go.
  exported().store().drain(
      [self = shared_from_this()] { self->loop().post([self] { self->say_goodbye(); }); });
}

void Session::say_goodbye() {
  if (ended_) return;
  if (!connection_) return post_end();
  pass_on_losses();
  const bool elsewhere = exported().relay && exported().relay->acknowledged();
  send(wire::encode_goodbye("the server is stopping", exported().store().all_told() && !elsewhere));
  loop().after(kLinger, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->end();
  });
}

void Session::stop_now() {
  end();
  if (!gone_) {  // a Store still has something of ours: do not wait for it
    dropped_ = true;
    close_rights();
    parts_.tell(Parts::News::gone);
  }
  dropped_ = true;
}

void Session::drop() {
  dropped_ = ended_ = gone_ = true;
  loop().cancel(std::exchange(rights_timer_, 0));
  loop().cancel(std::exchange(sweep_timer_, 0));
  loop().cancel(std::exchange(grace_timer_, 0));
  if (connection_) detach(Error(ECONNRESET, "the server is gone"), LeaseTable::Left::out_of_reach);
  shortcuts_.drop();
  abort_all();
  for (const auto& [right, held] : std::exchange(rights_, {})) exported().holders.let_go(right);
}

}  // namespace forebay::server
