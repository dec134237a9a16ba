#include "plan/coverage.h"

#include <gtest/gtest.h>

#include <set>

#include "core/testing.h"
#include "plan/realms.h"
#include "plan/typemap_oracle.h"

namespace forebay::plan {
namespace {

// A part of a random view, and its bytes in order.
struct Rank {
  ViewPart part;
  std::vector<uint64_t> bytes;
};

Rank random_rank(TypeOracle& oracle) {
  const OracleType type = oracle.make(static_cast<int>(oracle.pick(0, 3)), true);
  const auto displacement = static_cast<uint64_t>(oracle.pick(0, 400));
  Rank rank;
  rank.part.view = TiledMap::view(Offset(displacement), type.map).value();
  const auto size = static_cast<int64_t>(type.bytes.size());
  const int64_t from = oracle.pick(0, size);
  const int64_t length = oracle.pick(0, 4) == 0 ? 0 : oracle.pick(0, 3 * size);
  rank.part.from = Length(static_cast<uint64_t>(from));
  rank.part.length = Length(static_cast<uint64_t>(length));
  if (length > 0 && oracle.pick(0, 1)) rank.part.around = rank.part.bounds();
  for (int64_t k = from; k < from + length; ++k)
    rank.bytes.push_back(displacement +
                         static_cast<uint64_t>(type.bytes[static_cast<size_t>(k % size)] +
                                               k / size * type.extent()));
  return rank;
}

std::vector<uint64_t> bytes_of(const ViewPart& part) {
  std::vector<uint64_t> bytes;
  for (TiledCursor cursor = part.cursor(); !cursor.done();) {
    const Extent e = cursor.take(cursor.left());
    for (uint64_t k = 0; k < e.length.value; ++k) bytes.push_back(e.offset.value + k);
  }
  return bytes;
}

std::vector<Rank> random_ranks(TypeOracle& oracle) {
  std::vector<Rank> ranks;
  for (int64_t n = oracle.pick(1, 9); n > 0; --n) ranks.push_back(random_rank(oracle));
  return ranks;
}

Extent region_of(const std::vector<Rank>& ranks) {
  uint64_t low = UINT64_MAX, high = 0;
  for (const Rank& rank : ranks)
    if (!rank.bytes.empty())
      low = std::min(low, rank.bytes.front()), high = std::max(high, rank.bytes.back() + 1);
  return high ? ext(low, high - low) : Extent{};
}

Samples samples_of(const Rank& rank) {
  Samples samples;
  samples.bytes = rank.bytes.size();
  for (size_t k = 0; k < 4 && samples.bytes; ++k)
    samples.offsets.push_back(rank.bytes[k * rank.bytes.size() / 4]);
  if (samples.bytes) samples.offsets.push_back(rank.bytes.back() + 1);
  return samples;
}

Realms random_realms(TypeOracle& oracle, const std::vector<Rank>& ranks, size_t aggregators) {
  const Extent region = region_of(ranks);
  const auto alignment = static_cast<uint64_t>(oracle.pick(0, 1) ? 1 : oracle.pick(2, 64));
  switch (oracle.pick(0, 3)) {
    case 0:
      return even_realms(region, aggregators, alignment);
    case 1: {
      std::vector<Samples> samples;
      for (const Rank& rank : ranks) samples.push_back(samples_of(rank));
      return balanced_realms(region, samples, aggregators, alignment);
    }
    case 2:
      return cyclic_realms(static_cast<uint64_t>(oracle.pick(1, 500)), aggregators);
    default:
      return striped_realms(static_cast<uint64_t>(oracle.pick(1, 100)),
                            static_cast<uint32_t>(oracle.pick(1, 5)), aggregators);
  }
}

// One window: each byte of each rank that lies in it has its place in the buffer.
void check_window(const std::vector<Extent>& runs, const std::vector<Rank>& ranks) {
  std::vector<uint64_t> in_buffer;
  for (const Extent& run : runs)
    for (uint64_t k = 0; k < run.length.value; ++k) in_buffer.push_back(run.offset.value + k);
  ASSERT_TRUE(std::is_sorted(in_buffer.begin(), in_buffer.end(), std::less_equal<>()));
  const auto places = places_of(runs);
  const std::set<uint64_t> inside(in_buffer.begin(), in_buffer.end());
  for (const Rank& rank : ranks) {
    std::vector<uint64_t> expected, placed;
    for (const uint64_t b : rank.bytes)
      if (inside.contains(b)) expected.push_back(b);
    std::vector<uint64_t> one_way, other_way;
    place_in_window(PlacedRuns{runs, places}, rank.part,
                    [&](uint64_t at, Length, uint64_t) { one_way.push_back(at); });
    place_in_window(runs, rank.part, [&](uint64_t at, Length stream, uint64_t length) {
      other_way.push_back(at);
      for (uint64_t k = 0; k < length; ++k) {
        placed.push_back(in_buffer.at(at + k));
        ASSERT_EQ(placed.back(), rank.bytes.at((stream - rank.part.from).value + k));
      }
    });
    ASSERT_EQ(placed, expected);
    ASSERT_EQ(one_way, other_way);
    ASSERT_EQ(bytes_in_window(runs, rank.part), expected.size());
  }
}

TEST(Coverage, RandomAccessesAndRealms) {
  const uint64_t seed = test_seed();
  TypeOracle oracle(seed);
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE(round);
    const auto ranks = random_ranks(oracle);
    std::vector<ViewPart> parts;
    std::set<uint64_t> all, seen;
    for (const Rank& rank : ranks) {
      parts.push_back(rank.part);
      all.insert(rank.bytes.begin(), rank.bytes.end());
    }
    const auto aggregators = static_cast<size_t>(oracle.pick(1, 5));
    const Realms realms = random_realms(oracle, ranks, aggregators);
    ASSERT_EQ(realms.size(), aggregators);
    for (const TiledMap& realm : realms) {
      Coverage coverage(parts, ranges_of(realm));
      const auto most = static_cast<uint64_t>(oracle.pick(1, oracle.pick(0, 1) ? 700 : 20'000));
      const auto most_runs = static_cast<size_t>(oracle.pick(1, oracle.pick(0, 1) ? 40 : 2000));
      std::optional<Offset> ended;  // where a window did that could have had more bytes
      for (auto runs = coverage.next(most, most_runs); !runs.empty();
           runs = coverage.next(most, most_runs)) {
        ASSERT_LE(runs.size(), most_runs);
        ASSERT_NE(ended, runs.front().offset) << "a run is in two windows";
        check_window(runs, ranks);
        if (::testing::Test::HasFatalFailure()) return;
        uint64_t in_window = 0;
        for (const Extent& run : runs) {
          in_window += run.length.value;
          for (uint64_t k = 0; k < run.length.value; ++k)
            ASSERT_TRUE(seen.insert(run.offset.value + k).second);
        }
        ASSERT_LE(in_window, most);
        ended = in_window < most ? std::optional(runs.back().end()) : std::nullopt;
      }
    }
    ASSERT_EQ(seen, all);
  }
}

// Every byte of the parts once, none that is another realm's, and no more than half of a run
// without need.
TEST(Coverage, ThroughSmallGaps) {
  TypeOracle oracle(test_seed());
  uint64_t whole = 0;
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE(round);
    const auto ranks = random_ranks(oracle);
    std::vector<ViewPart> parts;
    std::set<uint64_t> all, seen;
    for (const Rank& rank : ranks) {
      parts.push_back(rank.part);
      all.insert(rank.bytes.begin(), rank.bytes.end());
    }
    for (const TiledMap& realm : random_realms(oracle, ranks, 3)) {
      Coverage coverage(parts, ranges_of(realm), realm.bounds(Length(0), realm.total()));
      const auto most = static_cast<uint64_t>(oracle.pick(1, 3000));
      for (auto runs = coverage.next_through(most, 50); !runs.empty();
           runs = coverage.next_through(most, 50)) {
        check_window(runs, ranks);
        if (::testing::Test::HasFatalFailure()) return;
        uint64_t in_window = 0, named = 0;
        for (const Extent& run : runs) {
          in_window += run.length.value;
          ASSERT_EQ(ranges_of(realm)(run.offset)->offset, run.offset);
          ASSERT_LE(run.end(), ranges_of(realm)(run.offset)->end());
          for (uint64_t k = 0; k < run.length.value; ++k) {
            if (!all.contains(run.offset.value + k)) continue;
            ASSERT_TRUE(seen.insert(run.offset.value + k).second);
            ++named;
          }
        }
        ASSERT_LE(in_window, most);
        ASSERT_GT(named, 0u);
        whole += named < in_window;
        uint64_t asked = 0;
        for (const Rank& rank : ranks) asked += bytes_in_window(runs, rank.part);
        ASSERT_TRUE(named == in_window || 2 * asked + 1 >= in_window);
      }
    }
    ASSERT_EQ(seen, all);
  }
  EXPECT_GT(whole, 0u);
}

TEST(Coverage, WhatIsInBothOfTwo) {
  const Realms stripes = cyclic_realms(10, 3), realm = even_realms(ext(5, 40), 2, 1);
  const Ranges both = in_both(ranges_of(realm[0]), ranges_of(stripes[1]), Offset(1000));
  EXPECT_EQ(both(Offset(0)), ext(10, 10));
  EXPECT_EQ(both(Offset(12)), ext(12, 8));
  EXPECT_EQ(both(Offset(20)), std::nullopt);  // the realm ends at 25, the next stripe is at 40
  const Ranges never = in_both(ranges_of(stripes[0]), ranges_of(stripes[1]), Offset(100'000));
  EXPECT_EQ(never(Offset(0)), std::nullopt);
}

// A billion pieces: nothing is walked but what is asked for.
TEST(Coverage, LargeRegularViewsAreNotWalked) {
  std::vector<ViewPart> parts;
  for (uint64_t rank = 0; rank < 4; ++rank) {
    const auto tile = TypeMap::resized(*TypeMap::bytes(8), 0, 32);
    parts.push_back({*TiledMap::view(Offset(8 * rank), *tile), Length(0), Length(8ull << 30)});
  }
  const Realms realms = even_realms(ext(0, 32ull << 30), 1024, 1);
  for (size_t i = 0; i < realms.size(); ++i) {
    Coverage coverage(parts, ranges_of(realms[i]));
    const auto runs = coverage.next(4096, 10);
    ASSERT_EQ(runs.size(), 1u);
    EXPECT_EQ(runs[0], ext((32ull << 20) * i, 4096));
  }
}

TEST(ViewPart, ComesBackFromNumbers) {
  const uint64_t seed = test_seed();
  TypeOracle oracle(seed);
  for (int round = 0; round < 300; ++round) {
    const Rank rank = random_rank(oracle);
    std::vector<int64_t> numbers;
    rank.part.encode(numbers);
    std::span<const int64_t> rest(numbers);
    const auto back = ViewPart::decode(rest);
    ASSERT_TRUE(back.has_value()) << back.error().message();
    ASSERT_TRUE(rest.empty());
    ASSERT_EQ(back->length, rank.part.length);
    ASSERT_EQ(bytes_of(*back), rank.bytes);
    for (size_t cut = 0; cut < numbers.size(); ++cut) {
      std::span<const int64_t> part(numbers.data(), cut);
      (void)ViewPart::decode(part);  // an error or not, and no more
    }
  }
}

// D numbers of the type or M of the access, whichever are fewer.
TEST(ViewPart, IsDescribedByWhatIsShorter) {
  std::vector<TypeMap::Block> blocks;
  for (int64_t i = 0; i < 10'000; ++i) blocks.push_back({i * i, 1});
  const auto irregular = TypeMap::indexed(blocks, *TypeMap::bytes(1));
  ViewPart few{*TiledMap::view(Offset(0), *irregular), Length(5000), Length(10)};
  std::vector<int64_t> numbers;
  few.encode(numbers);
  EXPECT_LT(numbers.size(), 40u);
  numbers.clear();
  EXPECT_FALSE(few.view.encode(numbers, 4000));
  EXPECT_TRUE(numbers.empty());
  ASSERT_TRUE(few.view.encode(numbers));
  EXPECT_FALSE(few.view.encode(numbers, numbers.size() - 1));
  EXPECT_TRUE(few.view.encode(numbers, numbers.size()));

  const auto tile = TypeMap::resized(*TypeMap::bytes(8), 0, 32);
  ViewPart regular{*TiledMap::view(Offset(0), *tile), Length(4), Length(1ull << 40)};
  numbers.clear();
  regular.encode(numbers);
  EXPECT_LT(numbers.size(), 20u);
}

// Who aggregates the realm needs these, and may be told more.
TEST(ViewPart, IsToldToEachRealmAsFarAsItLiesThere) {
  const uint64_t seed = test_seed();
  TypeOracle oracle(seed);
  for (int round = 0; round < 300; ++round) {
    const Rank rank = random_rank(oracle);
    const auto size = static_cast<uint64_t>(oracle.pick(1, 300));
    const auto count = static_cast<size_t>(oracle.pick(1, 5));
    const Realms realms =
        oracle.pick(0, 1) ? cyclic_realms(size, count) : even_realms(region_of({rank}), count, 1);
    for (const TiledMap& realm : realms) {
      const Ranges ranges = ranges_of(realm);
      const auto here = [&](uint64_t at) {
        const auto range = ranges(Offset(at));
        return range && range->offset.value <= at;
      };
      std::vector<uint64_t> wanted;
      for (const uint64_t at : rank.bytes)
        if (here(at)) wanted.push_back(at);
      std::vector<int64_t> numbers;
      rank.part.encode_in(realm, numbers);
      ASSERT_TRUE(!numbers.empty() || wanted.empty());
      std::span<const int64_t> rest(numbers);
      const ViewPart back = numbers.empty() ? ViewPart() : ViewPart::decode(rest).value();
      ASSERT_TRUE(rest.empty());
      std::vector<uint64_t> bytes;
      for (const uint64_t at : bytes_of(back))
        if (here(at)) bytes.push_back(at);
      ASSERT_EQ(bytes, wanted);
      const auto listed = pieces_in(ranges, rank.part, SIZE_MAX);
      ASSERT_EQ(listed->total().value, wanted.size());
      for (ExtentCursor cursor(*listed); !cursor.done();) {
        const Extent e = cursor.take(listed->total());
        ASSERT_TRUE(here(e.offset.value) && here(e.end().value - 1));
      }
      if (listed->pieces() > 1) {
        ASSERT_FALSE(pieces_in(ranges, rank.part, listed->pieces() / 2));
      }
    }
  }
}

// All aggregators together are told little more than one would be.
TEST(ViewPart, IsToldOnceWhereItIsIrregular) {
  std::vector<TypeMap::Block> blocks;
  for (int64_t i = 0; i < 10'000; ++i) blocks.push_back({10 * i + i * i % 7, 2});
  const auto view = TiledMap::once(Offset(0), *TypeMap::indexed(blocks, *TypeMap::bytes(1)));
  const ViewPart part{*view, Length(0), view->total()};
  std::vector<int64_t> all;
  EXPECT_FALSE(part.encode(all, 1000));
  EXPECT_TRUE(all.empty());
  part.encode(all);
  for (const Realms& realms : {even_realms(part.bounds(), 8, 1), cyclic_realms(500, 8)}) {
    size_t sum = 0;
    for (const TiledMap& realm : realms) {
      std::vector<int64_t> numbers;
      part.encode_in(realm, numbers);
      EXPECT_LT(numbers.size(), all.size() / 6);
      sum += numbers.size();
    }
    EXPECT_LT(sum, all.size() + all.size() / 20);
  }
}

// Types that hold each other twice at every level stay as small as they are in memory.
TEST(ViewPart, SharedSubtreesAreWrittenOnce) {
  auto type =
      TypeMap::indexed(std::vector<TypeMap::Block>{{0, 1}, {3, 2}, {9, 1}}, *TypeMap::bytes(1));
  for (int level = 0; level < 20; ++level) {
    const int64_t extent = type->extent();
    const std::vector<TypeMap::Member> twice = {
        {0, 1, *type}, {extent + 1, 1, *type}, {3 * extent + 7, 1, *type}};
    type = TypeMap::structure(twice);
  }
  const ViewPart part{*TiledMap::view(Offset(0), *type), Length(0), Length(1000)};
  std::vector<int64_t> numbers;
  part.view.encode(numbers);
  EXPECT_LT(numbers.size(), 1000u);
  std::span<const int64_t> rest(numbers);
  EXPECT_EQ(TiledMap::decode(rest)->total(), part.view.total());
}

}  // namespace
}  // namespace forebay::plan
