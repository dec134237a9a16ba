// What processes share that gather their writes (gathered_writes.h): its slots, with the memory of
// a chunk each, and the members. Only gathered_writes.cc includes it.
//
// Any of the processes may have written anything there: numbers are looked at once, and checked.
// Its layout has a number, GatheredWrites::kLayout, because the processes' libraries may differ.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/extent_set.h"
#include "core/memory.h"
#include "store/gather_trial.h"
#include "store/gathered_writes.h"

namespace forebay::posix::gathered {

inline constexpr uint64_t kChunk = 128_KiB;  // at most: within a longer call a block costs no less
inline constexpr uint32_t kMostCells = 32;
inline constexpr uint32_t kMembers = 1024;  // the first is nobody

// Sets of cells, as bits.
inline uint32_t first_cells(uint32_t count) {
  return count == 32 ? ~0u : (1u << count) - 1;
}
inline uint32_t first_of(uint32_t cells) {
  return static_cast<uint32_t>(std::countr_zero(cells));
}
// From the first on: how many follow each other.
inline uint32_t length_of_run(uint32_t cells) {
  return static_cast<uint32_t>(std::countr_one(cells >> first_of(cells)));
}

// What a slot's word says.
enum class Phase : uint32_t { open, opening, writing, failed };
struct Word {
  uint32_t cells = 0;  // claimed
  Phase phase = Phase::open;
  uint32_t owner = 0;
  uint32_t generation = 0;

  static constexpr int kGenerationBits = 20, kPhaseAt = 30, kCellsAt = 32;
  static constexpr uint32_t kGenerations = 1u << kGenerationBits;
  static_assert(kMembers == 1u << (kPhaseAt - kGenerationBits));

  static Word of(uint64_t w) {
    return {static_cast<uint32_t>(w >> kCellsAt), static_cast<Phase>(w >> kPhaseAt & 3),
            static_cast<uint32_t>(w >> kGenerationBits) % kMembers,
            static_cast<uint32_t>(w) % kGenerations};
  }
  uint64_t value() const {
    return uint64_t(cells) << kCellsAt | uint64_t(phase) << kPhaseAt |
           uint64_t(owner) << kGenerationBits | generation;
  }
  Word with(Phase next, uint32_t by) const { return {cells, next, by, generation}; }
  bool is_free() const { return phase == Phase::open && cells == 0; }
  bool is_owned() const { return phase == Phase::opening || phase == Phase::writing; }
  uint32_t next_generation() const { return (generation + 1) % kGenerations; }
};

struct alignas(64) Slot {
  std::atomic<uint64_t> word;
  std::atomic<uint32_t> filled;
  // What it holds: set while it is opened.
  std::atomic<uint32_t> cell;  // bytes
  std::atomic<uint64_t> begin;
  std::atomic<int64_t> opened;  // when
  // The generation, and the cells whose writers know what has become of them, or do not wait for
  // it. Set to the next one first when the slot is freed.
  std::atomic<uint64_t> known;
  std::atomic<uint32_t> written;  // once it failed: the cells that are in the file
  std::atomic<uint32_t> company;  // cells of its last write
  // Members who have claimed a cell; 0: not said yet.
  alignas(64) std::array<std::atomic<uint16_t>, kMostCells> by;

  Word look() const { return Word::of(word.load()); }
  bool change(const Word& from, const Word& to) {
    uint64_t expected = from.value();
    return word.compare_exchange_strong(expected, to.value());
  }
  static uint64_t nobody_knows(uint32_t generation) { return uint64_t(generation) << 32; }
  uint32_t generation_known() const { return static_cast<uint32_t>(known.load() >> 32); }
};

struct Space {
  struct Member {
    std::atomic<uint32_t> process;     // 0: free
    std::atomic<uint32_t> name_space;  // of its number; 0: nobody can tell
  };
  std::array<Member, kMembers> members;
  std::array<std::atomic<uint64_t>, kMembers> at;  // the place of each one's last piece
  std::atomic<uint32_t> most;                      // the last member that there has been
  alignas(64) GatherTrial trial;
  std::array<Slot, kSlots> slots;
  alignas(4096) std::array<std::array<std::byte, kChunk>, kSlots> memory;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<double>::is_always_lock_free);

// Where a piece belongs.
struct Grid {
  uint64_t begin = 0;     // of its chunk, in the file
  uint32_t cell = 0;      // bytes
  uint32_t in_chunk = 0;  // cells
  uint32_t slot = 0;
  uint32_t cells = 0;  // the piece's

  static uint32_t cells_in_chunk(uint64_t cell) {
    return static_cast<uint32_t>(std::min<uint64_t>(kMostCells, kChunk / cell));
  }
  // Whoever is further ahead than this would take the slots of those behind.
  uint64_t reach() const { return uint64_t(cell) * in_chunk * (kSlots - 1); }
  // Those that follow each other have slots of their own, and parts of a file that lie far apart,
  // as each process may have one, are elsewhere.
  static uint32_t slot_of(uint64_t chunk, uint64_t phase) {
    return static_cast<uint32_t>((chunk + (chunk >> 7) * 11 + phase) % kSlots);
  }
  // The cells of a chunk that meet a place.
  static uint32_t cells_within(uint64_t begin, uint64_t cell, Extent place) {
    const uint64_t from = place.offset.value, to = place.end().value;
    if (cell == 0 || to <= begin || from >= begin + cell * kMostCells || from >= to) return 0;
    const uint64_t first = from <= begin ? 0 : (from - begin) / cell;
    const uint64_t last = std::min<uint64_t>((to - 1 - begin) / cell, kMostCells - 1);
    return first_cells(static_cast<uint32_t>(last) + 1) &
           ~first_cells(static_cast<uint32_t>(first));
  }
  static Grid of(uint64_t at, uint64_t length) {
    const uint32_t in_chunk = cells_in_chunk(length);
    const uint64_t phase = at % length, index = at / length, chunk = index / in_chunk;
    return {phase + chunk * in_chunk * length, static_cast<uint32_t>(length), in_chunk,
            slot_of(chunk, phase), 1u << index % in_chunk};
  }
};

}  // namespace forebay::posix::gathered
