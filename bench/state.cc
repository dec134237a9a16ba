#include "bench/state.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <random>

#include "bench/bed.h"
#include "bench/relay_row.h"
#include "bench/shared_file.h"
#include "bench/shared_pointer_rows.h"
#include "core/types.h"

namespace forebay::bench {

namespace {

constexpr uint64_t kPool = 64_MiB;
constexpr int kHotClients = 4, kInFlight = 8;
constexpr double kHotBar = 100'000;  // a second
constexpr int kAppenders = 8;
constexpr size_t kMostAppended = 4096;

// ---- One at a time ----

Row one_at_a_time(const std::string& scratch, const BenchOptions& options, bool shared) {
  const Bed bed(scratch + (shared ? "/shm" : "/unix"), "posix", kPool, shared);
  const auto worker = [&](bool adds) -> Worker {
    return [&, adds](int, const std::function<void()>& go, Shared& out) {
      const auto store = must(bed.connect(Socket::unix_socket));
      const SharedFile file(*store, "f");
      file.make_number();
      uint64_t last = file.number();
      const Request request = adds ? file.add() : file.request(Op::getattr);
      go();
      time_calls(options.seconds, out, [&] {
        const Result<Reply> reply = store->call(request);
        return reply && (!adds || reply->value == last++);
      });
    };
  };
  Side us, them;
  const auto p50 = [](const FleetResult& f) { return f.p50 * 1e6; };
  for (int round = 0; round < options.rounds; ++round) {
    measure(us, bed.server(), 1, worker(true), p50);
    measure(them, bed.server(), 1, worker(false), p50);
  }
  Row row;
  row.id = shared ? "fetch-add/shm" : "fetch-add/unix";
  row.what = fmt::format("fetch-and-add, p50, 1 client, {}", shared ? "shared memory" : "a socket");
  row.against = "a getattr round trip to the same server";
  compare(row, us, them, true);
  row.unit = "us";
  row.at_least = 0.67;
  return row;
}

// ---- Many at once ----

// Keeps some requests under way for a while.
class Flood {
 public:
  Flood(Store& store, std::function<Request(int slot)> next)
      : store_(store), next_(std::move(next)) {}

  void run(double seconds, Shared& out) {
    const auto begin = Clock::now();
    std::unique_lock lock(mutex_);
    for (int i = 0; i < kInFlight; ++i) {
      ++under_way_;
      lock.unlock();
      send(i);
      lock.lock();
    }
    changed_.wait_for(lock, std::chrono::duration<double>(seconds - since(begin)));
    stop_ = true;
    changed_.wait(lock, [&] { return under_way_ == 0; });
    out.operations = done_;
    out.verified = good_;
  }

 private:
  void send(int slot) {
    store_.submit(next_(slot), [this, slot](Result<Reply>&& reply) {
      good_ = good_ && reply.has_value();
      if (stop_) {
        std::lock_guard lock(mutex_);
        ++done_;
        if (--under_way_ == 0) changed_.notify_all();
        return;
      }
      ++done_;
      send(slot);
    });
  }

