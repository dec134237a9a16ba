#include "assembly/units.h"

#include <gtest/gtest.h>

namespace forebay {
namespace {

using namespace std::chrono_literals;

TEST(Units, SizesAreReadAndWritten) {
  EXPECT_EQ(*parse_size("0"), 0u);
  EXPECT_EQ(*parse_size("4711"), 4711u);
  EXPECT_EQ(*parse_size("64MiB"), 64u << 20);
  EXPECT_EQ(*parse_size("64 MiB"), 64u << 20);
  EXPECT_EQ(*parse_size("2G"), 2ull << 30);
  for (const uint64_t n : {0ull, 1ull, 1000ull, 1024ull, 1536ull, 1ull << 20, 3ull << 40})
    EXPECT_EQ(*parse_size(size_text(n)), n) << size_text(n);
  EXPECT_EQ(size_text(64u << 20), "64MiB");
}

TEST(Units, WrongSizesSayWhatToWrite) {
  for (const char* text : {"", "MiB", "-1", "1.5MiB", "64mb", "64MiB!", "9999999999GiB"}) {
    const auto size = parse_size(text);
    ASSERT_FALSE(size) << text;
    EXPECT_NE(size.error().what().find("64MiB"), std::string::npos);
  }
}

TEST(Units, DurationsAreReadAndWritten) {
  EXPECT_EQ(*parse_duration("30s"), 30s);
  EXPECT_EQ(*parse_duration("1500ms"), 1500ms);
  EXPECT_EQ(*parse_duration("2min"), 2min);
  EXPECT_EQ(*parse_duration("2m"), 2min);
  EXPECT_EQ(*parse_duration("0"), 0s);
  EXPECT_EQ(duration_text(90s), "90s");
  EXPECT_EQ(duration_text(120s), "2min");
  EXPECT_EQ(duration_text(0s), "0s");
  EXPECT_FALSE(parse_duration("30"));  // of what?
  EXPECT_FALSE(parse_duration("30 parsecs"));
}

TEST(Units, ForPeople) {
  EXPECT_EQ(about_size(0), "0 B");
  EXPECT_EQ(about_size(999), "999 B");
  EXPECT_EQ(about_size(1536), "1.50 KiB");
  EXPECT_EQ(about_size(100ull << 20), "100 MiB");
  EXPECT_EQ(about_duration(12s), "12 s");
  EXPECT_EQ(about_duration(2h + 5min), "2 h 5 min");
}

TEST(Units, NearestFindsTyposAndNothingElse) {
  const std::vector<std::string> names = {"grace", "stall", "deadline", "listen"};
  EXPECT_EQ(nearest("grase", names), "grace");
  EXPECT_EQ(nearest("deadlines", names), "deadline");
  EXPECT_EQ(nearest("lisetn", names), "listen");
  EXPECT_EQ(nearest("colour", names), "");
}

}  // namespace
}  // namespace forebay
