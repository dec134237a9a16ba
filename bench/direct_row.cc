// One client rewrites a file in requests of 8 MiB through an export that is direct, and by an
// io_uring of its own, with O_DIRECT and registered memory. On both sides eight transfers of 1 MiB
// are under way at any time: ours are two requests, which the client does itself by calls of 4 MiB
// (client/shortcuts.h), or of which the server has four chunks each in hand. Each has written the
// file once before it counts: memory is there then, and registered.
#include "bench/direct_row.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "bench/bed.h"
#include "core/types.h"
#include "store/uring.h"

namespace forebay::bench {

namespace {

constexpr uint64_t kPool = 64_MiB;
constexpr uint64_t kFile = 256_MiB;
constexpr uint64_t kRequest = 8_MiB;
constexpr uint64_t kTransfer = 1_MiB;
constexpr unsigned kRequests = 2;
constexpr unsigned kDepth = 8;

struct DirectSpec {
  std::string id;
  bool allocated;  // memory of fb_alloc
  double at_least;
  bool forwarded = false;  // without shortcuts
};
const DirectSpec kRows[] = {{"stream-direct", false, 0.95},
                            {"stream-direct-alloc", true, 0},
                            {"stream-direct-forwarded", false, 0, true},
                            {"stream-direct-alloc-forwarded", true, 0, true}};

void fill(std::span<std::byte> bytes) {
  for (uint64_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>((i * 2654435761u >> 11) + i);
}

// Page-aligned, as O_DIRECT wants it.
class Pages {
 public:
  explicit Pages(uint64_t size)
      : size_(size),
        at_(::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (at_ == MAP_FAILED) throw std::bad_alloc();
    fill(bytes());
  }
  ~Pages() { ::munmap(at_, size_); }
  Pages(const Pages&) = delete;
  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(at_), size_}; }

