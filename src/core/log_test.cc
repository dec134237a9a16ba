#include "core/log.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "core/clock.h"
#include "core/counters.h"
#include "core/testing.h"

namespace forebay {
namespace {

std::string text_of(const std::string& path) {
  std::stringstream all;
  all << std::ifstream(path).rdbuf();
  return all.str();
}

TEST(Log, WritesLinesAtOrAboveItsLevel) {
  TempDir dir;
  ASSERT_TRUE(log::init(log::Level::info, dir / "log"));
  log::debug("not {}", "this");
  log::info("serving {} on {}", "export", 7);
  log::error("{} braces {{}} stay", 1);
  EXPECT_FALSE(log::enabled(log::Level::debug));
  EXPECT_TRUE(log::enabled(log::Level::warn));
  const std::string text = text_of(dir / "log");
  EXPECT_EQ(text.find("not this"), std::string::npos);
  EXPECT_NE(text.find("info"), std::string::npos);
  EXPECT_NE(text.find("serving export on 7\n"), std::string::npos);
  EXPECT_NE(text.find("1 braces {} stay\n"), std::string::npos);
  ASSERT_TRUE(log::init(log::Level::warn));
}

TEST(Log, SaysWhyAFileCannotBeWritten) {
  TempDir dir;
  std::ofstream(dir / "file") << "x";
  const Result<void> r = log::init(log::Level::info, dir / "file/below/log");
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().code(), ENOTDIR);
  EXPECT_NE(r.error().message().find("file/below/log"), std::string::npos);
}

TEST(Log, CanBeSilent) {
  ASSERT_TRUE(log::init(log::Level::off));
  EXPECT_FALSE(log::enabled(log::Level::error));
  EXPECT_FALSE(log::enabled(log::Level::off));
  ASSERT_TRUE(log::init(log::Level::warn));
}

TEST(Clock, SteadyRisesAndManualObeys) {
  SteadyClock steady;
  const Time before = steady.now();
  EXPECT_LE(before, steady.now());
  ManualClock manual;
  const Time start = manual.now();
  manual.advance(std::chrono::seconds(3));
  EXPECT_EQ(manual.now() - start, std::chrono::seconds(3));
}

}  // namespace
}  // namespace forebay
