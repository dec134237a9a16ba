#include "bench/forward.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>

#include "bench/bare.h"
#include "bench/bed.h"
#include "bench/direct_row.h"
#include "core/types.h"

namespace forebay::bench {

namespace {

constexpr uint64_t kPool = 64_MiB;
constexpr uint64_t kRequest = 8_MiB;
constexpr uint64_t kBlock = 4_KiB;
constexpr int kSmallClients = 32;
constexpr uint64_t kBlocksOfClient = 512;  // of 4 KiB: the shared file has 64 MiB

std::byte pattern(uint64_t place, uint64_t salt) {
  return static_cast<std::byte>((place * 2654435761u >> 11) + salt * 97);
}

std::vector<std::byte> patterned(uint64_t size, uint64_t salt) {
  std::vector<std::byte> bytes(size);
  for (uint64_t i = 0; i < size; ++i) bytes[i] = pattern(i, salt);
  return bytes;
}

class DirectFile {
 public:
  explicit DirectFile(const std::string& path)
      : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    if (fd_ < 0) throw std::runtime_error(path + ": " + strerror(errno));
  }
  ~DirectFile() { ::close(fd_); }
  DirectFile(const DirectFile&) = delete;

  void write(uint64_t at, std::span<const std::byte> bytes) const {
    for (uint64_t n = 0; n < bytes.size();) {
      const ssize_t w =
          ::pwrite(fd_, bytes.data() + n, bytes.size() - n, static_cast<off_t>(at + n));
      if (w < 0) throw std::runtime_error(strerror(errno));
      n += static_cast<uint64_t>(w);
    }
  }
  void read(uint64_t at, std::span<std::byte> bytes) const {
    for (uint64_t n = 0; n < bytes.size();) {
      const ssize_t r =
          ::pread(fd_, bytes.data() + n, bytes.size() - n, static_cast<off_t>(at + n));
      if (r <= 0) throw std::runtime_error(r < 0 ? strerror(errno) : "a file that is too short");
      n += static_cast<uint64_t>(r);
    }
  }

 private:
  int fd_;
};

// ---- Streams: every client rewrites or rereads a file of its own in requests of 8 MiB ----

struct StreamSpec {
  std::string id;
  bool write = true;
  int clients = 1;
  Socket kind = Socket::unix_socket;
  double at_least = 0;
  std::optional<double> cpu_at_most;
};

using Mover = std::function<void(uint64_t at, std::vector<std::byte>& bytes)>;

void stream(const StreamSpec& spec, int client, uint64_t file, const std::string& path,
            const std::function<void()>& go, Shared& out, const Mover& move) {
  const auto expected = patterned(kRequest, static_cast<uint64_t>(client));
  auto bytes = expected;
  go();
  for (uint64_t at = 0; at < file; at += kRequest) move(at, bytes);
  out.operations = file / kRequest;
  if (spec.write) {  // one request of the file is looked at; all hold the same
    const DirectFile check(path);
    check.read(file - kRequest, bytes);
  }
  out.verified = bytes == expected;
}

Row stream_row(const Bed& bed, const BenchOptions& options, const StreamSpec& spec) {
  const uint64_t file = 256_MiB / static_cast<uint64_t>(spec.clients) / kRequest * kRequest;
  const auto path = [&](int i) { return fmt::format("{}/stream.{}", bed.directory(), i); };
  const auto ours = [&](bool write) -> Worker {
    return [&, write](int i, const std::function<void()>& go, Shared& out) {
      const auto store = must(bed.connect(spec.kind));
      OpenFile f = must(open_file(*store, fmt::format("stream.{}", i)));
      StreamSpec mine = spec;
      mine.write = write;
      stream(mine, i, file, path(i), go, out, [&](uint64_t at, std::vector<std::byte>& b) {
        if (must(write ? f.write(at, b) : f.read(at, b)) != b.size()) {
          throw std::runtime_error("a short transfer");
        }
      });
    };
  };
  const Worker theirs = [&](int i, const std::function<void()>& go, Shared& out) {
    const DirectFile f(path(i));
    stream(spec, i, file, path(i), go, out, [&](uint64_t at, std::vector<std::byte>& b) {
      spec.write ? f.write(at, b) : f.read(at, b);
    });
  };
  const auto rate = [&](const FleetResult& f) {
    return static_cast<double>(file) * spec.clients / f.seconds / 1e6;
  };
  Side us, them, warm;
  measure(warm, bed.server(), spec.clients, ours(true), rate);
  for (int round = 0; round < options.rounds; ++round) {
    measure(us, bed.server(), spec.clients, ours(spec.write), rate);
    measure(them, 0, spec.clients, theirs, rate);
  }
  for (int i = 0; i < spec.clients; ++i) unlink(path(i).c_str());
  Row row;
  row.id = spec.id;
  row.what = fmt::format("{} client{}, requests of 8 MiB, files in the page cache", spec.clients,
                         spec.clients > 1 ? "s" : "");
  row.against = spec.write ? "the clients' own pwrite" : "the clients' own pread";
  compare(row, us, them, false);
  row.verified = row.verified && warm.verified;
  row.unit = "MB/s";
  row.at_least = spec.at_least;
  row.cpu_at_most = spec.cpu_at_most;
  return row;
}

// ---- Small requests: 32 clients write 4 KiB blocks of one file ----

struct SmallSpec {
  std::string id;
  unsigned in_flight = 1;
  bool strided = true;
  double at_least = 0;
};

uint64_t place_of(const SmallSpec& spec, int client, uint64_t k) {
  const auto c = static_cast<uint64_t>(client);
  const uint64_t block = spec.strided ? k * kSmallClients + c : c * kBlocksOfClient + k;
  return block * kBlock;
}

// Keeps `in_flight` writes under way until the time is over.
class SmallWriter {
 public:
  SmallWriter(OpenFile& file, const SmallSpec& spec, int client, double seconds)
      : file_(file), spec_(spec), client_(client), seconds_(seconds) {
    for (uint64_t k = 0; k < kBlocksOfClient; ++k) {
      blocks_.push_back(patterned(kBlock, place_of(spec, client, k)));
    }
  }