 private:
  uint64_t size_;
  void* at_;
};

class DirectFile {
 public:
  explicit DirectFile(const std::string& path)
      : fd_(::open(path.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC)) {
    if (fd_ < 0) throw std::runtime_error(path + " by O_DIRECT: " + strerror(errno));
  }
  ~DirectFile() { ::close(fd_); }
  DirectFile(const DirectFile&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

// Every request of the file holds the same; the last one is looked at.
bool holds(const std::string& path, std::span<const std::byte> expected) {
  const DirectFile file(path);
  const Pages got(kRequest);
  std::memset(got.bytes().data(), 0, kRequest);
  const ssize_t n = ::pread(file.fd(), got.bytes().data(), kRequest, kFile - kRequest);
  return n == static_cast<ssize_t>(kRequest) && std::ranges::equal(got.bytes(), expected);
}

// Keeps kRequests writes under way until the file is written.
class OurStream {
 public:
  OurStream(OpenFile& file, std::span<const std::byte> bytes) : file_(file), bytes_(bytes) {}
  void run() {
    for (unsigned i = 0; i < kRequests; ++i) next();
    while (const unsigned left = left_.load()) left_.wait(left);
    if (failed_) throw std::runtime_error("a write failed");
  }

 private:
  void next() {
    const uint64_t at = issued_.fetch_add(kRequest);
    if (at >= kFile || failed_) {
      --left_;
      return left_.notify_one();
    }
    file_.submit_write(at, bytes_, [this](Result<Reply>&& reply) {
      if (!reply) failed_ = true;
      next();
    });
  }

  OpenFile& file_;
  const std::span<const std::byte> bytes_;
  std::atomic<uint64_t> issued_{0};
  std::atomic<unsigned> left_{kRequests};
  std::atomic<bool> failed_{false};
};

void their_stream(Uring& ring, int fd, std::span<std::byte> bytes, int memory) {
  iovec pieces[kRequest / kTransfer];
  for (size_t i = 0; i < std::size(pieces); ++i)
    pieces[i] = {bytes.data() + i * kTransfer, kTransfer};
  std::vector<Uring::Ended> ended(kDepth);
  unsigned under_way = 0;
  for (uint64_t at = 0; at < kFile || under_way > 0;) {
    for (; under_way < kDepth && at < kFile; at += kTransfer, ++under_way) {
      const bool taken = ring.submit({.write = true,
                                      .fd = fd,
                                      .at = Offset(at),
                                      .pieces = {&pieces[at % kRequest / kTransfer], 1},
                                      .memory = memory,
                                      .tag = pieces});
      if (!taken) throw std::runtime_error("io_uring takes no more");
    }
    const size_t n = ring.wait(ended);
    for (size_t i = 0; i < n; ++i)
      if (ended[i].result != static_cast<int>(kTransfer)) throw std::runtime_error("a short write");
    under_way -= static_cast<unsigned>(n);
  }
}

Row direct_row(const BenchOptions& options, const std::string& scratch, const DirectSpec& spec) {
  const Bed bed(scratch, "posix", kPool, true,
                {{"export.bench.direct", "true"},
                 {"export.bench.shortcuts", spec.forwarded ? "false" : "true"}});
  const std::string path = bed.directory() + "/stream";
  const Worker ours = [&](int, const std::function<void()>& go, Shared& out) {
    const auto store = must(bed.connect(Socket::unix_socket));
    OpenFile file = must(open_file(*store, "stream"));
    const Pages ordinary(kRequest);
    std::span<std::byte> bytes = ordinary.bytes();
    if (spec.allocated) {
      std::byte* const lent = store->allocate(kRequest);
      if (!lent) throw std::bad_alloc();
      bytes = {lent, kRequest};  // until the process ends
      fill(bytes);
    }
    OurStream(file, bytes).run();
    OurStream stream(file, bytes);
    go();
    stream.run();
    out.operations = kFile / kRequest;
    out.verified = holds(path, bytes);
  };
  const Worker theirs = [&](int, const std::function<void()>& go, Shared& out) {
    const auto ring = must(Uring::open(kDepth));
    const DirectFile file(path);
    const Pages bytes(kRequest);
    const int memory = must(ring->add_memory(bytes.bytes()));
    their_stream(*ring, file.fd(), bytes.bytes(), memory);
    go();
    their_stream(*ring, file.fd(), bytes.bytes(), memory);
    out.operations = kFile / kRequest;
    out.verified = holds(path, bytes.bytes());
  };
  const auto rate = [](const FleetResult& f) {
    return static_cast<double>(kFile) / f.seconds / 1e6;
  };
  Side us, them, warm;
  measure(warm, bed.server(), 1, ours, rate);
  for (int round = 0; round < options.rounds; ++round) {
    measure(us, bed.server(), 1, ours, rate);
    measure(them, 0, 1, theirs, rate);
  }
  Row row;
  row.id = spec.id;
  row.what = fmt::format(
      "1 client, requests of 8 MiB{}, {} transfers of 1 MiB at a time, O_DIRECT, an allocated "
      "file that is not in the page cache",
      spec.allocated ? ", memory of fb_alloc" : "", kDepth);
  row.against = "the client's own io_uring with O_DIRECT and registered memory";
  compare(row, us, them, false);
  row.verified = row.verified && warm.verified;
  row.unit = "MB/s";
  row.at_least = spec.at_least;
  return row;
}

}  // namespace

void add_direct_row(const BenchOptions& options, const std::string& scratch, Report& report) {
  for (const DirectSpec& spec : kRows) {
    if (!wanted(options, spec.id)) continue;
    if (const auto ring = Uring::open(1); !ring) {
      report.left_out.push_back(spec.id + ": " + ring.error().message());
      continue;
    }
    const std::string folder = scratch + "/" + spec.id;
    ::mkdir(folder.c_str(), 0755);
    add_row(options, report, spec.id, [&] { return direct_row(options, folder, spec); });
  }
}

}  // namespace forebay::bench
