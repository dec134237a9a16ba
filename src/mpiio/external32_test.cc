// Values and their bytes as the standard has them; random ones there and back.
#include "mpiio/external32.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/testing.h"

namespace forebay::mpiio {
namespace {

using Kind = ExternalForm::Kind;

template <class Value>
std::vector<int> encoded(const ExternalForm& form, Value value) {
  std::vector<std::byte> memory(form.size_in_memory()), file(form.size_in_file());
  std::memcpy(memory.data(), &value, memory.size());
  if (!to_external(form, memory.data(), file.data(), 1)) return {};
  std::vector<int> bytes;
  for (const std::byte one : file) bytes.push_back(static_cast<int>(one));
  return bytes;
}

template <class Value>
Result<Value> decoded(const ExternalForm& form, const std::vector<int>& bytes) {
  std::vector<std::byte> file;
  for (const int one : bytes) file.push_back(static_cast<std::byte>(one));
  Value value{};
  auto done = from_external(form, file.data(), reinterpret_cast<std::byte*>(&value), 1);
  if (!done) return done.error();
  return value;
}

constexpr ExternalForm kLong{Kind::integer, 8, 4, 1}, kUnsignedLong{Kind::natural, 8, 4, 1};
constexpr ExternalForm kWide{Kind::natural, 4, 2, 1}, kDouble{Kind::swapped, 8, 8, 1};
constexpr ExternalForm kLongDouble{Kind::long_double, sizeof(long double), 16, 1};

TEST(External32, ValuesAndTheirBytes) {
  EXPECT_EQ(encoded(kLong, int64_t{-2}), (std::vector<int>{255, 255, 255, 254}));
  EXPECT_EQ(encoded(kUnsignedLong, uint64_t{4'000'000'000}), (std::vector<int>{238, 107, 40, 0}));
  EXPECT_EQ(encoded(kWide, uint32_t{0x20ac}), (std::vector<int>{0x20, 0xac}));
  EXPECT_EQ(encoded(kDouble, 1.5), (std::vector<int>{0x3f, 0xf8, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(encoded(kLongDouble, -1.5L),
            (std::vector<int>{0xbf, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  const ExternalForm complex{Kind::swapped, 4, 4, 2};
  const float both[2] = {1, -2};
  uint64_t value = 0;
  std::memcpy(&value, both, sizeof value);
  EXPECT_EQ(encoded(complex, value), (std::vector<int>{0x3f, 0x80, 0, 0, 0xc0, 0, 0, 0}));
}

TEST(External32, WhatDoesNotFitIsAnError) {
  for (const int64_t value : {(int64_t{1} << 40) + 7, int64_t{1} << 31, -(int64_t{1} << 31) - 1})
    EXPECT_TRUE(encoded(kLong, value).empty()) << value;
  EXPECT_TRUE(encoded(kUnsignedLong, uint64_t{1} << 32).empty());
  EXPECT_TRUE(encoded(kUnsignedLong, ~uint64_t{0}).empty());
  EXPECT_TRUE(encoded(kWide, uint32_t{0x1f600}).empty());
  const ExternalForm narrow{Kind::integer, 4, 8, 1};  // a machine with less than a file can hold
  EXPECT_EQ(decoded<int32_t>(narrow, {255, 255, 255, 255, 255, 255, 255, 254}).value(), -2);
  EXPECT_FALSE(decoded<int32_t>(narrow, {0, 0, 0, 1, 0, 0, 0, 0}));
}

TEST(External32, RandomValuesThereAndBack) {
  std::mt19937_64 random(test_seed());
  for (int i = 0; i < 1000; ++i) {
    const auto number = static_cast<int64_t>(static_cast<int32_t>(random()));
    EXPECT_EQ(decoded<int64_t>(kLong, encoded(kLong, number)).value(), number);
    const auto natural = uint64_t{static_cast<uint32_t>(random())};
    EXPECT_EQ(decoded<uint64_t>(kUnsignedLong, encoded(kUnsignedLong, natural)).value(), natural);
    const auto real =
        std::ldexp(static_cast<long double>(random()), static_cast<int>(random() % 32000) - 16000);
    EXPECT_EQ(decoded<long double>(kLongDouble, encoded(kLongDouble, real)).value(), real);
  }
  const ExternalForm bytes{Kind::natural, 1, 1, 1}, words{Kind::integer, 2, 2, 1};
  std::vector<uint16_t> in(1000), out(1000);
  for (uint16_t& one : in) one = static_cast<uint16_t>(random());
  std::vector<std::byte> file(2000);
  ASSERT_TRUE(to_external(words, reinterpret_cast<std::byte*>(in.data()), file.data(), 1000));
  EXPECT_EQ(static_cast<int>(file[1]), in[0] & 255);
  ASSERT_TRUE(from_external(words, file.data(), reinterpret_cast<std::byte*>(out.data()), 1000));
  EXPECT_EQ(in, out);
  ASSERT_TRUE(to_external(bytes, reinterpret_cast<std::byte*>(in.data()), file.data(), 2000));
  EXPECT_EQ(std::memcmp(file.data(), in.data(), 2000), 0);
}

}  // namespace
}  // namespace forebay::mpiio
