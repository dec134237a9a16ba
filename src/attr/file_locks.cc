#include "attr/file_locks.h"

#include <fmt/format.h>

#include <algorithm>

namespace forebay::attr {

namespace {

Extent between(Offset begin, Offset end) {
  return {begin, Length(end.value - begin.value)};
}

}  // namespace

// ---- Asking ----

Result<FileLocks::Outcome> FileLocks::lock(std::string_view file, Owner owner, const Lock& lock,
                                           bool wait, bool elsewhere) {
  if (auto ok = within_limits(owner); !ok) return std::move(ok).error();
  Book& book = book_of(file, lock.kind);
  const Wait wanted{owner, lock, &book, wait && !elsewhere && !holds(owner)};
  Outcome out;
  if (!blocked(book, wanted, UINT64_MAX)) {
    if (add(book, owner, lock)) freed(book, {lock.range}, out.granted);
    return out;
  }
  if (lock.kind == Kind::whole && cut(book, owner, lock.range) != Had::nothing) {
    freed(book, {lock.range}, out.granted);
  }
  if (!wait) {
    drop_if_empty(owner);
    drop_if_empty(book);
    out.state = Outcome::State::refused;
    return out;
  }
  if (lock.kind == Kind::range && would_deadlock(book, wanted)) {
    return Error(EDEADLK, "its holder waits, directly or through others, for a lock of this owner");
  }
  out.state = Outcome::State::waits;
  out.ticket = ++last_;
  waits_.emplace(out.ticket, wanted);
  book.waiting.insert(lock.range, out.ticket);
  owners_[owner].waits.insert(out.ticket);
  ++clients_[owner.client];
  return out;
}

std::optional<FileLocks::Held> FileLocks::test(std::string_view file, Owner owner,
                                               const Lock& lock) const {
  const Book* const book = find_book(file, lock.kind);
  if (!book) return std::nullopt;
  std::optional<Held> found;
  book->held.visit(lock.range, [&](Extent, Id id) {
    const Piece& piece = pieces_.at(id);
    if (!found && piece.owner != owner && (piece.lock.exclusive || lock.exclusive)) {
      found = Held{piece.owner, piece.lock};
    }
  });
  return found;
}

bool FileLocks::holds(Owner owner) const {
  const auto found = owners_.find(owner);
  return found != owners_.end() && found->second.holds();
}

void FileLocks::in_the_way(Ticket ticket, const std::function<void(const InTheWay&)>& tell) const {
  const auto found = waits_.find(ticket);
  if (found == waits_.end() || found->second.lock.kind != Kind::range) return;
  const Wait& wait = found->second;
  wait.book->held.visit(wait.lock.range, [&](Extent, Id id) {
    const Piece& piece = pieces_.at(id);
    if (piece.owner == wait.owner || (!piece.lock.exclusive && !wait.lock.exclusive)) return;
    tell({ticket, id, wait.owner, piece.owner});
  });
  if (!wait.behind) return;
  wait.book->waiting.visit(wait.lock.range, [&](Extent, Ticket earlier) {
    const Wait& other = waits_.at(earlier);
    if (earlier >= ticket || other.owner == wait.owner) return;
    if (!other.lock.exclusive && !wait.lock.exclusive) return;
    tell({ticket, earlier, wait.owner, other.owner});
  });
}

void FileLocks::in_the_way(Owner waiter, const std::function<void(const InTheWay&)>& tell) const {
  const auto state = owners_.find(waiter);
  if (state == owners_.end()) return;
  for (const Ticket ticket : state->second.waits) in_the_way(ticket, tell);
}

// Calls fn with the owner of each lock that it must wait for, of those that wait only who came
// before `before`, until fn says true.
template <class Fn>
bool FileLocks::each_blocker(const Book& book, const Wait& wait, Ticket before, Fn&& fn) const {
  bool stop = false;
  const auto look = [&](Owner owner, bool exclusive) {
    if (!stop && owner != wait.owner && (exclusive || wait.lock.exclusive)) stop = fn(owner);
  };
  book.held.visit(wait.lock.range, [&](Extent, Id id) {
    const Piece& piece = pieces_.at(id);
    look(piece.owner, piece.lock.exclusive);
  });
  if (stop || !wait.behind) return stop;
  book.waiting.visit(wait.lock.range, [&](Extent, Ticket ticket) {
    if (ticket >= before) return;
    const Wait& other = waits_.at(ticket);
    look(other.owner, other.lock.exclusive);
  });
  return stop;
}

bool FileLocks::blocked(const Book& book, const Wait& wait, Ticket before) const {
  return each_blocker(book, wait, before, [](Owner) { return true; });
}

// Does anybody whom it would wait for wait for its owner?
bool FileLocks::would_deadlock(const Book& book, const Wait& wanted) const {
  // Nobody can wait for one who holds nothing, nor waits for anything.
  if (!owners_.contains(wanted.owner)) return false;
  std::set<Owner> seen;
  std::vector<Owner> next;
  const auto reach = [&](Owner owner) {
    if (seen.insert(owner).second) next.push_back(owner);
    return owner == wanted.owner;
  };
  each_blocker(book, wanted, UINT64_MAX, reach);
  while (!next.empty()) {
    const auto state = owners_.find(next.back());
    next.pop_back();
    if (state == owners_.end()) continue;
    for (const Ticket ticket : state->second.waits) {
      const Wait& wait = waits_.at(ticket);
      if (wait.lock.kind != Kind::range) continue;
      if (each_blocker(*wait.book, wait, ticket, reach)) return true;
    }
  }
  return false;
}

Result<void> FileLocks::within_limits(Owner owner) const {
  const auto client = clients_.find(owner.client);
  const size_t has = client == clients_.end() ? 0 : client->second;
  const size_t all = pieces_.size() + waits_.size();
  if (has < limits_.per_client && all < limits_.in_all) return {};
  return Error(ENOLCK, fmt::format("{} locks of this client, {} in all; at most {} and {}", has,
                                   all, limits_.per_client, limits_.in_all));
}

// ---- Freeing ----

std::vector<FileLocks::Ticket> FileLocks::unlock(std::string_view file, Owner owner, Kind kind,
                                                 Extent range) {
  std::vector<Ticket> granted;
  Book* const book = find_book(file, kind);
  if (!book) return granted;
  if (cut(*book, owner, range) != Had::nothing) freed(*book, {range}, granted);
  drop_if_empty(owner);
  drop_if_empty(*book);
  return granted;
}

std::optional<std::vector<FileLocks::Ticket>> FileLocks::inherit(std::string_view file, Owner from,
                                                                 Owner to, const Lock& lock) {
  Book* const book = find_book(file, lock.kind);
  const auto state = owners_.find(from);
  if (!book || state == owners_.end() || from == to) return std::nullopt;
  const auto pieces = state->second.pieces.find(book);
  if (pieces == state->second.pieces.end()) return std::nullopt;
  ExtentSet missing = {lock.range};
  for (const auto& [offset, id] : pieces->second) {
    const Lock& held = pieces_.at(id).lock;
    if (held.exclusive || !lock.exclusive) missing = subtract(missing, ExtentSet{held.range});
  }
  if (!missing.empty()) return std::nullopt;
  cut(*book, from, lock.range);
  drop_if_empty(from);
  add(*book, to, lock);
  std::vector<Ticket> granted;
  freed(*book, {lock.range}, granted);  // it may be less than it was
  return granted;
}

std::vector<FileLocks::Ticket> FileLocks::give_up(Ticket ticket) {
  std::vector<Ticket> granted;
  const auto found = waits_.find(ticket);
  if (found == waits_.end()) return granted;
  Book& book = *found->second.book;
  const Extent range = found->second.lock.range;
  const Owner owner = found->second.owner;
  erase(ticket);
  freed(book, {range}, granted);
  drop_if_empty(owner);
  drop_if_empty(book);
  return granted;
}

std::vector<FileLocks::Ticket> FileLocks::forget(uint64_t client) {
  std::vector<Ticket> granted;
  std::map<Book*, ExtentSet> gone;
  for (auto at = owners_.lower_bound({client, 0}); at != owners_.end(); at = owners_.erase(at)) {
    if (at->first.client != client) break;
    OwnerState& state = at->second;
    for (const Ticket ticket : std::set(state.waits)) {
      const Wait& wait = waits_.at(ticket);
      gone[wait.book].push_back(wait.lock.range);
      erase(ticket);
    }
    while (state.holds()) {
      const Id id = state.pieces.begin()->second.begin()->second;
      gone[pieces_.at(id).book].push_back(pieces_.at(id).lock.range);
      erase(state, id);
    }
  }
  for (auto& [book, ranges] : gone) {
    freed(*book, normalise(std::move(ranges)), granted);
    drop_if_empty(*book);
  }
  return granted;
}

// Something is no longer held or waited for there: who may go on now? The first that can does,
// again and again.
void FileLocks::freed(Book& book, const ExtentSet& ranges, std::vector<Ticket>& granted) {
  if (book.waiting.empty()) return;
  std::set<Ticket> candidates;
  const auto consider = [&](Extent where) {
    book.waiting.visit(where, [&](Extent, Ticket ticket) { candidates.insert(ticket); });
  };
  for (const Extent& range : ranges) consider(range);
  bool only_there = ranges.size() == 1;
  for (auto at = candidates.begin(); at != candidates.end();) {
    const Ticket ticket = *at;
    const Wait wait = waits_.at(ticket);
    if (blocked(book, wait, ticket)) {
      ++at;
      continue;
    }
    at = candidates.erase(at);
    erase(ticket);
    granted.push_back(ticket);
    const Extent& got = wait.lock.range;
    if (add(book, wait.owner, wait.lock)) {
      consider(got);  // it had more there before: even those who came earlier may go on
      at = candidates.begin();
      only_there = false;
    } else if (only_there && wait.lock.exclusive && owners_.at(wait.owner).waits.empty() &&
               got.offset <= ranges[0].offset && ranges[0].end() <= got.end()) {
      return;  // nobody else can have any of it
    }
  }
}

// ---- The books ----

// The owner's lock of the range becomes this one; true if it held more of it before.
bool FileLocks::add(Book& book, Owner owner, Lock lock) {
  const bool less = cut(book, owner, lock.range) == Had::exclusive && !lock.exclusive;
  OwnerState& state = owners_[owner];
  // Joined with those of its mode that touch it.
  auto& mine = state.pieces[&book];
  auto next = mine.lower_bound(lock.range.offset);
  if (next != mine.begin()) {
    const Id before = std::prev(next)->second;
    const Lock& left = pieces_.at(before).lock;
    if (left.range.end() == lock.range.offset && left.exclusive == lock.exclusive) {
      lock.range = between(left.range.offset, lock.range.end());
      erase(state, before);
    }
  }
  if (const auto after = state.pieces[&book].find(lock.range.end());
      after != state.pieces[&book].end()) {
    const Lock& right = pieces_.at(after->second).lock;
    if (right.exclusive == lock.exclusive) {
      lock.range = between(lock.range.offset, right.range.end());
      erase(state, after->second);
    }
  }
  insert(book, state, owner, lock);
  return less;
}

// Frees what the owner holds in the range.
FileLocks::Had FileLocks::cut(Book& book, Owner owner, Extent range) {
  Had had = Had::nothing;
  const auto known = owners_.find(owner);
  if (known == owners_.end()) return had;
  OwnerState& state = known->second;
  const auto mine = state.pieces.find(&book);
  if (mine == state.pieces.end()) return had;
  std::vector<Id> meets;
  auto at = mine->second.lower_bound(range.offset);
  if (at != mine->second.begin() &&
      pieces_.at(std::prev(at)->second).lock.range.end() > range.offset) {
    --at;
  }
  for (; at != mine->second.end() && at->first < range.end(); ++at) meets.push_back(at->second);
  for (const Id id : meets) {
    const Lock old = pieces_.at(id).lock;
    had = std::max(had, old.exclusive ? Had::exclusive : Had::shared);
    erase(state, id);
    Lock rest = old;
    if (old.range.offset < range.offset) {
      rest.range = between(old.range.offset, range.offset);
      insert(book, state, owner, rest);
    }
    if (range.end() < old.range.end()) {
      rest.range = between(range.end(), old.range.end());
      insert(book, state, owner, rest);
    }
  }
  return had;
}

void FileLocks::insert(Book& book, OwnerState& state, Owner owner, Lock lock) {
  const Id id = ++last_;
  pieces_.emplace(id, Piece{owner, lock, &book});
  book.held.insert(lock.range, id);
  state.pieces[&book].emplace(lock.range.offset, id);
  ++clients_[owner.client];
}

void FileLocks::erase(OwnerState& state, Id id) {
  const auto found = pieces_.find(id);
  const Piece piece = found->second;
  pieces_.erase(found);
  piece.book->held.erase(piece.lock.range, id);
  auto& mine = state.pieces.at(piece.book);
  mine.erase(piece.lock.range.offset);
  if (mine.empty()) state.pieces.erase(piece.book);
  if (--clients_[piece.owner.client] == 0) clients_.erase(piece.owner.client);
}

void FileLocks::erase(Ticket ticket) {
  const auto found = waits_.find(ticket);
  const Wait wait = found->second;
  waits_.erase(found);
  wait.book->waiting.erase(wait.lock.range, ticket);
  owners_.at(wait.owner).waits.erase(ticket);
  if (--clients_[wait.owner.client] == 0) clients_.erase(wait.owner.client);
}

FileLocks::Book& FileLocks::book_of(std::string_view file, Kind kind) {
  auto& book = books_[{std::string(file), kind}];
  if (!book) book = std::make_unique<Book>(Book{std::string(file), kind, {}, {}});
  return *book;
}

FileLocks::Book* FileLocks::find_book(std::string_view file, Kind kind) const {
  const auto found = books_.find(std::pair(std::string(file), kind));
  return found == books_.end() ? nullptr : found->second.get();
}

void FileLocks::drop_if_empty(Book& book) {
  if (book.empty()) books_.erase({book.file, book.kind});
}

void FileLocks::drop_if_empty(Owner owner) {
  const auto found = owners_.find(owner);
  if (found == owners_.end()) return;
  if (!found->second.holds() && found->second.waits.empty()) owners_.erase(found);
}

}  // namespace forebay::attr
