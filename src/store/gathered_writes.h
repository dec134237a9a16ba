// Gathered writes: processes of one node that write small pieces among each other's into one file
// at the same time have them written together. A block of 4 KiB of a new file costs four to five
// times as much by a call of its own as within a call of 128 KiB, and the calls of many wait for
// each other at the file's lock. (Paper 1, section III.B, merges at the forwarding server, lowest
// offset first. Here nobody has to be woken: whoever is there does what is next.)
//
// A piece is copied to its place in a chunk of memory that the processes share. Whoever completes a
// chunk writes it; the others give way, and look again. A write ends when its bytes are in the
// file: nothing is promised early or kept for anybody, and a process that ends takes nothing with
// it. Nobody has to come: whoever has given way in vain writes the lowest chunk that is there,
// whoever's it is, as far as it is filled. That it is the lowest brings those together again who
// have drifted apart: who is ahead waits, for a while, for who is behind.
//
// Pieces of one length and phase (their place modulo the length) are cells of one grid; a chunk is
// 32 cells, or as many as fit into 128 KiB. Each piece is in the file by one call, so none is torn,
// whatever others write by themselves meanwhile.
//
// A chunk lives in a slot, of which there are few. The slot's word says what goes on there:
//   free (open, without cells) - opening - open - writing - free again, of the next generation
//                                                         \ failed - free again
// failed: not all of its cells are in the file. Each writer of a cell looks whether its own is, and
// says that it knows (so does one that has ceased to wait); the last one frees the slot.
//
// Invariants:
//  1. A cell is claimed, by one, before it is copied. When its slot has another generation, it is
//     in the file.
//  2. A slot that is written is written by its owner, or, when the owner's process has ended, by
//     whoever takes its place. Its memory is not changed meanwhile: all claimed cells are filled
//     before, or else the slot fails, and stays as it is until all have said that they know.
//  3. Every wait is bounded: by a few turns of others, and by Waits for one who does not finish a
//     copy, or is stopped within a write; many times that for one who is not. Who has waited so
//     long writes by itself. Processes that have ended are found out earlier.
//  4. Whatever stands in the memory, nothing is touched outside of it and of the file.
//  5. An owner calls the kernel only in the first half of Waits::write, so that nobody has ceased
//  to
//     wait for it, and writes nothing of those who ceased to wait for an earlier one. (The clock is
//     looked at before each call: what remains is an owner that is stopped for so long between that
//     look and the call.)
//  6. Nothing of a process that has ended comes over what is written later: whoever writes there by
//     itself has what is in memory written before, and for those who know nothing of the memory
//     slots that are not quite new are looked through before they are written.
// A slot whose writer was killed just after it had claimed a cell stays failed: its places are
// written by each alone. So for a slot whose owner's thread has ended by another one's exec(). Nor
// is a member's place given away again when its process was killed.
//
// A process with access to the memory can make the others write wrong bytes to the file. So it is
// for processes of one user, who may all write the file.
//
// Threads: any; not from within a signal handler that interrupts it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/clock.h"
#include "core/counters.h"
#include "core/memory.h"

namespace forebay::posix {

namespace gathered {
inline constexpr uint32_t kSlots = 32;
struct Slot;
struct Word;
struct Grid;
struct Space;
}  // namespace gathered

class GatheredWrites {
 public:
  static constexpr uint64_t kLayout = 1;  // of the memory: those of another one have other memory
  static constexpr uint64_t kLeastPiece = 64, kMostPiece = 16_KiB;
  // Bytes of the memory: all 0 at first, page-aligned, mapped for longer than any object of it.
  static uint64_t space();

  struct Waits {
    Duration copy = std::chrono::milliseconds(100);  // for one who does not finish a copy
    Duration write = std::chrono::seconds(5);        // for one who does not finish a write
  };
  // Always, or while it is the faster way (gather_trial.h).
  enum class Choice { always, by_trial };
  explicit GatheredWrites(std::byte* space) : GatheredWrites(space, Choice::by_trial, Waits()) {}
  GatheredWrites(std::byte* space, Choice choice, Waits waits);
  ~GatheredWrites();
  GatheredWrites(const GatheredWrites&) = delete;

