#include "attr/lock_circles.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>
#include <utility>

#include "core/assert.h"

namespace forebay::attr {

namespace {

static_assert(std::endian::native == std::endian::little);

void put(std::string& to, uint64_t number) {
  char bytes[sizeof number];
  std::memcpy(bytes, &number, sizeof number);
  to.append(bytes, sizeof bytes);
}

uint64_t take(std::string_view& from) {
  uint64_t number = 0;
  std::memcpy(&number, from.data(), sizeof number);
  from.remove_prefix(sizeof number);
  return number;
}

void put(std::string& to, const LockOwner& owner) {
  for (const uint64_t number : {owner.place, owner.client, owner.name}) put(to, number);
}

LockOwner take_owner(std::string_view& from) {
  LockOwner owner;
  for (uint64_t* number : {&owner.place, &owner.client, &owner.name}) *number = take(from);
  return owner;
}

}  // namespace

CircleSearch::CircleSearch(const std::vector<WaitsFor>& first) {
  if (first.empty()) return;
  start_ = first.front().waiter;
  for (const WaitsFor& edge : first) add(edge);
}

// The first way to an owner is as good as any other.
void CircleSearch::add(const WaitsFor& edge) {
  if (edge.waiter != start_ && !reached_.contains(edge.waiter)) return;
  if (edge.holder == start_) {
    if (!closes_) closes_ = edge;
    return;
  }
  if (reached_.size() >= kMost || !reached_.emplace(edge.holder, edge).second) return;
  questions_.push_back(edge.holder);
}

std::vector<LockOwner> CircleSearch::take_questions() {
  return closes_ ? std::vector<LockOwner>() : std::exchange(questions_, {});
}

std::optional<std::vector<WaitsFor>> CircleSearch::circle() const {
  if (!closes_) return std::nullopt;
  std::vector<WaitsFor> way = {*closes_};
  while (way.back().waiter != start_) way.push_back(reached_.at(way.back().waiter));
  std::ranges::reverse(way);
  return way;
}

const WaitsFor& last_comer(const std::vector<WaitsFor>& circle) {
  FOREBAY_ASSERT(!circle.empty());
  return *std::ranges::max_element(circle, {}, [](const WaitsFor& edge) {
    return std::tuple(edge.since, edge.place, edge.ticket);
  });
}

std::string pack(const std::vector<LockOwner>& owners) {
  std::string out;
  for (const LockOwner& owner : owners) put(out, owner);
  return out;
}

std::string pack(const std::vector<WaitsFor>& edges) {
  std::string out;
  for (const WaitsFor& edge : edges) {
    put(out, edge.waiter);
    put(out, edge.holder);
    for (const uint64_t number : {edge.place, edge.life, edge.ticket, edge.held, edge.since}) {
      put(out, number);
    }
  }
  return out;
}

std::optional<std::vector<LockOwner>> unpack_owners(std::string_view bytes) {
  if (bytes.size() % kOwnerBytes != 0) return std::nullopt;
  std::vector<LockOwner> owners;
  while (!bytes.empty()) owners.push_back(take_owner(bytes));
  return owners;
}

std::optional<std::vector<WaitsFor>> unpack_edges(std::string_view bytes) {
  if (bytes.size() % kEdgeBytes != 0) return std::nullopt;
  std::vector<WaitsFor> edges;
  while (!bytes.empty()) {
    WaitsFor& edge = edges.emplace_back();
    edge.waiter = take_owner(bytes);
    edge.holder = take_owner(bytes);
    for (uint64_t* number : {&edge.place, &edge.life, &edge.ticket, &edge.held, &edge.since}) {
      *number = take(bytes);
    }
  }
  return edges;
}

}  // namespace forebay::attr
