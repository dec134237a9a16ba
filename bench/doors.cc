#include "bench/doors.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "bench/measure.h"
#include "forebay/forebay.h"

namespace forebay::bench {

DirectFile::DirectFile(const std::string& path)
    : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
  if (fd_ < 0) throw std::runtime_error(path + ": " + strerror(errno));
}

DirectFile::~DirectFile() {
  ::close(fd_);
}

void DirectFile::write(uint64_t at, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (n < 0) throw std::runtime_error(std::string("pwrite: ") + strerror(errno));
    bytes = bytes.subspan(static_cast<size_t>(n));
    at += static_cast<uint64_t>(n);
  }
}

void DirectFile::read(uint64_t at, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t n = ::pread(fd_, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (n < 0) throw std::runtime_error(std::string("pread: ") + strerror(errno));
    if (n == 0) throw std::runtime_error("a file that is too short");
    bytes = bytes.subspan(static_cast<size_t>(n));
    at += static_cast<uint64_t>(n);
  }
}

namespace {

// A door with ordinary memory, which goes with its process.
class PlainDoor : public Door {
 public:
  std::span<std::byte> memory(uint64_t size) final {
    void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::runtime_error("no memory for a client's buffers");
    return {static_cast<std::byte*>(p), size};
  }
};

class Direct final : public PlainDoor {
 public:
  explicit Direct(const std::string& path) : file_(std::make_unique<DirectFile>(path)) {}
  void write(uint64_t at, std::span<const std::byte> bytes) override { file_->write(at, bytes); }
  void read(uint64_t at, std::span<std::byte> bytes) override { file_->read(at, bytes); }
  void close() override { file_.reset(); }

 private:
  std::unique_ptr<DirectFile> file_;
};

class Forwarded final : public PlainDoor {
 public:
  Forwarded(std::unique_ptr<Store> store, const std::string& name)
      : store_(std::move(store)), file_(must(open_file(*store_, name))) {}
  void write(uint64_t at, std::span<const std::byte> bytes) override {
    must(file_.write(at, bytes));
  }
  void read(uint64_t at, std::span<std::byte> bytes) override {
    if (must(file_.read(at, bytes)) != bytes.size()) throw std::runtime_error("a short read");
  }
  void submit(bool write, uint64_t at, std::span<std::byte> bytes, Done done) override {
    Completion then = [size = bytes.size(), done = std::move(done)](Result<Reply>&& reply) {
      done(reply && reply->count == size);
    };
    write ? file_.submit_write(at, bytes, std::move(then))
          : file_.submit_read(at, bytes, std::move(then));
  }
  void close() override {
    if (const auto closed = file_.close(); !closed)
      throw std::runtime_error(closed.error().message());
  }

 private:
  std::unique_ptr<Store> store_;
  OpenFile file_;
};

class Allocated final : public Door {
 public:
  Allocated(const std::string& run_dir, const std::string& name) {
    // Nothing but the bed's own: no file of the user's, nor what his environment says.
    setenv("FOREBAY_CONFIG", "/dev/null", 1);
    setenv("FOREBAY_CLIENT_TRANSPORT", "unix", 1);
    check(fb_connect(run_dir.c_str(), "bench", &store_));
    check(fb_open(store_, name.c_str(), O_RDWR | O_CREAT, 0600, nullptr, &file_));
  }
  // The process ends with it, and with that its memory and connection.
  std::span<std::byte> memory(uint64_t size) override {
    void* p = fb_alloc(store_, size);
    if (p == nullptr) throw std::runtime_error(fb_error());
    return {static_cast<std::byte*>(p), size};
  }
  void write(uint64_t at, std::span<const std::byte> bytes) override {
    check(fb_pwrite(file_, bytes.data(), bytes.size(), at));
  }
  void read(uint64_t at, std::span<std::byte> bytes) override {
    const int64_t n = fb_pread(file_, bytes.data(), bytes.size(), at);
    check(n);
    if (static_cast<size_t>(n) != bytes.size()) throw std::runtime_error("a short read");
  }
  void close() override { check(fb_close(file_)); }

 private:
  static void check(int64_t result) {
    if (result < 0) throw std::runtime_error(fb_error());
  }
  fb_store* store_ = nullptr;
  fb_file* file_ = nullptr;
};

class Bare final : public PlainDoor {
 public:
  explicit Bare(int fd) : fd_(fd) {}
  void write(uint64_t at, std::span<const std::byte> bytes) override {
    stream_write(fd_, at, bytes.data(), bytes.size());
  }
  void read(uint64_t at, std::span<std::byte> bytes) override {
    stream_read(fd_, at, bytes.data(), bytes.size());
  }
  void close() override { ::close(fd_); }

 private:
  int fd_;
};

}  // namespace

OpenDoor direct_door(std::string directory) {
  return [=](const std::string& file) { return std::make_unique<Direct>(directory + "/" + file); };
}

OpenDoor store_door(const Bed& bed, Socket kind) {
  return [&bed, kind](const std::string& file) {
    return std::make_unique<Forwarded>(must(bed.connect(kind)), file);
  };
}

OpenDoor alloc_door(const Bed& bed) {
  return
      [&bed](const std::string& file) { return std::make_unique<Allocated>(bed.run_dir(), file); };
}

OpenDoor bare_door(const BareListener& listener) {
  return [&listener](const std::string&) { return std::make_unique<Bare>(listener.connect()); };
}

}  // namespace forebay::bench
