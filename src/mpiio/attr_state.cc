#include "mpiio/attr_state.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>

namespace forebay::mpiio {
namespace {

static_assert(kSlots <= 64, "seen() has a bit for each");

uint64_t bit_of(Slot slot) {
  FOREBAY_ASSERT(static_cast<uint32_t>(slot) < kSlots);
  return uint64_t{1} << static_cast<uint32_t>(slot);
}

bool is_none(const Result<Reply>& reply) {
  return !reply && reply.error().code() == ENODATA;
}

}  // namespace

uint64_t AttrState::make_cookie() {
  uint64_t cookie = 0;
  while (::getrandom(&cookie, sizeof cookie, 0) != sizeof cookie) {
  }
  return cookie;
}

Request AttrState::request(Op op, Slot slot) const {
  Request r = prepare_(op);
  r.name = fmt::format("{}mpi-{:016x}-{}", kTemporary, cookie_, static_cast<uint32_t>(slot));
  return r;
}

// A value that nobody has changed yet is not there: ENODATA. It was there if it was seen before it
// was asked for: another thread may make it, and see it, while the answer is on its way.
Result<uint64_t> AttrState::ask(Slot slot, const Change& change) {
  Request r = request(change.op, slot);
  r.value = change.value;
  r.expected = change.expected;
  const bool seen = (seen_.load() & bit_of(slot)) != 0;
  const Result<Reply> reply = store_.call(std::move(r));
  if (reply) return seen_.fetch_or(bit_of(slot)), reply->value;
  if (!is_none(reply) || !seen) return reply.error();
  return Error(ESTALE, fmt::format("the server has forgotten what the ranks share of the file: {}",
                                   reply.error().what()));
}

Result<uint64_t> AttrState::create_and_ask(Slot slot, const Change& change) {
  Result<uint64_t> answer = ask(slot, change);
  if (answer || answer.error().code() != ENODATA) return answer;
  const Result<Reply> made = store_.call(request(Op::attr_create, slot));
  if (!made && made.error().code() != EEXIST) return made.error();
  return ask(slot, change);
}

Result<uint64_t> AttrState::get(Slot slot) {
  Result<uint64_t> answer = ask(slot, {Op::attr_get});
  if (!answer && answer.error().code() == ENODATA) return uint64_t{0};
  return answer;
}

Result<void> AttrState::set(Slot slot, uint64_t value) {
  const Change change{Op::attr_set, value};
  Result<uint64_t> answer = value == 0 ? ask(slot, change) : create_and_ask(slot, change);
  if (!answer && (value != 0 || answer.error().code() != ENODATA)) return answer.error();
  return {};
}

Result<uint64_t> AttrState::fetch_and_add(Slot slot, uint64_t step) {
  return create_and_ask(slot, {Op::attr_fetch_add, step});
}

Result<uint64_t> AttrState::compare_and_swap(Slot slot, uint64_t expected, uint64_t desired) {
  return create_and_ask(slot, {Op::attr_cas, desired, expected});
}

void AttrState::remove(uint64_t slots) {
  for (uint32_t i = 0; i < kSlots; ++i) {
    if ((slots >> i & 1) != 0) (void)store_.call(request(Op::attr_remove, Slot(i)));
  }
}

uint64_t AttrState::take_owner() {
  std::lock_guard lock(mutex_);
  const auto free = std::find(owners_.begin(), owners_.end(), false);
  const auto number = static_cast<uint64_t>(free - owners_.begin());
  if (free == owners_.end()) owners_.push_back(false);
  owners_[number] = true;
  return cookie_ + number;
}

void AttrState::give_owner(uint64_t owner) {
  std::lock_guard lock(mutex_);
  owners_[owner - cookie_] = false;
}

// An owner for each, so that a rank's threads exclude each other.
Result<uint64_t> AttrState::acquire(const Extents& ranges, LockMode mode) {
  const Extent bounds = ranges.bounds();
  const uint64_t owner = take_owner();
  Request r = prepare_(Op::lock);
  r.offset = bounds.offset;
  r.length = bounds.length;
  r.cookie = owner;
  r.flags = kFlagWait | (mode == LockMode::shared ? kFlagShared : 0u);
  const Result<Reply> locked = store_.call(std::move(r));
  if (!locked) return give_owner(owner), locked.error();
  return owner;
}

// Everything that this owner has: it has one lock.
void AttrState::unlock(uint64_t ticket) {
  Request r = prepare_(Op::unlock);
  r.right = {};
  r.cookie = ticket;
  (void)store_.call(std::move(r));
  give_owner(ticket);
}

}  // namespace forebay::mpiio
