// Small requests: 32 clients write 4 KiB blocks of one file, acknowledged after the write.
#include "bench/contest.h"
#include "bench/forward_rows.h"

namespace forebay::bench {

namespace {

struct SmallSpec {
  std::string id;
  unsigned in_flight;
  Load::Layout layout;
  double at_least;
  std::vector<Override> settings = {};  // of the server, beside the defaults
};

const Override kForwarded{"export.bench.shortcuts", "false"};

const SmallSpec kRows[] = {
    {"small-1", 1, Load::Layout::strided, 1.0},
    {"small-8", 8, Load::Layout::strided, 1.6},
    {"small-8-seq", 8, Load::Layout::sequential, 2.5},
    {"small-behind", 8, Load::Layout::strided, 3.5, {{"export.bench.write_behind", "on"}}},
    // Through the server, also where clients could do it themselves.
    {"small-1-forwarded", 1, Load::Layout::strided, 0, {kForwarded}},
    {"small-8-forwarded", 8, Load::Layout::strided, 0, {kForwarded}},
    {"small-8-seq-forwarded", 8, Load::Layout::sequential, 0, {kForwarded}},
};

Row small_row(Forward& forward, const SmallSpec& spec) {
  const Bed bed(forward.scratch + "/" + spec.id, "posix", Forward::kPool, true, spec.settings);
  Load load;
  load.request = 4_KiB;
  load.clients = 32;
  load.in_flight = spec.in_flight;
  load.layout = spec.layout;
  load.fresh = true;
  load.bytes = forward.options.quick ? 64_MiB : 512_MiB;
  load.seconds = forward.options.seconds;
  const auto sides =
      contest(forward.options, load, bed.directory(), {forwarded(bed), direct(bed.directory())});
  Row row;
  row.id = spec.id;
  row.what = load.text();
  for (const auto& [key, value] : spec.settings) row.what += ", " + key + " = " + value;
  row.against = "32 processes calling pwrite";
  row.state = state_of(load, bed.directory());
  fill(row, load, sides[0], sides[1]);
  row.at_least = spec.at_least;
  forward.saw(bed);
  return row;
}

}  // namespace

void small_rows(Forward& forward) {
  for (const SmallSpec& spec : kRows) {
    forward.add({spec.id}, [&] { return std::vector<Row>{small_row(forward, spec)}; });
  }
}

}  // namespace forebay::bench
