#include "store/path.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "core/testing.h"
#include "store/memory.h"

namespace forebay {
namespace {

class PathTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto root = store_.call({.op = Op::getattr, .caller = me_, .handle = *store_.root()});
    ASSERT_TRUE(root);
  }

  Handle directory_of(const std::string& path) {
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return *store_.root();
    auto reply = store_.call(
        {.op = Op::lookup, .caller = me_, .handle = *store_.root(), .name = path.substr(0, slash)});
    FOREBAY_ASSERT(reply.has_value());
    return reply->handle;
  }
  static std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

  void file(const std::string& path) {
    auto made = store_.call({.op = Op::create,
                             .caller = me_,
                             .handle = directory_of(path),
                             .name = name_of(path),
                             .access = Access::read,
                             .mode = 0644});
    ASSERT_TRUE(made) << made.error().message();
    ids_[made->attr.file_id] = path;
    (void)store_.call(
        {.op = Op::close, .caller = me_, .handle = made->handle, .right = made->right});
  }
  void folder(const std::string& path) {
    auto made = store_.call({.op = Op::mkdir,
                             .caller = me_,
                             .handle = directory_of(path),
                             .name = name_of(path),
                             .mode = 0755});
    ASSERT_TRUE(made) << made.error().message();
    ids_[made->attr.file_id] = path;
  }
  void link(const std::string& path, const std::string& target) {
    auto made = store_.call({.op = Op::symlink,
                             .caller = me_,
                             .handle = directory_of(path),
                             .name = name_of(path),
                             .data = target});
    ASSERT_TRUE(made) << made.error().message();
    ids_[made->attr.file_id] = path;
  }

  // The canonical path of what was found, or the errno's name.
  std::string find(const std::string& path, Follow follow = Follow::yes) {
    const auto found = find_path(store_, me_, path, follow);
    if (!found) return errno_name(found.error().code());
    const auto known = ids_.find(found->attr.file_id);
    return known == ids_.end() ? "/" : known->second;
  }

  MemoryStore store_;
  CallerRef me_ = this_process_caller();
  std::map<uint64_t, std::string> ids_;
};

TEST_F(PathTest, PlainPaths) {
  folder("a");
  folder("a/b");
  file("a/b/c");
  EXPECT_EQ(find("/a/b/c"), "a/b/c");
  EXPECT_EQ(find("a//b/./c"), "a/b/c");
  EXPECT_EQ(find("/"), "/");
  EXPECT_EQ(find(""), "/");
  EXPECT_EQ(find("a/b/c/"), "ENOTDIR");
  EXPECT_EQ(find("a/b/"), "a/b");
  EXPECT_EQ(find("a/x/c"), "ENOENT");
  EXPECT_EQ(find("a/b/c/d"), "ENOTDIR");
}

TEST_F(PathTest, DotDotStaysInside) {
  folder("a");
  file("f");
  EXPECT_EQ(find("a/../f"), "f");
  EXPECT_EQ(find("../../../f"), "f");
  EXPECT_EQ(find("../../etc/passwd"), "ENOENT");
  EXPECT_EQ(find("x/../f"), "ENOENT");
  EXPECT_EQ(find("f/../f"), "ENOTDIR");
}

TEST_F(PathTest, LinksStayInside) {
  folder("a");
  file("a/f");
  link("abs", "/a/f");
  link("up", "../../a");
  link("loop", "loop");
  link("gone", "a/new");
  EXPECT_EQ(find("abs"), "a/f");
  EXPECT_EQ(find("abs", Follow::no), "abs");
  EXPECT_EQ(find("up/f"), "a/f");
  EXPECT_EQ(find("up", Follow::no), "up");
  EXPECT_EQ(find("up/", Follow::no), "a");
  EXPECT_EQ(find("loop"), "ELOOP");
  EXPECT_EQ(find("gone"), "ENOENT");
  const auto place = locate(store_, me_, "gone");
  ASSERT_TRUE(place);
  EXPECT_EQ(place->name, "new");
  EXPECT_EQ(place->directory, directory_of("a/new"));
  EXPECT_FALSE(place->found);
}

