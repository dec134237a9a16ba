#include "copy.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/testing.h"
#include "names.h"
#include "store/memory.h"
#include "store/path.h"

namespace forebay {
namespace {

class CopyTest : public testing::Test {
 protected:
  std::string write_local(const std::string& name, uint64_t size) {
    std::mt19937_64 random(size);
    std::string bytes(size, '\0');
    for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
      const uint64_t word = random();
      std::copy_n(reinterpret_cast<const char*>(&word), 8, bytes.data() + i);
    }
    std::ofstream(temp_ / name, std::ios::binary) << bytes;
    return bytes;
  }
  std::string read_local(const std::string& name) {
    std::ostringstream out;
    out << std::ifstream(temp_ / name, std::ios::binary).rdbuf();
    return out.str();
  }
  Result<uint64_t> put(Store& store, const std::string& local, const std::string& path,
                       const Watch& watch = {}) {
    const int fd = ::open((temp_ / local).c_str(), O_RDONLY);
    auto done = put_file(store, me_, fd, 0640, path, watch);
    ::close(fd);
    return done;
  }
  Result<void> get(Store& store, const std::string& path, const std::string& local,
                   const Watch& watch = {}) {
    auto opened = open_file(store, me_, path);
    if (!opened) return opened.error();
    auto done = get_file(store, me_, *opened, temp_ / local, watch);
    close_file(store, me_, opened->file);
    return done;
  }
  std::vector<std::string> names(Store& store) {
    const auto entries = list_directory(store, me_, *store.root());
    std::vector<std::string> all;
    for (const Entry& e : *entries) all.push_back(e.name);
    return all;
  }

  TempDir temp_;
  MemoryStore store_;
  CallerRef me_ = this_process_caller();
};

TEST_F(CopyTest, ThereAndBackForSizesAroundTheRequests) {
  for (const uint64_t size :
       {0_KiB, 0_KiB + 1, 4_KiB - 1, 4_MiB - 1, 4_MiB, 4_MiB + 1, 21_MiB + 7}) {
    SCOPED_TRACE(size);
    const std::string bytes = write_local("a", size);
    const auto put_it = put(store_, "a", "/a");
    ASSERT_TRUE(put_it) << put_it.error().message();
    EXPECT_EQ(*put_it, size);
    const auto got = get(store_, "a", "b");
    ASSERT_TRUE(got) << got.error().message();
    EXPECT_TRUE(read_local("b") == bytes);
    struct stat st;
    ASSERT_EQ(::stat((temp_ / "b").c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 0777, 0640u);
  }
  EXPECT_EQ(store_.open_rights(), 0u);
  EXPECT_THAT(names(store_), testing::ElementsAre("a"));
}

TEST_F(CopyTest, APipeIsCopiedToItsEnd) {
  const std::string bytes = write_local("a", 9_MiB + 3);
  FILE* pipe = ::popen(("cat '" + (temp_ / "a") + "'").c_str(), "r");
  const auto done = put_file(store_, me_, ::fileno(pipe), 0600, "/p", {});
  ::pclose(pipe);
  ASSERT_TRUE(done) << done.error().message();
  ASSERT_TRUE(get(store_, "/p", "b"));
  EXPECT_TRUE(read_local("b") == bytes);
}

TEST_F(CopyTest, AFailedPutLeavesTheOldFileAndNothingElse) {
  write_local("old", 1000);
  write_local("new", 20_MiB);
  ASSERT_TRUE(put(store_, "old", "/f"));
  auto inner = std::make_unique<MemoryStore>(MemoryOptions{.limit = 8_MiB});
  ASSERT_TRUE(put(*inner, "old", "/f"));
  const auto done = put(*inner, "new", "/f");
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code(), ENOSPC);
  EXPECT_THAT(names(*inner), testing::ElementsAre("f"));
  ASSERT_TRUE(get(*inner, "/f", "b"));
  EXPECT_EQ(read_local("b"), read_local("old"));
  EXPECT_EQ(inner->open_rights(), 0u);
}

TEST_F(CopyTest, AnInterruptedCopyLeavesNothing) {
  write_local("a", 40_MiB);
  ASSERT_TRUE(put(store_, "a", "/a"));
  uint64_t moved = 0;
  const Watch watch{.moved = [&](uint64_t n) { moved += n; },
                    .give_up = [&] { return moved > 8_MiB; }};
  EXPECT_EQ(put(store_, "a", "/b", watch).error().code(), EINTR);
  EXPECT_THAT(names(store_), testing::ElementsAre("a"));
  moved = 0;
  EXPECT_EQ(get(store_, "/a", "c", watch).error().code(), EINTR);
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(temp_.path()))
    ++files;
  EXPECT_EQ(files, 1u);
  EXPECT_EQ(store_.open_rights(), 0u);
}

TEST_F(CopyTest, PutFollowsALinkAndRefusesADirectory) {
  write_local("a", 10);
  ASSERT_TRUE(store_.call({.op = Op::symlink,
                           .caller = me_,
                           .handle = *store_.root(),
                           .name = "link",
                           .data = "target"}));
  ASSERT_TRUE(put(store_, "a", "/link"));
  EXPECT_THAT(names(store_), testing::ElementsAre("link", "target"));
  EXPECT_EQ(put(store_, "a", "/").error().code(), EISDIR);
  EXPECT_EQ(open_file(store_, me_, "/").error().code(), EISDIR);
}

TEST_F(CopyTest, TheLongestNameCanBeCopied) {
  write_local("a", 10);
  const std::string name(kMaxName, 'n');
  EXPECT_TRUE(put(store_, "a", name));
  EXPECT_LE(partial_name(name).size(), kMaxName);
  EXPECT_EQ(put(store_, "a", name + "n").error().code(), ENAMETOOLONG);
}

}  // namespace
}  // namespace forebay
