// What `forebay bench ibcs` moves (paper 3, section IV): the workloads, and three ways to cut a
// collective call into what each aggregator does in each iteration.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/ibcs_model.h"

namespace forebay::bench {

// A part of a target's object.
struct Piece {
  uint32_t target = 0;
  uint64_t offset = 0, bytes = 0;
};

// A file striped over targets, round robin.
struct Striping {
  uint64_t stripe = 0;
  uint32_t targets = 0;

  // How many of the file's first `end` bytes are on a target: what a contiguous part of the file
  // has there is contiguous in the object.
  uint64_t on_target(uint32_t target, uint64_t end) const;
  std::vector<Piece> pieces(uint64_t begin, uint64_t end) const;
  uint64_t file_offset(uint32_t target, uint64_t offset) const;
};

// Processes that write or read a contiguous part of a file in each of some collective calls.
struct IbcsLoad {
  uint32_t processes = 0, aggregators = 0, targets = 0;
  uint64_t calls = 0, bytes = 0;  // of one call, all processes together
  // Adds to each process what it has between two offsets of the file.
  std::function<void(uint64_t begin, uint64_t end, std::vector<uint64_t>& by_process)> owners;

  // A node for each aggregator, which is its first process; the others are dealt out in blocks.
  uint32_t node_of(uint32_t process) const { return process * aggregators / processes; }
  uint32_t process_of(uint32_t aggregator) const;
};

// IOR: every process is an aggregator and has 48 MiB of a call in one piece, 576 MiB in all.
IbcsLoad ior(uint32_t processes);
// BTIO, class C, subtype full: 162^3 cells of 5 doubles in diagonal multi-partitioning, 40 calls,
// 4 aggregators, 4 targets.
IbcsLoad btio(uint32_t processes);

enum class Strategy {
  even,     // equal contiguous realms, each from its first byte to its last: ROMIO's
  ibcs,     // the same realms, ordered by target (plan/order.h)
  cyclic,   // a target's stripes are one aggregator's realm
  rotated,  // the same, but each aggregator begins in another part of the call: then they do not
            // all need the data of one process at the same time
};
std::string name_of(Strategy strategy);

// [iteration][aggregator]: what it moves, of call `call`.
using Windows = std::vector<std::vector<std::vector<Piece>>>;
Windows windows_of(const IbcsModel& model, const IbcsLoad& load, Strategy strategy, uint64_t call);

}  // namespace forebay::bench
