// Streams: every client goes through a file of its own in requests of 8 MiB.
#include <fmt/format.h>
#include <stdlib.h>

#include <memory>
#include <optional>
#include <stdexcept>

#include "bench/contest.h"
#include "bench/forward_rows.h"

namespace forebay::bench {

namespace {

enum class Way { shared_memory, fb_alloc, tcp };

struct StreamSpec {
  std::string id;
  bool write;
  int clients;
  Way way;
  double at_least;
  std::optional<double> cpu_at_most = {};
};

const StreamSpec kRows[] = {
    {"stream-write", true, 1, Way::shared_memory, 0.85, 1.7},
    {"stream-write-alloc", true, 1, Way::fb_alloc, 0.92, 1.1},
    {"stream-read", false, 1, Way::shared_memory, 0.55},
    {"stream-read-alloc", false, 1, Way::fb_alloc, 0.65},
    {"stream-16", true, 16, Way::shared_memory, 0.57},
    {"stream-16-alloc", true, 16, Way::fb_alloc, 0.80},
    {"stream-tcp", true, 1, Way::tcp, 0.88},
};

// Through the server, also where a client could do it itself.
const StreamSpec kForwardedRows[] = {
    {"stream-write-forwarded", true, 1, Way::shared_memory, 0},
    {"stream-write-alloc-forwarded", true, 1, Way::fb_alloc, 0},
    {"stream-read-forwarded", false, 1, Way::shared_memory, 0},
    {"stream-16-forwarded", true, 16, Way::shared_memory, 0},
};

const StreamSpec kTmpfsRows[] = {
    {"stream-read-tmpfs", false, 1, Way::shared_memory, 0.75},
    {"stream-read-alloc-tmpfs", false, 1, Way::fb_alloc, 0.90},
};

// The bare socket and its receiver, where a row is measured against that.
struct BareServer {
  BareListener listener;
  Child child;
  explicit BareServer(const std::string& file)
      : listener(Socket::tcp, ""), child([&] { serve_streams(listener.fd(), file); }) {}
};

Row stream_row(const Bed& bed, const BenchOptions& options, const StreamSpec& spec) {
  Load load;
  load.write = spec.write;
  load.clients = spec.clients;
  load.seconds = options.seconds;
  const std::string& directory = bed.directory();

  std::unique_ptr<BareServer> bare;
  Contestant theirs = direct(directory);
  if (spec.way == Way::tcp) {
    bare = std::make_unique<BareServer>(directory + "/" + load.file(0));
    theirs = {bare_door(bare->listener), bare->child.pid()};
  }
  const Contestant ours = spec.way == Way::fb_alloc ? allocated(bed)
                          : spec.way == Way::tcp    ? forwarded(bed, Socket::tcp)
                                                    : forwarded(bed);
  const auto sides = contest(options, load, directory, {ours, theirs});
  Row row;
  row.id = spec.id;
  row.what = load.text() + (spec.way == Way::fb_alloc ? ", buffers from fb_alloc" : "");
  row.against = spec.way == Way::tcp ? "a bare TCP socket whose receiver pwrites 1 MiB at a time"
                : spec.write         ? "the clients' own pwrite"
                                     : "the clients' own pread";
  row.state = state_of(load, directory);
  fill(row, load, sides[0], sides[1]);
  row.at_least = spec.at_least;
  row.cpu_at_most = spec.cpu_at_most;
  return row;
}

void add_streams(Forward& forward, const std::string& scratch, std::span<const StreamSpec> specs,
                 const std::vector<Override>& settings = {}) {
  if (std::ranges::none_of(specs, [&](const auto& spec) { return forward.wants({spec.id}); }))
    return;
  const Bed bed(scratch, "posix", Forward::kPool, true, settings);
  for (const StreamSpec& spec : specs) {
    forward.add({spec.id},
                [&] { return std::vector<Row>{stream_row(bed, forward.options, spec)}; });
  }
  forward.saw(bed);
}

}  // namespace

void stream_rows(Forward& forward) {
  add_streams(forward, forward.scratch + "/streams", kRows);
  add_streams(forward, forward.scratch + "/forwarded", kForwardedRows,
              {{"export.bench.shortcuts", "false"}});
  if (file_system_of("/dev/shm") != "tmpfs") {
    return forward.leave_out({kTmpfsRows[0].id, kTmpfsRows[1].id}, "/dev/shm is no tmpfs here");
  }
  std::string memory = "/dev/shm/forebay-bench-XXXXXX";
  if (mkdtemp(memory.data()) == nullptr) throw std::runtime_error("no scratch folder in /dev/shm");
  try {
    add_streams(forward, memory, kTmpfsRows);
  } catch (...) {
    remove_scratch(memory);
    throw;
  }
  remove_scratch(memory);
}

}  // namespace forebay::bench