  void run(Shared& out) {
    begin_ = Clock::now();
    if (spec_.in_flight == 1) {
      for (uint64_t k = 0; since(begin_) < seconds_; ++k, ++done_) {
        must(file_.write(place_of(spec_, client_, k % kBlocksOfClient), block(k)));
      }
    } else {
      left_ = spec_.in_flight;
      for (unsigned i = 0; i < spec_.in_flight; ++i) next();
      left_.wait(spec_.in_flight);
      while (const unsigned left = left_.load()) left_.wait(left);
      if (failed_) throw std::runtime_error("a write failed");
    }
    out.operations = done_;
    out.verified = true;
  }

 private:
  std::span<const std::byte> block(uint64_t k) const { return blocks_[k % kBlocksOfClient]; }
  void next() {
    const uint64_t k = issued_++;
    file_.submit_write(place_of(spec_, client_, k % kBlocksOfClient), block(k),
                       [this](Result<Reply>&& reply) {
                         failed_ = failed_ || !reply;
                         ++done_;
                         if (!failed_ && since(begin_) < seconds_) return next();
                         --left_;
                         left_.notify_one();
                       });
  }

  OpenFile& file_;
  const SmallSpec& spec_;
  const int client_;
  const double seconds_;
  std::vector<std::vector<std::byte>> blocks_;
  Clock::time_point begin_;
  std::atomic<uint64_t> issued_{0}, done_{0};
  std::atomic<unsigned> left_{0};
  std::atomic<bool> failed_{false};
};

// Whatever was written of the file holds what belongs there.
bool holds_blocks(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const std::vector<std::byte> hole(kBlock);
  std::vector<std::byte> got(kBlock);
  bool good = true;
  uint64_t written = 0;
  for (uint64_t at = 0; good && at < kSmallClients * kBlocksOfClient * kBlock; at += kBlock) {
    const ssize_t n = ::pread(fd, got.data(), kBlock, static_cast<off_t>(at));
    if (n <= 0) break;
    const bool full = got == patterned(kBlock, at);
    written += full;
    good = full || got == hole;
  }
  ::close(fd);
  return good && written > 0;
}

Row small_row(const Bed& bed, const BenchOptions& options, const SmallSpec& spec) {
  const std::string our_path = bed.directory() + "/small", their_path = bed.scratch() + "/small";
  const Worker ours = [&](int i, const std::function<void()>& go, Shared& out) {
    const auto store = must(bed.connect(Socket::unix_socket));
    OpenFile file = must(open_file(*store, "small"));
    SmallWriter writer(file, spec, i, options.seconds);
    go();
    writer.run(out);
  };
  const Worker theirs = [&](int i, const std::function<void()>& go, Shared& out) {
    const DirectFile file(their_path);
    std::vector<std::vector<std::byte>> blocks;
    for (uint64_t k = 0; k < kBlocksOfClient; ++k) {
      blocks.push_back(patterned(kBlock, place_of(spec, i, k)));
    }
    go();
    const auto begin = Clock::now();
    for (uint64_t k = 0; since(begin) < options.seconds; ++k, ++out.operations) {
      file.write(place_of(spec, i, k % kBlocksOfClient), blocks[k % kBlocksOfClient]);
    }
    out.verified = true;
  };
  const auto rate = [](const FleetResult& f) {
    return static_cast<double>(f.operations) / f.seconds / 1e3;
  };
  Side us, them;
  for (int round = 0; round < options.rounds; ++round) {
    measure(us, bed.server(), kSmallClients, ours, rate);
    measure(them, 0, kSmallClients, theirs, rate);
  }
  Row row;
  row.id = spec.id;
  row.what = fmt::format("32 clients, 4 KiB writes {} in one file, {} in flight each",
                         spec.strided ? "strided" : "each sequential", spec.in_flight);
  row.against = "32 processes calling pwrite";
  compare(row, us, them, false);
  row.verified = row.verified && holds_blocks(our_path) && holds_blocks(their_path);
  row.unit = "kop/s";
  row.at_least = spec.at_least;
  unlink(our_path.c_str());
  unlink(their_path.c_str());
  return row;
}

// ---- The run ----

void run_rows(const BenchOptions& options, const std::string& scratch, Report& report) {
  const auto add = [&](const std::string& id, const std::function<Row()>& measured) {
    add_row(options, report, id, measured);
  };
  double most_memory = 0;
  const auto streams = [&](const Bed& bed, const std::vector<StreamSpec>& specs) {
    for (const StreamSpec& spec : specs) {
      add(spec.id, [&] { return stream_row(bed, options, spec); });
      most_memory = std::max(most_memory, anonymous_bytes(bed.server()));
    }
  };
  {
    const Bed bed(scratch, "posix", kPool, true);
    const Socket near = Socket::unix_socket;
    streams(bed, {{"stream-write", true, 1, near, 0.85, 1.7},
                  {"stream-read", false, 1, near, 0.55, {}},
                  {"stream-16", true, 16, near, 0.57, {}}});
    const SmallSpec small[] = {
        {"small-1", 1, true, 1.0}, {"small-8", 8, true, 1.6}, {"small-8-seq", 8, false, 2.5}};
    for (const SmallSpec& spec : small) {
      add(spec.id, [&] { return small_row(bed, options, spec); });
      most_memory = std::max(most_memory, anonymous_bytes(bed.server()));
    }
  }
  add_direct_row(options, scratch, report);
  if (file_system_of("/dev/shm") == "tmpfs" && wanted(options, "stream-read-tmpfs")) {
    std::string memory = "/dev/shm/forebay-bench-XXXXXX";
    if (mkdtemp(memory.data()) == nullptr)
      throw std::runtime_error("no scratch folder in /dev/shm");
    {
      const Bed bed(memory, "posix", kPool, true);
      streams(bed, {{"stream-read-tmpfs", false, 1, Socket::unix_socket, 0.75, {}}});
    }
    remove_scratch(memory);
  }
  if (most_memory == 0 || !wanted(options, "memory")) return;
  Row row;
  row.id = "memory";
  row.what = "the server's anonymous resident memory after each of the above, the most";
  row.against = "the configured pool and 64 MiB";
  row.ours = most_memory / 1e6, row.theirs = static_cast<double>(kPool + 64_MiB) / 1e6;
  row.ratio = row.theirs / row.ours;
  row.unit = "MB";
  row.verified = true;
  row.at_least = 1;
  report.rows.push_back(row);
}

}  // namespace

Result<void> run_bench_forward(const BenchOptions& options) {
  return run_suite("forward", options, run_rows);
}

}  // namespace forebay::bench
