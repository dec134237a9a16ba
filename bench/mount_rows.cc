// One program on two mounts of the same directory, in turn: ours, and that of passthrough_ll, the
// example of libfuse that hands every request on to the kernel. Neither keeps anything: attributes
// and names are believed for 0 seconds, and every read and write reaches the process behind it.
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>

#include "bench/bed.h"
#include "bench/posix.h"
#include "core/types.h"

namespace forebay::bench {

namespace {

constexpr uint64_t kPool = 64_MiB;
constexpr uint64_t kRequest = 1_MiB;
constexpr int kFiles = 100'000, kFolders = 100;

std::string beside_us(const char* path) {
  std::error_code failed;
  return (std::filesystem::read_symlink("/proc/self/exe", failed).parent_path() / path).string();
}

// A process that serves a mount in the foreground, for the time of a row.
class MountProcess {
 public:
  MountProcess(std::vector<std::string> command, std::string where) : where_(std::move(where)) {
    std::filesystem::create_directories(where_);
    command.push_back(where_);
    std::vector<char*> words;
    for (std::string& word : command) words.push_back(word.data());
    words.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      become_child();
      const int null = ::open("/dev/null", O_WRONLY);
      ::dup2(null, STDOUT_FILENO);
      // passthrough_ll has a descriptor of every file that the kernel remembers.
      const rlimit many = {kFiles + 10'000, kFiles + 10'000};
      ::setrlimit(RLIMIT_NOFILE, &many);
      ::execv(words[0], words.data());
      ::_exit(127);
    }
    guard();
    wait_until_mounted(command[0]);
  }
  ~MountProcess() {
    ::close(alive_);
    ::waitpid(guard_, nullptr, 0);
    ::waitpid(pid_, nullptr, 0);
  }
  MountProcess(const MountProcess&) = delete;
  const std::string& path() const { return where_; }
  pid_t pid() const { return pid_; }

 private:
  void wait_until_mounted(const std::string& program) const {
    const auto begin = Clock::now();
    struct statfs fs;
    while (::statfs(where_.c_str(), &fs) != 0 || fs.f_type != FUSE_SUPER_MAGIC) {
      int status = 0;
      if (::waitpid(pid_, &status, WNOHANG) == pid_ || since(begin) > 20)
        throw std::runtime_error(program + " could not mount");
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  // Unmounts and ends it when we do, however that is: our end of a pipe is then closed. (A signal
  // at the parent's death would be forgotten, because a mount's process changes its identity.)
  void guard() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    guard_ = ::fork();
    if (guard_ == 0) {
      ::close(ends[1]);
      for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_IGN);
      char none;
      while (::read(ends[0], &none, 1) < 0 && errno == EINTR) {
      }
      ::umount2(where_.c_str(), MNT_DETACH);
      ::kill(pid_, SIGTERM);
      ::_exit(0);
    }
    ::close(ends[0]);
    alive_ = ends[1];
  }

