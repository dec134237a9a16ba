#include "mpiio/joint_writes.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <new>

#include "core/rows.h"
#include "plan/coverage.h"

namespace forebay::mpiio {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kPage = 4096;
constexpr size_t kMostBlocks = 4096;  // of a part of a copy
// A range in which a team's bytes are fewer has too many windows for them.
constexpr uint64_t kSparse = 16;
// Scattered bytes take about a nanosecond each. A fourth of that is worth waiting, but not more
// than who has been told to wait does: who writes much may be alone all the same.
constexpr Clock::duration kMuch = std::chrono::milliseconds(2);
constexpr auto kOfAByte = std::chrono::duration<double, std::nano>(0.25);

uint64_t pages(uint64_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

uint64_t bit(int rank) {
  return uint64_t{1} << rank;
}

template <class Fn>
void for_each_rank(uint64_t ranks, Fn&& fn) {
  for (; ranks; ranks &= ranks - 1) fn(std::countr_zero(ranks));
}

}  // namespace

uint64_t JointWrites::space(int ranks) {
  return pages(sizeof(Head)) + pages(static_cast<uint64_t>(ranks) * sizeof(Slot)) +
         kBuffers * kWindow;
}

JointWrites::JointWrites(std::byte* space, int rank, int ranks)
    : head_(reinterpret_cast<Head*>(space)),
      slots_(reinterpret_cast<Slot*>(space + pages(sizeof(Head)))),
      buffers_(space + pages(sizeof(Head)) + pages(static_cast<uint64_t>(ranks) * sizeof(Slot))),
      rank_(rank),
      ranks_(ranks) {}

void JointWrites::renew() {
  skipped_ = 0;
  joined_ = 0;
  if (rank_ == 0) head_->company.store(0);
}

bool JointWrites::write(const plan::ViewPart& part, const plan::TiledMap& memory, const Write& by,
                        Patience patience) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  if (skipped_ > 0 && patience == Patience::sensible) return --skipped_, false;
  wait_for_last_team();
  if (!describe(part, patience)) return false;
  head_->waiting.fetch_or(bit(rank_));
  for (;;) {
    const uint32_t seen = head_->events.value.load();
    const Verdict verdict = slot(rank_).verdict.load();
    if (verdict == Verdict::alone) return alone();
    if (verdict == Verdict::member) return take_part({part, memory, by});
    if (head_->busy.load() == 0) wait_for_company(part.length.value, patience);
    uint32_t idle = 0;
    if (slot(rank_).verdict.load() != Verdict::none) continue;
    if (head_->busy.compare_exchange_strong(idle, 1))
      choose_team();
    else
      head_->events.wait([&](uint32_t n) { return n != seen; }, [] {});
  }
}

// This rank may have left it before others have, who still look at what it described.
void JointWrites::wait_for_last_team() {
  head_->events.wait(
      [&](uint32_t) { return !(head_->busy.load() && (head_->members.load() & bit(rank_))); },
      [] {});
}

bool JointWrites::describe(const plan::ViewPart& part, Patience patience) {
  std::vector<int64_t> numbers{static_cast<int64_t>(part.from.value),
                               static_cast<int64_t>(part.length.value)};
  if (!part.view.encode(numbers, kMostNumbers - numbers.size())) return false;
  const Extent bounds = part.bounds();
  Slot& mine = slot(rank_);
  mine.begin = bounds.offset.value, mine.end = bounds.end().value;
  mine.bytes = part.length.value;
  mine.patience = patience;
  mine.count = numbers.size();
  std::copy(numbers.begin(), numbers.end(), mine.numbers);
  mine.verdict.store(Verdict::none);
  return true;
}

// Whoever writes alone now, will for a while.
bool JointWrites::alone() {
  constexpr unsigned kMost = 6;
  in_vain_ = std::min(in_vain_ + 1, kMost);
  skipped_ = (1u << in_vain_) - 2;
  return false;
}

