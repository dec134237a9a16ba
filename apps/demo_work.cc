#include "demo_work.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <vector>

namespace forebay {
namespace {

// What the processes share: when the phases began and ended, and what went wrong.
struct Shared {
  pthread_barrier_t barrier;
  double write_seconds, read_seconds;
  char failure[512];
};

class SharedMemory {
 public:
  explicit SharedMemory(unsigned processes)
      : memory_(::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                       -1, 0)) {
    FOREBAY_ASSERT(memory_ != MAP_FAILED);
    pthread_barrierattr_t attributes;
    ::pthread_barrierattr_init(&attributes);
    ::pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    ::pthread_barrier_init(&get().barrier, &attributes, processes);
    ::pthread_barrierattr_destroy(&attributes);
  }
  ~SharedMemory() { ::munmap(memory_, sizeof(Shared)); }
  SharedMemory(const SharedMemory&) = delete;
  Shared& get() const { return *static_cast<Shared*>(memory_); }

 private:
  void* memory_;
};

// Every eight bytes of the file are different, and tell where they belong.
uint64_t word_at(uint64_t offset) {
  uint64_t x = offset / 8 + 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t offset_of(const DemoPattern& p, unsigned rank, uint64_t block) {
  return (block * p.processes + rank) * p.block;
}

// One process of the demonstration.
class Worker {
 public:
  Worker(const DemoPattern& p, unsigned rank, Shared& shared)
      : p_(p), rank_(rank), shared_(shared), data_(p.block * p.blocks_at_once) {}

  Result<void> run(const OpenDemoFile& open) {
    auto file = open();
    if (!file) return file.error();
    auto writing = phase(shared_.write_seconds, [&](uint64_t first) {
      fill(first);
      return (*file)->write(p_, rank_, first, data_);
    });
    if (!writing) return writing;
    // Another process's blocks: what one wrote, all can read.
    const unsigned other = (rank_ + 1) % p_.processes;
    return phase(shared_.read_seconds, [&](uint64_t first) {
      auto got = (*file)->read(p_, other, first, data_);
      return got ? check(other, first) : got;
    });
  }

 private:
  template <class Fn>
  Result<void> phase(double& seconds, Fn&& step) {
    ::pthread_barrier_wait(&shared_.barrier);
    const auto began = std::chrono::steady_clock::now();
    for (uint64_t first = 0; first < p_.blocks; first += p_.blocks_at_once)
      if (auto done = step(first); !done) return done;
    ::pthread_barrier_wait(&shared_.barrier);
    if (rank_ == 0)
      seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    return {};
  }

  template <class Fn>
  void each_word(unsigned rank, uint64_t first, Fn&& fn) {
    for (uint64_t b = 0; b < p_.blocks_at_once; ++b)
      for (uint64_t i = 0; i < p_.block; i += 8)
        fn(offset_of(p_, rank, first + b) + i, data_.data() + b * p_.block + i);
  }

  void fill(uint64_t first) {
    each_word(rank_, first, [](uint64_t offset, std::byte* at) {
      const uint64_t word = word_at(offset);
      std::memcpy(at, &word, 8);
    });
  }

  Result<void> check(unsigned rank, uint64_t first) {
    uint64_t wrong = UINT64_MAX;
    each_word(rank, first, [&](uint64_t offset, const std::byte* at) {
      const uint64_t word = word_at(offset);
      if (wrong == UINT64_MAX && std::memcmp(at, &word, 8) != 0) wrong = offset;
    });
    if (wrong == UINT64_MAX) return {};
    return Error(EIO, fmt::format("the file is wrong at byte {}", wrong));
  }

  const DemoPattern& p_;
  const unsigned rank_;
  Shared& shared_;
  std::vector<std::byte> data_;
};

[[noreturn]] void be_worker(const DemoPattern& p, unsigned rank, Shared& shared,
                            const OpenDemoFile& open) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_DFL);
  const auto done = Worker(p, rank, shared).run(open);
  if (!done) {
    const std::string text = fmt::format("process {}: {}", rank, done.error().message());
    std::strncpy(shared.failure, text.c_str(), sizeof shared.failure - 1);
  }
  ::_exit(done ? 0 : 1);
}

class DirectFile final : public DemoFile {
 public:
  explicit DirectFile(int fd) : fd_(fd) {}
  ~DirectFile() override { ::close(fd_); }

  Result<void> write(const DemoPattern& p, unsigned rank, uint64_t first,
                     std::span<const std::byte> data) override {
    return blocks(p, rank, first, data.size(), [&](uint64_t at, off_t offset) {
      return ::pwrite(fd_, data.data() + at, p.block, offset);
    });
  }
  Result<void> read(const DemoPattern& p, unsigned rank, uint64_t first,
                    std::span<std::byte> data) override {
    return blocks(p, rank, first, data.size(), [&](uint64_t at, off_t offset) {
      return ::pread(fd_, data.data() + at, p.block, offset);
    });
  }

 private:
  template <class Fn>
  Result<void> blocks(const DemoPattern& p, unsigned rank, uint64_t first, uint64_t size, Fn&& fn) {
    for (uint64_t at = 0; at < size; at += p.block) {
      const uint64_t offset = offset_of(p, rank, first + at / p.block);
      const ssize_t n = fn(at, static_cast<off_t>(offset));
      if (n < 0) return Error(errno);
      if (static_cast<uint64_t>(n) != p.block) return Error(EIO, "cut short");
    }
    return {};
  }
  int fd_;
};

// Ends with the processes: none outlives a failure of another, which it would wait for in vain.
Result<void> wait_for_all(std::vector<pid_t> pids, const std::function<bool()>& give_up) {
  bool good = true;
  while (!pids.empty()) {
    const bool stop = give_up() || !good;
    for (const pid_t pid : pids)
      if (stop) ::kill(pid, SIGKILL);
    std::erase_if(pids, [&](pid_t pid) {
      int status = 0;
      if (::waitpid(pid, &status, WNOHANG) != pid) return false;
      good = good && status == 0;
      return true;
    });
    ::usleep(2000);
  }
  if (give_up()) return Error(EINTR);
  return good ? Result<void>() : Result<void>(Error(EIO));
}

}  // namespace

Result<DemoTimes> run_demo_work(const DemoPattern& pattern, const OpenDemoFile& open,
                                const std::function<bool()>& give_up) {
  const SharedMemory memory(pattern.processes);
  Shared& shared = memory.get();
  std::vector<pid_t> pids;
  for (unsigned rank = 0; rank < pattern.processes; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) be_worker(pattern, rank, shared, open);
    if (pid > 0) pids.push_back(pid);
  }
  const bool forked = pids.size() == pattern.processes;
  auto ended = wait_for_all(pids, [&] { return !forked || give_up(); });
  if (!ended) return Error(ended.error().code(), shared.failure);
  return DemoTimes{shared.write_seconds, shared.read_seconds};
}

OpenDemoFile direct_file(const std::string& path) {
  return [path]() -> Result<std::unique_ptr<DemoFile>> {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return Error(errno, path);
    return std::unique_ptr<DemoFile>(std::make_unique<DirectFile>(fd));
  };
}

}  // namespace forebay