  const std::string where_;
  pid_t pid_ = -1, guard_ = -1;
  int alive_ = -1;
};

class File {
 public:
  File(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (fd_ < 0) throw std::runtime_error(path + ": " + strerror(errno));
  }
  ~File() { ::close(fd_); }
  File(const File&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

// What block `i` of the file holds.
std::vector<std::byte> block(uint64_t i) {
  std::vector<std::byte> bytes(kRequest);
  for (uint64_t k = 0; k < kRequest; ++k)
    bytes[k] = static_cast<std::byte>((k * 2654435761u >> 13) + k + i * 31);
  return bytes;
}

struct Job {
  std::string below;  // the directory that both mounts show
  uint64_t blocks;    // of the file
  double seconds;     // of one measurement
  int files;
};

std::string stat_name(int i) {
  return fmt::format("stat/{}/file{}", i % kFolders, i);
}

// Rewrites the file, in place, as often as fits in the time.
Worker writer(const Job& job, const MountProcess& mount) {
  return [&job, &mount](int, const std::function<void()>& go, Shared& out) {
    const File file(mount.path() + "/stream", O_RDWR);
    const std::vector<std::byte> bytes[2] = {block(0), block(1)};
    go();
    const Stretch stretch(mount.pid());
    const auto begin = Clock::now();
    do {
      for (uint64_t i = 0; i < job.blocks; ++i, ++out.operations)
        if (::pwrite(file.fd(), bytes[i % 2].data(), kRequest, static_cast<off_t>(i * kRequest)) !=
            static_cast<ssize_t>(kRequest))
          throw std::runtime_error("a short write");
    } while (since(begin) < job.seconds);
    stretch.end(out);
    const File below(job.below + "/stream", O_RDONLY);
    std::vector<std::byte> got(kRequest);
    out.verified = true;
    for (uint64_t i = 0; i < job.blocks; i += 7) {
      const ssize_t n = ::pread(below.fd(), got.data(), kRequest, static_cast<off_t>(i * kRequest));
      out.verified = out.verified && n == static_cast<ssize_t>(kRequest) && got == bytes[i % 2];
    }
  };
}

Worker reader(const Job& job, const MountProcess& mount) {
  return [&job, &mount](int, const std::function<void()>& go, Shared& out) {
    const File file(mount.path() + "/stream", O_RDONLY);
    const std::vector<std::byte> bytes[2] = {block(0), block(1)};
    std::vector<std::byte> got(kRequest);
    out.verified = true;
    go();
    const Stretch stretch(mount.pid());
    const auto begin = Clock::now();
    do {
      for (uint64_t i = 0; i < job.blocks; ++i, ++out.operations) {
        const ssize_t n =
            ::pread(file.fd(), got.data(), kRequest, static_cast<off_t>(i * kRequest));
        // All of every 16th block, and of the others the ends: looking must cost little.
        const auto& want = bytes[i % 2];
        out.verified = out.verified && n == static_cast<ssize_t>(kRequest) &&
                       got.front() == want.front() && got.back() == want.back() &&
                       (i % 16 != 0 || got == want);
      }
    } while (since(begin) < job.seconds);
    stretch.end(out);
  };
}

// Every file once, in no order, as far as the time goes.
Worker looker(const Job& job, const MountProcess& mount, unsigned seed) {
  return [&job, &mount, seed](int, const std::function<void()>& go, Shared& out) {
    std::vector<int> order(static_cast<size_t>(job.files));
    for (int i = 0; i < job.files; ++i) order[static_cast<size_t>(i)] = i;
    std::shuffle(order.begin(), order.end(), std::mt19937(seed));
    std::vector<std::string> names;
    for (const int i : order) names.push_back(mount.path() + "/" + stat_name(i));
    out.verified = true;
    go();
    const Stretch stretch(mount.pid());
    const auto begin = Clock::now();
    for (size_t k = 0; k < names.size() && since(begin) < job.seconds; ++k, ++out.operations) {
      struct stat st;
      out.verified =
          out.verified && ::stat(names[k].c_str(), &st) == 0 && st.st_size == order[k] % 1000;
    }
    stretch.end(out);
  };
}

void make_files(const Job& job) {
  std::filesystem::create_directories(job.below + "/stat");
  for (int i = 0; i < kFolders; ++i)
    std::filesystem::create_directories(fmt::format("{}/stat/{}", job.below, i));
  for (int i = 0; i < job.files; ++i) {
    const File file(job.below + "/" + stat_name(i), O_WRONLY | O_CREAT);
    if (::ftruncate(file.fd(), i % 1000) != 0) throw std::runtime_error("truncate");
  }
  const File stream(job.below + "/stream", O_WRONLY | O_CREAT);
  for (uint64_t i = 0; i < job.blocks; ++i) {
    const auto bytes = block(i % 2);
    if (::pwrite(stream.fd(), bytes.data(), kRequest, static_cast<off_t>(i * kRequest)) !=
        static_cast<ssize_t>(kRequest))
      throw std::runtime_error("a short write");
  }
}

using MakeWorker = std::function<Worker(const MountProcess& mount, int round)>;

Row contest(const BenchOptions& options, const MountProcess& ours, const MountProcess& theirs,
            const MakeWorker& make, double bytes) {
  const Figure rate = [bytes](const FleetResult& f) {
    return static_cast<double>(f.operations) / f.seconds * (bytes > 0 ? bytes / 1e6 : 1);
  };
  Side us, them, warm;
  measure(warm, ours.pid(), 1, make(ours, -1), rate);
  measure(warm, theirs.pid(), 1, make(theirs, -1), rate);
  for (int round = 0; round < options.rounds; ++round) {
    measure(us, ours.pid(), 1, make(ours, round), rate);
    measure(them, theirs.pid(), 1, make(theirs, round), rate);
  }
  Row row;
  compare(row, us, them, false);
  row.verified = row.verified && warm.verified;
  row.against = "passthrough_ll, libfuse's own";
  row.unit = bytes > 0 ? "MB/s" : "stats/s";
  return row;
}

struct Floors {
  double stream, stat;
};

void rows(const BenchOptions& options, Report& report, const Job& job, const MountProcess& ours,
          const MountProcess& theirs, const std::string& suffix, Floors floors) {
  const auto add = [&](const std::string& id, const std::string& what, double at_least,
                       double bytes, const MakeWorker& make) {
    add_row(options, report, id + suffix, [&] {
      Row row = contest(options, ours, theirs, make, bytes);
      row.id = id + suffix;
      row.what = what;
      row.at_least = at_least;
      if (!suffix.empty()) row.cpu_ratio.reset();  // the server's is not in it
      return row;
    });
  };
  constexpr double kBytes = static_cast<double>(kRequest);
  add("mount-write", "rewriting a file by writes of 1 MiB", floors.stream, kBytes,
      [&](const MountProcess& mount, int) { return writer(job, mount); });
  add("mount-read", "reading a file by reads of 1 MiB", floors.stream, kBytes,
      [&](const MountProcess& mount, int) { return reader(job, mount); });
  add("mount-stat",
      fmt::format("stat of {} files in {} folders, each once, in no order", job.files, kFolders),
      floors.stat, 0, [&](const MountProcess& mount, int round) {
        return looker(job, mount, static_cast<unsigned>(round + 1));
      });
}

}  // namespace

void mount_rows(const BenchOptions& options, const std::string& scratch, Report& report) {
  const std::vector<std::string> ids = {"mount-write",       "mount-read",
                                        "mount-stat",        "mount-write-server",
                                        "mount-read-server", "mount-stat-server"};
  if (std::ranges::none_of(ids, [&](const std::string& id) { return wanted(options, id); })) return;
  const std::string peer = beside_us("../bench/passthrough_ll"), self = beside_us("forebay");
  const char* missing =
      ::access("/dev/fuse", R_OK | W_OK) != 0 ? "/dev/fuse cannot be used"
      : ::access(peer.c_str(), X_OK) != 0
          ? "passthrough_ll was not built: install libfuse3-dev, with its examples"
          : nullptr;
  if (missing) {
    report.left_out.push_back(fmt::format("{}: {}", fmt::join(ids, ", "), missing));
    return;
  }
  const Bed bed(scratch, "posix", kPool, true);
  const Job job = {bed.directory(), options.quick ? 16u : 64u, options.seconds,
                   options.quick ? 2000 : kFiles};
  make_files(job);
  const std::string mounts = scratch + "/mounts";
  const MountProcess theirs({peer, "-f", "-o", "cache=never,source=" + job.below},
                            mounts + "/peer");
  {
    const MountProcess ours({self, "mount", "-f", job.below}, mounts + "/ours");
    rows(options, report, job, ours, theirs, "", {0.9, 0.8});
  }
  const MountProcess through(
      {self, "mount", "-f", "-o", "cache=none,server=" + bed.run_dir(), "bench"},
      mounts + "/server");
  rows(options, report, job, through, theirs, "-server", {0.7, 0.55});
}

}  // namespace forebay::bench
