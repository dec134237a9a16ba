// On a GlusterFS volume, where merging is worth most: 32 clients, strided in one file, one request
// in flight each; hbrr against fifo and against the clients' own use of the mount. And auto there.
#include <fmt/format.h>

#include "bench/forward_rows.h"
#include "bench/gluster.h"
#include "bench/sweep.h"

namespace forebay::bench {

namespace {

struct GlusterSpec {
  std::string id;
  bool write;
  uint64_t request;
  double over_fifo, over_direct;
};

const GlusterSpec kRows[] = {
    {"gluster-write-4k", true, 4_KiB, 5, 2},
    {"gluster-read-4k", false, 4_KiB, 2, 2},
    {"gluster-write-32k", true, 32_KiB, 1.486, 1.0},
    {"gluster-read-32k", false, 32_KiB, 1.40, 1.0},
};

const std::string kState =
    std::string(GlusterVolume::kWhat) +
    ": nothing cached but by the bricks' ext4; overwritten in place or reread";

std::vector<Row> gluster_row(const BenchOptions& options, const Policies& policies,
                             const std::string& directory, const GlusterSpec& spec) {
  const Load load{.write = spec.write,
                  .request = spec.request,
                  .clients = 32,
                  .layout = Load::Layout::strided,
                  .bytes = 64_MiB,
                  .seconds = options.seconds,
                  .warm = options.seconds / 4};
  const auto sides =
      contest(options, load, directory,
              {forwarded(policies.hbrr()), forwarded(policies.fifo()), direct(directory)});
  Row over_fifo, over_direct;
  over_fifo.id = spec.id, over_direct.id = spec.id + "-direct";
  over_fifo.against = "fifo", over_direct.against = "the clients' own calls on the mount";
  over_fifo.at_least = spec.over_fifo, over_direct.at_least = spec.over_direct;
  for (Row* row : {&over_fifo, &over_direct}) {
    row->what = "hbrr, " + load.text();
    row->state = kState;
  }
  fill(over_fifo, load, sides[0], sides[1]);
  fill(over_direct, load, sides[0], sides[2]);
  return {over_fifo, over_direct};
}

std::vector<Row> auto_gluster(Forward& forward, const Policies& policies,
                              const std::string& directory) {
  const Sweep measured = sweep(forward.options, directory, kState, policies.lines());
  plot(measured, "gluster", "GlusterFS", forward.report);
  return auto_rows("auto-gluster", measured);
}

std::vector<std::string> all_ids() {
  std::vector<std::string> ids{"auto-gluster", "auto-gluster-worst"};
  for (const GlusterSpec& spec : kRows) {
    ids.push_back(spec.id);
    ids.push_back(spec.id + "-direct");
  }
  return ids;
}

}  // namespace

void gluster_rows(Forward& forward) {
  if (!forward.wants(all_ids())) return;
  const auto volume = GlusterVolume::start(forward.scratch + "/gluster");
  if (!volume)
    return forward.leave_out(all_ids(), "no GlusterFS: " + std::string(volume.error().what()));
  const std::string directory = volume->mount() + "/export";
  const Policies policies(forward.scratch + "/gluster-servers", directory);
  for (const GlusterSpec& spec : kRows) {
    forward.add({spec.id, spec.id + "-direct"},
                [&] { return gluster_row(forward.options, policies, directory, spec); });
  }
  forward.add({"auto-gluster", "auto-gluster-worst"},
              [&] { return auto_gluster(forward, policies, directory); });
  forward.most_memory = std::max(forward.most_memory, policies.peak_memory());
}

}  // namespace forebay::bench
