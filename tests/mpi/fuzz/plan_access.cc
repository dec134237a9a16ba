// Random data calls whose outcome MPI defines.
#include <algorithm>

#include "planner.h"

namespace fuzz {

bool Planner::pick_write() {
  return !readable_ || (writable_ && rng_.chance(55));
}

How Planner::random_how(bool collective) {
  if (collective && options_.with("split") && rng_.chance(mix_.split)) return How::split;
  bool allowed = options_.with("nonblocking") && (!collective || options_.with("icollective"));
  return allowed && rng_.chance(mix_.nonblocking) ? How::nonblocking : How::blocking;
}

// Somewhere in the file or a little after it.
int64_t Planner::random_offset(int rank, bool write) {
  const View& view = views_[static_cast<size_t>(rank)];
  int64_t span = std::max<int64_t>(0, model_.size() - view.disp);
  int64_t etypes = span / view.filetype->extent() * (view.filetype->size / view.etype->size);
  if (write && rng_.chance(30)) etypes += 100;
  return rng_.chance(15) ? 0 : rng_.below(etypes + 8);
}

// Whether the access may be done where it is now; sets its spans.
bool Planner::place(Access& a, int rank) {
  const View& view = views_[static_cast<size_t>(rank)];
  a.spans = view.spans(a.offset * view.etype->size, a.bytes());
  bool whole = end_of(a.spans) <= model_.size();
  bool pointer_shared = a.where == Where::shared || a.where == Where::ordered;
  if (!a.write && !whole && (pointer_shared || !options_.with("eof"))) return false;
  return conflicts_.allows(rank, a.write, a.spans);
}

void Planner::commit(const AccessPtr& a, int rank) {
  const View& view = views_[static_cast<size_t>(rank)];
  if (a->write) {
    Rng content(mix(rng_.next(), static_cast<uint64_t>(a->id)));
    a->data.resize(static_cast<size_t>(a->bytes()));
    for (unsigned char& b : a->data) b = static_cast<unsigned char>(content.between(1, 255));
  } else {
    a->data = model_.read(a->spans);
  }
  // An MPI whose collective write may end for a rank before its data are there (a defect) does as
  // if the call went on until the fence.
  bool lingers = a->collective && a->write && !options_.with("own-collective");
  int pending = lingers ? -a->id : a->how == How::blocking ? 0 : a->id;
  conflicts_.add(rank, a->write, a->spans, pending);
  if (a->write) model_.write(a->spans, a->data);
  int64_t moved = a->bytes() / view.etype->size;
  if (a->where == Where::own) {
    Pointer& own = own_[static_cast<size_t>(rank)];
    own.at = a->offset + moved;
    int64_t got = static_cast<int64_t>(a->data.size());
    if (got < a->bytes()) own.or_at = a->offset + got / view.etype->size;
  } else if (a->where != Where::at) {
    shared_ += moved;
  }
  if (a->how == How::nonblocking) pending_[static_cast<size_t>(rank)].push_back(a);
  if (a->how == How::split) split_[static_cast<size_t>(rank)] = a;
}

// With nothing to do if nothing else is allowed.
AccessPtr Planner::make_access(int rank, bool write, Where where, bool collective, How how) {
  auto a = std::make_shared<Access>();
  a->id = next_id_++;
  a->write = write;
  a->where = where;
  a->collective = collective;
  a->how = how;
  a->ignore_status = how == How::blocking && rng_.chance(5);
  const View& view = views_[static_cast<size_t>(rank)];
  for (int tries = 0; tries < 5; ++tries) {
    random_memory(*a, view);
    if (tries == 4) a->count = 0;
    a->offset = where == Where::at    ? random_offset(rank, write)
                : where == Where::own ? own_[static_cast<size_t>(rank)].at
                                      : shared_;
    if (place(*a, rank)) break;
  }
  if (a->bytes() == 0) a->spans.clear();
  commit(a, rank);
  return a;
}

void Planner::plan_independent() {
  std::vector<Turn> turns(static_cast<size_t>(ranks_));
  std::vector<int> at_pointer;
  std::vector<Where> where(static_cast<size_t>(ranks_), Where::at);
  for (int r = 0; r < ranks_; ++r) {
    turns[static_cast<size_t>(r)].takes_part = rng_.chance(75);
    if (!turns[static_cast<size_t>(r)].takes_part || rng_.chance(50)) continue;
    where[static_cast<size_t>(r)] = Where::own;
    at_pointer.push_back(r);
  }
  seek_unknown(at_pointer);
  for (int r = 0; r < ranks_; ++r) {
    Turn& turn = turns[static_cast<size_t>(r)];
    if (turn.takes_part)
      turn.accesses = {
          make_access(r, pick_write(), where[static_cast<size_t>(r)], false, random_how(false))};
  }
  add(Verb::access).turns = std::move(turns);
}

void Planner::plan_collective() {
  How how = random_how(true);
  bool icollective = false;
  for (const AccessPtr& a : pending_[0]) icollective = icollective || a->collective;
  // One split collective at a time, and nothing collective beside it (MPI-4.0, 14.4.5); a blocking
  // collective beside a pending one would be allowed, but is no common thing.
  if (split_[0] || (icollective && how != How::nonblocking)) settle();
  bool write = pick_write();
  Where where = rng_.chance(50) ? Where::at : Where::own;
  std::vector<int> all;
  for (int r = 0; r < ranks_; ++r) all.push_back(r);
  if (where == Where::own) seek_unknown(all);
  std::vector<Turn> turns(static_cast<size_t>(ranks_));
  for (int r = 0; r < ranks_; ++r)
    turns[static_cast<size_t>(r)].accesses = {make_access(r, write, where, true, how)};
  add(Verb::access).turns = std::move(turns);
  if (how == How::split && rng_.chance(50)) settle();
}

// One rank at a time, so that the order is known.
void Planner::plan_shared() {
  if (!same_view_) plan_view(true);
  for (int64_t n = rng_.between(1, 3); n > 0; --n) {
    barrier_for_shared();
    int rank = static_cast<int>(rng_.below(ranks_));
    How how = options_.with("ishared") ? random_how(false) : How::blocking;
    AccessPtr a = make_access(rank, pick_write(), Where::shared, false, how);
    Step& step = add(Verb::access);
    for (Turn& turn : step.turns) turn.takes_part = false;
    step.turns[static_cast<size_t>(rank)].takes_part = true;
    step.turns[static_cast<size_t>(rank)].accesses = {a};
    shared_dirty_ = true;
  }
}

void Planner::plan_ordered() {
  if (!same_view_) plan_view(true);
  settle();
  barrier_for_shared();
  How how = random_how(true);
  if (how == How::nonblocking || !options_.with("split-ordered")) how = How::blocking;
  bool write = pick_write();
  std::vector<Turn> turns(static_cast<size_t>(ranks_));
  for (int r = 0; r < ranks_; ++r)
    turns[static_cast<size_t>(r)].accesses = {make_access(r, write, Where::ordered, true, how)};
  add(Verb::access).turns = std::move(turns);
  if (how == How::split && rng_.chance(50)) settle();
  // The pointer has moved for all only when all have begun.
  if (how == How::split) shared_dirty_ = true;
}

}  // namespace fuzz
