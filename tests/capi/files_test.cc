#include <sys/mman.h>

#include <thread>

#include "rig.h"

namespace forebay {
namespace {

class CapiFiles : public Capi {};

TEST_F(CapiFiles, OpenFlags) {
  fb_file* file = nullptr;
  EXPECT_ERRNO(ENOENT, fb_open(store_, "/f", O_RDWR, 0, nullptr, &file));
  EXPECT_EQ(file, nullptr);
  EXPECT_ERRNO(ENOENT, fb_open(store_, "/d/f", O_RDWR | O_CREAT, 0600, nullptr, &file));
  EXPECT_ERRNO(EISDIR, fb_open(store_, "/", O_RDONLY, 0, nullptr, &file));
  EXPECT_ERRNO(EISDIR, fb_open(store_, "/f/", O_RDWR | O_CREAT, 0600, nullptr, &file));
  EXPECT_ERRNO(ENOTSUP, fb_open(store_, "/f", O_WRONLY | O_APPEND, 0, nullptr, &file));
  EXPECT_ERRNO(EINVAL, fb_open(store_, "/f", O_RDONLY | O_DIRECTORY, 0, nullptr, &file));
  EXPECT_ERRNO(EINVAL, fb_open(store_, "/f", O_ACCMODE, 0, nullptr, &file));
  EXPECT_ERRNO(EINVAL, fb_open(store_, "/f", O_RDONLY | O_TRUNC, 0, nullptr, &file));
  EXPECT_ERRNO(EINVAL, fb_open(store_, "/f", O_RDONLY, 0, nullptr, nullptr));

  fb_file* made = open("/f", O_CREAT | O_EXCL | O_RDWR);
  write(made, "hello");
  EXPECT_ERRNO(EEXIST, fb_open(store_, "/f", O_CREAT | O_EXCL | O_RDWR, 0600, nullptr, &file));
  EXPECT_OK(fb_close(open("/f", O_CREAT | O_RDWR | O_CLOEXEC)));
  EXPECT_EQ(read(made, 10), "hello");
  EXPECT_OK(fb_close(open("/f", O_WRONLY | O_TRUNC)));
  EXPECT_EQ(read(made, 10), "");
  write(made, "again");
  EXPECT_OK(fb_close(open("/f", O_CREAT | O_WRONLY | O_TRUNC)));
  EXPECT_EQ(read(made, 10), "");
  EXPECT_OK(fb_close(made));

  ASSERT_OK(fb_symlink(store_, "f", "/link"));
  EXPECT_ERRNO(ELOOP, fb_open(store_, "/link", O_RDONLY | O_NOFOLLOW, 0, nullptr, &file));
  EXPECT_ERRNO(EEXIST, fb_open(store_, "/link", O_CREAT | O_EXCL | O_RDWR, 0600, nullptr, &file));
  ASSERT_OK(fb_symlink(store_, "new", "/dangling"));
  EXPECT_OK(fb_close(open("/dangling")));
  EXPECT_OK(fb_unlink(store_, "/new"));
}

TEST_F(CapiFiles, AccessIsWhatWasAskedFor) {
  EXPECT_OK(fb_close(open("/f")));
  fb_file* reader = open("/f", O_RDONLY);
  fb_file* writer = open("/f", O_WRONLY);
  char byte = 'x';
  EXPECT_ERRNO(EBADF, fb_pwrite(reader, &byte, 1, 0));
  EXPECT_ERRNO(EBADF, fb_pread(writer, &byte, 1, 0));
  EXPECT_ERRNO(EBADF, fb_ftruncate(reader, 1));
  EXPECT_OK(fb_close(reader));
  EXPECT_OK(fb_close(writer));
  fb_file* made = nullptr;
  ASSERT_OK(fb_open(store_, "/readonly", O_CREAT | O_RDWR, 0400, nullptr, &made));
  write(made, "by its creator");
  EXPECT_OK(fb_close(made));
}

TEST_F(CapiFiles, AClosedFileIsEBADF) {
  fb_file* file = open("/f");
  EXPECT_OK(fb_close(file));
  char byte = 0;
  fb_attr attr;
  fb_request* request = nullptr;
  EXPECT_ERRNO(EBADF, fb_pread(file, &byte, 1, 0));
  EXPECT_ERRNO(EBADF, fb_fstat(file, &attr));
  EXPECT_ERRNO(EBADF, fb_ipwrite(file, &byte, 1, 0, &request));
  EXPECT_EQ(request, nullptr);
  EXPECT_ERRNO(EBADF, fb_ifsync(file, &request));
  EXPECT_ERRNO(EBADF, fb_fsync(file));
  EXPECT_ERRNO(EBADF, fb_set_hint(file, "write_behind", "on"));
  EXPECT_ERRNO(EBADF, fb_close(file));
  EXPECT_ERRNO(EBADF, fb_close(nullptr));
  EXPECT_ERRNO(EBADF, fb_pread(nullptr, &byte, 1, 0));
  // Its memory is used again only after many others, and stays ours.
  for (int i = 0; i < 600; ++i) EXPECT_OK(fb_close(open("/f")));
  EXPECT_ERRNO(EBADF, fb_pread(file, &byte, 1, 0));
}

TEST_F(CapiFiles, WhatIsOpenKeepsTheConnection) {
  fb_file* file = open("/f");
  EXPECT_ERRNO(EBUSY, fb_disconnect(store_));
  EXPECT_OK(fb_close(file));
  fb_dir* dir = nullptr;
  ASSERT_OK(fb_opendir(store_, "/", &dir));
  EXPECT_ERRNO(EBUSY, fb_disconnect(store_));
  EXPECT_OK(fb_closedir(dir));
}

TEST_F(CapiFiles, SizesAndHoles) {
  fb_file* file = open("/f");
  fb_attr attr;
  EXPECT_OK(fb_ftruncate(file, 100));
  EXPECT_OK(fb_fallocate(file, 0, 100, 100));
  ASSERT_OK(fb_fstat(file, &attr));
  EXPECT_EQ(attr.size, 200u);
  EXPECT_OK(fb_fallocate(file, FB_KEEP_SIZE, 1000, 100));
  write(file, std::string(200, 'x'));
  EXPECT_OK(fb_fallocate(file, FB_PUNCH_HOLE | FB_KEEP_SIZE, 10, 10));
  EXPECT_OK(fb_fallocate(file, FB_ZERO_RANGE, 30, 10));
  EXPECT_EQ(read(file, 50), std::string(10, 'x') + std::string(10, '\0') + std::string(10, 'x') +
                                std::string(10, '\0') + std::string(10, 'x'));
  EXPECT_ERRNO(EINVAL, fb_fallocate(file, 0x40, 0, 1));
  EXPECT_ERRNO(EINVAL, fb_fallocate(file, 0, 0, 0));
  EXPECT_ERRNO(EINVAL, fb_ftruncate(file, UINT64_MAX));
  ASSERT_OK(fb_fstat(file, &attr));
  EXPECT_EQ(attr.size, 200u);
  EXPECT_OK(fb_fsync(file));
  EXPECT_OK(fb_fdatasync(file));
  EXPECT_OK(fb_close(file));
}

TEST_F(CapiFiles, Hints) {
  const char* good[] = {"write_behind=off", "direct=on", nullptr};
  const char* unknown[] = {"dirct=on", nullptr};
  const char* shapeless[] = {"direct", nullptr};
  fb_file* file = nullptr;
  EXPECT_ERRNO(EINVAL, fb_open(store_, "/f", O_CREAT | O_RDWR, 0600, unknown, &file));
  EXPECT_NE(std::string(fb_error()).find("did you mean 'direct'?"), std::string::npos)
      << fb_error();
  EXPECT_ERRNO(EINVAL, fb_open(store_, "/f", O_CREAT | O_RDWR, 0600, shapeless, &file));
  fb_attr attr;
  EXPECT_ERRNO(ENOENT, fb_stat(store_, "/f", &attr));
  ASSERT_OK(fb_open(store_, "/f", O_CREAT | O_RDWR, 0600, good, &file));
  EXPECT_OK(fb_set_hint(file, "write_behind", "on"));
  EXPECT_ERRNO(EINVAL, fb_set_hint(file, "write_behind", "maybe"));
  EXPECT_ERRNO(EINVAL, fb_set_hint(file, "write_behnd", "on"));
  EXPECT_NE(std::string(fb_error()).find("write_behind"), std::string::npos) << fb_error();
  EXPECT_ERRNO(EINVAL, fb_set_hint(file, nullptr, "on"));
  EXPECT_ERRNO(ENOTSUP, fb_set_hint(file, "direct", "on"));
  write(file, "still good");
  EXPECT_OK(fb_close(file));
}

TEST_F(CapiFiles, WriteBehindByHint) {
  const char* on[] = {"write_behind=on", nullptr};
  fb_file* file = nullptr;
  ASSERT_OK(fb_open(store_, "/f", O_CREAT | O_RDWR, 0600, on, &file));
  write(file, "....");  // the first one proves the right, and is written at once
  server_.faults().add({.op = Op::write, .error = ENOSPC});
  write(file, "abcd");
  EXPECT_ERRNO(ENOSPC, fb_fsync(file));
  EXPECT_NE(std::string(fb_error()).find("acknowledged before"), std::string::npos) << fb_error();
  EXPECT_OK(fb_set_hint(file, "write_behind", "off"));
  EXPECT_ERRNO(ENOSPC, fb_pwrite(file, "abcd", 4, 0));
  server_.faults().clear();
  EXPECT_OK(fb_set_hint(file, "write_behind", "on"));
  write(file, "abcd");
  EXPECT_EQ(read(file, 10), "abcd");
  EXPECT_OK(fb_fsync(file));
  write(file, "efgh");
  server_.faults().add({.op = Op::write, .error = EIO});
  EXPECT_ERRNO(EIO, fb_close(file));
  server_.faults().clear();
}

TEST_F(CapiFiles, AllocatedMemory) {
  char* memory = static_cast<char*>(fb_alloc(store_, 100'000));
  ASSERT_NE(memory, nullptr) << fb_error();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 4096, 0u);
  EXPECT_EQ(memory[99'999], 0);
  memory[99'999] = 'x';
  fb_file* file = open("/f");
  EXPECT_EQ(fb_pwrite(file, memory, 100'000, 0), 100'000);
  memory[99'999] = 0;
  EXPECT_EQ(fb_pread(file, memory, 100'000, 0), 100'000);
  EXPECT_EQ(memory[99'999], 'x');
  EXPECT_OK(fb_close(file));
  EXPECT_ERRNO(EINVAL, fb_free(store_, memory + 1));
  EXPECT_ERRNO(EINVAL, fb_free(nullptr, memory));
  EXPECT_OK(fb_free(store_, memory));
  EXPECT_OK(fb_free(store_, nullptr));
  // Others' memory, with nothing before it that can be read.
  void* const others =
      ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(others, MAP_FAILED);
  ASSERT_EQ(::mprotect(others, 4096, PROT_NONE), 0);
  EXPECT_ERRNO(EINVAL, fb_free(store_, static_cast<char*>(others) + 4096));
  ::munmap(others, 8192);
  EXPECT_EQ(fb_alloc(store_, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(fb_alloc(store_, SIZE_MAX), nullptr);
  EXPECT_EQ(errno, ENOMEM);
}

class CapiFull : public Capi {
 protected:
  CapiFull() : Capi(MemoryOptions{.limit = 256_KiB}) {}
};

TEST_F(CapiFull, AFullStoreTellsHowMuchLanded) {
  fb_file* file = open("/f");
  const std::string data(1_MiB, 'x');
  EXPECT_ERRNO(ENOSPC, fb_pwrite(file, data.data(), data.size(), 0));
  EXPECT_GT(fb_error_done(), 0u);
  EXPECT_LE(fb_error_done(), 256_KiB);
  EXPECT_EQ(read(file, fb_error_done()), data.substr(0, fb_error_done()));
  fb_request* request = nullptr;
  EXPECT_OK(fb_ipwrite(file, data.data(), data.size(), 0, &request));
  EXPECT_ERRNO(ENOSPC, fb_wait(&request));
  EXPECT_EQ(request, nullptr);
  EXPECT_GT(fb_error_done(), 0u);
  EXPECT_NE(std::string(fb_error()).find("fb_ipwrite"), std::string::npos) << fb_error();
  EXPECT_OK(fb_close(file));
}

}  // namespace
}  // namespace forebay
