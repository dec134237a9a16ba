// One program's calls under the preload, through a server on this node, and its calls to the kernel
// on the same directory, in turn. The worker loads the library as LD_PRELOAD would and calls its
// functions: those that an unchanged program would reach by their names.
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "bench/bed.h"
#include "bench/posix.h"
#include "core/types.h"

namespace forebay::bench {

namespace {

constexpr uint64_t kServerPool = 64_MiB;
constexpr char kPrefix[] = "/forebay-bench";

std::string preload_library() {
  std::error_code failed;
  const auto here = std::filesystem::read_symlink("/proc/self/exe", failed).parent_path();
  for (const char* folder : {"../lib", "../lib/x86_64-linux-gnu"})
    if (const auto path = here / folder / "libforebay-preload.so"; std::filesystem::exists(path))
      return path.string();
  return {};
}

// The calls of one side.
struct Calls {
  int (*open)(const char*, int, ...) = ::open64;
  ssize_t (*pwrite)(int, const void*, size_t, off64_t) = ::pwrite64;
  ssize_t (*pread)(int, void*, size_t, off64_t) = ::pread64;
  int (*ftruncate)(int, off64_t) = ::ftruncate64;
  int (*close)(int) = ::close;
};

Calls preloaded(const std::string& run_dir) {
  ::setenv("FOREBAY_CLIENT_PRELOAD", kPrefix, 1);
  ::setenv("FOREBAY_CLIENT_SERVER", run_dir.c_str(), 1);
  void* const library = ::dlopen(preload_library().c_str(), RTLD_NOW);
  if (!library) throw std::runtime_error(::dlerror());
  const auto find = [&](auto& to, const char* name) {
    to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(::dlsym(library, name));
    if (!to) throw std::runtime_error(name);
  };
  Calls calls;
  find(calls.open, "open64");
  find(calls.pwrite, "pwrite64");
  find(calls.pread, "pread64");
  find(calls.ftruncate, "ftruncate64");
  find(calls.close, "close");
  return calls;
}

struct PreloadJob {
  const Bed& bed;
  uint64_t bytes;  // of the file
  uint64_t request;
  bool write;
  bool anew;  // a file that is empty before each pass, as most programs write theirs
  double seconds;
};

std::vector<std::byte> pattern(uint64_t size, uint64_t block) {
  std::vector<std::byte> bytes(size);
  for (uint64_t k = 0; k < size; ++k)
    bytes[k] = static_cast<std::byte>((k * 2654435761u >> 13) + k + block * 31);
  return bytes;
}

void all(ssize_t moved, uint64_t size) {
  if (moved != static_cast<ssize_t>(size)) throw std::runtime_error("a short transfer");
}

// Reads the whole file, rewrites it, or writes it anew, in requests of one size, as often as fits
// in the time.
Worker mover(const PreloadJob& job, bool ours) {
  return [&job, ours](int, const std::function<void()>& go, Shared& out) {
    const Calls calls = ours ? preloaded(job.bed.run_dir()) : Calls();
    const std::string path = (ours ? kPrefix : job.bed.directory()) + std::string("/stream");
    const int fd = calls.open(path.c_str(), O_RDWR);
    if (fd < 0) throw std::runtime_error(path + ": " + strerror(errno));
    const std::vector<std::byte> blocks[2] = {pattern(job.request, 0), pattern(job.request, 1)};
    std::vector<std::byte> got(job.request);
    const uint64_t count = job.bytes / job.request;
    out.verified = true;
    go();
    const Stretch stretch(ours ? job.bed.server() : 0);
    const auto begin = Clock::now();
    do {
      if (job.anew && calls.ftruncate(fd, 0) != 0) throw std::runtime_error("ftruncate");
      for (uint64_t i = 0; i < count; ++i, ++out.operations) {
        const auto at = static_cast<off64_t>(i * job.request);
        const auto& want = blocks[i % 2];
        if (job.write) {
          all(calls.pwrite(fd, want.data(), job.request, at), job.request);
          continue;
        }
        all(calls.pread(fd, got.data(), job.request, at), job.request);
        // All of every 16th block, and of the others the ends: looking must cost little.
        out.verified = out.verified && got.front() == want.front() && got.back() == want.back() &&
                       (i % 16 != 0 || got == want);
      }
    } while (since(begin) < job.seconds);
    stretch.end(out);
    calls.close(fd);
    const int below = ::open((job.bed.directory() + "/stream").c_str(), O_RDONLY | O_CLOEXEC);
    for (uint64_t i = 0; job.write && i < count; i += count / 64 + 1) {
      all(::pread(below, got.data(), job.request, static_cast<off_t>(i * job.request)),
          job.request);
      out.verified = out.verified && got == blocks[i % 2];
    }
    ::close(below);
  };
}

void fill_stream(const PreloadJob& job) {
  const int fd =
      ::open((job.bed.directory() + "/stream").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  for (uint64_t i = 0; i < job.bytes / job.request; ++i) {
    const auto bytes = pattern(job.request, i % 2);
    all(::pwrite(fd, bytes.data(), job.request, static_cast<off_t>(i * job.request)), job.request);
  }
  ::close(fd);
}

Row preload_row(const BenchOptions& options, const PreloadJob& job, bool as_time) {
  fill_stream(job);
  const Figure figure = [&](const FleetResult& f) {
    const auto operations = static_cast<double>(f.operations);
    return as_time ? f.seconds / operations * 1e6
                   : operations * static_cast<double>(job.request) / f.seconds / 1e6;
  };
  Side us, them, warm;
  measure(warm, job.bed.server(), 1, mover(job, true), figure);
  measure(warm, 0, 1, mover(job, false), figure);
  for (int round = 0; round < options.rounds; ++round) {
    measure(us, job.bed.server(), 1, mover(job, true), figure);
    measure(them, 0, 1, mover(job, false), figure);
  }
  Row row;
  compare(row, us, them, as_time);
  row.verified = row.verified && warm.verified;
  row.against = "the same calls on the file system";
  row.unit = as_time ? "us" : "MB/s";
  return row;
}

}  // namespace

void preload_rows(const BenchOptions& options, const std::string& scratch, Report& report) {
  const std::vector<std::string> ids = {"preload-write", "preload-read", "preload-4k"};
  if (std::ranges::none_of(ids, [&](const std::string& id) { return wanted(options, id); })) return;
  if (preload_library().empty()) {
    report.left_out.push_back(
        fmt::format("{}: libforebay-preload.so was not built", fmt::join(ids, ", ")));
    return;
  }
  const Bed bed(scratch + "/preload", "posix", kServerPool, true);
  const uint64_t bytes = options.quick ? 16_MiB : 64_MiB;
  add_row(options, report, "preload-write", [&] {
    Row row = preload_row(options, {bed, bytes, 1_MiB, true, true, options.seconds}, false);
    row.id = "preload-write";
    row.what = "writing a file anew by writes of 1 MiB, under the preload";
    row.at_least = 0.75;
    return row;
  });
  add_row(options, report, "preload-read", [&] {
    Row row = preload_row(options, {bed, bytes, 1_MiB, false, false, options.seconds}, false);
    row.id = "preload-read";
    row.what = "reading a file by reads of 1 MiB, under the preload";
    row.at_least = 0.5;
    return row;
  });
  add_row(options, report, "preload-4k", [&] {
    constexpr double kMayAdd = 8;  // us
    Row row = preload_row(options, {bed, bytes, 4_KiB, true, false, options.seconds}, true);
    row.id = "preload-4k";
    row.what = "one write of 4 KiB in a file that is there, under the preload";
    row.at_least = row.theirs / (row.theirs + kMayAdd);
    row.note = fmt::format("{:.1f} us added; at most {} are meant", row.ours - row.theirs, kMayAdd);
    return row;
  });
}

}  // namespace forebay::bench