TEST_F(PathTest, LongNamesAndPaths) {
  const std::string longest(255, 'n');
  file(longest);
  EXPECT_EQ(find(longest), longest);
  EXPECT_EQ(find(longest + "n"), "ENAMETOOLONG");
  std::string path;
  while (path.size() <= kMaxPath) path += "a/";
  EXPECT_EQ(find(path), "ENAMETOOLONG");
}

TEST_F(PathTest, LocateNamesThePlaceOfWhatIsMissing) {
  folder("a");
  const auto place = locate(store_, me_, "/a/new");
  ASSERT_TRUE(place);
  EXPECT_EQ(place->name, "new");
  EXPECT_FALSE(place->found);
  EXPECT_EQ(locate(store_, me_, "/b/new").error().code(), ENOENT);
  EXPECT_EQ(locate(store_, me_, "/")->name, "");
}

// The kernel's own walk, confined to a directory in the same way, is the oracle.
class Oracle {
 public:
  std::string find(const std::string& path, Follow follow) {
    const int root = ::open(dir_.path().c_str(), O_PATH | O_DIRECTORY);
    struct open_how how = {};
    how.flags = O_PATH | (follow == Follow::no ? O_NOFOLLOW : 0);
    how.resolve = RESOLVE_IN_ROOT;
    int fd;
    do {  // EAGAIN at "..": somebody on this machine has renamed something meanwhile
      fd = static_cast<int>(
          ::syscall(SYS_openat2, root, path.empty() ? "." : path.c_str(), &how, sizeof how));
    } while (fd < 0 && errno == EAGAIN);
    const int code = errno;
    ::close(root);
    if (fd < 0) return errno_name(code);
    std::string real =
        std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd)).string();
    ::close(fd);
    real = real.substr(std::filesystem::canonical(dir_.path()).string().size());
    return real.empty() ? "/" : real.substr(1);
  }
  std::string at(const std::string& path) { return dir_ / path; }

 private:
  TempDir dir_;
};

TEST_F(PathTest, WalksAsTheKernelDoes) {
  std::mt19937_64 random(test_seed());
  const std::vector<std::string> names = {"a", "b", "c", "a", "b", ".", "..", ""};
  auto random_path = [&] {
    std::string path = random() % 4 == 0 ? "/" : "";
    for (uint64_t i = 0, n = 1 + random() % 5; i < n; ++i)
      path += (i ? "/" : "") + names[random() % names.size()];
    return path + (random() % 8 == 0 ? "/" : "");
  };
  Oracle oracle;
  // A tree three deep in which every third thing is a link to anywhere.
  std::vector<std::string> folders = {""};
  for (size_t at = 0; at < folders.size() && folders.size() < 12; ++at) {
    for (const std::string name : {"a", "b", "c"}) {
      const std::string path = folders[at].empty() ? name : folders[at] + "/" + name;
      const std::string target = random_path();
      const uint64_t kind = random() % 3;
      if (kind == 0 && !target.empty()) {
        link(path, target);
        std::filesystem::create_symlink(target, oracle.at(path));
      } else if (kind == 1) {
        file(path);
        std::ofstream(oracle.at(path)) << "";
      } else {
        folder(path);
        std::filesystem::create_directory(oracle.at(path));
        folders.push_back(path);
      }
    }
  }
  for (int i = 0; i < 3000; ++i) {
    const std::string path = random_path();
    const Follow follow = random() % 2 ? Follow::yes : Follow::no;
    ASSERT_EQ(find(path, follow), oracle.find(path, follow))
        << "path '" << path << "' follow " << (follow == Follow::yes);
  }
}

}  // namespace
}  // namespace forebay
