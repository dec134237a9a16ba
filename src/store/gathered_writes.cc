#include "store/gathered_writes.h"

#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "core/process.h"
#include "store/gathered_slots.h"

namespace forebay::posix {

using namespace gathered;

namespace {

// If those behind have not moved for so many turns and so long, they do something else.
constexpr unsigned kIdleTurns = 2;
constexpr Duration kIdle = std::chrono::microseconds(8);
// The scheduler keeps those back who have had more of the processor, whoever gives way to them.
constexpr timespec kNap = {.tv_sec = 0, .tv_nsec = 50'000};
constexpr int64_t kNapCredit = 4;
constexpr unsigned kMostNaps = 64;  // before one piece
// In a longer run a block costs not much less.
constexpr uint64_t kEnough = 16_KiB;
// Turns that a process may give to those behind: some for each of its pieces, and many for one that
// was written with others. So who is ahead is caught up with, and who just is elsewhere in the file
// does not wait for long.
constexpr int64_t kMostCredit = 2048, kCreditForPiece = 2, kCreditForCompany = 64;
// Turns for a slot that somebody else has just then.
constexpr unsigned kMostBusy = 64;
// Others were faster; more is nobody's chance. A slot that had to be written for it counts for
// many.
constexpr unsigned kMostTries = 1000, kTriesForWrite = 100;
// Turns for one who writes, before naps.
constexpr unsigned kMostTurns = 256;

constexpr Duration kLookForDead = std::chrono::milliseconds(2);
// No process can be ended, waited for, and followed by another one that does not know the memory in
// a shorter time.
constexpr Duration kSinceDeath = std::chrono::milliseconds(1);
// So many times Waits::write for one who writes, and is not stopped.
constexpr int kLongest = 12;

Time now() {
  return SteadyClock().now();
}

// By one call: a second one for the rest could come over what is newer.
bool write_whole(int fd, const std::byte* from, uint64_t length, uint64_t at) {
  ssize_t n;
  do {
    n = ::pwrite(fd, from, length, static_cast<off_t>(at));
  } while (n < 0 && errno == EINTR);
  return n == static_cast<ssize_t>(length);
}

// A thread that is cancelled would leave a slot that is nobody's.
class NotCancelled {
 public:
  NotCancelled() { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NotCancelled() { ::pthread_setcancelstate(before_, nullptr); }
  NotCancelled(const NotCancelled&) = delete;

 private:
  int before_ = 0;
};

// Numbers of processes say nothing in another namespace.
uint32_t own_name_space() {
  struct stat st;
  return ::stat("/proc/self/ns/pid", &st) == 0 ? static_cast<uint32_t>(st.st_ino) : 0;
}

// Turns that are given to others, and whether that has lasted for so long. Looks at the clock now
// and then only; while the caller itself is stopped no time goes by.
class Patience {
 public:
  explicit Patience(Duration most) : most_(most) {}
  bool over() {
    if (++turns_ % kTurns != 0) return false;
    const Time at = now();
    if (turns_ != kTurns) lasted_ += std::min(at - last_, kLongestTurns);
    last_ = at;
    return lasted_ >= most_;
  }

 private:
  static constexpr uint64_t kTurns = 16;
  static constexpr Duration kLongestTurns = std::chrono::milliseconds(250);
  Duration most_, lasted_{};
  uint64_t turns_ = 0;
  Time last_{};
};

}  // namespace

// Of those behind.
class GatheredWrites::Stillness {
 public:
  bool enough() const { return asked_ > kMostCredit; }
  bool lasts(uint64_t sum) {
    const Time at = now();
    ++asked_;
    if (turns_ == 0 || sum != sum_) {
      sum_ = sum;
      turns_ = 1;
      since_ = at;
      return false;
    }
    return ++turns_ > kIdleTurns && at - since_ >= kIdle;
  }

 private:
  uint64_t sum_ = 0;
  unsigned turns_ = 0;
  int64_t asked_ = 0;
  Time since_{};
};

// What one look at all pieces of a caller has found.
struct GatheredWrites::Round {
  const Piece* waits = nullptr;    // the first that does
  const Piece* open = nullptr;     // of these: the first that nobody writes
  const Piece* written = nullptr;  // and that somebody writes
  bool news = false;
};

uint64_t GatheredWrites::space() {
  return sizeof(Space);
}

GatheredWrites::GatheredWrites(std::byte* space, Choice choice, Waits waits)
    : space_(*reinterpret_cast<Space*>(space)), choice_(choice), waits_(waits) {
  const auto process = static_cast<uint32_t>(::getpid());
  for (uint32_t i = 1; i < kMembers && member_ == 0; ++i) {
    uint32_t none = 0;
    if (space_.members[i].process.compare_exchange_strong(none, process)) member_ = i;
  }
  if (member_ == 0) return;
  space_.members[member_].name_space = own_name_space();
  space_.at[member_] = UINT64_MAX;
  credit_ = kMostCredit;
  uint32_t most = space_.most;
  while (most < member_ && !space_.most.compare_exchange_weak(most, member_)) {
  }
}

GatheredWrites::~GatheredWrites() {
  if (member_ == 0) return;
  space_.at[member_] = UINT64_MAX;
  space_.members[member_].process = 0;
}

std::byte* GatheredWrites::memory(const Slot& slot) const {
  return space_.memory[static_cast<size_t>(&slot - space_.slots.data())].data();
}

bool GatheredWrites::gone(uint32_t member, bool process_is(uint32_t)) const {
  member %= kMembers;
  const Space::Member& of = space_.members[member];
  const uint32_t name_space = of.name_space;
  return member != 0 && member != member_ && name_space != 0 &&
         name_space == space_.members[member_].name_space && process_is(of.process);
}

bool GatheredWrites::takes(uint64_t length) const {
  return member_ != 0 && length >= kLeastPiece && length <= kMostPiece;
}

void GatheredWrites::count(uint64_t bytes) {
  space_.trial.count(static_cast<uint32_t>(std::max<uint64_t>(1, bytes / 4_KiB)), now);
}

// ---- Putting a piece into its slot ----

// A free one, as it was seen.
GatheredWrites::Claim GatheredWrites::open(Slot& slot, const Word& free, const Grid& grid) {
  const Word mine = free.with(Phase::opening, member_);
  if (!slot.change(free, mine)) return Claim::again;
  slot.begin = grid.begin;
  slot.cell = grid.cell;
  slot.opened = now().since_start.count();
  return slot.change(mine, {grid.cells, Phase::open, 0, free.generation}) ? Claim::mine
                                                                          : Claim::again;
}

GatheredWrites::Claim GatheredWrites::claim(const File& file, Slot& slot, const Grid& grid,
                                            Piece& piece) {
  const Word word = slot.look();
  piece.generation = word.generation;
  if (word.phase == Phase::failed) return bury(slot, word), Claim::no;
  if (word.phase != Phase::open) return Claim::busy;
  if (word.is_free()) return open(slot, word, grid);
  if (slot.begin != grid.begin || slot.cell != grid.cell) {
    // Those who are ahead wait for those behind, not these for them.
    if (slot.begin < grid.begin) return Claim::busy;
    return write_out(file, slot, word.generation) ? Claim::after_write : Claim::busy;
  }
  if (word.cells & grid.cells) {  // it must not come after what is new
    return write_out(file, slot, word.generation), Claim::no;
  }
  Word more = word;
  more.cells |= grid.cells;
  return slot.change(word, more) ? Claim::mine : Claim::again;
}

void GatheredWrites::stands_at(Offset at) {
  space_.at[member_].store(at.value, std::memory_order_relaxed);
  const int64_t credit = credit_.load(std::memory_order_relaxed);
  credit_.store(std::clamp<int64_t>(credit, 0, kMostCredit) + kCreditForPiece,
                std::memory_order_relaxed);
}

// Whoever is too far ahead would take the slots of those behind, who will need them before.
void GatheredWrites::stay_near(const Slot& slot, const Grid& grid) {
  if (grid.begin < grid.reach() || (slot.begin == grid.begin && slot.look().cells != 0)) return;
  for (unsigned naps = 0; naps < kMostNaps; ++naps) {
    const Behind those = behind(grid.begin - grid.reach());
    if (!may_wait_for(those, kNapCredit) || !nap(those)) return;
  }
}

bool GatheredWrites::put(const File& file, Offset at, const Memory& from, Piece& piece) {
  const NotCancelled until_return;
  const uint64_t length = from.shape.total().value;
  piece = {};
  const bool alone = choice_ == Choice::by_trial && !space_.trial.together();
  if (!takes(length) || (alone && !space_.trial.tries_alone())) return false;
  const Grid grid = Grid::of(at.value, length);
  Slot& slot = space_.slots[grid.slot];
  piece.slot = grid.slot;
  stay_near(slot, grid);
  if (alone) return stands_at(at), false;
  for (unsigned busy = 0, tries = 0;; ++tries) {
    const Claim claimed = claim(file, slot, grid, piece);
    if (claimed == Claim::mine) break;
    if (claimed == Claim::no || tries >= kMostTries) return false;
    if (claimed == Claim::after_write) tries += kTriesForWrite;
    if (claimed != Claim::busy) continue;
    if (++busy == kMostBusy) return make_room(file, slot), false;
    ::sched_yield();
  }
  stands_at(at);
  const uint32_t index = first_of(grid.cells);
  slot.by[index] = static_cast<uint16_t>(member_);
  copy_out(from, {memory(slot) + uint64_t(index) * grid.cell, length});
  piece.cells = piece.seen = grid.cells;
  const uint32_t filled = slot.filled.fetch_or(grid.cells) | grid.cells;
  if (filled == first_cells(grid.in_chunk)) write_out(file, slot, piece.generation);
  return true;
}

// For the next one: whoever has it may be gone, or not come back for long.
void GatheredWrites::make_room(const File& file, Slot& slot) {
  take_over(file, slot);
  write_out(file, slot, slot.look().generation);
}

// Its owner writes it, as far as it comes.
void GatheredWrites::await_end(const File& file, Slot& slot, uint32_t generation) {
  const size_t number = static_cast<size_t>(&slot - space_.slots.data());
  Patience patience(waits_.write), dead(kLookForDead);
  for (;;) {
    const Word word = slot.look();
    if (word.generation != generation || !word.is_owned()) return;
    if (word.value() == awaited_[number]) return;  // for as long already: it writes nothing more
    if (patience.over()) {
      awaited_[number] = word.value();
      return;
    }
    if (dead.over()) {
      take_over(file, slot);
      dead = Patience(kLookForDead);
    }
    ::sched_yield();
  }
}

void GatheredWrites::make_way(const File& file, Extent place) {
  const NotCancelled until_return;
  for (Slot& slot : space_.slots) {
    const Word word = slot.look();
    if (word.is_free() || word.phase == Phase::failed) continue;
    if ((word.cells & Grid::cells_within(slot.begin, slot.cell, place)) == 0) continue;
    write_out(file, slot, word.generation);
    await_end(file, slot, word.generation);
  }
}

// ---- Writing a slot ----

// As its owner from now on. False: it is not open.
bool GatheredWrites::write_out(const File& file, Slot& slot, uint32_t generation) {
  const Time began = now();
  for (;;) {
    const Word word = slot.look();
    if (word.phase != Phase::open || word.generation != generation || word.cells == 0) return false;
    if (slot.change(word, word.with(Phase::writing, member_))) break;
  }
  finish(file, slot, began);
  return true;
}

// Of those who have ended. Of whoever has not said yet who it is nobody knows.
uint32_t GatheredWrites::dead(const Slot& slot, uint32_t cells, bool process_is(uint32_t)) const {
  uint32_t dead = 0;
  for (; cells != 0; cells &= cells - 1) {
    const uint32_t index = first_of(cells);
    if (gone(slot.by[index], process_is)) dead |= 1u << index;
  }
  return dead;
}

// Those who are just copying. False: not all of them.
bool GatheredWrites::await_copies(const Slot& slot) const {
  const uint32_t cells = slot.look().cells;
  Patience patience(waits_.copy), look(kLookForDead);
  while ((slot.filled & cells) != cells) {
    ::sched_yield();
    if (patience.over()) return false;
    if (!look.over()) continue;
    look = Patience(kLookForDead);
    if (dead(slot, cells & ~slot.filled, process_is_gone) != 0) return false;
  }
  return true;
}

// Which of the cells are in the file then. Not those of processes that have ended: what they had
// begun must not come over what is written now. Nothing at all after a time in which others may
// have ceased to wait.
uint32_t GatheredWrites::write_runs(const File& file, const Slot& slot, uint32_t cells,
                                    Time began) const {
  const uint64_t cell = slot.cell, begin = slot.begin;
  if (cell < kLeastPiece || cell > kMostPiece || begin > kMaxOffset - kChunk) return 0;  // forged
  cells &= first_cells(Grid::cells_in_chunk(cell));
  uint32_t written = 0;
  Time looked{Duration(slot.opened.load())};
  while (cells != 0) {
    if (const Time at = now(); at < looked || at - looked > kSinceDeath) {
      cells &= ~dead(slot, cells, process_is_forgotten);
      looked = now();
      continue;
    }
    const uint32_t first = first_of(cells), count = length_of_run(cells);
    const uint32_t run = first_cells(count) << first;
    const int fd = file.descriptor();
    if (fd < 0 || now() - began > waits_.write / 2) break;
    if (!write_whole(fd, memory(slot) + first * cell, count * cell, begin + first * cell)) break;
    written |= run;
    cells &= ~run;
  }
  return written;
}

// The owner's.
void GatheredWrites::finish(const File& file, Slot& slot, Time began) {
  const bool all = await_copies(slot);
  const Word word = slot.look();
  slot.company = static_cast<uint32_t>(std::popcount(word.cells));
  // Those who have ceased to wait may have written something newer there.
  const auto known = static_cast<uint32_t>(slot.known.load());
  const uint32_t written = write_runs(file, slot, word.cells & slot.filled & ~known, began);
  if (all && written == word.cells) return free(slot, word);
  slot.written = written;
  if (slot.change(word, word.with(Phase::failed, 0))) tell(slot, word.generation, 0);
}

// By its owner, or, if it has failed, by whoever comes first.
void GatheredWrites::free(Slot& slot, Word word) {
  if (word.phase == Phase::failed) {
    const Word mine = word.with(Phase::opening, member_);
    if (!slot.change(word, mine)) return;
    word = mine;
  }
  slot.known = Slot::nobody_knows(word.next_generation());
  slot.filled = 0;
  for (auto& member : slot.by) member.store(0, std::memory_order_relaxed);
  slot.change(word, {0, Phase::open, 0, word.next_generation()});
}

// What is furthest behind, whoever's it is.
void GatheredWrites::write_lowest(const File& file) {
  Slot* lowest = nullptr;
  uint64_t begin = UINT64_MAX;
  uint32_t generation = 0;
  for (Slot& slot : space_.slots) {
    const Word word = slot.look();
    if (word.phase != Phase::open || word.cells == 0 || slot.begin >= begin) continue;
    begin = slot.begin;
    lowest = &slot;
    generation = word.generation;
  }
  if (lowest) write_out(file, *lowest, generation);
}

// ---- Waiting ----

// Its owner has ended within it.
void GatheredWrites::take_over(const File& file, Slot& slot) {
  const Time began = now();
  const Word word = slot.look();
  if (!word.is_owned() || !gone(word.owner, process_is_gone)) return;
  const Word mine = word.with(word.phase, member_);
  if (!slot.change(word, mine)) return;
  const bool was_freeing = slot.generation_known() != word.generation;
  if (mine.phase == Phase::opening || was_freeing) return free(slot, mine);
  finish(file, slot, began);
}

// It has failed: writers that have ended know all that they ever will.
void GatheredWrites::bury(Slot& slot, const Word& word) {
  const uint32_t rest = word.cells & ~static_cast<uint32_t>(slot.known.load());
  const uint32_t ended = dead(slot, rest, process_is_gone);
  if (ended != 0 || rest == 0) tell(slot, word.generation, ended);
}

void GatheredWrites::tell(Slot& slot, uint32_t generation, uint32_t cells) {
  uint64_t known = slot.known;
  do {
    if (known >> 32 != generation) return;
  } while (!slot.known.compare_exchange_weak(known, known | cells));
  const Word word = slot.look();
  const uint32_t rest = word.cells & ~(static_cast<uint32_t>(known) | cells);
  if (word.phase == Phase::failed && word.generation == generation && rest == 0) free(slot, word);
}

void GatheredWrites::look(Slot& slot, Piece& piece, Round& round) {
  const Word word = slot.look();
  if (word.generation != piece.generation || (word.cells & piece.cells) == 0) {  // invariant 1
    if (slot.company > piece.own) {
      together_.add();
      credit_.fetch_add(kCreditForCompany, std::memory_order_relaxed);
    }
    piece.cells = 0;
    round.news = true;
  } else if (word.phase == Phase::failed) {
    const uint32_t mine = std::exchange(piece.cells, 0);
    piece.alone = (slot.written & mine) != mine;
    tell(slot, word.generation, mine);
    round.news = true;
  } else {
    const Piece*& first = word.phase == Phase::open ? round.open : round.written;
    if (!first) first = &piece;
    if (!round.waits) round.waits = &piece;
    round.news |= word.cells != piece.seen || word.owner != piece.owner;
    piece.seen = word.cells;
    piece.owner = word.owner;
  }
}

GatheredWrites::Round GatheredWrites::look_at(std::span<Piece> pieces) {
  Round round;
  for (Piece& piece : pieces) {
    if (piece.cells != 0) look(space_.slots[piece.slot], piece, round);
  }
  return round;
}

// Those who are not as far as this place: they may come to it.
GatheredWrites::Behind GatheredWrites::behind(uint64_t place) const {
  Behind those{place};
  const uint32_t most = std::min(space_.most.load(), kMembers - 1);
  for (uint32_t i = 1; i <= most; ++i) {
    const uint64_t at = space_.at[i].load(std::memory_order_relaxed);
    if (at >= place || i == member_) continue;
    ++those.count;
    those.sum += at;
  }
  return those;
}

// What stood still before still does, most likely.
bool GatheredWrites::may_wait_for(const Behind& those, int64_t credit) {
  return those.count != 0 && those.sum != idle_.load(std::memory_order_relaxed) &&
         credit_.fetch_sub(credit, std::memory_order_relaxed) > 0;
}

// Have they moved since?
bool GatheredWrites::nap(const Behind& those) {
  ::nanosleep(&kNap, nullptr);
  if (behind(those.place).sum != those.sum) return true;
  idle_.store(those.sum, std::memory_order_relaxed);
  return false;
}

// Of those that go on from each other there may be enough already.
void GatheredWrites::write_own_runs(const File& file, std::span<Piece> pieces) {
  for (size_t first = 0; first < pieces.size();) {
    const auto same = [&](const Piece& p) { return p.slot == pieces[first].slot; };
    size_t end = first + 1;
    while (end < pieces.size() && same(pieces[end])) ++end;
    const auto own = static_cast<uint32_t>(end - first);
    for (Piece& piece : pieces.subspan(first, own)) piece.own = own;
    Slot& slot = space_.slots[pieces[first].slot];
    if (own > 1 && uint64_t(own) * slot.cell >= kEnough)
      write_out(file, slot, pieces[first].generation);
    first = end;
  }
}

// One that nobody writes yet: is it time?
void GatheredWrites::go_on(const File& file, const Piece& piece, Stillness& still) {
  Slot& slot = space_.slots[piece.slot];
  const Behind those = behind(slot.begin);
  if (still.enough() || !may_wait_for(those, 1)) {
    write_out(file, slot, piece.generation);
  } else if (!still.lasts(those.sum)) {
    ::sched_yield();
  } else if (!nap(those)) {
    write_lowest(file);
  }
}

// What nobody writes is written here. True: what is left somebody else writes, who is stopped.
bool GatheredWrites::may_give_up(const File& file, std::span<Piece> pieces) {
  for (const Piece& piece : pieces) {
    if (piece.cells != 0) write_out(file, space_.slots[piece.slot], piece.generation);
  }
  const Round round = look_at(pieces);
  if (round.open || round.news) return false;
  return std::ranges::all_of(pieces, [&](const Piece& piece) {
    return piece.cells == 0 || gone(piece.owner, process_is_stopped);
  });
}

void GatheredWrites::settle(const File& file, std::span<Piece> pieces) {
  const NotCancelled until_return;
  write_own_runs(file, pieces);
  Patience dead(kLookForDead), patience(waits_.write), longest(waits_.write * kLongest);
  Stillness still;
  bool gives_up = false;
  for (unsigned turns = 0;;) {
    const Round round = look_at(pieces);
    if (!round.waits) return;
    if (dead.over()) {
      for (const Piece& piece : pieces)
        if (piece.cells != 0) take_over(file, space_.slots[piece.slot]);
      dead = Patience(kLookForDead);
    }
    if (round.news) patience = Patience(waits_.write);
    const bool too_long = longest.over();
    const bool long_enough = patience.over();
    if (long_enough || too_long) gives_up = may_give_up(file, pieces) && long_enough;
    if (gives_up || too_long) break;
    turns = round.news ? 0 : turns + 1;
    if (round.news || (round.written && turns < kMostTurns)) {
      ::sched_yield();
    } else if (round.open) {
      go_on(file, *round.open, still);
    } else {
      ::nanosleep(&kNap, nullptr);
    }
  }
  for (Piece& piece : pieces) {
    if (const uint32_t mine = std::exchange(piece.cells, 0)) {
      tell(space_.slots[piece.slot], piece.generation, mine);
      if (gives_up) {  // it was awaited for as long as its owner may write
        awaited_[piece.slot] =
            Word{piece.seen, Phase::writing, piece.owner, piece.generation}.value();
      }
      piece.alone = true;
    }
  }
}

bool GatheredWrites::write(const File& file, Offset at, const Memory& from) {
  Piece piece;
  if (!put(file, at, from, piece)) return false;
  settle(file, {&piece, 1});
  return !piece.alone;
}

}  // namespace forebay::posix
