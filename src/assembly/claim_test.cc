#include "assembly/claim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "core/testing.h"

namespace forebay {
namespace {

using testing::HasSubstr;
using List = std::vector<std::string>;

class Claim : public testing::Test {
 protected:
  Claim() {
    config_.name = "x";
    config_.path = dir_.path();
  }
  std::string refused(Claims& claims) const {
    const auto taken = claims.take(config_);
    if (taken) return "";
    EXPECT_EQ(taken.error().code(), EBUSY);
    return taken.error().what();
  }

  TempDir dir_;
  ExportConfig config_;
};

TEST_F(Claim, OneListForAnExport) {
  EXPECT_TRUE(Claims("a", {}).take(config_)) << "alone, and nobody else was there";
  ASSERT_TRUE(Claims("a", {"b", "a"}).take(config_));
  EXPECT_TRUE(Claims("b", {"a", "b"}).take(config_)) << "the same, in another order";
  for (const List& other : {List{}, {"a"}, {"a", "b", "c"}}) {
    Claims claims("a", other);
    EXPECT_THAT(refused(claims), HasSubstr(dir_ / ".forebay/servers"));
  }
}

TEST_F(Claim, AServerThatKeepsAttributesIsNotLeftOutOfANewList) {
  std::filesystem::create_directory(dir_ / ".forebay");
  std::filesystem::permissions(dir_ / ".forebay", std::filesystem::perms::owner_all);
  for (const char* name : {"a", "b", "c"}) {
    std::ofstream(dir_ / ".forebay/state." + name) << "0123456789abcdef\n";
  }
  Claims claims("a", {"a", "b"});
  EXPECT_THAT(refused(claims), HasSubstr("at server 'c'"));
  std::filesystem::remove(dir_ / ".forebay/state.c");
  EXPECT_EQ(refused(claims), "");
}

TEST_F(Claim, WhoeverIsAloneIsTheOnlyOne) {
  std::optional<Claims> first(std::in_place, "first", List{});
  ASSERT_TRUE(first->take(config_));
  EXPECT_TRUE(first->take(config_)) << "two exports of one server";
  Claims alone("second", {});
  EXPECT_THAT(refused(alone), HasSubstr("server 'first'"));
  Claims member("a", {"a", "b"});
  EXPECT_THAT(refused(member), HasSubstr("server 'first'"));
  EXPECT_FALSE(std::filesystem::exists(dir_ / ".forebay/servers"));
  first.reset();
  EXPECT_EQ(refused(member), "");
}

TEST_F(Claim, ServersOfOneListAreTogether) {
  Claims a("a", {"a", "b"}), b("b", {"b", "a"});
  ASSERT_EQ(refused(a), "");
  ASSERT_EQ(refused(b), "");
  Claims twice("a", {"a", "b"});
  EXPECT_THAT(refused(twice), HasSubstr("another server 'a'"));
  // The list is changed while they run.
  std::filesystem::remove(dir_ / ".forebay/servers");
  for (const List& other : {List{}, {"a", "b", "c"}}) {
    Claims claims("a", other);
    EXPECT_THAT(refused(claims), HasSubstr("the servers"));
  }
}

TEST_F(Claim, WhoeverIsKilledLetsGo) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t server = ::fork();
  if (server == 0) {
    Claims claims("first", {});
    const char good = claims.take(config_) ? 1 : 0;
    (void)!::write(ready[1], &good, 1);
    for (;;) ::pause();
  }
  char good = 0;
  EXPECT_EQ(::read(ready[0], &good, 1), 1);
  EXPECT_TRUE(good);
  ::close(ready[0]);
  ::close(ready[1]);
  Claims next("next", {});
  EXPECT_THAT(refused(next), HasSubstr("server 'first'"));
  ::kill(server, SIGKILL);  // and nobody waits for its end
  EXPECT_EQ(refused(next), "");
  ::waitpid(server, nullptr, 0);
}

TEST_F(Claim, WhatCannotBeLockedIsServedAllTheSame) {
  std::filesystem::create_directory(dir_ / ".forebay");
  std::filesystem::permissions(dir_ / ".forebay", std::filesystem::perms::all);  // anybody's
  Claims first("first", {}), second("second", {});
  EXPECT_EQ(refused(first), "");
  EXPECT_EQ(refused(second), "");
}

}  // namespace
}  // namespace forebay