void JointWrites::wait_for_company(uint64_t bytes, Patience patience) {
  const auto limit =
      Clock::now() + (patience == Patience::much
                          ? kMuch
                          : std::min(kMuch, std::chrono::duration_cast<Clock::duration>(
                                                kOfAByte * static_cast<double>(bytes))));
  const uint32_t usual = head_->company.load();
  const int company = usual ? static_cast<int>(usual) : ranks_;
  const auto complete = [&] { return std::popcount(head_->waiting.load()) >= company; };
  if (complete()) return head_->events.add_and_wake();
  head_->events.wait(
      [&](uint32_t) {
        return complete() || head_->busy.load() || slot(rank_).verdict.load() != Verdict::none ||
               Clock::now() >= limit;
      },
      [] {});
}

// Ranks in the order of where they begin. Between two there is never room for a window, so every
// window of a team has somebody to write it.
struct JointWrites::Group {
  uint64_t begin = 0, end = 0;
  uint64_t ranks = 0;
  uint64_t bytes = 0;
  int among_others = 0;  // ranks that begin within the range of one before

  bool near(const Slot& next) const { return next.begin < end + kWindow; }
  void add(int rank, const Slot& next) {
    const bool meets = next.begin < end || next.patience == Patience::much;
    among_others += ranks != 0 && meets ? 1 : 0;
    end = std::max(end, next.end);
    ranks |= bit(rank);
    bytes += next.bytes;
  }
  bool worth_it() const {
    return 2 * among_others >= std::popcount(ranks) && among_others > 0 &&
           (end - begin) / kSparse <= bytes;
  }
};

// Those who wait and whose ranges meet, from the lowest on, and who lies beside them. Others are
// told to go on alone, or wait for the next team.
void JointWrites::choose_team() {
  const uint64_t waiting = head_->waiting.exchange(0);
  const auto came = static_cast<uint32_t>(std::popcount(waiting));
  const uint32_t usual = head_->company.load();
  head_->company.store(came >= usual ? came : usual - 1);
  std::array<int, kMostRanks> ranks;
  size_t count = 0;
  for_each_rank(waiting, [&](int rank) { ranks[count++] = rank; });
  std::sort(ranks.begin(), ranks.begin() + count,
            [&](int a, int b) { return slot(a).begin < slot(b).begin; });
  Group team;
  uint64_t later = 0;
  for (size_t i = 0; i < count;) {
    Group group{slot(ranks[i]).begin, slot(ranks[i]).begin};
    do group.add(ranks[i], slot(ranks[i]));
    while (++i < count && group.near(slot(ranks[i])));
    if (!group.worth_it())
      for_each_rank(group.ranks, [&](int rank) { slot(rank).verdict.store(Verdict::alone); });
    else if (team.ranks)
      later |= group.ranks;
    else
      team = group;
  }
  head_->waiting.fetch_or(later);
  begin_work(team);
}

void JointWrites::begin_work(const Group& team) {
  head_->members = team.ranks;
  head_->begin = team.begin, head_->end = team.end;
  head_->inside.store(static_cast<uint32_t>(std::popcount(team.ranks)));
  head_->failed.store(0);
  for (Buffer& one : head_->buffers) one.written.value.store(0), one.copied.store(0);
  for_each_rank(team.ranks, [&](int rank) { slot(rank).verdict.store(Verdict::member); });
  if (!team.ranks) head_->busy.store(0);
  head_->events.add_and_wake();
}

JointWrites::Range JointWrites::range_of(uint64_t window) const {
  const uint64_t first = head_->begin / kWindow * kWindow + window * kWindow;
  return {std::max(first, head_->begin), std::min(first + kWindow, head_->end)};
}

uint32_t JointWrites::visitors(Range range) const {
  uint32_t count = 0;
  for_each_rank(head_->members, [&](int rank) {
    count += slot(rank).begin < range.end && range.begin < slot(rank).end;
  });
  return count;
}

