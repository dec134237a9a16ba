// Full file systems and quotas: small loop devices, made and mounted for the test. Needs root and
// loop devices; skips and says so otherwise.
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mount.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "core/buffer_pool.h"
#include "core/fd.h"
#include "store/posix_fill.h"
#include "store/posix_testing.h"

namespace forebay {
namespace {

// A file system in a file, mounted on a folder beside it as long as this lives.
class LoopMount {
 public:
  // Empty if it is mounted, otherwise why not.
  std::string mount(uint64_t size, const std::string& make, const char* type) {
    if (!own_mounts()) return "mounting needs root";
    const std::string image = temp_ / "image";
    put_file(image, "");
    if (::truncate(image.c_str(), static_cast<off_t>(size))) return "no room for the image";
    if (std::system((make + " " + image + " >/dev/null 2>&1").c_str()) != 0)
      return make + " is missing or failed";
    if (std::string why = attach(image); !why.empty()) return why;
    ::mkdir(path().c_str(), 0755);
    if (::mount(device_.c_str(), path().c_str(), type, 0, nullptr))
      return std::string("mount -t ") + type + ": " + errno_name(errno);
    mounted_ = true;
    return {};
  }
  ~LoopMount() {
    if (mounted_) ::umount2(path().c_str(), MNT_DETACH);
    if (loop_ >= 0) ::close(loop_);
  }
  std::string path() const { return temp_ / "mnt"; }

 private:
  // Another test may take the free device between the question and the answer, so ask again. The
  // kernel detaches it after the last user (AUTOCLEAR), whatever becomes of us.
  std::string attach(const std::string& image) {
    const int control = ::open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    if (control < 0) return "no loop devices";
    const int file = ::open(image.c_str(), O_RDWR | O_CLOEXEC);
    for (int attempt = 0; attempt < 50 && device_.empty(); ++attempt) {
      const int number = ::ioctl(control, LOOP_CTL_GET_FREE);
      const std::string name = "/dev/loop" + std::to_string(number);
      loop_ = number < 0 ? -1 : ::open(name.c_str(), O_RDWR | O_CLOEXEC);
      if (loop_ < 0) break;
      struct loop_config config = {};
      config.fd = static_cast<uint32_t>(file);
      config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
      if (::ioctl(loop_, LOOP_CONFIGURE, &config) == 0) {
        device_ = name;
      } else {
        ::close(loop_);
        loop_ = -1;
      }
    }
    ::close(file);
    ::close(control);
    return device_.empty() ? "no free loop device" : "";
  }

