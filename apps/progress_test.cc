#include "progress.h"

#include <gtest/gtest.h>

#include "core/types.h"

namespace forebay {
namespace {

TEST(Progress, Lines) {
  EXPECT_EQ(progress_line("f", 1_GiB, 2_GiB, 2.0),
            "f  [============>           ]  50%  1.00 GiB of 2.00 GiB  512 MiB/s  2 s left");
  EXPECT_EQ(progress_line("f", 2_GiB, 2_GiB, 4.0),
            "f  [========================] 100%  2.00 GiB of 2.00 GiB  512 MiB/s");
  EXPECT_EQ(progress_line("f", 1_GiB, 0, 2.0), "f  1.00 GiB  512 MiB/s");
}

}  // namespace
}  // namespace forebay
