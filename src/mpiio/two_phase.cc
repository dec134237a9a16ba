#include "mpiio/two_phase.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "mpiio/process.h"

namespace forebay::mpiio {
namespace {

// Of a rank's memory, of whatever shape: fn(address, length) for each piece.
template <class Fn>
void for_each_piece(plan::TiledCursor& memory, Length position, uint64_t length, Fn&& fn) {
  if (memory.position() != position) memory.seek(position);
  while (length > 0) {
    const Extent piece = memory.take(Length(length));
    fn(reinterpret_cast<std::byte*>(piece.offset.value), piece.length.value);
    length -= piece.length.value;
  }
}

// What the first bytes of them hold.
void cut(std::vector<Extent>& runs, uint64_t bytes) {
  size_t whole = 0;
  for (; whole < runs.size() && runs[whole].length.value <= bytes; ++whole)
    bytes -= runs[whole].length.value;
  if (bytes > 0 && whole < runs.size()) runs[whole++].length = Length(bytes);
  runs.resize(whole);
}

// A part's bytes of a window, in parts of so many bytes each, none of which is looked for from the
// beginning.
class InWindow {
 public:
  InWindow(std::span<const Extent> runs, const plan::ViewPart& part, uint64_t bytes) : part_(part) {
    plan::find_in_runs(runs, part, [&](size_t run, Offset, Length stream, uint64_t length) {
      while (length > 0) {
        if (bytes_ % bytes == 0) begins_.push_back({stream, run});
        const uint64_t now = std::min(length, bytes - bytes_ % bytes);
        stream += Length(now), length -= now, bytes_ += now;
      }
    });
  }
  uint64_t bytes() const { return bytes_; }
  size_t parts() const { return begins_.size(); }
  // As plan::find_in_runs(), in the same runs.
  template <class Fn>
  void find(std::span<const Extent> runs, size_t number, Fn&& fn) const {
    const Length stream = begins_[number].stream;
    const size_t first = begins_[number].run;
    const Length end =
        number + 1 < begins_.size() ? begins_[number + 1].stream : part_.from + part_.length;
    plan::find_in_runs(runs.subspan(first), plan::ViewPart{part_.view, stream, end - stream},
                       [&](size_t run, Offset at, Length from, uint64_t length) {
                         fn(first + run, at, from, length);
                       });
  }