  TempDir temp_;
  std::string device_;
  int loop_ = -1;
  bool mounted_ = false;
};

// Writes until it fails; returns the error and how much of the stream landed in all.
struct Filled {
  int code = 0;
  uint64_t landed = 0;
};
Filled fill(PosixRig& rig, const Reply& file, uint64_t most) {
  std::string block(3_MiB + 123, '\0');
  Filled filled;
  while (filled.landed < most) {
    for (size_t i = 0; i < block.size(); ++i)
      block[i] = static_cast<char>((filled.landed + i) * 2654435761u >> 13);
    auto wrote = rig.write(file.handle, file.right, filled.landed, block);
    filled.landed += wrote ? wrote->count : wrote.error().done();
    if (wrote) continue;
    filled.code = wrote.error().code();
    break;
  }
  return filled;
}

void expect_intact(PosixRig& rig, const Reply& file, uint64_t length) {
  EXPECT_EQ(rig.getattr(file.handle)->attr.size, length);
  for (uint64_t at = 0; at < length; at += 1_MiB) {
    const auto text = rig.read(file.handle, file.right, at, 1_MiB);
    ASSERT_TRUE(text) << text.error().message();
    ASSERT_EQ(text->size(), std::min<uint64_t>(1_MiB, length - at));
    for (size_t i = 0; i < text->size(); ++i)
      ASSERT_EQ((*text)[i], static_cast<char>((at + i) * 2654435761u >> 13)) << at + i;
  }
}

class PosixFullDisk : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Ways, PosixFullDisk, testing::Values(false, true),
                         [](const auto& direct) { return direct.param ? "direct" : "buffered"; });

TEST_P(PosixFullDisk, IsFull) {
  LoopMount disk;
  if (std::string why = disk.mount(16_MiB, "mkfs.ext4 -q -F -m 20", "ext4"); !why.empty())
    GTEST_SKIP() << why;
  ASSERT_EQ(::chmod(disk.path().c_str(), 0777), 0);
  {
    PosixOptions options;
    options.directory = disk.path();
    options.direct = GetParam();
    PosixRig rig(options);
    rig.through_submit = GetParam();
    rig.caller = caller_of(61001, 61001);
    auto file = rig.create("big");
    ASSERT_TRUE(file) << file.error().message();
    const Filled filled = fill(rig, *file, 64_MiB);
    rig.through_submit = false;  // the next call makes this thread root again
    EXPECT_EQ(filled.code, ENOSPC);
    EXPECT_GT(filled.landed, 2_MiB);
    expect_intact(rig, *file, filled.landed);
    // The reserve is not for users, although the server is root.
    const auto fs = rig.call({.op = Op::statfs, .handle = rig.root})->statfs;
    EXPECT_GT(fs.blocks_free * fs.block_size, 2_MiB);
    EXPECT_EQ(code_of(rig.call({.op = Op::fallocate,
                                .handle = file->handle,
                                .right = file->right,
                                .offset = Offset(filled.landed),
                                .length = Length(2_MiB)})),
              ENOSPC);
    // An open file can be removed on a full disk, and frees its space when it is closed.
    ASSERT_TRUE(rig.remove(rig.root, "big"));
    ASSERT_TRUE(rig.close(file->handle, file->right));
    auto again = rig.create("again");
    EXPECT_TRUE(rig.write(again->handle, again->right, 0, std::string(1_MiB, 'x')));
  }
}

// Whole blocks in aligned memory, which the ring writes until the pool has to say how far it went.
TEST(PosixFull, ADiskThatIsFullByTheRing) {
  LoopMount disk;
  if (std::string why = disk.mount(16_MiB, "mkfs.ext4 -q -F -m 20", "ext4"); !why.empty())
    GTEST_SKIP() << why;
  ASSERT_EQ(::chmod(disk.path().c_str(), 0777), 0);
  BufferPool memory(1_MiB, 1_MiB);
  const Buffer block = memory.try_take();
  std::ranges::fill(block.bytes(), std::byte{'r'});
  PosixOptions options;
  options.directory = disk.path();
  options.direct = true;
  PosixRig rig(options);
  rig.through_submit = true;
  rig.caller = caller_of(61001, 61001);
  auto file = rig.create("big");
  ASSERT_TRUE(file) << file.error().message();
  uint64_t landed = 0;
  for (int code = 0; code == 0 && landed < 64_MiB;) {
    auto wrote = rig.call({.op = Op::write,
                           .handle = file->handle,
                           .right = file->right,
                           .file = Extents({Offset(landed), Length(1_MiB)}),
                           .memory = Memory::of(block.bytes())});
    landed += wrote ? wrote->count : wrote.error().done();
    code = code_of(wrote);
    EXPECT_TRUE(code == 0 || code == ENOSPC) << code;
  }
  rig.through_submit = false;  // the next call makes this thread root again
  EXPECT_GT(landed, 2_MiB);
  EXPECT_EQ(rig.counters.get("posix.requests_ring").get() > 0, rig.store->uses_ring());
  EXPECT_EQ(rig.getattr(file->handle)->attr.size, landed);
  const auto fs = rig.call({.op = Op::statfs, .handle = rig.root})->statfs;
  EXPECT_GT(fs.blocks_free * fs.block_size, 2_MiB);
  const std::string content = content_of(disk.path() + "/big");
  EXPECT_TRUE(content == std::string(landed, 'r'));
  EXPECT_TRUE(rig.close(file->handle, file->right));
}

// Small pieces through a mapping, which is grown, or (in the hole of a long file) filled by faults.
class PosixFullMapped : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Files, PosixFullMapped, testing::Values(false, true),
                         [](const auto& hole) { return hole.param ? "hole" : "growing"; });

