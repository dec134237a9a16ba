#include "core/key_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "core/testing.h"

namespace forebay {
namespace {

void put(const std::string& path, const std::string& bytes, mode_t mode) {
  std::ofstream(path, std::ios::binary) << bytes;
  ASSERT_EQ(::chmod(path.c_str(), mode), 0);
}

TEST(KeyFile, MadeOnceAndRead) {
  TempDir dir;
  const std::string path = dir / "key";
  ASSERT_TRUE(make_key_file(path));
  struct stat st;
  ASSERT_EQ(::stat(path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0600u);
  const auto key = read_key_file(path);
  ASSERT_TRUE(key);
  EXPECT_EQ(key->size(), kKeyFileBytes);
  EXPECT_EQ(make_key_file(path).error().code(), EEXIST);
  EXPECT_EQ(*read_key_file(path), *key) << "the one that is there stays";
}

TEST(KeyFile, SaysWhatIsWrong) {
  TempDir dir;
  EXPECT_EQ(read_key_file(dir / "none").error().code(), ENOENT);
  put(dir / "open", std::string(32, 'k'), 0640);
  EXPECT_EQ(read_key_file(dir / "open").error().code(), EPERM);
  EXPECT_NE(read_key_file(dir / "open").error().what().find("chmod 600"), std::string::npos);
  put(dir / "short", "secret", 0600);
  EXPECT_EQ(read_key_file(dir / "short", 32, 4096).error().code(), EINVAL);
  EXPECT_NE(read_key_file(dir / "short", 32, 4096).error().what().find("6 bytes"),
            std::string::npos);
  put(dir / "long", std::string(100, 'k'), 0600);
  EXPECT_EQ(read_key_file(dir / "long").error().code(), EINVAL);
  EXPECT_TRUE(read_key_file(dir / "long", 32, 4096));
  EXPECT_EQ(read_key_file(dir.path()).error().code(), EINVAL) << "a directory";
}

}  // namespace
}  // namespace forebay
