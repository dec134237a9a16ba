#include "mpiio/node_records.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace forebay::mpiio {

void NodeRecords::fill(size_t rank, const plan::TiledMap& memory) const {
  std::byte* to = buffer(rank);
  for (plan::TiledCursor cursor(memory, Length(), memory.total()); !cursor.done();) {
    const Extent run = cursor.take(memory.total());
    std::memcpy(to, reinterpret_cast<const void*>(run.offset.value), run.length.value);
    to += run.length.value;
  }
}

int NodeRecords::write_run(std::span<const Record> run, const Write& by) {
  std::vector<Extent> memory;
  memory.reserve(run.size());
  Length total;
  for (const Record& record : run) {
    memory.push_back({Offset(reinterpret_cast<uintptr_t>(record.data)), record.length});
    total = total + record.length;
  }
  auto shape = Extents::make(std::move(memory));
  if (!shape) return shape.error().code();
  auto done = by(Extents(Extent{run.front().at, total}), std::move(*shape));
  return done ? 0 : done.error().code();
}

size_t NodeRecords::length_of_run(std::span<const Record> records) {
  size_t n = 1;
  while (n < records.size() && records[n - 1].at + records[n - 1].length == records[n].at) ++n;
  return n;
}

int NodeRecords::write(std::span<const Record> records, const Write& by) {
  int worst = 0;
  while (!records.empty()) {
    const auto run = records.first(length_of_run(records));
    const int code = write_run(run, by);
    if (run.size() == 1 && code != 0) worst = code;
    if (run.size() > 1 && code != 0)
      for (const Record& one : run) worst = std::max(worst, write(std::span(&one, 1), by));
    records = records.subspan(run.size());
  }
  return worst;
}

}  // namespace forebay::mpiio
