#include "mpiio/hints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace forebay::mpiio {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST(Hints, ValuesThatMakeNoSenseAreNotTaken) {
  Hints hints;
  for (const auto& [key, value] : HintList{{"cb_buffer_size", "0"},
                                           {"cb_buffer_size", "-1"},
                                           {"cb_buffer_size", "1 MiB"},
                                           {"cb_buffer_size", "99999999999999999999"},
                                           {"romio_cb_write", "yes"},
                                           {"cb_config_list", "node1:2,node2:1"},
                                           {"forebay_realm_list", "0:100,50:100"},
                                           {"file_perm", "0888"},
                                           {"forebay_direct", "1"}})
    EXPECT_EQ(hints.set(key, value), Hints::Taken::bad_value) << key << "=" << value;
  EXPECT_EQ(hints.all(), Hints().all());
  EXPECT_EQ(hints.ignored().size(), 9u);
}

TEST(Hints, TakenIgnoredAndUnknown) {
  Hints hints;
  EXPECT_FALSE(hints.given("cb_buffer_size"));
  EXPECT_EQ(hints.set("cb_buffer_size", " 1048576 "), Hints::Taken::yes);
  EXPECT_TRUE(hints.given("cb_buffer_size"));
  EXPECT_EQ(hints.number("cb_buffer_size"), 1048576u);
  EXPECT_EQ(hints.set("file_perm", "640"), Hints::Taken::yes);
  EXPECT_EQ(hints.number("file_perm"), 0640u);
  EXPECT_EQ(hints.set("romio_lustre_co_ratio", "2"), Hints::Taken::ignored);
  EXPECT_EQ(hints.set("romio_lustre_co_ratio", "2"), Hints::Taken::ignored);
  EXPECT_EQ(hints.set("somebody_elses", "x"), Hints::Taken::unknown);
  EXPECT_THAT(hints.ignored(), ElementsAre(HasSubstr("romio_lustre_co_ratio=2"))) << "told once";
  EXPECT_EQ(hints["cb_nodes"], "") << "not set, not shown";
  EXPECT_FALSE(hints.all().contains("cb_nodes"));
  EXPECT_EQ(hints["romio_cb_alltoall"], "automatic");
  EXPECT_EQ(hints.set("romio_cb_alltoall", "enable"), Hints::Taken::yes);
  EXPECT_EQ(hints.all().at("romio_cb_alltoall"), "enable");
}

TEST(Hints, WhatCannotApplyIsNotShown) {
  Hints hints;
  EXPECT_EQ(hints["romio_ds_write"], "automatic");
  hints.ignore("romio_ds_write", "no server");
  hints.ignore("ind_wr_buffer_size", "no server");
  EXPECT_TRUE(hints.ignored().empty()) << "nobody gave them";
  EXPECT_EQ(hints.set("romio_ds_write", "enable"), Hints::Taken::yes);
  EXPECT_EQ(hints.set("ind_wr_buffer_size", "65536"), Hints::Taken::yes);
  hints.ignore("romio_ds_write", "no server");
  hints.ignore("ind_wr_buffer_size", "no server");
  EXPECT_THAT(hints.ignored(), ElementsAre("ind_wr_buffer_size=65536 (no server)",
                                           "romio_ds_write=enable (no server)"));
  for (const char* key : {"romio_ds_write", "ind_wr_buffer_size"})
    EXPECT_FALSE(hints.all().contains(key));
}

TEST(Hints, FilesAndVariables) {
  // The last one taken counts, and in ROMIO's files it is the first line.
  EXPECT_THAT(parse_hint_file("# site\ncb_nodes 4\n\n  cb_nodes\t5\r\nlonely\n"),
              ElementsAre(Pair("cb_nodes", "5"), Pair("cb_nodes", "4")));
  EXPECT_THAT(parse_hint_variable("a=1; b = two words ;=3;c"),
              ElementsAre(Pair("a", "1"), Pair("b", "two words")));
  EXPECT_TRUE(parse_hint_variable("").empty());
}

TEST(Hints, ThePageNamesThemAll) {
  std::ostringstream page;
  page << std::ifstream(FOREBAY_TEST_DOCS "/mpi-io.md").rdbuf();
  for (const auto& one : Hints::honoured())
    EXPECT_THAT(page.str(), HasSubstr("`" + std::string(one.name) + "`"));
}

}  // namespace
}  // namespace forebay::mpiio