TEST_P(PosixFullMapped, IsFull) {
  LoopMount disk;
  if (std::string why = disk.mount(16_MiB, "mkfs.ext4 -q -F -m 0", "ext4"); !why.empty())
    GTEST_SKIP() << why;
  PosixOptions options;
  options.directory = disk.path();
  options.in_application = options.mapped = true;
  PosixRig rig(options);
  auto file = rig.create("big");
  ASSERT_TRUE(file) << file.error().message();
  const bool hole = GetParam();
  if (hole) {
    ASSERT_TRUE(rig.call({.op = Op::resize, .handle = file->handle, .length = Length(64_MiB)}));
  }
  constexpr uint64_t kPiece = 200, kStride = 256, kCount = 4096;
  std::string oracle;
  std::vector<std::byte> bytes(kPiece * kCount);
  for (uint64_t at = 0, code = 0; code == 0 && at < 64_MiB; at += kCount * kStride) {
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>((at + i) * 7 >> 5);
    const Extents list = *Extents::make({{Offset(at), Length(kPiece)}}, {{kCount, kStride}});
    auto wrote = rig.call({.op = Op::write,
                           .handle = file->handle,
                           .right = file->right,
                           .file = list,
                           .memory = Memory::of(std::span<const std::byte>(bytes))});
    const uint64_t landed = wrote ? wrote->count : wrote.error().done();
    for (uint64_t i = 0; i < landed; ++i) {
      const uint64_t to = at + i / kPiece * kStride + i % kPiece;
      if (oracle.size() <= to) oracle.resize(to + 1);
      oracle[to] = static_cast<char>(bytes[i]);
    }
    code = static_cast<uint64_t>(code_of(wrote));
    EXPECT_TRUE(code == 0 || code == ENOSPC) << code;
  }
  EXPECT_GT(oracle.size(), 4_MiB);
  EXPECT_LT(oracle.size(), 16_MiB);
  EXPECT_GT(rig.counters.get("posix.mapped_steps").get(), 0u);
  EXPECT_EQ(rig.counters.get("posix.mapped_faults").get() > 0, hole);
  if (hole) oracle.resize(64_MiB);
  const std::string content = content_of(disk.path() + "/big");
  EXPECT_EQ(content.size(), oracle.size());
  EXPECT_TRUE(content == oracle);
  EXPECT_TRUE(rig.close(file->handle, file->right));
}

// ext3's files have no extents, and so no fallocate: zeros are written, if they are asked for. Data
// that is not on the device yet looks like a hole there.
class PosixFullUnreserved : public testing::TestWithParam<Access> {};
INSTANTIATE_TEST_SUITE_P(Rights, PosixFullUnreserved, testing::Values(Access::write, Access::both),
                         [](const auto& access) {
                           return access.param == Access::both ? "ReadAndWrite" : "WriteOnly";
                         });

