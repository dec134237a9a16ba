#include "server/journal.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "core/testing.h"

namespace forebay::server {
namespace {

using attr::Command;
using Kind = Command::Kind;

class JournalTest : public ::testing::Test {
 protected:
  Result<std::unique_ptr<Journal>> open(std::string owner = "us", uint64_t compact_at = 1 << 20) {
    state_ = attr::State();
    return Journal::open({path_, std::move(owner), false, compact_at},
                         [&](const Command& c) -> Result<void> {
                           auto applied = state_.apply(c);
                           if (!applied) return applied.error();
                           return {};
                         });
  }
  // Does it, and writes it down.
  void change(Journal& journal, const Command& c) {
    ASSERT_TRUE(state_.apply(c));
    journal.add(c);
    ASSERT_TRUE(journal.write(journal.take()));
  }
  void some_changes(Journal& journal) {
    change(journal, {.kind = Kind::life, .value = 1});
    change(journal, {.kind = Kind::file, .file = 1, .name = "f"});
    change(journal, {.kind = Kind::create, .file = 1, .value = 5, .name = "n"});
    change(journal, {Kind::add, 1, 2, 0, {1, 2, 3, 4}, "n"});
  }

  TempDir dir_;
  const std::string path_ = dir_ / "journal";
  attr::State state_;
};

TEST_F(JournalTest, GivesBackWhatWasWritten) {
  uint64_t id;
  {
    auto journal = open();
    ASSERT_TRUE(journal);
    EXPECT_TRUE((*journal)->made());
    id = (*journal)->id();
    some_changes(**journal);
  }
  auto again = open();
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_FALSE((*again)->made());
  EXPECT_EQ((*again)->id(), id);
  EXPECT_EQ(state_.get(1, "n").value(), 7u);
  EXPECT_EQ(state_.recall({1, 2, 3, 4}).value()->value, 5u);
  change(**again, {Kind::add, 1, 2, 0, {}, "n"});
  again->reset();
  ASSERT_TRUE(open());
  EXPECT_EQ(state_.get(1, "n").value(), 9u);
}

TEST_F(JournalTest, IsOfOneServerAndOneExport) {
  auto journal = open();
  ASSERT_TRUE(journal);
  EXPECT_EQ(open().error().code(), EBUSY);
  journal->reset();
  const auto other = open("them");
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code(), EXDEV);
  EXPECT_NE(other.error().what().find("is the state of us, and not of them"), std::string::npos);
}

TEST_F(JournalTest, ATornEndIsCutOffAndDamageIsRefused) {
  {
    auto journal = open();
    some_changes(**journal);
  }
  const auto size = std::filesystem::file_size(path_);
  std::filesystem::resize_file(path_, size - 3);
  {
    auto torn = open();
    ASSERT_TRUE(torn);
    EXPECT_GT((*torn)->torn(), 0u);
    EXPECT_EQ(state_.get(1, "n").value(), 5u) << "without the last change";
    change(**torn, {Kind::add, 1, 1, 0, {}, "n"});
  }
  {
    auto whole = open();
    ASSERT_TRUE(whole);
    EXPECT_EQ((*whole)->torn(), 0u);
    EXPECT_EQ(state_.get(1, "n").value(), 6u);
  }
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(60);
  file.put('#');
  file.close();
  const auto damaged = open();
  ASSERT_FALSE(damaged);
  EXPECT_EQ(damaged.error().code(), EBADMSG);
}

TEST_F(JournalTest, ACompactionKeepsTheStateAndNoMore) {
  auto journal = open("us", 2000);
  some_changes(**journal);
  while (!(*journal)->wants_compaction()) change(**journal, {Kind::add, 1, 1, 0, {}, "n"});
  const uint64_t value = state_.get(1, "n").value(), id = (*journal)->id();
  ASSERT_TRUE((*journal)->replace((*journal)->take_snapshot(state_)));
  EXPECT_LT((*journal)->size(), 500u);
  EXPECT_FALSE((*journal)->wants_compaction());
  change(**journal, {Kind::add, 1, 1, 0, {}, "n"});
  journal->reset();
  std::ofstream(path_ + ".new") << "of a compaction that was cut off";
  auto again = open();
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ((*again)->id(), id);
  EXPECT_EQ(state_.get(1, "n").value(), value + 1);
  EXPECT_EQ(state_.recall({1, 2, 3, 4}).value()->value, 5u);
}

}  // namespace
}  // namespace forebay::server
