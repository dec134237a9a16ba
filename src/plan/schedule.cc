#include "plan/schedule.h"

#include <algorithm>

#include "core/assert.h"

namespace forebay::plan {

namespace {

// Requests per batch, of late, from which on it pays to gather; and how fast "of late" fades.
constexpr double kWorthGathering = 1.25;
constexpr double kFade = 1.0 / 8;

// With more queues than so many in line there is enough to do.
constexpr size_t kFewQueues = 8;

}  // namespace

Schedule::Schedule(ScheduleOptions options) : options_(options) {
  FOREBAY_ASSERT(options_.quantum > 0);
  options_.limits.requests = std::min<uint64_t>(options_.limits.requests, options_.quantum);
}

Schedule::Queue& Schedule::queue(QueueId id, bool write) {
  if (id >= queues_.size()) queues_.resize(id + 1);
  Queue& q = queues_[id];
  if (!q.merger) q.merger = Merger::make(options_.merger);
  if (idle(id) && q.write != write) {  // a number that is used anew
    q.write = write;
    q.per_batch = 1;
    q.parts = q.out = 0;
  }
  FOREBAY_ASSERT(q.write == write);
  return q;
}

bool Schedule::idle(QueueId id) const {
  if (id >= queues_.size()) return true;
  const Queue& q = queues_[id];
  if (!cut_.rest.empty() && cut_.queue == id) return false;
  return q.in_service == 0 && q.arrived == 0 && (!q.merger || q.merger->empty());
}

bool Schedule::may_issue(const Queue& q) const {
  if (q.merger->empty()) return false;
  if (q.in_service == 0) return true;
  switch (q.write ? options_.writes : options_.reads) {
    case Gather::never:
      return true;
    case Gather::always:
      return false;
    case Gather::useful:
      break;
  }
  return q.out <= q.parts / 2 || !gathers(q);
}

bool Schedule::gathers(const Queue& q) const {
  return q.per_batch >= kWorthGathering && q.bytes < options_.full;
}

bool Schedule::may_gather_more() const {
  if (policy_ != Policy::hbrr || !arrived_.empty() || !cut_.rest.empty()) return false;
  if (line_.size() > kFewQueues) return false;
  bool any = false;
  for (const QueueId id : line_) {
    const Queue& q = queues_[id];
    if (!may_issue(q)) continue;
    if (!gathers(q)) return false;
    any = true;
  }
  return any;
}

void Schedule::add(const Descriptor& d) {
  FOREBAY_ASSERT(!d.bounds.empty());
  Queue& q = queue(d.queue, d.write);
  if (policy_ == Policy::fifo) {
    ++q.arrived;
    arrived_.emplace_back(d.queue, d.id);
    return;
  }
  const Slot slot = enlist(d);
  q.merger->insert({d.bounds.offset, d.bounds.end(), d.bytes, slot, d.pieces});
  q.bytes += d.bytes;
  ++gathered_;
  line_up(d.queue);
}

void Schedule::ended(QueueId id, uint32_t run) {
  Queue& q = queues_[id];
  FOREBAY_ASSERT(q.in_service > 0 && in_service_ > 0);
  if (run != 0 && run == q.run) --q.out;
  --q.in_service;
  --in_service_;
  line_up(id);
}

void Schedule::line_up(QueueId id) {
  Queue& q = queues_[id];
  if (q.in_line || !may_issue(q)) return;
  q.in_line = true;
  line_.push_back(id);
}

bool Schedule::next(Batch& out) {
  if (options_.in_service != 0 && in_service_ >= options_.in_service) return false;
  out.ids.clear();
  if (!cut_.rest.empty()) return hand_out_part(out), true;
  // After a change of policy, what came before it goes first.
  const bool fifo_first = policy_ == Policy::hbrr || gathered_ == 0;
  if (fifo_first && oldest_first(out)) return true;
  if (++since_client_turn_ > kBatchesPerClientTurn && for_client(out)) return true;
  return from_line(out);
}

bool Schedule::oldest_first(Batch& out) {
  if (arrived_.empty()) return false;
  out.queue = arrived_.front().first;
  out.run = 0;
  out.ids.push_back(arrived_.front().second);
  arrived_.pop_front();
  Queue& q = queues_[out.queue];
  --q.arrived;
  ++q.in_service;
  ++in_service_;
  return true;
}

// The paper's round: the quantum goes on from queue to queue until it is used up. The last run of a
// round is not cut short: it may have a whole quantum.
bool Schedule::from_line(Batch& out) {
  while (!line_.empty()) {
    const QueueId id = line_.front();
    Queue& q = queues_[id];
    if (!may_issue(q)) {
      q.in_line = false;
      line_.pop_front();
      continue;
    }
    if (left_ == 0) left_ = options_.quantum;
    q.merger->take(Offset(0), options_.limits, run_);
    left_ -= std::min(left_, static_cast<unsigned>(run_.size()));
    issue(id, out);
    if (left_ == 0) {
      since_client_turn_ = kBatchesPerClientTurn;
      line_.pop_front();
      line_.push_back(id);
    }
    return true;
  }
  return false;
}

bool Schedule::for_client(Batch& out) {
  since_client_turn_ = 0;
  unsigned looks = 4 * kLook;
  for (size_t turns = client_line_.size(); turns > 0 && looks > 0; --turns) {
    Client& c = *client_line_.front();
    client_line_.pop_front();
    c.in_line = false;
    if (c.waiting == 0) {
      forget_if_many(c);
      continue;
    }
    c.in_line = true;
    client_line_.push_back(&c);
    tidy(c);
    const Slot slot = first_that_may(c, looks);
    if (slot == kNone) continue;
    const QueueId id = waiting_[slot].queue;
    queues_[id].merger->take_around({waiting_[slot].offset, slot}, options_.limits, run_);
    issue(id, out);
    return true;
  }
  return false;
}

Schedule::Slot Schedule::first_that_may(const Client& c, unsigned& looks) const {
  for (const Ref ref : c.requests) {
    if (!waits(ref)) continue;
    if (may_issue(queues_[waiting_[ref.slot].queue])) return ref.slot;
    if (--looks % kLook == 0) break;
  }
  return kNone;
}

// What is in run_ goes out, or its first part.
void Schedule::issue(QueueId id, Batch& out) {
  Queue& q = queues_[id];
  cut_.queue = id;
  for (const Item& item : run_) {
    cut_.rest.emplace_back(waiting_[item.slot].id, item.bytes);
    q.bytes -= item.bytes;
    delist(item.slot);
  }
  gathered_ -= run_.size();
  q.per_batch += (static_cast<double>(run_.size()) - q.per_batch) * kFade;
  if (++runs_ == 0) ++runs_;
  q.run = runs_;
  q.parts = q.out = 0;
  hand_out_part(out);
}

void Schedule::hand_out_part(Batch& out) {
  Queue& q = queues_[cut_.queue];
  const bool whole = q.write || options_.part == 0;
  out.queue = cut_.queue;
  out.run = q.run;
  for (uint64_t bytes = 0; !cut_.rest.empty();) {
    bytes += cut_.rest.front().second;
    if (!whole && !out.ids.empty() && bytes > options_.part) break;
    out.ids.push_back(cut_.rest.front().first);
    cut_.rest.pop_front();
  }
  ++q.parts;
  ++q.out;
  ++q.in_service;
  ++in_service_;
}

Schedule::Client& Schedule::client(uint64_t id) {
  Client& c = clients_[id];
  c.id = id;
  if (!c.in_line) {
    c.in_line = true;
    client_line_.push_back(&c);
  }
  return c;
}

Schedule::Slot Schedule::enlist(const Descriptor& d) {
  if (free_.empty()) {
    FOREBAY_ASSERT(waiting_.size() < kNone);
    free_.push_back(static_cast<Slot>(waiting_.size()));
    waiting_.emplace_back();
  }
  const Slot slot = free_.back();
  free_.pop_back();
  Client& c = client(d.client);
  Waiting& w = waiting_[slot];
  w.id = d.id;
  w.offset = d.bounds.offset;
  w.client = &c;
  w.queue = d.queue;
  ++c.waiting;
  tidy(c);
  c.requests.push_back({slot, w.use});
  return slot;
}

void Schedule::delist(Slot slot) {
  Waiting& w = waiting_[slot];
  ++w.use;
  --w.client->waiting;
  free_.push_back(slot);
}

// Drops what went out: from the front as it comes, and from all over where an old request that
// stays keeps too much of it.
void Schedule::tidy(Client& c) const {
  while (!c.requests.empty() && !waits(c.requests.front())) c.requests.pop_front();
  if (c.requests.size() > 2 * c.waiting + kLook) {
    std::erase_if(c.requests, [this](Ref ref) { return !waits(ref); });
  }
}

// Only one that is not in line: nothing points at it.
void Schedule::forget_if_many(Client& c) {
  if (clients_.size() > kKeptClients) clients_.erase(c.id);
}

}  // namespace forebay::plan
