#include "core/rows.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

namespace forebay {
namespace {

std::vector<std::byte> random_bytes(std::mt19937_64& random, size_t size) {
  std::vector<std::byte> bytes(size);
  for (auto& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

// Loops over one piece or a few, of the sizes that have a copy of their own and of others.
Extents random_shape(std::mt19937_64& random) {
  constexpr uint64_t kSizes[] = {1, 4, 8, 13, 16, 32, 64, 100};
  const uint64_t length = kSizes[random() % std::size(kSizes)];
  std::vector<Extent> blocks = {{Offset(30000), Length(length)}};
  if (random() % 4 == 0) blocks.push_back({Offset(30000 + 2 * length), Length(5)});
  std::vector<Stride> loops;
  for (uint64_t i = random() % 5; i > 0; --i)
    loops.push_back({1 + random() % 5, static_cast<int64_t>(random() % 400) - 200});
  return *Extents::make(blocks, loops);
}

std::vector<Offset> each_byte(const Extents& shape) {
  std::vector<Offset> bytes;
  for (ExtentCursor cursor(shape); !cursor.done(); cursor.advance(Length(1)))
    bytes.push_back(cursor.current().offset);
  return bytes;
}

TEST(Rows, CopiesLikeOneByteAfterTheOther) {
  const char* given = std::getenv("FOREBAY_SEED");
  const uint64_t seed = given ? std::stoull(given) : std::random_device()();
  SCOPED_TRACE("FOREBAY_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 500; ++round) {
    auto space = random_bytes(random, 60000);
    const Memory memory{space.data(), random_shape(random)};
    const auto places = each_byte(memory.shape);
    ExtentCursor out(memory.shape), in(memory.shape);
    auto expected = space;
    while (!out.done()) {
      const uint64_t at = out.position().value;
      auto bytes = random_bytes(random, 1 + random() % (places.size() - at));
      copy_out(memory, out, bytes);
      for (size_t i = 0; i < bytes.size(); ++i)
        ASSERT_EQ(bytes[i], expected[places[at + i].value]) << round;
      bytes = random_bytes(random, bytes.size());
      copy_in(bytes, memory, in);
      for (size_t i = 0; i < bytes.size(); ++i) expected[places[at + i].value] = bytes[i];
      ASSERT_EQ(space, expected) << round;
      ASSERT_EQ(in.position(), out.position());
    }
  }
}

TEST(Rows, ARowEndsWithItsLoop) {
  const Extents shape = *Extents::make({{Offset(0), Length(8)}}, {{3, 1000}, {5, 16}});
  ExtentCursor cursor(shape);
  cursor.advance(Length(8 * 7));
  const Row row = row_at(shape, cursor);
  EXPECT_EQ(row.first, (Extent{Offset(1032), Length(8)}));
  EXPECT_EQ(row.count, 3u);
  EXPECT_EQ(row.stride, 16);
  cursor.advance(Length(3));
  EXPECT_EQ(row_at(shape, cursor).count, 1u);
  EXPECT_EQ(row_at(shape, cursor).first, (Extent{Offset(1035), Length(5)}));
  cursor.advance(shape.total() - cursor.position());
  EXPECT_EQ(row_at(shape, cursor).count, 0u);
}

}  // namespace
}  // namespace forebay
