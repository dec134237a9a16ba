#include "bench/fleet.h"

#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <span>

#include "core/assert.h"

namespace forebay::bench {

double cpu_seconds(pid_t pid) {
  clockid_t clock;
  timespec t{};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) != 0) return 0;
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

namespace {

double wall_seconds() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

struct Barrier {
  std::atomic<int> ready{0};
  std::atomic<int> failed{0};
};

template <class T>
T* shared_memory(size_t n) {
  void* p = mmap(nullptr, n * sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  FOREBAY_ASSERT(p != MAP_FAILED);
  return new (p) T[n];
}

[[noreturn]] void work(int index, int n, const Worker& worker, Barrier& barrier, Shared& out,
                       pid_t server) {
  become_child();
  std::optional<Stretch> whole;
  int all = 0;
  const auto go = [&] {
    all += n;
    barrier.ready.fetch_add(1);
    while (barrier.ready.load() < all && barrier.failed.load() == 0) usleep(1000);
    whole.emplace(server);
  };
  try {
    worker(index, go, out);
    if (out.ended == 0 && whole) whole->end(out);
  } catch (const std::exception& error) {
    strncpy(out.error, error.what(), sizeof out.error - 1);
    barrier.failed.store(1);
  }
  _exit(0);
}

void add(const Shared& one, FleetResult& result) {
  result.cpu += one.cpu;
  result.operations += one.operations;
  result.done.push_back(one.operations);
  result.verified = result.verified && one.verified;
}

double server_cpu(const Shared* reports, size_t n) {
  double begin = reports[0].server_begin, end = 0;
  for (size_t i = 0; i < n; ++i) {
    begin = std::min(begin, reports[i].server_begin);
    end = std::max(end, reports[i].server_end);
  }
  return end - begin;
}

}  // namespace

void become_child() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_DFL);
}

Stretch::Stretch(pid_t server)
    : server_(server),
      begin_(wall_seconds()),
      cpu_(cpu_seconds(getpid())),
      server_cpu_(server ? cpu_seconds(server) : 0) {}

void Stretch::end(Shared& out) const {
  out.began = begin_;
  out.ended = wall_seconds();
  out.cpu = cpu_seconds(getpid()) - cpu_;
  out.server_begin = server_cpu_;
  out.server_end = server_ ? cpu_seconds(server_) : 0;
}

std::optional<std::string> run_fleet(int n, const Worker& worker, FleetResult& result,
                                     pid_t server) {
  auto* barrier = shared_memory<Barrier>(1);
  auto* reports = shared_memory<Shared>(static_cast<size_t>(n));
  std::vector<pid_t> pids;
  for (int i = 0; i < n; ++i) {
    const pid_t pid = fork();
    FOREBAY_ASSERT(pid >= 0, strerror(errno));
    if (pid == 0) work(i, n, worker, *barrier, reports[i], server);
    pids.push_back(pid);
  }
  std::optional<std::string> error;
  for (const pid_t pid : pids) {
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
      for (const pid_t one : pids) kill(one, SIGKILL);
    }
    if (!WIFEXITED(status)) {
      barrier->failed.store(1);
      error = fmt::format("a client process died with signal {}", WTERMSIG(status));
    }
  }
  std::vector<float> samples;
  result = {};
  result.verified = true;
  for (int i = 0; i < n; ++i) {
    const Shared& one = reports[i];
    if (one.error[0] != 0) error = one.error;
    add(one, result);
    samples.insert(samples.end(), one.latency, one.latency + one.samples);
  }
  const std::span<const Shared> all(reports, static_cast<size_t>(n));
  result.seconds = std::ranges::max(all, {}, &Shared::ended).ended -
                   std::ranges::min(all, {}, &Shared::began).began;
  result.server_cpu = server_cpu(reports, static_cast<size_t>(n));
  if (!samples.empty()) {
    const auto middle = samples.begin() + static_cast<ptrdiff_t>(samples.size() / 2);
    std::nth_element(samples.begin(), middle, samples.end());
    result.p50 = *middle;
  }
  munmap(barrier, sizeof *barrier);
  munmap(reports, sizeof *reports * static_cast<size_t>(n));
  return error;
}

Child::Child(const std::function<void()>& body) : pid_(fork()) {
  FOREBAY_ASSERT(pid_ >= 0, strerror(errno));
  if (pid_ == 0) {
    become_child();
    body();
    _exit(0);
  }
}

Child::~Child() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

}  // namespace forebay::bench