 private:
  struct Begin {
    Length stream;
    size_t run;
  };
  plan::ViewPart part_;
  uint64_t bytes_ = 0;
  std::vector<Begin> begins_;
};

std::span<const Extent> runs_in(std::span<const Extent> runs, Extent region) {
  const auto begin = std::partition_point(
      runs.begin(), runs.end(), [&](const Extent& run) { return run.end() <= region.offset; });
  const auto end = std::partition_point(
      begin, runs.end(), [&](const Extent& run) { return run.offset < region.end(); });
  return {begin, end};
}

}  // namespace

TwoPhase::TwoPhase(Collective& kept, Transfer& transfer, const plan::Realms& realms)
    : WindowedCall(kept, transfer, realms),
      memory_(transfer.memory(), Length(), bytes_.part().length),
      late_(kept.by_alltoallw()),
      exchange_(file_.comm, file_.ranks, kept.by_alltoallw(), kept.made_for_.buffer_half(),
                kept.order_.known()) {
  for (size_t a = 0; a < open_.size(); ++a)
    if (!kept_.near_[a] && !concerned(static_cast<size_t>(file_.rank), a))
      open_[a] = 0, --open_count_;
  if (!aggregates()) return;
  for (size_t rank = 0; rank < kept_.rank_near_.size(); ++rank) {
    if (kept_.rank_near_[rank])
      ++near_ranks_;
    else if (concerned(rank, static_cast<size_t>(kept_.index_)))
      far_ranks_.push_back(rank);
  }
}

TwoPhase::~TwoPhase() {
  if (end_.valid()) end_.wait();
}

void TwoPhase::run() {
  plan_windows();
  if (aggregates()) open_next();
  // The windows keep aggregators in step from the third on: of the second nobody waits for a half
  // to be free, and it may lie on the target that another one's first is read from.
  if (reading() && kept_.order_.known()) PMPI_Barrier(file_.comm);
  for (; open_count_ > 0; ++step_) {
    step();
    exchange_.end_sends(aggregates() ? step_ : step_ + 1);
    if (reading() && kept_.order_.known()) PMPI_Barrier(file_.comm);
  }
  end_store();
  if (reading())  // the buffers are free when the call is over
    for (uint32_t left = std::min(windows_opened_, 2u); left > 0; --left)
      free_half_of(own_area().planned() - left);
  exchange_.end_sends(UINT32_MAX);
  transfer_.set_moved(reading() ? moved_ : bytes_.part().length.value);
}

void TwoPhase::step() {
  if (!storing()) {
    end_store();
    open_next_if_any();
  }
  visit_all();
  if (reading() && late_ && !opened_.empty())
    send_all(opened_.front(), own_area().buffer(first_number()), step_);
  exchange_.complete(step_);
  if (!reading() && !opened_.empty()) own_area().wait_for_all(first_number(), progress);
  end_store();
  if (!reading() && kept_.order_.known()) PMPI_Barrier(file_.comm);  // nobody stores the one before
  if (!opened_.empty()) move_first();
  if (opened_.empty()) open_next_if_any();
}

void TwoPhase::visit_all() {
  const size_t count = open_.size();
  const size_t first =
      aggregates() ? static_cast<size_t>(kept_.index_) : static_cast<size_t>(file_.rank) % count;
  for (const bool near : {true, false}) {
    for (size_t i = 0; i < count; ++i) {
      const size_t a = (first + i) % count;
      if (!open_[a] || (kept_.near_[a] != 0) != near) continue;
      near ? visit_near(a) : visit_far(a);
    }
  }
}

void TwoPhase::move_first() {
  const uint32_t number = first_number();
  Window window = std::move(opened_.front());
  opened_.pop_front();
  if (!reading()) store(std::move(window), number);
}

void TwoPhase::open_next_if_any() {
  if (aggregates() && !no_more_windows()) open_next();
}

// Of a read.
void TwoPhase::free_half_of(uint32_t number) {
  own_area().wait_for_all(number, progress);
  own_area().release(number);
}

void TwoPhase::open_next() {
  Window window;
  window.own = plan::OwnPieces(least_own());
  window.runs = next_runs();
  if (near_ranks_ < kept_.rank_near_.size()) {
    within_memory([&] { window.places = plan::places_of(window.runs); });
    if (window.places.empty()) window.runs.clear();  // without memory for them
  }
  for (const Extent& run : window.runs) window.bytes += run.length.value;
  const uint32_t number = own_area().planned();
  if (reading() && windows_opened_ >= 2) free_half_of(number - 2);
  if (windows_opened_ > 0) exchange_.end_sends(windows_opened_ - 1);  // those out of this half
  const bool last = no_more_windows();
  const uint64_t there = reading() ? fill(window, own_area().buffer(number)) : window.bytes;
  if (reading()) own_area().filled(number, there);
  own_area().plan(window.runs, {.bytes = window.bytes, .ranks = near_ranks_, .last = last});
  cut(window.runs, there);  // far ranks need not know of more
  tell_far_ranks(window, last);
  opened_.push_back(std::move(window));
  if (!reading()) receive_all(opened_.back(), own_area().buffer(number));
  if (reading() && !late_) send_all(opened_.back(), own_area().buffer(number), windows_opened_);
  ++windows_opened_;
}

void TwoPhase::receive_all(const Window& window, std::byte* buffer) {
  for_each_far_rank([&](size_t rank) {
    exchange_.receive(static_cast<int>(rank), windows_opened_, in_window(rank, window, buffer));
  });
}

// How many bytes there were.
uint64_t TwoPhase::fill(Window& window, std::byte* buffer) {
  if (window.bytes == 0 || failed()) return 0;
  if (may_own_pieces() && plan::nobody_shares(kept_.parts_, window.runs))
    for_each_own(window.runs, [&](uint64_t at, Extent memory) { window.own.take(at, memory); });
  auto moved = move_window(window.runs, buffer, window.own);
  if (moved) return *moved;
  fail(moved.error());
  return 0;
}

void TwoPhase::store(Window window, uint32_t number) {
  if (window.bytes == 0 || failed()) return own_area().release(number);
  stored_ = std::move(window);
  stored_number_ = number;
  std::promise<Result<uint64_t>> end;
  end_ = end.get_future();
  Process::get().background().begin(
      [this, buffer = own_area().buffer(number), end = std::move(end)]() mutable {
        end.set_value(move_window(stored_.runs, buffer, stored_.own));
      });
}

bool TwoPhase::storing() const {
  return end_.valid() && end_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
}

// Data of the next window comes meanwhile.
void TwoPhase::end_store() {
  constexpr auto kBetweenLooks = std::chrono::microseconds(100);
  if (!end_.valid()) return;
  while (end_.wait_for(kBetweenLooks) != std::future_status::ready) {
    progress();
    exchange_.progress();
  }
  if (auto moved = end_.get(); !moved) fail(moved.error());
  own_area().release(stored_number_);
}

void TwoPhase::visit_near(size_t aggregator) {
  WindowArea& area = kept_.areas_[aggregator];
  const uint32_t number = kept_.next_window_[aggregator]++;
  area.enter(number, progress);
  if (reading()) area.wait_until_filled(number, progress);
  auto seen = area.see(number);
  if (!reading()) seen.there = seen.about.bytes;
  if (seen.about.last) open_[aggregator] = 0, --open_count_;
  moved_ += static_cast<int>(aggregator) == kept_.index_ && may_own_pieces()
                ? copy_but_own(seen, opened_.front().own)
                : bytes_.copy(seen.runs, seen.buffer, seen.there, way());
  area.leave(number);
}

// The window as a far rank knows it: what it has itself of it lies in these.
std::vector<Extent> TwoPhase::learn_runs(size_t aggregator) {
  Exchange::News news = exchange_.learn(kept_.aggregators_[aggregator]);
  if (news.header.last) open_[aggregator] = 0, --open_count_;
  if (!news.runs.empty()) return std::move(news.runs);
  std::vector<Extent> runs;
  const Offset to(news.header.to);
  const plan::Ranges ranges = plan::ranges_of(realms_[aggregator]);
  for (Offset at(news.header.from); at < to;) {
    const auto range = ranges(at);
    if (!range || range->offset >= to) break;
    const Offset end = std::min(range->end(), to);
    runs.push_back({range->offset, end - range->offset});
    at = end;
  }
  return runs;
}

// The same for both sides of an exchange.
bool TwoPhase::copied(size_t rank) const {
  return kept_.summaries_[rank].exchanged_piece < Exchange::kStraightPiece;
}

// This rank's bytes of a window, where they lie in its memory.
Scattered TwoPhase::in_memory(std::vector<Extent> runs) {
  const auto visit = [this](const Scattered::Piece& fn) {
    return [this, &fn](size_t, Offset, Length stream, uint64_t length) {
      for_each_piece(memory_, stream - bytes_.part().from, length, fn);
    };
  };
  if (!copied(static_cast<size_t>(file_.rank))) {
    const uint64_t bytes = plan::bytes_in_window(runs, bytes_.part());
    return {bytes, 0, [this, visit, runs = std::move(runs)](size_t, const Scattered::Piece& fn) {
              plan::find_in_runs(runs, bytes_.part(), visit(fn));
            }};
  }
  InWindow mine(runs, bytes_.part(), exchange_.part_bytes());
  const uint64_t bytes = mine.bytes();
  const size_t parts = mine.parts();
  return {bytes, parts,
          [visit, runs = std::move(runs), mine = std::move(mine)](
              size_t part, const Scattered::Piece& fn) { mine.find(runs, part, visit(fn)); }};
}

void TwoPhase::visit_far(size_t aggregator) {
  const int other = kept_.aggregators_[aggregator];
  Scattered mine = in_memory(learn_runs(aggregator));
  moved_ += mine.bytes;
  if (reading())
    exchange_.receive(other, step_, std::move(mine));
  else
    exchange_.send(other, step_, std::move(mine));
}

// A rank's bytes of a window, where they lie in its buffer. The window must stay.
Scattered TwoPhase::in_window(size_t rank, const Window& window, std::byte* buffer) const {
  const plan::ViewPart& part = kept_.parts_[rank];
  const auto visit = [buffer, &window](const Scattered::Piece& fn) {
    return [buffer, &window, &fn](size_t run, Offset at, Length, uint64_t length) {
      fn(buffer + window.places[run] + (at - window.runs[run].offset).value, length);
    };
  };
  if (!copied(rank))
    return {plan::bytes_in_window(window.runs, part), 0,
            [visit, &part, &window](size_t, const Scattered::Piece& fn) {
              plan::find_in_runs(window.runs, part, visit(fn));
            }};
  InWindow its(window.runs, part, exchange_.part_bytes());
  const uint64_t bytes = its.bytes();
  const size_t parts = its.parts();
  return {bytes, parts,
          [visit, &window, its = std::move(its)](size_t number, const Scattered::Piece& fn) {
            its.find(window.runs, number, visit(fn));
          }};
}

template <class Fn>
void TwoPhase::for_each_far_rank(Fn&& fn) const {
  for (const size_t rank : far_ranks_) fn(rank);
}

// Does a far rank have to do with an aggregator? Not if its region does not meet the realm; but if
// all ranks meet in each step, each needs to know of all windows. Both compute it alike.
bool TwoPhase::concerned(size_t rank, size_t aggregator) const {
  if (kept_.by_alltoallw() || kept_.order_.known()) return true;
  const Extent region = kept_.summaries_[rank].region();
  if (region.empty()) return false;
  const auto range = plan::ranges_of(realms_[aggregator])(region.offset);
  return range && range->offset < region.end();
}

// May far ranks find their bytes of the window by the realm, from its first to its last byte? Not
// if that has more ranges there than the window has runs: those of a cyclic one, between pieces far
// apart, are millions.
bool TwoPhase::told_by_realm(const Window& window) const {
  if (kept_.order_.known()) return false;
  const plan::Ranges ranges = plan::ranges_of(realms_[static_cast<size_t>(kept_.index_)]);
  const Offset end = window.runs.back().end();
  size_t left = window.runs.size();
  for (auto range = ranges(window.runs.front().offset); range && range->offset < end;
       range = ranges(range->end()))
    if (left-- == 0) return false;
  return true;
}

// Every rank that has to know of it, once for all, and of its runs what lies in the rank's region.
void TwoPhase::tell_far_ranks(const Window& window, bool last) {
  if (far_ranks_.empty()) return;
  const Exchange::Header none{.last = last};
  Exchange::Header header = none;
  Exchange::SharedRuns runs;
  if (!window.runs.empty()) {
    header.from = window.runs.front().offset.value;
    header.to = window.runs.back().end().value;
    if (!told_by_realm(window)) runs.all = std::make_shared<std::vector<Extent>>(window.runs);
  }
  for_each_far_rank([&](size_t rank) {
    if (runs.all) runs.part = runs_in(*runs.all, kept_.summaries_[rank].region());
    const bool nothing = runs.all && runs.part.empty();
    exchange_.tell(static_cast<int>(rank), windows_opened_, nothing ? none : header, runs);
  });
}

// When it has been read, while far ranks are still busy with the window before; by MPI_Alltoallw in
// its own step, after the visits.
void TwoPhase::send_all(const Window& window, std::byte* buffer, uint32_t step) {
  for_each_far_rank([&](size_t rank) {
    exchange_.send(static_cast<int>(rank), step, in_window(rank, window, buffer));
  });
}

}  // namespace forebay::mpiio
