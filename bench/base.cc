#include "bench/base.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <thread>

#include "bench/bare.h"
#include "bench/bed.h"
#include "bench/measure.h"
#include "core/types.h"

namespace forebay::bench {

namespace {

constexpr uint64_t kRequest = 64_MiB;
constexpr uint64_t kFile = 256_MiB;  // rewritten and reread in requests of 64 MiB
constexpr uint64_t kPool = 64_MiB;
constexpr int kMemoryClients = 256;

const char* name_of(Socket kind) {
  return kind == Socket::unix_socket ? "unix" : "tcp";
}

// ---- Round trips ----

// Calls `trip` for a while and records how long each took.
void time_trips(double seconds, Shared& out, const std::function<bool()>& trip) {
  out.verified = true;
  const auto begin = Clock::now();
  auto last = begin;
  while (since(begin) < seconds) {
    out.verified = trip() && out.verified;
    const auto now = Clock::now();
    const auto took = static_cast<float>(std::chrono::duration<double>(now - last).count());
    out.latency[out.operations % Shared::kMostSamples] = took;
    last = now;
    ++out.operations;
  }
  out.samples = static_cast<uint32_t>(std::min<uint64_t>(out.operations, Shared::kMostSamples));
}

Row round_trip(const Bed& bed, const BenchOptions& options, Socket kind, int clients) {
  const BareListener listener(kind, bed.scratch() + "/bare.sock");
  const Child bare([&] { serve_pings(listener.fd(), std::thread::hardware_concurrency()); });

  const Worker ours = [&](int, const std::function<void()>& go, Shared& out) {
    const auto store = must(bed.connect(kind));
    Request request;
    request.op = Op::getattr;
    request.caller = this_process_caller();
    request.handle = must(store->root());
    const Attr expected = must(store->call(request)).attr;
    go();
    time_trips(options.seconds, out, [&] {
      const Result<Reply> reply = store->call(request);
      return reply && reply->attr.file_id == expected.file_id;
    });
  };
  const Worker theirs = [&](int, const std::function<void()>& go, Shared& out) {
    const int fd = listener.connect();
    ping(fd);
    go();
    time_trips(options.seconds, out, [&] { return ping(fd), true; });
    close(fd);
  };

  Side us, them;
  for (int round = 0; round < options.rounds; ++round) {
    measure(us, bed.server(), clients, ours, [](const FleetResult& f) { return f.p50 * 1e6; });
    measure(them, bare.pid(), clients, theirs, [](const FleetResult& f) { return f.p50 * 1e6; });
  }
  Row row;
  row.id = fmt::format("rpc-{}{}", name_of(kind), clients > 1 ? fmt::format("-{}", clients) : "");
  row.what = fmt::format("getattr round trip, p50, {} client{}", clients, clients > 1 ? "s" : "");
  row.against = "a bare 64-byte ping-pong on epoll";
  compare(row, us, them, true);
  row.unit = "us";
  row.at_least = 0.67, row.cpu_at_most = 1.5;
  return row;
}

// ---- Streams ----

std::byte pattern(uint64_t place, int round) {
  return static_cast<std::byte>((place * 2654435761u >> 13) + static_cast<unsigned>(round));
}

std::vector<std::byte> patterned(int round) {
  std::vector<std::byte> bytes(kRequest);
  for (uint64_t i = 0; i < kRequest; ++i) bytes[i] = pattern(i, round);
  return bytes;
}

// Every request of the file holds the same 64 MiB.
bool holds(const std::string& path, const std::vector<std::byte>& expected) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  std::vector<std::byte> got(kRequest);
  bool same = fd >= 0;
  for (uint64_t at = 0; same && at < kFile; at += kRequest) {
    for (uint64_t n = 0; same && n < kRequest;) {
      const ssize_t r = pread(fd, got.data() + n, kRequest - n, static_cast<off_t>(at + n));
      same = r > 0;
      n += same ? static_cast<uint64_t>(r) : 0;
    }
    same = same && got == expected;
  }
  close(fd);
  return same;
}

// One end of a stream of requests: writes or reads [at, at + 64 MiB) of the file.
using Mover = std::function<void(uint64_t at, std::vector<std::byte>& bytes)>;

void stream_file(bool write, int round, const std::string& path, pid_t server,
                 const std::function<void()>& go, Shared& out, const Mover& move) {
  const auto expected = patterned(round);
  auto bytes = write ? expected : std::vector<std::byte>(kRequest);
  if (write) move(0, bytes);  // a warm connection
  go();
  const Stretch timed(server);
  for (uint64_t at = 0; at < kFile; at += kRequest) move(at, bytes);
  timed.end(out);
  out.operations = kFile / kRequest;
  out.verified = write ? holds(path, expected) : bytes == expected;
}

Row stream(const Bed& bed, const BenchOptions& options, Socket kind, bool write) {
  const std::string their_path = bed.scratch() + "/bare.data", name = "stream.data";
  const std::string our_path = bed.directory() + "/" + name;
  const BareListener listener(kind, bed.scratch() + "/bare.sock");
  const Child bare([&] { serve_streams(listener.fd(), their_path); });

  const auto ours = [&](bool writes, int round) -> Worker {
    return [&, writes, round](int, const std::function<void()>& go, Shared& out) {
      const auto store = must(bed.connect(kind));
      OpenFile file = must(open_file(*store, name));
      stream_file(writes, round, our_path, bed.server(), go, out,
                  [&](uint64_t at, std::vector<std::byte>& b) {
                    const uint64_t moved = must(writes ? file.write(at, b) : file.read(at, b));
                    if (moved != b.size()) throw std::runtime_error("a short transfer");
                  });
    };
  };
  const auto theirs = [&](bool writes, int round) -> Worker {
    return [&, writes, round](int, const std::function<void()>& go, Shared& out) {
      const int fd = listener.connect();
      stream_file(writes, round, their_path, bare.pid(), go, out,
                  [&](uint64_t at, std::vector<std::byte>& b) {
                    writes ? stream_write(fd, at, b.data(), b.size())
                           : stream_read(fd, at, b.data(), b.size());
                  });
      close(fd);
    };
  };

  const auto rate = [](const FleetResult& f) {
    return static_cast<double>(kFile) / f.seconds / 1e6;
  };
  Side us, them, warm;
  measure(warm, bed.server(), 1, ours(true, 0), rate);
  measure(warm, bare.pid(), 1, theirs(true, 0), rate);
  for (int round = 0; round < options.rounds; ++round) {
    const int pattern_of = write ? round + 1 : 0;
    measure(us, bed.server(), 1, ours(write, pattern_of), rate);
    measure(them, bare.pid(), 1, theirs(write, pattern_of), rate);
  }
  unlink(their_path.c_str());
  unlink(our_path.c_str());
  Row row;
  row.id = fmt::format("stream-{}-{}", name_of(kind), write ? "write" : "read");
  row.what = "64 MiB requests, a file of 256 MiB in the page cache, rewritten or reread";
  row.against = write ? "a bare socket whose receiver pwrites 1 MiB at a time"
                      : "a bare socket whose sender preads 1 MiB at a time";
  compare(row, us, them, false);
  row.unit = "MB/s";
  row.verified = row.verified && warm.verified;
  row.at_least = 0.85;
  return row;
}

// ---- Memory ----

bool same_file(const std::string& path, const std::byte* expected) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  void* got = mmap(nullptr, kRequest, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (got == MAP_FAILED) return false;
  const bool same =
      std::filesystem::file_size(path) == kRequest && memcmp(got, expected, kRequest) == 0;
  munmap(got, kRequest);
  return same;
}

// All clients write 64 MiB from one buffer at the same time; returns the most memory that the
// server had resident meanwhile.
double peak_memory(const Bed& bed, const std::vector<std::byte>& source, bool& verified) {
  std::atomic<int> failed{0}, ready{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < kMemoryClients; ++i) {
    clients.emplace_back([&, i] {
      try {
        const auto store = must(bed.connect(Socket::unix_socket));
        OpenFile file = must(open_file(*store, fmt::format("memory.{}", i)));
        ready.fetch_add(1);
        while (ready.load() + failed.load() < kMemoryClients) usleep(1000);
        if (must(file.write(0, source)) != source.size()) throw std::runtime_error("short");
      } catch (const std::exception& error) {
        if (failed.fetch_add(1) == 0) fmt::print(stderr, "bench: client {}: {}\n", i, error.what());
      }
    });
  }
  for (std::thread& client : clients) client.join();
  verified = failed.load() == 0;
  if (bed.keeps_data()) {
    for (int i = 0; i < kMemoryClients; ++i) {
      const std::string path = fmt::format("{}/memory.{}", bed.directory(), i);
      verified = same_file(path, source.data()) && verified;
      unlink(path.c_str());
    }
  }
  return bed.peak_memory();
}

Row memory(const Bed& bed) {
  const auto source = patterned(0);
  Row row;
  const double peak = peak_memory(bed, source, row.verified);
  row.id = bed.keeps_data() ? "memory-256-posix" : "memory-256-null";
  row.what = fmt::format("the server's anonymous resident memory, {} clients writing 64 MiB each",
                         kMemoryClients);
  row.against = "the configured pool and 64 MiB";
  row.ours = peak / 1e6, row.theirs = static_cast<double>(kPool + 64_MiB) / 1e6;
  row.ratio = row.theirs / row.ours;
  row.unit = "MB";
  row.at_least = 1;
  return row;
}

// ---- The run ----

void run_rows(const BenchOptions& options, const std::string& scratch, Report& report) {
  const auto add = [&](const std::string& id, const std::function<Row()>& measured) {
    add_row(options, report, id, measured);
  };
  const Socket kinds[] = {Socket::unix_socket, Socket::tcp};
  {
    std::optional<Bed> made;
    const auto bed = [&]() -> const Bed& {
      return made ? *made : made.emplace(scratch, "posix", kPool);
    };
    for (const int clients : {1, 32}) {
      for (const Socket kind : kinds) {
        add(fmt::format("rpc-{}{}", name_of(kind), clients > 1 ? "-32" : ""),
            [&] { return round_trip(bed(), options, kind, clients); });
      }
    }
    for (const Socket kind : kinds) {
      add(fmt::format("stream-{}-write", name_of(kind)),
          [&] { return stream(bed(), options, kind, true); });
      add(fmt::format("stream-{}-read", name_of(kind)),
          [&] { return stream(bed(), options, kind, false); });
    }
  }
  // The two parts of memory-256; the row of that name is the worse of them.
  if (!wanted(options, "memory-256")) return;
  std::vector<Row> parts;
  for (const char* kind : {"null", "posix"}) {
    fmt::print(stderr, "bench: memory-256 ({}) ...\n", kind);
    const Bed bed(scratch, kind, kPool);
    parts.push_back(memory(bed));
  }
  Row worst = parts[0].ratio < parts[1].ratio ? parts[0] : parts[1];
  worst.id = "memory-256";
  worst.verified = parts[0].verified && parts[1].verified;
  report.rows.push_back(worst);
  report.rows.insert(report.rows.end(), parts.begin(), parts.end());
}

}  // namespace

Result<void> run_bench_base(const BenchOptions& options) {
  return run_suite("base", options, run_rows);
}

}  // namespace forebay::bench
