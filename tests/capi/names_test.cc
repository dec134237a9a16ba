#include <sys/stat.h>

#include <set>

#include "rig.h"

namespace forebay {
namespace {

class CapiNames : public Capi {};

std::set<std::string> list(fb_store* store, const char* path) {
  std::set<std::string> names;
  fb_dir* dir = nullptr;
  EXPECT_OK(fb_opendir(store, path, &dir));
  fb_dirent entry;
  int got = 0;
  while ((got = fb_readdir(dir, &entry)) == 1) names.insert(entry.name);
  EXPECT_EQ(got, 0) << fb_error();
  EXPECT_EQ(fb_readdir(dir, &entry), 0) << "the end stays the end";
  EXPECT_OK(fb_closedir(dir));
  return names;
}

TEST_F(CapiNames, DirectoriesAreMadeListedAndRemoved) {
  ASSERT_OK(fb_mkdir(store_, "/d", 0755));
  ASSERT_OK(fb_mkdir(store_, "d/e/", 0755));
  EXPECT_EQ(list(store_, "/d"), std::set<std::string>{"e"});
  EXPECT_ERRNO(ENOTEMPTY, fb_rmdir(store_, "/d"));
  EXPECT_ERRNO(EEXIST, fb_mkdir(store_, "/d", 0755));
  EXPECT_ERRNO(EEXIST, fb_mkdir(store_, "/", 0755));
  EXPECT_ERRNO(EBUSY, fb_rmdir(store_, "/"));
  EXPECT_ERRNO(EINVAL, fb_rmdir(store_, "/d/."));
  EXPECT_ERRNO(ENOENT, fb_mkdir(store_, "/x/y", 0755));
  EXPECT_OK(fb_rmdir(store_, "/d/../d//e"));
  EXPECT_OK(fb_rmdir(store_, "/d/"));
  EXPECT_EQ(list(store_, "/").size(), 0u);
}

TEST_F(CapiNames, ManyEntries) {
  std::set<std::string> made;
  for (int i = 0; i < 500; ++i) {
    made.insert("a-rather-long-name-of-a-file-" + std::to_string(i));
    EXPECT_OK(fb_close(open("a-rather-long-name-of-a-file-" + std::to_string(i))));
  }
  EXPECT_EQ(list(store_, "/"), made);
}

TEST_F(CapiNames, TheModeIsWithoutTheUmask) {
  const mode_t old = ::umask(027);
  fb_attr attr;
  ASSERT_OK(fb_mkdir(store_, "/d", 0777));
  fb_file* file = nullptr;
  ASSERT_OK(fb_open(store_, "/f", O_CREAT | O_WRONLY, 0666, nullptr, &file));
  ::umask(old);
  ASSERT_OK(fb_stat(store_, "/d", &attr));
  EXPECT_EQ(attr.mode, S_IFDIR | 0750u);
  ASSERT_OK(fb_fstat(file, &attr));
  EXPECT_EQ(attr.mode, S_IFREG | 0640u);
  EXPECT_OK(fb_close(file));
}

TEST_F(CapiNames, LinksAndSymbolicLinks) {
  fb_file* file = open("/f");
  write(file, "hello");
  EXPECT_OK(fb_close(file));
  ASSERT_OK(fb_link(store_, "/f", "/hard"));
  ASSERT_OK(fb_symlink(store_, "/f", "/soft"));
  EXPECT_ERRNO(EEXIST, fb_symlink(store_, "/f", "/soft"));
  EXPECT_ERRNO(ENOENT, fb_symlink(store_, "", "/empty"));
  fb_attr attr;
  ASSERT_OK(fb_stat(store_, "/soft", &attr));
  EXPECT_TRUE(S_ISREG(attr.mode));
  EXPECT_EQ(attr.links, 2u);
  EXPECT_EQ(attr.size, 5u);
  EXPECT_GT(attr.mtime, 0);
  ASSERT_OK(fb_lstat(store_, "/soft", &attr));
  EXPECT_TRUE(S_ISLNK(attr.mode));
  char text[10] = "";
  EXPECT_EQ(fb_readlink(store_, "/soft", text, sizeof text), 2);
  EXPECT_STREQ(text, "/f");
  EXPECT_EQ(fb_readlink(store_, "/soft", text, 1), 1) << "cut, as readlink(2) does";
  EXPECT_ERRNO(EINVAL, fb_readlink(store_, "/f", text, sizeof text));
  file = open("/soft", O_RDONLY);
  EXPECT_EQ(read(file, 10), "hello");
  EXPECT_OK(fb_close(file));
}

TEST_F(CapiNames, RenameUnlinkTruncate) {
  fb_file* file = open("/a");
  write(file, "0123456789");
  EXPECT_OK(fb_close(file));
  ASSERT_OK(fb_mkdir(store_, "/d", 0700));
  ASSERT_OK(fb_rename(store_, "/a", "/d/b"));
  EXPECT_ERRNO(ENOENT, fb_rename(store_, "/a", "/c"));
  EXPECT_ERRNO(ENOTDIR, fb_rename(store_, "/d/b", "/c/"));
  EXPECT_OK(fb_rename(store_, "/d/", "/e/"));
  ASSERT_OK(fb_truncate(store_, "/e/b", 4));
  fb_attr attr;
  ASSERT_OK(fb_stat(store_, "/e/b", &attr));
  EXPECT_EQ(attr.size, 4u);
  EXPECT_ERRNO(EISDIR, fb_unlink(store_, "/e"));
  EXPECT_ERRNO(EISDIR, fb_unlink(store_, "/e/"));
  EXPECT_ERRNO(ENOTDIR, fb_unlink(store_, "/e/b/"));
  EXPECT_ERRNO(ENOTDIR, fb_rmdir(store_, "/e/b"));
  EXPECT_OK(fb_unlink(store_, "/e/b"));
  EXPECT_ERRNO(ENOENT, fb_unlink(store_, "/e/b"));
}

TEST_F(CapiNames, Statfs) {
  fb_fs fs;
  ASSERT_OK(fb_statfs(store_, "/", &fs));
  EXPECT_GT(fs.block_size, 0u);
  EXPECT_EQ(fs.name_max, 255u);
  EXPECT_ERRNO(ENOENT, fb_statfs(store_, "/x", &fs));
}

TEST_F(CapiNames, ErrorsSayWhatAndWhere) {
  fb_attr attr;
  EXPECT_ERRNO(ENOENT, fb_stat(store_, "/no/such", &attr));
  EXPECT_STREQ(fb_error(), "fb_stat: /no/such: No such file or directory (ENOENT)");
  EXPECT_EQ(fb_error_done(), 0u);
  EXPECT_EQ(fb_error_outcome_unknown(), 0);
  EXPECT_ERRNO(EINVAL, fb_stat(store_, nullptr, &attr));
  EXPECT_ERRNO(EINVAL, fb_stat(nullptr, "/", &attr));
  EXPECT_ERRNO(ENAMETOOLONG, fb_mkdir(store_, std::string(300, 'x').c_str(), 0700));
  fb_dir* dir = nullptr;
  EXPECT_OK(fb_close(open("/f")));
  EXPECT_ERRNO(ENOTDIR, fb_opendir(store_, "/f", &dir));
  EXPECT_ERRNO(EINVAL, fb_readdir(nullptr, nullptr));
  EXPECT_ERRNO(EINVAL, fb_closedir(nullptr));
  std::thread([] { EXPECT_STREQ(fb_error(), "") << "each thread has its own"; }).join();
}

TEST(CapiConnect, WithoutAServer) {
  TempDir dir;
  fb_store* store = nullptr;
  EXPECT_EQ(fb_connect(("unix:" + (dir / "nobody")).c_str(), "data", &store), -1);
  EXPECT_EQ(store, nullptr);
  EXPECT_NE(std::string(fb_error()).find("forebay start"), std::string::npos) << fb_error();
  EXPECT_OK(fb_disconnect(nullptr));
  EXPECT_STRNE(fb_version(), "");
}

TEST_F(CapiNames, ConnectFindsTheOnlyExportAndRefusesUnknownOnes) {
  fb_store* other = nullptr;
  EXPECT_OK(fb_connect(server_.address().c_str(), nullptr, &other));
  EXPECT_OK(fb_disconnect(other));
  EXPECT_ERRNO(ENOENT, fb_connect(server_.address().c_str(), "nothing", &other));
  ::setenv("FOREBAY_CLIENT_SERVER", server_.address().c_str(), 1);
  EXPECT_OK(fb_connect(nullptr, nullptr, &other));
  EXPECT_OK(fb_disconnect(other));
  ::setenv("FOREBAY_CLIENT_SERVVER", "x", 1);
  EXPECT_ERRNO(EINVAL, fb_connect(nullptr, nullptr, &other));
  EXPECT_NE(std::string(fb_error()).find("did you mean"), std::string::npos) << fb_error();
  ::unsetenv("FOREBAY_CLIENT_SERVER");
  ::unsetenv("FOREBAY_CLIENT_SERVVER");
}

}  // namespace
}  // namespace forebay
