#include "assembly/json.h"

#include <gtest/gtest.h>

namespace forebay {
namespace {

TEST(Json, WhatIsWrittenIsRead) {
  const Json value = Json::Object{
      {"name", "a\"b\\c\n\x01"},
      {"list", Json::Array{1, -2, 2.5, true, Json(), "ü€𝄞"}},
      {"empty", Json::Object{}},
      {"big", uint64_t(INT64_MAX)},
  };
  for (const int indent : {0, 2}) {
    const auto again = Json::parse(value.dump(indent));
    ASSERT_TRUE(again) << again.error().what();
    EXPECT_EQ(again->dump(), value.dump());
  }
  EXPECT_EQ(value["list"].array()[1].integer(), -2);
  EXPECT_EQ(value["big"].integer(), INT64_MAX);
}

TEST(Json, EscapesAreRead) {
  const auto value = Json::parse(R"("\u00fc\ud834\udd1e\/\t")");
  ASSERT_TRUE(value);
  EXPECT_EQ(value->text(), "ü𝄞/\t");
}

TEST(Json, BytesThatAreNotUtf8BecomeTheReplacementCharacter) {
  EXPECT_EQ(Json("a\xff\xc3").dump(), R"("a\ufffd\ufffd")");
  EXPECT_EQ(Json("\xed\xa0\x80").dump(), R"("\ufffd\ufffd\ufffd")");
}

TEST(Json, ReadingIsLenient) {
  const auto value = Json::parse(R"({"a": {"b": 1}})");
  ASSERT_TRUE(value);
  EXPECT_EQ((*value)["a"]["b"].integer(), 1);
  EXPECT_EQ((*value)["x"]["y"].integer(), 0);
  EXPECT_EQ((*value)["a"].text(), "");
  EXPECT_TRUE((*value)["x"].is_null());
}

TEST(Json, WhatIsNotJsonIsAnError) {
  for (const char* text : {"", "{", "[1,", "\"a", "{\"a\" 1}", "tru", "1 2", "\"\\x\"", "nan",
                           "{a:1}", "\"\\ud834\\u0041\""})
    EXPECT_FALSE(Json::parse(text)) << text;
  EXPECT_FALSE(Json::parse(std::string(1000, '[')));
}

}  // namespace
}  // namespace forebay
