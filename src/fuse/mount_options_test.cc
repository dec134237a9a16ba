#include "fuse/mount_options.h"

#include <gtest/gtest.h>

namespace forebay::fuse {
namespace {

TEST(MountOptions, EveryKindOfWord) {
  const auto words = parse_mount_words(
      {"rw,noauto,_netdev,x-systemd.automount,allow_other", "attr_timeout=1.5,server=tcp:h:1,,ro"});
  ASSERT_TRUE(words) << words.error().message();
  EXPECT_EQ(words->options.kernel, (std::vector<std::string>{"rw", "allow_other", "ro"}));
  EXPECT_EQ(words->options.attr_timeout, 1.5);
  EXPECT_EQ(words->options.entry_timeout, 0);
  EXPECT_EQ(words->options.cache, Cache::lease);
  using Settings = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(words->settings, (Settings{{"server", "tcp:h:1"}}));
}

TEST(MountOptions, Cache) {
  EXPECT_EQ(parse_mount_words({"cache=none"})->options.cache, Cache::none);
  EXPECT_EQ(parse_mount_words({"cache=pages"})->options.cache, Cache::pages);
  EXPECT_EQ(parse_mount_words({"cache=lease"})->options.cache, Cache::lease);
  EXPECT_EQ(parse_mount_words({"cache=writeback"})->options.cache, Cache::writeback);
  EXPECT_FALSE(parse_mount_words({"cache=all"}));
}

TEST(MountOptions, WrongWordsAreNamed) {
  for (const char* wrong : {"allow_otter", "attr_timeout=x", "entry_timeout=-1", "attr_timeout="}) {
    const auto words = parse_mount_words({std::string("ro,") + wrong});
    ASSERT_FALSE(words) << wrong;
    EXPECT_EQ(words.error().code(), EINVAL);
    EXPECT_NE(words.error().what().find(wrong), std::string::npos);
  }
}

}  // namespace
}  // namespace forebay::fuse
