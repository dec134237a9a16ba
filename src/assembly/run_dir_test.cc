#include "assembly/run_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/testing.h"

namespace forebay {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Published example() {
  return {.name = "n",
          .version = "1",
          .pid = ::getpid(),
          .boot = 0xfedcba9876543210,
          .addresses = {"unix:/x/socket", "tcp:127.0.0.1:1"},
          .exports = {{"data", "posix /d", "/d"}}};
}

TEST(RunDirTest, WhatIsPublishedIsRead) {
  TempDir temp;
  auto run = RunDir::claim(temp / "run");
  ASSERT_TRUE(run) << run.error().what();
  ASSERT_TRUE(run->publish(example()));
  const auto read_it = read_published(temp / "run");
  ASSERT_TRUE(read_it) << read_it.error().what();
  EXPECT_EQ(read_it->boot, example().boot);
  EXPECT_EQ(read_it->addresses, example().addresses);
  EXPECT_EQ(read_it->exports[0].what, "posix /d");
  EXPECT_EQ(read_it->exports[0].path, "/d");
  EXPECT_EQ(server_in(temp / "run"), ::getpid());
}

TEST(RunDirTest, TwoServersCannotShareOne) {
  TempDir temp;
  auto first = RunDir::claim(temp / "run");
  ASSERT_TRUE(first);
  const auto second = RunDir::claim(temp / "run");
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), EBUSY);
  EXPECT_THAT(second.error().what(),
              AllOf(HasSubstr(std::to_string(::getpid())), HasSubstr("already running"),
                    HasSubstr("forebay stop")));
}

TEST(RunDirTest, AnEndedServerIsGone) {
  TempDir temp;
  {
    auto run = RunDir::claim(temp / "run");
    ASSERT_TRUE(run);
    ASSERT_TRUE(run->publish(example()));
  }
  EXPECT_FALSE(std::filesystem::exists(temp / "run/server.json"));
  EXPECT_FALSE(server_in(temp / "run"));
  const auto published = read_published(temp / "run");
  ASSERT_FALSE(published);
  EXPECT_THAT(published.error().what(), HasSubstr("forebay start"));
  EXPECT_TRUE(RunDir::claim(temp / "run"));
}

TEST(RunDirTest, WhatAKilledServerLeavesFoolsNobody) {
  TempDir temp;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto run = RunDir::claim(temp / "run");
    const bool good = run && run->publish(example());
    (void)!::write(ready[1], good ? "y" : "n", 1);
    ::pause();
  }
  char good = 0;
  ASSERT_EQ(::read(ready[0], &good, 1), 1);
  EXPECT_EQ(good, 'y');
  EXPECT_EQ(server_in(temp / "run"), child);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
  EXPECT_TRUE(std::filesystem::exists(temp / "run/server.json"));
  EXPECT_FALSE(server_in(temp / "run"));
  EXPECT_FALSE(read_published(temp / "run"));
  EXPECT_TRUE(RunDir::claim(temp / "run"));
  EXPECT_FALSE(std::filesystem::exists(temp / "run/server.json"));
}

TEST(RunDirTest, AFolderThatOthersCanWriteIsRefused) {
  TempDir temp;
  std::filesystem::create_directory(temp / "run");
  ASSERT_EQ(::chmod((temp / "run").c_str(), 0777), 0);
  const auto run = RunDir::claim(temp / "run");
  ASSERT_FALSE(run);
  EXPECT_THAT(run.error().what(), HasSubstr("chmod go-w"));
}

TEST(RunDirTest, AnotherUsersFolderIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder to another user";
  TempDir temp;
  std::filesystem::create_directory(temp / "run");
  ASSERT_EQ(::chown((temp / "run").c_str(), 12345, 12345), 0);
  const auto run = RunDir::claim(temp / "run");
  ASSERT_FALSE(run);
  EXPECT_THAT(run.error().what(), HasSubstr("belongs to user 12345"));
}

TEST(RunDirTest, AFolderThatCannotBeMadeSaysWhy) {
  const auto run = RunDir::claim("/nonexistent/run");
  ASSERT_FALSE(run);
  EXPECT_THAT(run.error().what(), AllOf(HasSubstr("/nonexistent/run"), HasSubstr("No such file")));
}

}  // namespace
}  // namespace forebay
