#include "client/parts.h"

#include <gtest/gtest.h>

#include <random>

#include "core/testing.h"

namespace forebay {
namespace {

std::vector<uint64_t> bytes_of(const Extents& e) {
  std::vector<uint64_t> bytes;
  for (ExtentCursor c(e); !c.done(); c.advance(Length(1)))
    bytes.push_back(c.current().offset.value);
  return bytes;
}

Extents random_list(std::mt19937_64& random) {
  std::vector<Extent> blocks;
  for (uint64_t n = 1 + random() % 20; n > 0; --n) {
    blocks.push_back({Offset(random() % 500), Length(random() % 9)});
  }
  std::vector<Stride> loops;
  if (random() % 2) loops.push_back({1 + random() % 4, static_cast<int64_t>(random() % 700)});
  return Extents::make(blocks, loops).value();
}

TEST(Parts, AllPartsTogetherAreTheWhole) {
  std::mt19937_64 random(test_seed());
  for (int round = 0; round < 500; ++round) {
    const Extents file = random_list(random);
    if (file.empty()) continue;
    const uint64_t most = 1 + random() % 8;
    const Memory memory{nullptr, Extents(Extent{Offset(1000), file.total()})};
    Parts parts(file, memory, most);
    std::vector<uint64_t> file_bytes, memory_bytes;
    for (bool last = false; !last;) {
      const Parts::Part part = parts.next();
      ASSERT_LE(part.file.blocks().size(), most);
      ASSERT_EQ(part.file.total(), part.memory.shape.total());
      for (uint64_t b : bytes_of(part.file)) file_bytes.push_back(b);
      for (uint64_t b : bytes_of(part.memory.shape)) memory_bytes.push_back(b);
      last = parts.advance(part.file.total().value);
      if (!last && random() % 4 == 0) parts.shrink();
    }
    EXPECT_EQ(file_bytes, bytes_of(file));
    EXPECT_EQ(memory_bytes, bytes_of(memory.shape));
    EXPECT_EQ(parts.done(), file.total().value);
  }
}

TEST(Parts, AShortPartIsTheLast) {
  const Extents file =
      Extents::make({{Offset(0), Length(5)}, {Offset(10), Length(5)}, {Offset(20), Length(5)}})
          .value();
  Parts parts(file, Memory{nullptr, Extents(Extent{Offset(0), Length(15)})}, 1);
  EXPECT_FALSE(parts.advance(5));
  EXPECT_TRUE(parts.advance(3));
  EXPECT_EQ(parts.done(), 8u);
}

TEST(Parts, OneBlockCannotShrink) {
  Parts parts(Extents(Extent{Offset(0), Length(5)}),
              Memory{nullptr, Extents(Extent{Offset(0), Length(5)})}, 3);
  EXPECT_TRUE(parts.shrink());
  EXPECT_FALSE(parts.shrink());
}

}  // namespace
}  // namespace forebay
