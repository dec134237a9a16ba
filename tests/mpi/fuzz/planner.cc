#include "planner.h"

#include <algorithm>

namespace fuzz {
namespace {

// Files stay small: what matters is how pieces lie to each other, and every rank keeps a copy.
constexpr int64_t file_limit = 1 << 18;

//  name          views indep coll shared ordered pointers sizes fences | nonbl split | atomic race
constexpr Mix mixes[] = {
    {"mixed", 14, 20, 20, 8, 8, 14, 8, 8, 25, 25, 10, 10},
    {"independent", 14, 40, 0, 0, 0, 24, 10, 12, 0, 0, 0, 0},
    {"collective", 18, 6, 50, 0, 0, 10, 6, 10, 0, 0, 0, 0},
    {"nonblocking", 12, 35, 25, 4, 0, 12, 4, 8, 85, 0, 0, 0},
    {"split", 14, 10, 45, 0, 12, 10, 4, 5, 0, 85, 0, 0},
    {"shared", 10, 5, 5, 50, 8, 10, 4, 8, 25, 0, 0, 60},
    {"ordered", 10, 5, 5, 15, 45, 10, 4, 6, 0, 25, 0, 20},
    {"atomic", 12, 35, 15, 4, 4, 8, 4, 18, 10, 10, 100, 70},
};

}  // namespace

int kinds() {
  return static_cast<int>(std::size(mixes));
}
const Mix& kind(int index) {
  return mixes[index];
}
int kind_index(const std::string& name) {
  for (int i = 0; i < kinds(); ++i)
    if (name == mixes[i].name) return i;
  return -1;
}

Planner::Planner(const Options& options, uint64_t seed, const Mix& mix, int ranks)
    : options_(options),
      rng_(seed),
      mix_(mix),
      ranks_(ranks),
      conflicts_(file_limit, ranks, options.with("overlapping-reads")),
      views_(static_cast<size_t>(ranks)),
      own_(static_cast<size_t>(ranks)),
      pending_(static_cast<size_t>(ranks)),
      split_(static_cast<size_t>(ranks)) {}

void Planner::create(int64_t size) {
  exists_ = true;
  Bytes data(static_cast<size_t>(size));
  Rng content(mix(rng_.next(), 0));
  for (unsigned char& b : data) b = static_cast<unsigned char>(content.between(1, 255));
  model_.resize(0);
  if (size) model_.write({{0, size}}, data);
}

void Planner::apply(const std::vector<AccessPtr>& order) {
  for (const AccessPtr& a : order) model_.write(a->spans, a->data);
}

Step& Planner::add(Verb verb) {
  Step step{};
  step.verb = verb;
  step.turns.resize(static_cast<size_t>(ranks_));
  session_.steps.push_back(std::move(step));
  return session_.steps.back();
}

Session Planner::plan() {
  session_ = {};
  over_ = false;
  plan_open();
  if (options_.with("atomic") && rng_.chance(mix_.atomic)) {
    atomic_ = true;
    add(Verb::atomicity).flag = true;
  }
  bool race = rng_.chance(mix_.race);
  for (int64_t n = rng_.between(3, 14); n > 0 && !over_; --n) plan_step();
  if (race && !over_) {
    if (atomic_ && options_.with("race-atomic"))
      plan_race_atomic();
    else if (options_.with("shared") && options_.with("race-shared"))
      plan_race_shared();
  }
  plan_close();
  return std::move(session_);
}

void Planner::plan_open() {
  bool only_read = exists_ && rng_.chance(15);
  bool only_write = !only_read && options_.with("wronly") && rng_.chance(25);
  amode_ = only_read ? MPI_MODE_RDONLY : only_write ? MPI_MODE_WRONLY : MPI_MODE_RDWR;
  readable_ = !only_write;
  writable_ = !only_read;
  if (!exists_ || (writable_ && rng_.chance(30))) amode_ |= MPI_MODE_CREATE;
  if (!exists_ && rng_.chance(30)) amode_ |= MPI_MODE_EXCL;
  if (options_.with("append") && writable_ && rng_.chance(15)) amode_ |= MPI_MODE_APPEND;
  if (rng_.chance(10)) amode_ |= MPI_MODE_UNIQUE_OPEN;
  if (writable_ && rng_.chance(4)) amode_ |= MPI_MODE_DELETE_ON_CLOSE;
  if (!exists_) model_.resize(0);
  exists_ = true;

  Step& step = add(Verb::open);
  step.amode = amode_;
  if (options_.with("hints") && rng_.chance(40)) {
    static const std::vector<std::string> sizes = {"64", "500", "4096", "65536"};
    static const std::vector<std::string> ways = {"enable", "disable", "automatic"};
    if (rng_.chance(50)) step.hints["romio_cb_write"] = rng_.pick(ways);
    if (rng_.chance(50)) step.hints["romio_cb_read"] = rng_.pick(ways);
    if (rng_.chance(50)) step.hints["romio_ds_write"] = rng_.pick(ways);
    if (rng_.chance(50)) step.hints["romio_ds_read"] = rng_.pick(ways);
    if (rng_.chance(40)) step.hints["cb_buffer_size"] = rng_.pick(sizes);
    if (rng_.chance(40)) step.hints["ind_wr_buffer_size"] = rng_.pick(sizes);
    if (rng_.chance(40)) step.hints["ind_rd_buffer_size"] = rng_.pick(sizes);
    if (rng_.chance(40)) step.hints["cb_nodes"] = std::to_string(rng_.between(1, ranks_));
  }

  TypePtr byte = basic_type(MPI_BYTE, "BYTE", 1);
  int64_t start = amode_ & MPI_MODE_APPEND ? model_.size() : 0;
  for (int r = 0; r < ranks_; ++r) {
    views_[static_cast<size_t>(r)] = {0, byte, byte};
    own_[static_cast<size_t>(r)] = {start, {}};
  }
  shared_ = start;
  same_view_ = true;
  shared_dirty_ = true;
  atomic_ = false;
  conflicts_.fence(model_.size());
  if (rng_.chance(30)) check_pointers();
}

void Planner::plan_close() {
  settle();
  if (!over_ && rng_.chance(60)) {
    fence();
    check_size();
    check_pointers();
  }
  add(Verb::close);
  if (amode_ & MPI_MODE_DELETE_ON_CLOSE) {
    exists_ = false;
    session_.deleted = true;
    model_.resize(0);
  }
}

void Planner::plan_step() {
  struct Choice {
    int weight;
    void (Planner::*plan)();
  };
  bool shared = options_.with("shared"), ordered = options_.with("ordered");
  const Choice choices[] = {
      {mix_.views, nullptr},
      {mix_.independent, &Planner::plan_independent},
      {options_.with("collective") ? mix_.collective : 0, &Planner::plan_collective},
      {shared ? mix_.shared : 0, &Planner::plan_shared},
      {ordered ? mix_.ordered : 0, &Planner::plan_ordered},
      {mix_.pointers, &Planner::plan_pointers},
      {mix_.sizes, &Planner::plan_size},
      {mix_.fences, &Planner::fence},
  };
  int total = 0;
  for (const Choice& c : choices) total += c.weight;
  int64_t at = rng_.below(total);
  for (const Choice& c : choices) {
    if (at < c.weight) {
      if (c.plan)
        (this->*c.plan)();
      else
        plan_view(mix_.shared + mix_.ordered > 30 && rng_.chance(80));
      break;
    }
    at -= c.weight;
  }
  if (rng_.chance(40)) plan_wait(50);
}

void Planner::plan_wait(int percent) {
  Step step{};
  step.verb = Verb::wait;
  step.turns.resize(static_cast<size_t>(ranks_));
  bool any = false;
  for (int r = 0; r < ranks_; ++r) {
    Turn& turn = step.turns[static_cast<size_t>(r)];
    std::vector<AccessPtr> left;
    for (const AccessPtr& a : pending_[static_cast<size_t>(r)]) {
      (rng_.chance(percent) ? turn.accesses : left).push_back(a);
    }
    for (const AccessPtr& a : turn.accesses) conflicts_.complete(a->id);
    pending_[static_cast<size_t>(r)] = std::move(left);
    rng_.shuffle(turn.accesses);
    turn.how = static_cast<WaitHow>(rng_.below(6));
    if (turn.how == WaitHow::waitsome && !options_.with("waitsome")) turn.how = WaitHow::waitall;
    if (turn.how == WaitHow::get_status && !options_.with("get-status")) turn.how = WaitHow::wait;
    turn.takes_part = !turn.accesses.empty();
    any = any || turn.takes_part;
  }
  if (any) session_.steps.push_back(std::move(step));
}

// Nothing pending, no split collective active.
void Planner::settle() {
  if (split_[0]) {
    Step& step = add(Verb::end_split);
    for (int r = 0; r < ranks_; ++r) {
      AccessPtr& a = split_[static_cast<size_t>(r)];
      conflicts_.complete(a->id);
      step.turns[static_cast<size_t>(r)].accesses = {a};
      a = nullptr;
    }
  }
  plan_wait(100);
}

void Planner::fence() {
  settle();
  if (writable_) add(Verb::fence).flag = !atomic_;
  if (writable_) shared_dirty_ = false;
  conflicts_.fence(model_.size());
}

void Planner::barrier_for_shared() {
  if (split_[0] && split_[0]->where == Where::ordered) settle();
  if (shared_dirty_) add(Verb::barrier);
  shared_dirty_ = false;
}

void Planner::plan_size() {
  int64_t way = rng_.below(3);
  bool set = way == 0 && options_.with("set-size"),
       allocate = way == 1 && options_.with("preallocate");
  if (writable_ && (set || allocate)) {
    fence();
    int64_t size =
        rng_.chance(50) ? rng_.between(0, model_.size()) : model_.size() + rng_.below(3000);
    size = std::min(size, file_limit / 2);
    Step& step = add(set ? Verb::set_size : Verb::preallocate);
    for (Turn& turn : step.turns) turn.number = size;
    if (set || size > model_.size()) model_.resize(size);
    fence();
  }
  check_size();
}

void Planner::check_size() {
  if (!conflicts_.size_known()) return;
  Step& step = add(Verb::size);
  for (int r = 0; r < ranks_; ++r) {
    step.turns[static_cast<size_t>(r)].number = model_.size();
    conflicts_.observe_size(r);
  }
}

void Planner::plan_pointers() {
  if (rng_.chance(25) && options_.with("byte-offset")) {
    Step& step = add(Verb::byte_offset);
    for (int r = 0; r < ranks_; ++r) {
      Turn& turn = step.turns[static_cast<size_t>(r)];
      const View& view = views_[static_cast<size_t>(r)];
      turn.number = rng_.below(200);
      turn.expected = {view.spans(turn.number * view.etype->size, 1)[0].at};
    }
  } else if (rng_.chance(30) && options_.with("shared") && same_view_) {
    plan_seek_shared();
  } else if (rng_.chance(60)) {
    std::vector<Turn> turns(static_cast<size_t>(ranks_));
    for (int r = 0; r < ranks_; ++r) {
      turns[static_cast<size_t>(r)].takes_part = rng_.chance(60);
      if (turns[static_cast<size_t>(r)].takes_part) plan_seek(r, turns[static_cast<size_t>(r)]);
    }
    add(Verb::seek).turns = std::move(turns);
  } else {
    check_pointers();
  }
}

void Planner::plan_seek(int rank, Turn& turn) {
  Pointer& own = own_[static_cast<size_t>(rank)];
  const View& view = views_[static_cast<size_t>(rank)];
  int64_t target = random_offset(rank, false);
  int64_t end = view.etypes_before(model_.size());
  int64_t way = rng_.below(3);
  turn.whence = MPI_SEEK_SET;
  turn.number = target;
  if (way == 1 && !own.or_at) {
    turn.whence = MPI_SEEK_CUR;
    turn.number = target - own.at;
  } else if (way == 2 && options_.with("seek-end") && end >= 0 && conflicts_.size_known_to(rank)) {
    turn.whence = MPI_SEEK_END;
    target = std::max<int64_t>(0, end - rng_.between(-3, 20));
    turn.number = target - end;
    conflicts_.observe_size(rank);
  }
  own = {target, {}};
}

// Those whose pointer may stand in two places are told where it is.
void Planner::seek_unknown(const std::vector<int>& ranks) {
  std::vector<Turn> turns(static_cast<size_t>(ranks_));
  bool any = false;
  for (Turn& turn : turns) turn.takes_part = false;
  for (int r : ranks) {
    Pointer& own = own_[static_cast<size_t>(r)];
    if (!own.or_at && own.at < 100000) continue;
    own = {random_offset(r, false), {}};
    turns[static_cast<size_t>(r)].takes_part = any = true;
    turns[static_cast<size_t>(r)].number = own.at;
  }
  if (any) add(Verb::seek).turns = std::move(turns);
}

void Planner::plan_seek_shared() {
  barrier_for_shared();
  int64_t target = random_offset(0, false);
  int64_t end = views_[0].etypes_before(model_.size());
  int whence = MPI_SEEK_SET;
  int64_t number = target;
  if (rng_.chance(30)) {
    whence = MPI_SEEK_CUR;
    number = target - shared_;
  } else if (rng_.chance(30) && options_.with("seek-end") && end >= 0 && conflicts_.size_known()) {
    whence = MPI_SEEK_END;
    target = std::max<int64_t>(0, end - rng_.between(-3, 20));
    number = target - end;
    for (int r = 0; r < ranks_; ++r) conflicts_.observe_size(r);
  }
  Step& step = add(Verb::seek_shared);
  for (Turn& turn : step.turns) {
    turn.whence = whence;
    turn.number = number;
  }
  shared_ = target;
  shared_dirty_ = true;
}

void Planner::check_pointers() {
  Step& step = add(Verb::position);
  for (int r = 0; r < ranks_; ++r) {
    const Pointer& own = own_[static_cast<size_t>(r)];
    step.turns[static_cast<size_t>(r)].expected = {own.at};
    if (own.or_at) step.turns[static_cast<size_t>(r)].expected.push_back(*own.or_at);
  }
  if (!same_view_ || !options_.with("shared")) return;
  barrier_for_shared();
  for (Turn& turn : add(Verb::position_shared).turns) turn.expected = {shared_};
  shared_dirty_ = true;
}

}  // namespace fuzz