  // The file: its descriptor, looked at just before it is used; -1: there is none any more.
  class File {
   public:
    virtual int descriptor() const = 0;

   protected:
    ~File() = default;
  };

  // One that was copied, and waits.
  struct Piece {
    uint32_t slot = 0, generation = 0;
    uint32_t cells = 0;  // bits of the slot's; none: it waits no more
    uint32_t seen = 0;   // claimed when it was last looked at
    uint32_t owner = 0;  // then
    uint32_t own = 1;    // pieces of the caller's in the slot
    bool alone = false;  // at the end: it has to be written by itself
  };

  bool takes(uint64_t length) const;
  // So much was written, one way or the other, by a write of which it takes its like.
  void count(uint64_t bytes);
  // Copies it. False: it has to be written by itself.
  bool put(const File& file, Offset at, const Memory& memory, Piece& piece);
  // Returns when each is in the file, or alone. Pieces of one caller do not overlap.
  void settle(const File& file, std::span<Piece> pieces);

  // Both, of one. False: it has to be written by itself.
  bool write(const File& file, Offset at, const Memory& memory);
  // Before something is written there by itself: no piece that is in memory, as of one who has been
  // killed, comes over it later.
  void make_way(const File& file, Extent place);

  uint64_t together() const { return together_.get(); }  // pieces that were written with others

 private:
  using Slot = gathered::Slot;
  using Word = gathered::Word;
  using Grid = gathered::Grid;
  struct Round;
  class Stillness;

  std::byte* memory(const Slot& slot) const;
  bool gone(uint32_t member, bool process_is(uint32_t)) const;

  enum class Claim { mine, again, after_write, busy, no };
  void stands_at(Offset at);
  void stay_near(const Slot& slot, const Grid& grid);
  Claim claim(const File& file, Slot& slot, const Grid& grid, Piece& piece);
  Claim open(Slot& slot, const Word& free, const Grid& grid);

  void make_room(const File& file, Slot& slot);
  void await_end(const File& file, Slot& slot, uint32_t generation);

  bool write_out(const File& file, Slot& slot, uint32_t generation);
  void finish(const File& file, Slot& slot, Time began);
  uint32_t dead(const Slot& slot, uint32_t cells, bool process_is(uint32_t)) const;
  bool await_copies(const Slot& slot) const;
  uint32_t write_runs(const File& file, const Slot& slot, uint32_t cells, Time began) const;
  void write_lowest(const File& file);

  struct Behind {
    uint64_t place = 0;
    uint32_t count = 0;
    uint64_t sum = 0;  // of their places
  };
  Behind behind(uint64_t place) const;
  bool may_wait_for(const Behind& those, int64_t credit);
  bool nap(const Behind& those);
  void write_own_runs(const File& file, std::span<Piece> pieces);
  void look(Slot& slot, Piece& piece, Round& round);
  Round look_at(std::span<Piece> pieces);
  void go_on(const File& file, const Piece& piece, Stillness& still);
  bool may_give_up(const File& file, std::span<Piece> pieces);
  void take_over(const File& file, Slot& slot);
  void bury(Slot& slot, const Word& word);
  void tell(Slot& slot, uint32_t generation, uint32_t cells);
  void free(Slot& slot, Word word);

  gathered::Space& space_;
  const Choice choice_;
  const Waits waits_;
  uint32_t member_ = 0;  // 0: there is no place for it
  std::atomic<int64_t> credit_{0};
  std::array<std::atomic<uint64_t>, gathered::kSlots> awaited_{};  // owners' words, in vain
  std::atomic<uint64_t> idle_{0};  // the sum of those behind who stood still
  Counter together_;
};

}  // namespace forebay::posix