  Store& store_;
  const std::function<Request(int slot)> next_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> good_{true};
  int under_way_ = 0;
  std::atomic<uint64_t> done_{0};
};

double per_second(const FleetResult& f) {
  return static_cast<double>(f.operations) / f.seconds;
}

Row hot(const std::string& scratch, const BenchOptions& options) {
  const Bed bed(scratch + "/hot", "posix", kPool, true);
  const auto connection = must(bed.connect(Socket::unix_socket));
  const SharedFile file(*connection, "f");
  file.make_number();
  const Worker worker = [&](int, const std::function<void()>& go, Shared& out) {
    const auto store = must(bed.connect(Socket::unix_socket));
    const SharedFile mine(*store, "f");
    Flood flood(*store, [&](int) { return mine.add(); });
    go();
    const Stretch timed(bed.server());
    flood.run(options.seconds, out);
    timed.end(out);
  };
  Side us;
  uint64_t expected = 0;
  bool exact = true;
  for (int round = 0; round < options.rounds; ++round) {
    measure(us, bed.server(), kHotClients, worker, [&](const FleetResult& f) {
      expected += f.operations;
      exact = exact && file.number() == expected;
      return per_second(f);
    });
  }
  Row row;
  row.id = "fetch-add-hot";
  row.what = fmt::format("one number, {} clients, {} in flight each, shared memory", kHotClients,
                         kInFlight);
  row.against = "the bar";
  row.ours = median(us.figures);
  row.theirs = kHotBar;
  row.ratio = row.ours / row.theirs;
  row.cpu = median(us.cpu) * 1e6;
  row.cpu_unit = "us/op";
  row.unit = "op/s";
  row.verified = us.verified && exact;
  row.at_least = 1;
  return row;
}

// ---- Appends ----

size_t next_size(std::mt19937_64& random) {
  return 1 + random() % kMostAppended;
}

Row append(const std::string& scratch, const BenchOptions& options) {
  const Bed bed(scratch + "/append", "posix", kPool, true);
  std::vector<std::byte> bytes(kMostAppended, std::byte{'x'});
  const std::string theirs_path = bed.scratch() + "/theirs";
  std::string log;
  const Worker ours = [&](int index, const std::function<void()>& go, Shared& out) {
    const auto store = must(bed.connect(Socket::unix_socket));
    const SharedFile mine(*store, log);
    std::mt19937_64 random(static_cast<uint64_t>(index));
    std::atomic<uint64_t> sent{0};
    Flood flood(*store, [&](int) {
      const size_t size = next_size(random);
      sent += size;
      return mine.append(std::span(bytes).first(size));
    });
    go();
    const Stretch timed(bed.server());
    flood.run(options.seconds, out);
    timed.end(out);
  };
  const Worker theirs = [&](int index, const std::function<void()>& go, Shared& out) {
    const int fd = ::open(theirs_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    std::mt19937_64 random(static_cast<uint64_t>(index));
    go();
    const Stretch timed(0);
    out.verified = fd >= 0;
    for (const auto begin = Clock::now(); since(begin) < options.seconds; ++out.operations) {
      const size_t size = next_size(random);
      out.verified = out.verified && ::write(fd, bytes.data(), size) == static_cast<ssize_t>(size);
    }
    timed.end(out);
    ::close(fd);
  };
  // Without a hole: every byte is an 'x'.
  const auto whole = [&](const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    std::vector<std::byte> got(1_MiB);
    bool good = fd >= 0;
    for (ssize_t n; good && (n = ::read(fd, got.data(), got.size())) > 0;) {
      good = std::all_of(got.begin(), got.begin() + n,
                         [](std::byte b) { return b == std::byte{'x'}; });
    }
    ::close(fd);
    return good;
  };
  Side us, them;
  bool good = true;
  for (int round = 0; round < options.rounds; ++round) {
    log = fmt::format("log{}", round);
    measure(us, bed.server(), kAppenders, ours, per_second);
    const std::string path = bed.directory() + "/" + log;
    good = good && whole(path);
    ::unlink(path.c_str());
    measure(them, 0, kAppenders, theirs, per_second);
    ::unlink(theirs_path.c_str());
  }
  Row row;
  row.id = "append";
  row.what = fmt::format("1 to 4096 bytes, {} clients, {} in flight each, one file", kAppenders,
                         kInFlight);
  row.against = fmt::format("{} processes with O_APPEND, which learn no place", kAppenders);
  compare(row, us, them, false);
  row.unit = "op/s";
  row.verified = row.verified && good;
  return row;
}

void run(const BenchOptions& options, const std::string& scratch, Report& report) {
  report.mode = file_system_of(scratch);
  for (const bool shared : {false, true}) {
    const std::string id = shared ? "fetch-add/shm" : "fetch-add/unix";
    add_row(options, report, id, [&] { return one_at_a_time(scratch, options, shared); });
  }
  add_row(options, report, "fetch-add-relay", [&] { return relay_row(scratch, options); });
  add_row(options, report, "fetch-add-hot", [&] { return hot(scratch, options); });
  add_row(options, report, "append", [&] { return append(scratch, options); });
  shared_pointer_rows(options, scratch, report);
}

}  // namespace

Result<void> run_bench_state(const BenchOptions& options) {
  return run_suite("state", options, run);
}

}  // namespace forebay::bench
