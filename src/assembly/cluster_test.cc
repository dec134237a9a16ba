#include "assembly/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace forebay {
namespace {

using testing::HasSubstr;

std::string wrong(std::vector<std::string> servers) {
  ClusterConfig config;
  config.servers = std::move(servers);
  const auto members = cluster_members(config);
  return members ? "" : members.error().what();
}

TEST(Cluster, TheList) {
  EXPECT_EQ(wrong({}), "");
  EXPECT_EQ(wrong({"a=tcp:10.0.0.1:4711", "b=tcp:[::1]:4711"}), "");
  EXPECT_THAT(wrong({"tcp:10.0.0.1:4711"}), HasSubstr("NAME=ADDRESS"));
  EXPECT_THAT(wrong({"a b=tcp:10.0.0.1:4711"}), HasSubstr("NAME=ADDRESS"));
  EXPECT_THAT(wrong({"a=unix:/socket"}), HasSubstr("tcp:HOST:PORT"));
  EXPECT_THAT(wrong({"a=tcp:10.0.0.1:0"}), HasSubstr("tcp:HOST:PORT"));
  EXPECT_THAT(wrong({"a=tcp:10.0.0.1:1", "a=tcp:10.0.0.2:1"}), HasSubstr("two are called 'a'"));
}

TEST(Cluster, WhatAServerNeedsToBelong) {
  Config config;
  config.cluster.servers = {"a=tcp:10.0.0.1:1", "b=tcp:10.0.0.2:1"};
  const auto key = std::make_shared<const AuthKey>(std::string(32, 'k'), "k");
  EXPECT_THAT(cluster_options(config, "c", key).error().what(), HasSubstr("none of"));
  EXPECT_THAT(cluster_options(config, "a", nullptr).error().what(), HasSubstr("key_file"));
  config.exports.emplace_back();
  config.exports.back().name = "x";
  config.exports.back().store = "memory";
  EXPECT_THAT(cluster_options(config, "a", key).error().what(), HasSubstr("one server's own"));
  config.exports.back().store = "posix";
  const auto good = cluster_options(config, "a", key);
  ASSERT_TRUE(good) << good.error().message();
  EXPECT_EQ((*good)->self, "a");
  config.cluster.servers.clear();
  EXPECT_EQ(*cluster_options(config, "a", key), nullptr);
}

}  // namespace
}  // namespace forebay
