#include "names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/memory.h"

namespace forebay {
namespace {

class NamesTest : public testing::Test {
 protected:
  void file(const std::string& path) {
    auto place = locate(store_, me_, path);
    ASSERT_TRUE(place);
    auto made = store_.call({.op = Op::create,
                             .caller = me_,
                             .handle = place->directory,
                             .name = place->name,
                             .access = Access::write,
                             .mode = 0600});
    ASSERT_TRUE(made);
    ASSERT_TRUE(store_.call(
        {.op = Op::close, .caller = me_, .handle = made->handle, .right = made->right}));
  }

  MemoryStore store_;
  CallerRef me_ = this_process_caller();
};

TEST_F(NamesTest, DirectoriesLargerThanOneReplyAreListedWhole) {
  for (int i = 0; i < 3000; ++i) file("file-with-a-rather-long-name-" + std::to_string(10000 + i));
  const auto entries = list_directory(store_, me_, *store_.root());
  ASSERT_TRUE(entries);
  ASSERT_EQ(entries->size(), 3000u);
  EXPECT_EQ(entries->front().name, "file-with-a-rather-long-name-10000");
  EXPECT_EQ(entries->back().name, "file-with-a-rather-long-name-12999");
  EXPECT_EQ(entries->back().attr.type, FileType::file);
}

TEST_F(NamesTest, TreesAreMadeAndRemoved) {
  ASSERT_TRUE(make_path(store_, me_, "/a/b//c/", 0755));
  ASSERT_TRUE(make_path(store_, me_, "a/b/c", 0755));  // again
  file("a/b/f");
  file("a/g");
  EXPECT_EQ(make_path(store_, me_, "a/g", 0755).error().code(), EEXIST);
  EXPECT_EQ(make_path(store_, me_, "a/g/h", 0755).error().code(), ENOTDIR);
  ASSERT_TRUE(remove_tree(store_, me_, *locate(store_, me_, "/a")));
  EXPECT_TRUE(list_directory(store_, me_, *store_.root())->empty());
}

TEST(Names, Texts) {
  EXPECT_EQ(base_name("/a/b"), "b");
  EXPECT_EQ(base_name("a/b//"), "b");
  EXPECT_EQ(base_name("/"), "");
  Attr attr;
  attr.type = FileType::directory;
  attr.mode = 01755;
  EXPECT_EQ(mode_text(attr), "drwxr-xr-t");
  attr.type = FileType::file;
  attr.mode = 04640;
  EXPECT_EQ(mode_text(attr), "-rwSr-----");
}

}  // namespace
}  // namespace forebay