TEST_P(PosixFullUnreserved, IsFilled) {
  LoopMount disk;
  if (std::string why = disk.mount(16_MiB, "mkfs.ext4 -q -F -m 0 -O ^extents,^64bit", "ext4");
      !why.empty())
    GTEST_SKIP() << why;
  PosixOptions options;
  options.directory = disk.path();
  PosixRig rig(options);
  auto file = rig.create(rig.root, "file", 0644, GetParam());
  ASSERT_TRUE(file) << file.error().message();
  ASSERT_TRUE(rig.write(file->handle, file->right, 100'000, "text"));
  const auto allocate = [&](uint64_t length, uint32_t flags) {
    return code_of(rig.call({.op = Op::fallocate,
                             .flags = flags,
                             .handle = file->handle,
                             .right = file->right,
                             .length = Length(length)}));
  };
  EXPECT_EQ(allocate(1_MiB, 0), EOPNOTSUPP);
  EXPECT_EQ(allocate(1_MiB, kFlagFill), 0);
  EXPECT_EQ(rig.getattr(file->handle)->attr.size, 1_MiB);
  std::string want(1_MiB, '\0');
  want.replace(100'000, 4, "text");
  EXPECT_TRUE(content_of(disk.path() + "/file") == want);
  EXPECT_GE(rig.getattr(file->handle)->attr.allocated, 1_MiB);
  EXPECT_EQ(allocate(64_MiB, kFlagFill), ENOSPC);
  EXPECT_EQ(rig.getattr(file->handle)->attr.size, 1_MiB);
  EXPECT_TRUE(rig.close(file->handle, file->right));
}

// What another process writes while the holes are filled, far from where that is now: it is not on
// the device yet either, and nothing but reading shows it. Where nothing can be read (-1) it is
// sent there.
TEST(PosixFull, WhatOthersWriteWhileHolesAreFilledStays) {
  LoopMount disk;
  if (std::string why = disk.mount(512_MiB, "mkfs.ext4 -q -F -m 0 -O ^extents,^64bit", "ext4");
      !why.empty())
    GTEST_SKIP() << why;
  PosixOptions options;
  options.directory = disk.path();
  PosixRig rig(options);
  constexpr off_t kFar = 60'500'000;  // within a step, whose begin would show it
  enum class By { right_to_both, right_to_write, no_reader };
  for (const By by : {By::right_to_both, By::right_to_write, By::no_reader}) {
    const std::string name = "file" + std::to_string(static_cast<int>(by));
    const std::string path = disk.path() + "/" + name;
    auto file =
        rig.create(rig.root, name, 0644, by == By::right_to_both ? Access::both : Access::write);
    ASSERT_TRUE(file) << file.error().message();
    const Fd other(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_EQ(::ftruncate(other.get(), 64_MiB), 0);
    std::jthread writes([&](const std::stop_token& stop) {
      struct stat st = {};
      while (!stop.stop_requested() && ::fstat(other.get(), &st) == 0 && st.st_blocks < 1024)
        std::this_thread::yield();
      EXPECT_EQ(::pwrite(other.get(), "text", 4, kFar), 4);
    });
    if (by == By::no_reader) {
      auto filled = posix::fill(other.get(), -1, {Offset(0), Length(64_MiB)}, {});
      EXPECT_TRUE(filled) << filled.error().message();
    } else {
      EXPECT_EQ(code_of(rig.call({.op = Op::fallocate,
                                  .flags = kFlagFill,
                                  .handle = file->handle,
                                  .right = file->right,
                                  .length = Length(64_MiB)})),
                0);
    }
    writes.request_stop();
    writes.join();
    std::string want(64_MiB, '\0');
    want.replace(kFar, 4, "text");
    EXPECT_TRUE(content_of(path) == want) << name;
    EXPECT_TRUE(rig.close(file->handle, file->right));
    ::unlink(path.c_str());
  }
}

TEST(PosixFull, AQuotaThatIsUsedUp) {
  LoopMount disk;
  if (std::string why = disk.mount(256_MiB, "mkfs.btrfs -q -f -M", "btrfs"); !why.empty())
    GTEST_SKIP() << why;
  const std::string mnt = disk.path();
  const std::string setup = "btrfs quota enable " + mnt + " && btrfs subvolume create " + mnt +
                            "/v && btrfs qgroup limit 8M " + mnt + "/v";
  if (std::system(("(" + setup + ") >/dev/null 2>&1").c_str()) != 0)
    GTEST_SKIP() << "btrfs qgroups do not work here";
  ASSERT_EQ(::chmod((mnt + "/v").c_str(), 0777), 0);
  PosixOptions options;
  options.directory = mnt + "/v";
  PosixRig rig(options);
  rig.caller = caller_of(61001, 61001);
  auto file = rig.create("big");
  ASSERT_TRUE(file) << file.error().message();
  const Filled filled = fill(rig, *file, 64_MiB);
  EXPECT_EQ(filled.code, EDQUOT);
  EXPECT_GT(filled.landed, 1_MiB);
  expect_intact(rig, *file, filled.landed);
  EXPECT_TRUE(rig.close(file->handle, file->right));
}

TEST(PosixTmpfs, IsFullToo) {
  TempDir temp;
  if (!own_mounts() || ::mount("none", temp.path().c_str(), "tmpfs", 0, "size=1m"))
    GTEST_SKIP() << "cannot mount here: " << errno_name(errno);
  {
    PosixOptions options;
    options.directory = temp.path();
    PosixRig rig(options);
    auto file = rig.create("big");
    ASSERT_TRUE(file);
    rig.through_submit = true;  // reads without waiting have to fall back here
    const Filled filled = fill(rig, *file, 8_MiB);
    EXPECT_EQ(filled.code, ENOSPC);
    EXPECT_GT(filled.landed, 100_KiB);
    expect_intact(rig, *file, filled.landed);
  }
  EXPECT_EQ(::umount2(temp.path().c_str(), MNT_DETACH), 0);
}

}  // namespace
}  // namespace forebay
