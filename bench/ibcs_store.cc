#include "bench/ibcs_store.h"

#include <algorithm>

namespace forebay::bench {

void VirtualTime::run() {
  while (!events_.empty()) {
    now_ = events_.top().time;
    const Action action = std::move(const_cast<Event&>(events_.top()).action);
    events_.pop();
    action();
  }
}

Network::Network(VirtualTime& time, const IbcsModel& model, size_t places)
    : time_(time), model_(model), links_(places) {
  for (Link& link : links_) link.connections.resize(places);
}

void Network::send(Transfer transfer) {
  Link& link = links_[transfer.from];
  link.connections[transfer.to].push_back(std::make_shared<Flow>(Flow{std::move(transfer)}));
  if (!link.sending) send_packet(link);
}

void Network::send_packet(Link& link) {
  const size_t places = link.connections.size();
  size_t looked = 0;
  do link.turn = (link.turn + 1) % places;
  while (link.connections[link.turn].empty() && ++looked < places);
  auto& connection = link.connections[link.turn];
  link.sending = !connection.empty();
  if (!link.sending) return;
  const std::shared_ptr<Flow> flow = connection.front();
  const uint64_t n =
      std::min(static_cast<uint64_t>(model_.packet), flow->transfer.bytes - flow->sent);
  if ((flow->sent += n) == flow->transfer.bytes) connection.pop_front();
  const double took = static_cast<double>(n) / model_.link;
  time_.at(time_.now() + took, [this, &link] { send_packet(link); });
  // Its first bit is at the other's link after the latency, and has to wait there if that is taken.
  time_.at(time_.now() + model_.latency, [this, flow, n, took] {
    const double in = links_[flow->transfer.to].in.take(time_.now(), took);
    if ((flow->received += n) == flow->transfer.bytes) time_.at(in, flow->transfer.arrived);
  });
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
  const bool warm = model_.warm && !request.write;
  const auto bytes = static_cast<double>(request.extent.length.value);
  double took = model_.request + bytes / (warm ? model_.copy : model_.disk);
  if (request.write && lock(request)) {
    took += model_.revoke;
    ++revocations_;
  }
  if (!warm && request.extent.offset.value != head_) {
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
