// WindowedCall: one rank's part in a collective call that goes window by window (plan/windows.h):
// what is the same for the ranks of one node (crew.h) and of several (two_phase.h).
//
// Errors do not stop a call: a rank that has one goes on without its bytes, so that nobody waits,
// and all learn of it when they agree at the end of the call.
#pragma once

#include <memory>
#include <new>
#include <vector>

#include "mpiio/collective.h"
#include "mpiio/rank_bytes.h"
#include "plan/own_pieces.h"

namespace forebay::mpiio {

class WindowedCall {
 protected:
  WindowedCall(Collective& kept, Transfer& transfer, const plan::Realms& realms);

  bool aggregates() const { return kept_.index_ >= 0; }
  WindowArea& own_area() { return kept_.areas_[static_cast<size_t>(kept_.index_)]; }
  bool reading() const { return transfer_.direction() == Direction::read; }
  RowTo way() const { return reading() ? RowTo::memory : RowTo::row; }

  // Before the first window. With the order of targets known all ranks take part.
  void plan_windows();
  // The next one of this aggregator's realm; without memory for it the last one, which is empty.
  std::vector<Extent> next_runs();
  bool no_more_windows() const { return !windows_ || windows_->done(); }
  // An aggregator that runs out of memory has one more window, without bytes.
  template <class Body>
  void within_memory(Body&& body) {
    try {
      body();
    } catch (const std::bad_alloc&) {
      windows_ = nullptr;
      fail(Error(ENOMEM, "out of memory"));
    }
  }

  // Between a buffer, in which the runs lie one after the other, and the Store; bytes that lie in
  // `own` pieces are moved from or to there. How many there were. Any thread.
  Result<uint64_t> move_window(std::span<const Extent> runs, std::byte* buffer,
                               const plan::OwnPieces& own);
  void fail(const Error& error);
  bool failed() const { return failed_; }

  // Are this rank's pieces so long that some may be worth no copy? To look at short ones costs
  // more.
  bool may_own_pieces() const { return may_own_pieces(static_cast<size_t>(file_.rank)); }
  bool may_own_pieces(size_t rank) const {
    return kept_.summaries_[rank].exchanged_piece >= least_own_;
  }
  bool some_may_own_pieces() const;
  uint64_t least_own() const { return least_own_; }
  // This rank's bytes of a window, in pieces as long as they are both there and in its memory:
  // fn(place in the window, memory).
  template <class Fn>
  void for_each_own(std::span<const Extent> runs, Fn&& fn);
  // Copies them, but for long ones: of a write `own` gets those, of a read it has them already.
  uint64_t copy_but_own(const WindowArea::Seen& seen, plan::OwnPieces& own);

  Collective& kept_;
  File& file_;
  Transfer& transfer_;
  const plan::Realms& realms_;
  RankBytes bytes_;
  uint64_t moved_ = 0;
  std::vector<char> open_;  // by aggregator: are there windows yet?
  size_t open_count_ = 0;

 private:
  void make_file_long();
  uint64_t window_bytes() const;

  const uint64_t least_own_;  // bytes of a piece that is not copied
  plan::TiledCursor memory_;  // to look for own pieces
  std::unique_ptr<plan::Windows> windows_;
  bool failed_ = false;
};

template <class Fn>
void WindowedCall::for_each_own(std::span<const Extent> runs, Fn&& fn) {
  uint64_t place = 0;
  Extent piece;
  plan::place_in_window(runs, bytes_.part(), [&](uint64_t at, Length stream, uint64_t length) {
    const Length in_memory = stream - bytes_.part().from;
    if (memory_.position() != in_memory) memory_.seek(in_memory);
    while (length > 0) {
      const Extent data = memory_.take(Length(length));
      const bool continues =
          piece.end() == data.offset && place + piece.length.value == at && !piece.empty();
      if (!continues && !piece.empty()) fn(place, piece);
      if (!continues) place = at, piece = {data.offset, Length()};
      piece.length += data.length;
      at += data.length.value;
      length -= data.length.value;
    }
  });
  if (!piece.empty()) fn(place, piece);
}

}  // namespace forebay::mpiio
