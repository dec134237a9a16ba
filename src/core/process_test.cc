#include "core/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace forebay {
namespace {

// From its life to its end, each state as soon as the kernel has told of it.
TEST(Process, WhatBecomesOfOne) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0)
    for (;;) ::pause();
  const auto pid = static_cast<uint32_t>(child);
  EXPECT_FALSE(process_is_gone(pid));
  EXPECT_FALSE(process_is_stopped(pid));
  int status = 0;
  ::kill(child, SIGSTOP);
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  EXPECT_TRUE(process_is_stopped(pid));
  EXPECT_FALSE(process_is_gone(pid));
  ::kill(child, SIGKILL);
  siginfo_t ended{};
  ASSERT_EQ(::waitid(P_PID, pid, &ended, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(process_is_gone(pid));  // nobody has waited for it
  EXPECT_FALSE(process_is_forgotten(pid));
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(process_is_gone(pid));
  EXPECT_TRUE(process_is_forgotten(pid));
}

TEST(Process, NobodyIsNotGone) {
  EXPECT_FALSE(process_is_gone(0));
  EXPECT_FALSE(process_is_forgotten(0));
  EXPECT_TRUE(process_is_stopped(0));  // nobody can tell
}

}  // namespace
}  // namespace forebay
