#include "core/extents.h"

#include <gtest/gtest.h>

#include "core/extents_oracle.h"
#include "core/testing.h"

namespace forebay {
namespace {

Extents made(std::vector<Extent> blocks, std::vector<Stride> loops = {}) {
  return Extents::make(std::move(blocks), std::move(loops)).value();
}

int code_of_make(std::vector<Extent> blocks, std::vector<Stride> loops = {}) {
  const Result<Extents> r = Extents::make(std::move(blocks), std::move(loops));
  return r ? 0 : r.error().code();
}

// A random valid Extents that is not too large to walk byte by byte; its stream in `bytes`.
Extents random_extents(Random& random, Bytes& bytes) {
  for (;;) {
    const Shape shape = random.shape();
    bytes = bytes_of(shape);
    const Result<Extents> e = Extents::make(shape.blocks, shape.loops);
    const bool below_zero = std::any_of(bytes.begin(), bytes.end(), [](auto b) { return b < 0; });
    EXPECT_EQ(e.has_value(), !below_zero);
    if (e) return *e;
    EXPECT_EQ(e.error().code(), EINVAL);
  }
}

TEST(Extents, NamesTheBytesOfItsDefinition) {
  Random random(test_seed());
  for (int i = 0; i < 8000; ++i) {
    Bytes bytes;
    const Extents e = random_extents(random, bytes);
    ASSERT_EQ(bytes_of(e), bytes);
    ASSERT_EQ(e.total().value, bytes.size());
    ASSERT_EQ(e.empty(), bytes.empty());
    if (bytes.empty()) {
      ASSERT_EQ(e, Extents());
      continue;
    }
    const auto [low, high] = std::minmax_element(bytes.begin(), bytes.end());
    ASSERT_EQ(e.bounds(),
              ext(static_cast<uint64_t>(*low), static_cast<uint64_t>(*high - *low + 1)));
    bool one_range = true;
    for (size_t k = 1; k < bytes.size(); ++k) one_range &= bytes[k] == bytes[k - 1] + 1;
    ASSERT_EQ(e.contiguous(), one_range);
    uint64_t pieces = e.blocks().size();
    for (const Stride& l : e.loops()) pieces *= l.count;
    ASSERT_EQ(e.pieces(), pieces);
    // The small form is stable.
    ASSERT_EQ(made({e.blocks().begin(), e.blocks().end()}, {e.loops().begin(), e.loops().end()}),
              e);
  }
}

TEST(Extents, SlicesByPlaceInTheStream) {
  Random random(test_seed());
  for (int i = 0; i < 8000; ++i) {
    Bytes bytes;
    const Extents e = random_extents(random, bytes);
    const uint64_t from = random.below(bytes.size() + 1);
    const uint64_t length = random.below(bytes.size() - from + 1);
    const auto first = bytes.begin() + static_cast<ptrdiff_t>(from);
    const Bytes part(first, first + static_cast<ptrdiff_t>(length));
    ASSERT_EQ(bytes_of(e.slice(Length(from), Length(length))), part);
  }
}

TEST(Extents, UnrollsIntoTheFewestExtents) {
  Random random(test_seed());
  for (int i = 0; i < 10000; ++i) {
    Bytes bytes;
    const Extents e = random_extents(random, bytes);
    size_t runs = bytes.empty() ? 0 : 1;
    for (size_t k = 1; k < bytes.size(); ++k) runs += bytes[k] != bytes[k - 1] + 1;
    const auto list = e.to_list(runs);
    ASSERT_TRUE(list.has_value());
    ASSERT_EQ(list->size(), runs);
    ASSERT_EQ(bytes_of(Shape{*list, {}}), bytes);
    ASSERT_TRUE(runs == 0 || !e.to_list(runs - 1).has_value());
  }
}

TEST(Extents, KeepsLoopsThatASliceDoesNotCut) {
  const Extents e = made({ext(0, 4)}, {{10, 1000}, {5, 10}});
  EXPECT_EQ(e.slice(Length(40), Length(60)), made({ext(2000, 4)}, {{3, 1000}, {5, 10}}));
  EXPECT_EQ(e.slice(Length(24), Length(12)), made({ext(1010, 4)}, {{3, 10}}));
  EXPECT_EQ(e.slice(Length(20), Length(20)), made({ext(1000, 4)}, {{5, 10}}));
  EXPECT_EQ(e.slice(Length(21), Length(2)), Extents(ext(1001, 2)));
}

TEST(Extents, RefusesWhatIsOutOfBounds) {
  EXPECT_EQ(code_of_make({ext(kMaxOffset, 0)}), 0);
  EXPECT_EQ(code_of_make({ext(kMaxOffset - 1, 1)}), 0);
  EXPECT_EQ(code_of_make({ext(kMaxOffset, 1)}), EINVAL);
  EXPECT_EQ(code_of_make({ext(UINT64_MAX, 0)}), EINVAL);
  EXPECT_EQ(code_of_make({ext(UINT64_MAX, 2)}), EINVAL);
  EXPECT_EQ(code_of_make({ext(5, UINT64_MAX)}), EINVAL);
  EXPECT_EQ(code_of_make({ext(0, 1)}, {{2, INT64_MIN}}), EINVAL);
  EXPECT_EQ(code_of_make({ext(0, 1)}, {{UINT64_MAX, INT64_MIN}}), EINVAL);
  EXPECT_EQ(code_of_make({ext(0, 1)}, {{UINT64_MAX, INT64_MAX}}), EINVAL);
  EXPECT_EQ(code_of_make({ext(0, 1)}, {{2, INT64_MAX}}), EINVAL);
  EXPECT_EQ(code_of_make({ext(0, 1)}, {{2, INT64_MAX - 1}}), 0);
  EXPECT_EQ(code_of_make({ext(kMaxOffset - 1, 1)}, {{2, -(INT64_MAX - 1)}}), 0);
  EXPECT_EQ(code_of_make({ext(kMaxOffset - 1, 1)}, {{2, -INT64_MAX}}), EINVAL);
  EXPECT_EQ(code_of_make({ext(10, 1)}, {{3, 10}, {2, -11}}), EINVAL);
  EXPECT_EQ(code_of_make({ext(10, 1)}, std::vector<Stride>(100000, {2, INT64_MAX})), EINVAL);
}

TEST(Extents, RefusesTotalsBeyond63Bits) {
  EXPECT_EQ(code_of_make({ext(0, 1)}, {{kMaxOffset, 0}}), 0);
  EXPECT_EQ(code_of_make({ext(0, 1)}, {{UINT64_MAX, 0}}), EOVERFLOW);
  EXPECT_EQ(code_of_make({ext(0, 2)}, {{uint64_t{1} << 62, 0}}), EOVERFLOW);
  EXPECT_EQ(code_of_make({ext(0, 1)}, std::vector<Stride>(62, {2, 0})), 0);
  EXPECT_EQ(code_of_make({ext(0, 1)}, std::vector<Stride>(63, {2, 0})), EOVERFLOW);
  EXPECT_EQ(code_of_make({ext(0, 1)}, std::vector<Stride>(100000, {UINT64_MAX, 0})), EOVERFLOW);
  EXPECT_EQ(code_of_make({ext(0, kMaxOffset), ext(0, kMaxOffset)}), EOVERFLOW);
}

TEST(Extents, HasOneSmallForm) {
  EXPECT_EQ(made({ext(7, 0), ext(3, 0)}, {{5, 1}}), Extents());
  EXPECT_EQ(made({ext(7, 3)}, {{0, 1}}), Extents());
  EXPECT_EQ(made({ext(0, 4), ext(4, 0), ext(4, 6)}, {{1, 999}}), Extents(ext(0, 10)));
  EXPECT_EQ(made({ext(0, 8)}, {{1000, 8000}, {1000, 8}}), Extents(ext(0, 8'000'000)));
  EXPECT_EQ(Extents(ext(5, 0)), Extents());
}

TEST(ExtentsDeath, RefusesToSliceBeyondItsEnd) {
  const Extents e(ext(0, 10));
  EXPECT_DEATH(e.slice(Length(5), Length(6)), "assertion failed");
  EXPECT_DEATH(e.slice(Length(UINT64_MAX), Length(2)), "assertion failed");
  EXPECT_DEATH(Extents(ext(kMaxOffset, 1)), "largest offset");
}

TEST(ExtentCursor, WalksInStepsOfAnySize) {
  Random random(test_seed());
  for (int i = 0; i < 10000; ++i) {
    Bytes bytes;
    const Extents e = random_extents(random, bytes);
    ExtentCursor cursor(e);
    uint64_t at = 0;
    while (!cursor.done()) {
      ASSERT_EQ(cursor.position().value, at);
      const Extent now = cursor.current();
      ASSERT_FALSE(now.empty());
      for (uint64_t k = 0; k < now.length.value; ++k) {
        ASSERT_EQ(static_cast<int64_t>(now.offset.value + k), bytes[at + k]);
      }
      const uint64_t left = bytes.size() - at;
      const uint64_t n =
          random.below(3) ? random.below(std::min<uint64_t>(left, 10) + 1) : random.below(left + 1);
      cursor.advance(Length(n));
      at += n;
    }
    ASSERT_EQ(at, bytes.size());
    ASSERT_TRUE(cursor.current().empty());
  }
}

TEST(ExtentCursor, TakesTheLongestRunAllowed) {
  Random random(test_seed());
  for (int i = 0; i < 10000; ++i) {
    Bytes bytes;
    const Extents e = random_extents(random, bytes);
    ExtentCursor cursor(e);
    uint64_t at = 0;
    while (!cursor.done()) {
      const uint64_t most = random.below(40);
      const Extent taken = cursor.take(Length(most));
      ASSERT_LE(taken.length.value, most);
      for (uint64_t k = 0; k < taken.length.value; ++k) {
        ASSERT_EQ(static_cast<int64_t>(taken.offset.value + k), bytes[at + k]);
      }
      at += taken.length.value;
      ASSERT_EQ(cursor.position().value, at);
      if (taken.length.value < most && at < bytes.size()) {
        ASSERT_NE(bytes[at], static_cast<int64_t>(taken.end().value));
      }
    }
    ASSERT_EQ(at, bytes.size());
  }
}

TEST(WalkPairs, PairsEveryByteOnce) {
  Random random(test_seed());
  for (int i = 0; i < 10000; ++i) {
    Bytes a_bytes, b_bytes;
    Extents a = random_extents(random, a_bytes), b = random_extents(random, b_bytes);
    const uint64_t n = std::min(a_bytes.size(), b_bytes.size());
    a = a.slice(Length(0), Length(n));
    b = b.slice(Length(0), Length(n));
    uint64_t at = 0;
    bool right = true;
    walk_pairs(a, b, [&](Extent p, Extent q) {
      right &= p.length == q.length && !p.empty();
      for (uint64_t k = 0; k < p.length.value; ++k, ++at) {
        right &= static_cast<int64_t>(p.offset.value + k) == a_bytes[at];
        right &= static_cast<int64_t>(q.offset.value + k) == b_bytes[at];
      }
      return right;
    });
    ASSERT_TRUE(right);
    ASSERT_EQ(at, n);
  }
}

TEST(WalkPairs, StopsWhenTold) {
  const Extents a = made({ext(0, 1)}, {{100, 2}});
  int calls = 0;
  walk_pairs(a, a, [&](Extent, Extent) { return ++calls < 3; });
  EXPECT_EQ(calls, 3);
}

// The largest cases. They would not end within the test's time limit if anything here were walked
// piece by piece, so no clock is needed to judge them.
TEST(ExtentsLarge, AViewOfABillionPiecesIsAFewNumbers) {
  const uint64_t pieces = 1'000'000'000;
  const Extents e = made({ext(3, 8)}, {{pieces / 1000, 64000}, {1000, 64}});
  EXPECT_EQ(e.pieces(), pieces);
  EXPECT_EQ(e.total().value, 8 * pieces);
  Random random(test_seed());
  for (int i = 0; i < 8000; ++i) {
    const uint64_t at = random.below(8 * pieces - 100);
    const auto byte_at = [](uint64_t k) { return 3 + k / 8 * 64 + k % 8; };
    const Extents part = e.slice(Length(at), Length(100));
    ASSERT_EQ(part.total().value, 100u);
    ASSERT_EQ(part.blocks()[0].offset.value, byte_at(at));
    ExtentCursor cursor(e);
    cursor.advance(Length(at));
    ASSERT_EQ(cursor.current(), ext(byte_at(at), 8 - at % 8));
    const uint64_t whole = at / 8000 * 8000;
    ASSERT_LE(e.slice(Length(whole), Length(8 * pieces - whole)).blocks().size(), 1u);
  }
  EXPECT_FALSE(e.to_list(4096).has_value());
}

TEST(ExtentsLarge, SeeksInAListOfAMillionBlocks) {
  std::vector<Extent> blocks;
  for (uint64_t i = 0; i < 1'000'000; ++i) blocks.push_back(ext(i * 100, 1 + i % 7));
  const Extents e = made(blocks);
  ASSERT_EQ(e.pieces(), 1'000'000u);
  Random random(test_seed());
  for (int i = 0; i < 10000; ++i) {
    const uint64_t at = random.below(e.total().value);
    ExtentCursor cursor(e);
    cursor.advance(Length(at));
    // 7 blocks hold 28 bytes; the block is found from the place by arithmetic.
    uint64_t block = at / 28 * 7, rest = at % 28;
    while (rest >= 1 + block % 7) rest -= 1 + block++ % 7;
    ASSERT_EQ(cursor.current(), ext(block * 100 + rest, 1 + block % 7 - rest));
  }
  uint64_t walked = 0;
  for (ExtentCursor cursor(e); !cursor.done(); ++walked) cursor.take(e.total());
  EXPECT_EQ(walked, 1'000'000u);
}

}  // namespace
}  // namespace forebay
