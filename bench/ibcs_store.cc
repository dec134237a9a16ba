#include "bench/ibcs_store.h"

#include <algorithm>
#include <memory>

namespace forebay::bench {

void VirtualTime::run() {
  while (!events_.empty()) {
    now_ = events_.top().time;
    const Action action = std::move(const_cast<Event&>(events_.top()).action);
    events_.pop();
    action();
  }
}

void Network::send(std::vector<Transfer> transfers) {
  struct Flow {
    Transfer transfer;
    uint64_t sent = 0, received = 0;
  };
  const auto packet = static_cast<uint64_t>(model_.packet);
  const auto flows = std::make_shared<std::vector<Flow>>();
  for (Transfer& one : transfers) flows->push_back({std::move(one)});
  for (bool more = true; more;) {
    more = false;
    for (Flow& flow : *flows) {
      const uint64_t n = std::min(packet, flow.transfer.bytes - flow.sent);
      if (n == 0) continue;
      flow.sent += n, more = true;
      const double took = static_cast<double>(n) / model_.link;
      const double out = links_[flow.transfer.from].out.take(time_.now(), took);
      // What comes in has to wait for a free link from its first bit on.
      time_.at(out - took + model_.latency, [this, flows, f = &flow, n, took] {
        const double in = links_[f->transfer.to].in.take(time_.now(), took);
        if ((f->received += n) == f->transfer.bytes) time_.at(in, f->transfer.arrived);
      });
    }
  }
}

void Target::add(Request request) {
  queue_.push_back(std::move(request));
  if (!busy_) serve();
}

// The elevator.
size_t Target::next_in_queue() const {
  const auto rank = [&](const Request& r) {
    const uint64_t offset = r.extent.offset.value;
    return std::pair(offset < head_, offset);
  };
  return static_cast<size_t>(std::ranges::min_element(queue_, {}, rank) - queue_.begin());
}

void Target::serve() {
  const size_t next = next_in_queue();
  Request request = std::move(queue_[next]);
  queue_.erase(queue_.begin() + static_cast<ptrdiff_t>(next));
  busy_ = true;
  double took = model_.request + static_cast<double>(request.extent.length.value) / model_.disk;
  if (request.write && lock(request)) {
    took += model_.revoke;
    ++revocations_;
  }
  if (request.extent.offset.value != head_) {
    took += model_.seek;
    ++seeks_;
  }
  head_ = request.extent.end().value;
  served_.push_back(request.extent);
  time_.at(time_.now() + took, [this, served = std::move(request.served)] {
    busy_ = false;
    if (!queue_.empty()) serve();
    served();
  });
}

Extent Target::in_stripes(const Extent& extent) const {
  const auto stripe = static_cast<uint64_t>(model_.stripe);
  const uint64_t begin = extent.offset.value / stripe * stripe;
  const uint64_t end = (extent.end().value + stripe - 1) / stripe * stripe;
  return {Offset(begin), Length(end - begin)};
}

bool Target::lock(const Request& request) {
  const Extent wanted = in_stripes(request.extent);
  for (const Lock& held : locks_) {
    if (held.client == request.client && held.extent.offset <= wanted.offset &&
        held.extent.end() >= wanted.end()) {
      return false;
    }
  }
  const size_t revoked = std::erase_if(locks_, [&](const Lock& held) {
    return held.client != request.client && held.extent.overlaps(wanted);
  });
  const Extent granted = grown(request, wanted);
  std::erase_if(locks_, [&](const Lock& held) { return held.extent.overlaps(granted); });
  locks_.push_back({request.client, granted});
  return revoked > 0;
}

// As far as nobody else's lock and nobody else's waiting request is in the way. What is left of the
// client's own is inside.
Extent Target::grown(const Request& request, Extent wanted) const {
  uint64_t begin = 0, end = uint64_t{1} << 62;
  const auto keep_off = [&](uint32_t client, const Extent& other) {
    if (client == request.client) return;
    if (other.end() <= wanted.offset) begin = std::max(begin, other.end().value);
    if (other.offset >= wanted.end()) end = std::min(end, other.offset.value);
  };
  for (const Lock& held : locks_) keep_off(held.client, held.extent);
  for (const Request& waiting : queue_) keep_off(waiting.client, in_stripes(waiting.extent));
  return {Offset(begin), Length(end - begin)};
}

}  // namespace forebay::bench
