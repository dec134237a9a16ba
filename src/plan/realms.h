// Realms: which aggregator of a collective call owns which bytes of the file (paper 5, sections 3.4
// and 4.2.2). A realm is any set of extents, as a datatype and a displacement describe it; those of
// a call are apart and hold every byte that the call names.
//
// Policies, each a function from what is known to realms. Persistent realms are cyclic over the
// whole file from byte 0 on, and only their size is chosen (persistent_size).
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "plan/coverage.h"

namespace forebay::plan {

using Realms = std::vector<TiledMap>;  // by aggregator

// Equal parts of a region, with borders at multiples of `alignment` (1: none).
Realms even_realms(Extent region, size_t aggregators, uint64_t alignment);

// May a share of the work be so large, for the sake of borders that stripes have too? The slowest
// aggregator decides, so a little only: an eighth more than its even share.
constexpr bool still_even(uint64_t share, uint64_t largest) {
  return largest <= share || largest - share <= share / 8;
}
// What even realms are best aligned to in a file of such stripes (0: not known): the stripe if the
// largest of them is still even then, otherwise 1. So whole stripes have one writer wherever there
// are many stripes, or as many as there are aggregators.
uint64_t even_alignment(Extent region, size_t aggregators, uint64_t stripe);

// Parts of a region with equal amounts of data. What is known of the data are samples of each rank:
// the offsets of its bytes at equal distances in its stream, the first and the last (as an end)
// among them, so between any two neighbours lies the same amount.
struct Samples {
  uint64_t bytes = 0;
  std::vector<uint64_t> offsets;  // rising, two or more; empty if there are no bytes
};
Realms balanced_realms(Extent region, std::span<const Samples> ranks, size_t aggregators,
                       uint64_t alignment);

// Realm i: [i * size, (i + 1) * size), and again after all the others, to the end of any file.
Realms cyclic_realms(uint64_t size, size_t aggregators);

// Cyclic by stripes. So many of the aggregators get one that each of them serves targets of its
// own, or each target has aggregators of its own; the others get none.
Realms striped_realms(uint64_t stripe, uint32_t targets, size_t aggregators);

// As a user says it: one realm for each aggregator, apart by commas, each "at:length" or
// "at:length/stride" (bytes; repeated to the end of any file). EINVAL for anything else, and for
// realms that overlap or, up to the last border named, leave bytes out. Looked at once: calls only
// have to compare where they end.
struct GivenRealms {
  Realms realms;
  uint64_t end = 0;  // every byte before it is in one realm, no more and no less
};
Result<GivenRealms> given_realms(std::string_view text);

// Is every byte of the region in one realm, no more and no less? Walks them: for tests.
bool complete(const Realms& realms, Extent region);

// How the size of persistent realms is chosen: by the user; by the size that the file will have
// after the first call; by the region of the first call; or that again whenever the types change.
enum class Persistent : uint8_t { off, user, file_size, region, dynamic };
struct PersistentFacts {
  Persistent form = Persistent::off;
  uint64_t user_size = 0;
  uint64_t file_size = 0;  // after the call
  Extent region;           // of the call, all ranks together
  size_t aggregators = 1;
  uint64_t alignment = 1;
  uint64_t stripe = 0;  // of the file, if it is known
};
// A multiple of the alignment; of the stripe too, if that is still even and the user has not said
// the size.
uint64_t persistent_size(const PersistentFacts& facts);

// Do the ranks' regions overlap anywhere? If not, nobody gains by an exchange.
bool interleaved(std::span<const Extent> regions);

}  // namespace forebay::plan
