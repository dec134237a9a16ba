#include "server/lock_waits_flight.h"

#include "server/lock_search.h"
#include "server/session.h"

namespace forebay::server {

void LockWaitsFlight::begin() {
  if (!session_->relayed() || !exported().relay) {
    return answer(Error(EPERM, "only servers ask each other about locks that wait"));
  }
  const auto question = static_cast<LockQuestion>(request_.value);
  answer(question == LockQuestion::in_the_way ? in_the_way() : about_edges());
}

Result<Reply> LockWaitsFlight::in_the_way() const {
  const auto owners = attr::unpack_owners(request_.data);
  if (!owners || owners->empty()) return Error(EINVAL, "lock_waits: data: these are no owners");
  Reply reply;
  const uint64_t place = exported().relay->self() + 1;
  reply.data = attr::pack(exported().locks.in_the_way(
      {std::span(*owners).subspan(1), owners->front(), kMostEdges}, place, reply.end));
  return reply;
}

Result<Reply> LockWaitsFlight::about_edges() const {
  const auto edges = attr::unpack_edges(request_.data);
  if (!edges) return Error(EINVAL, "lock_waits: data: these are no locks that wait");
  Reply reply;
  if (static_cast<LockQuestion>(request_.value) == LockQuestion::stand) {
    reply.count = exported().locks.stand(*edges);
    return reply;
  }
  for (const attr::WaitsFor& edge : *edges) {
    if (edge.life == exported().locks.life()) exported().locks.look(edge.ticket);
  }
  return reply;
}

}  // namespace forebay::server
