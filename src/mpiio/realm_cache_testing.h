// Helpers of the tests of RealmCache: a file under it, and a file that may fail.
#pragma once

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "core/testing.h"
#include "mpiio/realm_cache.h"

namespace forebay::mpiio {

using Bytes = std::vector<std::byte>;

// Memory that forked processes share, with a page after it that nobody may touch.
class SharedSpace {
 public:
  explicit SharedSpace(uint64_t size) : size_((size + 4095) / 4096 * 4096) {
    void* const at = ::mmap(nullptr, size_ + 4096, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    FOREBAY_ASSERT(at != MAP_FAILED);
    space_ = static_cast<std::byte*>(at);
    FOREBAY_ASSERT(::mprotect(space_ + size_, 4096, PROT_NONE) == 0);
  }
  ~SharedSpace() { ::munmap(space_, size_ + 4096); }
  SharedSpace(const SharedSpace&) = delete;

  void* at() const { return space_; }
  uint64_t size() const { return size_; }
  uint64_t resident() const {
    std::vector<unsigned char> pages(size_ / 4096);
    FOREBAY_ASSERT(::mincore(space_, size_, pages.data()) == 0);
    return 4096 * static_cast<uint64_t>(std::count_if(pages.begin(), pages.end(),
                                                      [](unsigned char c) { return c & 1; }));
  }

 private:
  uint64_t size_;
  std::byte* space_;
};

inline Extents at(const void* address, uint64_t length) {
  return Extents(ext(reinterpret_cast<uintptr_t>(address), length));
}

// A file without a name, which forked processes share.
class TestFile : public Backing {
 public:
  TestFile() : fd_(::memfd_create("forebay-test", MFD_CLOEXEC)) { FOREBAY_ASSERT(fd_ >= 0); }
  ~TestFile() override { ::close(fd_); }
  TestFile(const TestFile&) = delete;

  Result<uint64_t> read(Extents file, Extents memory) override {
    uint64_t count = 0;
    walk_pairs(file, memory, [&](Extent f, Extent m) {
      const auto n = ::pread(fd_, reinterpret_cast<void*>(m.offset.value), f.length.value,
                             static_cast<off_t>(f.offset.value));
      FOREBAY_ASSERT(n >= 0);
      count += static_cast<uint64_t>(n);
      return static_cast<uint64_t>(n) == f.length.value;
    });
    return count;
  }
  Result<void> write(Extents file, Extents memory) override {
    walk_pairs(file, memory, [&](Extent f, Extent m) {
      const auto n = ::pwrite(fd_, reinterpret_cast<const void*>(m.offset.value), f.length.value,
                              static_cast<off_t>(f.offset.value));
      FOREBAY_ASSERT(n == static_cast<ssize_t>(f.length.value));
      return true;
    });
    return {};
  }
  Result<uint64_t> size() override {
    struct stat st;
    FOREBAY_ASSERT(::fstat(fd_, &st) == 0);
    return static_cast<uint64_t>(st.st_size);
  }

  void resize(uint64_t size) { FOREBAY_ASSERT(::ftruncate(fd_, static_cast<off_t>(size)) == 0); }
  void put(uint64_t offset, const Bytes& bytes) {
    write(Extents(ext(offset, bytes.size())), at(bytes.data(), bytes.size())).value();
  }
  Bytes contents() {
    Bytes bytes(size().value());
    if (!bytes.empty()) read(Extents(ext(0, bytes.size())), at(bytes.data(), bytes.size())).value();
    return bytes;
  }

 private:
  const int fd_;
};

// Counts calls, and fails those that `fails` says, a write after a part of it.
class Watched : public Backing {
 public:
  explicit Watched(Backing& under) : under_(under) {}

  Result<uint64_t> read(Extents file, Extents memory) override {
    ++reads;
    if (fails(++calls)) return Error(EIO, "read");
    return under_.read(std::move(file), std::move(memory));
  }
  Result<void> write(Extents file, Extents memory) override {
    ++writes;
    written += file.total().value;
    if (!fails(++calls)) return under_.write(std::move(file), std::move(memory));
    const Length done(calls * 7919 % (file.total().value + 1));
    if (done.value > 0)
      under_.write(file.slice(Length(), done), memory.slice(Length(), done)).value();
    return Error(ENOSPC, "write").with_done(done.value);
  }
  Result<uint64_t> size() override { return under_.size(); }

  std::function<bool(uint64_t)> fails = [](uint64_t) { return false; };
  uint64_t calls = 0, reads = 0, writes = 0, written = 0;

 private:
  Backing& under_;
};

}  // namespace forebay::mpiio
