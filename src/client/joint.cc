// Small writes that travel together (session.h, "Joints").
#include <algorithm>

#include "client/flight.h"
#include "transport/shared_box.h"

namespace forebay {

namespace {

// More would make the search for overlaps dear, and gain little.
constexpr size_t kMostMembers = 64;

bool small_write(const Request& r) {
  return r.op == Op::write && (r.flags & kFlagAppend) == 0 && r.cookie == 0 && !r.file.empty() &&
         r.file.loops().empty();
}

bool continues(const Request& before, const Request& r) {
  return r.file.pieces() == 1 && before.file.bounds().end() == r.file.bounds().offset;
}

}  // namespace

// How many flights, from the front of the queue, make one joint. On the server's node one that is
// in one piece: for a box, and because others may have the file in common (shortcuts.h), which a
// list would end.
size_t Session::joinable(bool in_box) const {
  const Flight& first = *queue_.front();
  if (first.alone || first.cancelled || first.parts || !small_write(first.message.request))
    return 1;
  uint64_t bytes = first.message.request.file.total().value;
  size_t blocks = first.message.request.file.blocks().size();
  const uint64_t most =
      std::min<uint64_t>({welcome_.eager_max, eager_left_, in_box ? kBoxBytes : UINT64_MAX});
  size_t n = 1;
  for (; n < std::min(queue_.size(), kMostMembers); ++n) {
    const Flight& next = *queue_[n];
    const Request& r = next.message.request;
    if (!joins(first, next) || must_wait(r)) break;
    if ((in_box || region_) && !continues(queue_[n - 1]->message.request, r)) break;
    bytes += r.file.total().value;
    blocks += r.file.blocks().size();
    if (bytes > most) break;
    if (blocks > wire::kMaxInlineBlocks) break;
    const auto overlaps = [&](const FlightRef& f) {
      return may_overlap(f->message.request.file, r.file);
    };
    // Who would have to wait for the joint waits longer than for one request alone.
    if (std::any_of(queue_.begin(), queue_.begin() + static_cast<ptrdiff_t>(n), overlaps)) return 1;
  }
  return n;
}

bool Session::joins(const Flight& first, const Flight& next) const {
  const Request &a = first.message.request, &b = next.message.request;
  return !next.alone && !next.cancelled && !next.parts && small_write(b) && a.flags == b.flags &&
         a.length == b.length && a.handle == b.handle && a.right == b.right &&
         (first.caller == next.caller || first.caller->same_identity(*next.caller));
}

Session::FlightRef Session::next_flight() {
  const size_t n = queue_.size() > 1 ? joinable(fits_box(*queue_.front())) : 1;
  if (n > 1) return join(n);
  FlightRef flight = std::move(queue_.front());
  queue_.pop_front();
  return flight;
}

Session::FlightRef Session::join(size_t count) {
  std::vector<FlightRef> members;
  std::vector<Extent> file, memory;
  for (size_t i = 0; i < count; ++i) {
    FlightRef member = std::move(queue_.front());
    queue_.pop_front();
    const Request& r = member->message.request;
    file.insert(file.end(), r.file.blocks().begin(), r.file.blocks().end());
    for (ExtentCursor at(r.memory.shape); !at.done(); at.advance(at.current().length)) {
      const Extent piece = at.current();
      memory.push_back(
          {Offset(reinterpret_cast<uintptr_t>(r.memory.at(piece.offset))), piece.length});
    }
    members.push_back(std::move(member));
  }
  const Request& like = members.front()->message.request;
  Request request;
  request.op = Op::write;
  request.flags = like.flags;
  request.length = like.length;
  request.caller = members.front()->caller;
  request.handle = like.handle;
  request.right = like.right;
  auto file_side = Extents::make(std::move(file)), memory_side = Extents::make(std::move(memory));
  FOREBAY_ASSERT(file_side && memory_side);  // each of them was good
  request.file = std::move(*file_side);
  request.memory = {nullptr, std::move(*memory_side)};
  auto joint = std::make_unique<Flight>(std::move(request), Completion());
  joint->alone = true;
  for (const FlightRef& member : members) joint->sent_before |= member->sent_before;
  joint->members = std::move(members);
  return joint;
}

// It failed: who is to blame?
void Session::part_joint(FlightRef joint) {
  for (auto member = joint->members.rbegin(); member != joint->members.rend(); ++member) {
    (*member)->alone = true;
    (*member)->sent_before = true;
    (*member)->lent = joint->lent;
    queue_.push_front(std::move(*member));
  }
}

}  // namespace forebay