bool JointWrites::take_part(const Own& own) {
  in_vain_ = 0;
  const uint64_t base = head_->begin / kWindow;
  const uint64_t first = slot(rank_).begin / kWindow - base;
  const uint64_t last = (slot(rank_).end - 1) / kWindow - base;
  for (uint64_t window = first; window <= last; ++window) visit(window, own);
  for (uint64_t window = last - std::min(last - first, kBuffers - 1); window <= last; ++window)
    head_->buffers[window % kBuffers].written.wait(
        [&](uint32_t n) { return n > window / kBuffers; }, [] {});
  const bool good = !head_->failed.load();
  joined_ += good ? 1 : 0;
  parts_.clear();
  if (head_->inside.fetch_sub(1) == 1) {
    head_->busy.store(0);
    head_->events.add_and_wake();
  }
  return good;
}

// When what was in its buffer before has been written. Out of memory must not keep others waiting.
void JointWrites::visit(uint64_t window, const Own& own) {
  const Range range = range_of(window);
  Buffer& state = head_->buffers[window % kBuffers];
  state.written.wait([&](uint32_t n) { return n >= window / kBuffers; }, [] {});
  map_pages(window);
  try {
    copy(range, buffer(window), own);
  } catch (const std::bad_alloc&) {
    head_->failed.store(1);
  }
  if (state.copied.fetch_add(1) + 1 < visitors(range)) return;
  try {
    if (!head_->failed.load()) store(range, buffer(window), own.by);
  } catch (const std::bad_alloc&) {
    head_->failed.store(1);
  }
  state.copied.store(0);
  state.written.add_and_wake();
}

// At the first visit. Faults of reads map several pages at a time, for writing too, since nobody
// counts changes of this memory; each fault of a write would map one.
void JointWrites::map_pages(uint64_t window) {
  const uint64_t mask = uint64_t{1} << window % kBuffers;
  if (!(mapped_ & mask)) ::madvise(buffer(window), kWindow, MADV_POPULATE_READ);
  mapped_ |= mask;
}

// A byte lies in the buffer as far from its beginning as in the file from the window's.
void JointWrites::copy(Range range, std::byte* buffer, const Own& own) {
  const plan::ViewPart mine =
      own.part.within({Offset(range.begin), Length(range.end - range.begin)});
  plan::TransferCursor cursor(mine.view, mine.from, own.memory, mine.from - own.part.from,
                              mine.length);
  while (!cursor.done()) {
    auto both = cursor.next(mine.length, kMostBlocks);
    const Memory memory{nullptr, std::move(both.memory)};
    ExtentCursor from(memory.shape);
    for (ExtentCursor to(both.file); !to.done();) {
      const forebay::Row row = row_at(both.file, to);
      copy_row(row, buffer + row.first.offset.value % kWindow, memory, from, RowTo::row);
      to.advance(Length(row.first.length.value * row.count));
    }
  }
}

std::vector<plan::ViewPart> JointWrites::parts_of_team() const {
  std::vector<plan::ViewPart> parts;
  for_each_rank(head_->members, [&](int rank) {
    std::span<const int64_t> numbers(slot(rank).numbers, slot(rank).count);
    auto part = plan::ViewPart::decode(numbers);
    FOREBAY_ASSERT(part.has_value());  // this library wrote them
    parts.push_back(std::move(*part));
  });
  return parts;
}

void JointWrites::store(Range range, std::byte* buffer, const Write& by) {
  if (parts_.empty()) parts_ = parts_of_team();
  const Extent window{Offset(range.begin), Length(range.end - range.begin)};
  plan::Coverage coverage(
      parts_,
      [&](Offset from) -> std::optional<Extent> {
        if (from >= window.end()) return std::nullopt;
        const Offset begin = std::max(from, window.offset);
        return Extent{begin, window.end() - begin};
      },
      window);
  std::vector<Extent> runs = coverage.next(kWindow, SIZE_MAX), memory = runs;
  const uint64_t at = reinterpret_cast<uintptr_t>(buffer);
  for (Extent& run : memory) run.offset = Offset(at + run.offset.value % kWindow);
  auto where = Extents::make(std::move(runs)), from = Extents::make(std::move(memory));
  FOREBAY_ASSERT(where.has_value() && from.has_value());
  if (!by(std::move(*where), std::move(*from))) head_->failed.store(1);
}

}  // namespace forebay::mpiio
