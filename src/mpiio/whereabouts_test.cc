#include "mpiio/whereabouts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/testing.h"

namespace forebay::mpiio {
namespace {

namespace fs = std::filesystem;
using testing::EndsWith;

class WhereaboutsTest : public testing::Test {
 protected:
  WhereaboutsTest() {
    fs::create_directory(dir_ / "a");
    fs::create_directory(dir_ / "b");
    std::ofstream(dir_ / "a/file") << "x";
  }
  ~WhereaboutsTest() override {
    for (const char* name :
         {"FOREBAY_CLIENT_SERVER", "FOREBAY_CLIENT_PREFIX", "FOREBAY_CLIENT_PRELOAD"})
      ::unsetenv(name);
  }
  static void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

  TempDir dir_;
  Places places_;
};

TEST_F(WhereaboutsTest, WithoutAServerAFileIsInAStoreOfItsFolder) {
  const auto one = places_.find(dir_ / "a/file").value();
  EXPECT_FALSE(one.served);
  EXPECT_EQ(one.path, "file");
  EXPECT_EQ(places_.find("ufs:" + (dir_ / "a/other")).value().store, one.store);
  EXPECT_NE(places_.find(dir_ / "b/file").value().store, one.store);
  EXPECT_EQ(places_.find(dir_ / "none/file").error().code(), ENOENT);
}

TEST_F(WhereaboutsTest, LinksAreFollowedByWhoOpensAndNotByWhoRemoves) {
  fs::create_symlink("../a/file", dir_ / "b/link");
  fs::create_symlink("../a/later", dir_ / "b/dangling");
  fs::create_symlink("loop", dir_ / "b/loop");
  const auto folder = places_.find(dir_ / "a/file").value().store;
  const auto link = places_.find(dir_ / "b/link").value();
  EXPECT_EQ(link.store, folder);
  EXPECT_EQ(link.path, "file");
  const auto dangling = places_.find(dir_ / "b/dangling").value();
  EXPECT_EQ(dangling.store, folder);
  EXPECT_EQ(dangling.path, "later");
  const auto itself = places_.find(dir_ / "b/link", Follow::no).value();
  EXPECT_NE(itself.store, folder);
  EXPECT_EQ(itself.path, "link");
  EXPECT_FALSE(places_.find(dir_ / "b/loop")) << "and it ends";
}

TEST_F(WhereaboutsTest, OnlyFilesBelowThePrefixNeedTheServer) {
  set("FOREBAY_CLIENT_SERVER", "unix:" + (dir_ / "no-socket"));
  set("FOREBAY_CLIENT_PREFIX", dir_ / "a");
  EXPECT_TRUE(places_.find(dir_ / "b/file"));
  EXPECT_FALSE(places_.find(dir_ / "a/file")) << "there is no server";
}

TEST_F(WhereaboutsTest, WhatOnlyPosixCallsKnowIsNamedAsTheServerHasIt) {
  set("FOREBAY_CLIENT_SERVER", "unix:" + (dir_ / "no-socket"));
  set("FOREBAY_CLIENT_PREFIX", dir_ / "a");
  set("FOREBAY_CLIENT_PRELOAD", "/forebay/, /runs=/old");
  const auto told = [&](const std::string& name) {
    const auto place = places_.find(name);
    EXPECT_EQ(place ? 0 : place.error().code(), ENOENT);
    return place ? "" : place.error().what();
  };
  EXPECT_THAT(told("/forebay/x/y"),
              EndsWith("name it " + (dir_ / "a/x/y") + ", or set client.prefix=/forebay"));
  EXPECT_THAT(told("/runs/x"), EndsWith("name it " + (dir_ / "a/old/x")));
  EXPECT_TRUE(places_.find(dir_ / "b/file"));
}

TEST_F(WhereaboutsTest, AServerThatDoesNotTellWhatItHasIsAnError) {
  set("FOREBAY_CLIENT_SERVER", dir_ / "no-run-dir");
  EXPECT_EQ(places_.find(dir_ / "b/file").error().code(), ENOTCONN);
}

TEST(WithoutPrefix, KnownOnesOnly) {
  EXPECT_EQ(without_prefix("nfs:/a/b"), "/a/b");
  EXPECT_EQ(without_prefix("/a:b"), "/a:b");
  EXPECT_EQ(without_prefix("mine:/a"), "mine:/a");
}

}  // namespace
}  // namespace forebay::mpiio
