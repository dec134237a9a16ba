#include "printable.h"

#include <gtest/gtest.h>

namespace forebay {
namespace {

TEST(Printable, PlainNamesStayAsTheyAre) {
  EXPECT_EQ(printable("results 7.h5"), "results 7.h5");
  EXPECT_EQ(printable("Größe-日本"), "Größe-日本");
  EXPECT_EQ(printable(""), "");
}

TEST(Printable, ControlCharactersAndWhatIsNotUtf8) {
  EXPECT_EQ(printable("a\nb\tc\r"), "a\\nb\\tc\\r");
  EXPECT_EQ(printable("\x1b[31mred\x7f"), "\\x1b[31mred\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m");
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");
}

TEST(Printable, NoTwoNamesLookTheSame) {
  EXPECT_EQ(printable("a\\nb"), "a\\\\nb");
}

TEST(Printable, TextsKeepLinesAndBackslashes) {
  EXPECT_EQ(printable_text("two\nlines \\ \x1b"), "two\nlines \\ \\x1b");
}

}  // namespace
}  // namespace forebay
