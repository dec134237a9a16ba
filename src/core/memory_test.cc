#include "core/memory.h"

#include <gtest/gtest.h>
#include <sys/uio.h>

#include <cstring>
#include <numeric>

#include "core/extents_oracle.h"
#include "core/testing.h"

namespace forebay {
namespace {

std::vector<std::byte> numbered(size_t n) {
  std::vector<std::byte> bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
  return bytes;
}

TEST(Memory, CopiesTheStreamOutAndIn) {
  Random random(test_seed());
  const std::vector<std::byte> source = numbered(2000);
  for (int i = 0; i < 5000; ++i) {
    const Shape shape = random.shape();
    auto extents = Extents::make(shape.blocks, shape.loops);
    if (!extents) continue;
    const Bytes order = bytes_of(*extents);
    std::vector<std::byte> base = source;
    const Memory memory{base.data(), *extents};

    std::vector<std::byte> out(random.below(order.size() + 10));
    const size_t n = std::min(out.size(), order.size());
    ASSERT_EQ(copy_out(memory, out), n);
    for (size_t k = 0; k < n; ++k) ASSERT_EQ(out[k], source[static_cast<size_t>(order[k])]);

    std::vector<std::byte> expected = source;
    std::vector<std::byte> in = numbered(out.size());
    for (size_t k = 0; k < n; ++k) expected[static_cast<size_t>(order[k])] = in[k];
    ASSERT_EQ(copy_in(in, memory), n);
    ASSERT_EQ(base, expected);
  }
}

TEST(Memory, TakesScatteredBuffers) {
  char a[] = "hello ", b[] = "world";
  const iovec pieces[] = {{a, 6}, {nullptr, 0}, {b, 5}};
  const Memory memory = Memory::of(std::span<const iovec>(pieces)).value();
  EXPECT_EQ(memory.shape.total().value, 11u);
  std::byte out[11];
  EXPECT_EQ(copy_out(memory, out), 11u);
  EXPECT_EQ(std::memcmp(out, "hello world", 11), 0);
  EXPECT_EQ(copy_out(memory.slice(Length(4), Length(4)), out), 4u);
  EXPECT_EQ(std::memcmp(out, "o wo", 4), 0);
  const iovec wrong[] = {{a, SIZE_MAX}};
  EXPECT_EQ(Memory::of(std::span<const iovec>(wrong)).error().code(), EINVAL);
}

TEST(Memory, TakesOneBuffer) {
  const std::vector<std::byte> bytes = numbered(100);
  const Memory memory = Memory::of(std::span(bytes));
  EXPECT_TRUE(memory.shape.contiguous());
  EXPECT_EQ(memory.at(Offset(99)), bytes.data() + 99);
  EXPECT_TRUE(Memory::of(std::span<std::byte>()).shape.empty());
}

}  // namespace
}  // namespace forebay
