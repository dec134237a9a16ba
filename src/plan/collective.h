// What a collective call does, chosen from what is known of it (paper 5, chapter 4): each rank by
// itself, or together in two phases; who aggregates; which realms. Every rank computes the same
// from the same facts, so nobody has to be told.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/op.h"
#include "plan/realms.h"
#include "plan/windows.h"

namespace forebay::plan {

enum class Wish : uint8_t { automatic, enable, disable };
Wish wish_of(std::string_view hint);

struct MethodFacts {
  std::span<const Extent> regions;  // by rank; empty: no data
  bool describable = true;          // every rank's view is monotone
  bool atomic = false;
  bool kept = false;   // aggregators keep what they have moved
  uint64_t bytes = 0;  // of all ranks
  uint64_t piece = 0;  // the smallest of the ranks' mean ones
  // What each rank moves as well by itself: pieces from this size on; and those of any size, if
  // each rank names much of what lies between its first and last, and of each page, unless pieces
  // are worth a call each.
  uint64_t large_piece = UINT64_MAX;
  bool cheap_if_dense = false;
  Wish wish = Wish::automatic;
};
struct Method {
  bool together = false;
  std::string_view why;
};
Method choose_method(const MethodFacts& facts);

// Ranks that aggregate, those of a node one after the other, so that what neighbours in the file
// share, they share too (a node's connection to a server, its caches): `limit` in all (0: no limit
// of its own), at most `per_node` of a node, dealt out to the nodes evenly.
std::vector<int> choose_aggregators(std::span<const uint32_t> node_of_rank, uint32_t limit,
                                    uint32_t per_node);
// Of cb_config_list, as far as it says how many of every node: "*:2", "*:*", "*"; nothing for
// anything else.
std::optional<uint32_t> per_node_of(std::string_view config_list);

// How the file is striped: as hints say (0: they do not), else as its Store reports. A hint of the
// stripe's size hides what is reported of stripes of another size. More targets than kMostTargets
// are not told apart.
struct StripingFacts {
  uint64_t unit = 0, factor = 0, first = 0;
  Layout reported = {};
};
struct ChosenStriping {
  Striping striping;
  std::string_view says;  // who does; empty: nobody
};
constexpr uint64_t kMostTargets = 4096;
ChosenStriping choose_striping(const StripingFacts& facts);

struct RealmFacts {
  Extent region;
  std::span<const Samples> samples;  // by rank
  size_t aggregators = 1;
  // 0: nobody has said it. Then borders are those of stripes, if these are known and no aggregator
  // has much more to do for it (even_alignment(); of realms that are balanced by data, if an eighth
  // of their shares is a stripe or more).
  uint64_t alignment = 0;
  uint64_t persistent_size = 0;  // not 0: cyclic from byte 0 on
  uint64_t stripe = 0;           // not 0: known
  uint32_t targets = 1;
  std::string_view kind = {};          // "", "even", "balanced", "striped", "given"
  const GivenRealms* given = nullptr;  // nullptr: none, or none that makes sense
};
struct ChosenRealms {
  Realms realms;
  std::string_view why;
  std::string unused = {};  // why given ones are not; empty: they are, or nobody wants them
};
ChosenRealms choose_realms(const RealmFacts& facts);

}  // namespace forebay::plan
