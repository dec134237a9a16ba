// legal(): the oracle. Is what some requests read and left behind what some legal order of them
// gives? The rules are those of docs/consistency.md.
//
// Time is counted in steps. A file is a row of cells; a request reads or writes whole cells, and
// every cell that is written has a value of its own, so that a cell says who wrote it, and which
// part.
#pragma once

#include <cstdint>
#include <vector>

namespace forebay::order {

using Cells = std::vector<uint16_t>;

struct Range {
  unsigned at = 0, count = 0;
};
using Ranges = std::vector<Range>;  // of one request, in the order of its stream

bool overlap(const Ranges& a, const Ranges& b);

struct Happened {
  unsigned client = 0;
  bool write = false;
  Ranges where;
  Cells cells;         // what was written or read, in the order of the stream
  unsigned sent = 0;   // in the step
  unsigned ended = 0;  // not after this step
  bool lost = false;   // with its connection, while it was under way: a read is done again
};

// `history` in the order of sending. Legal is a total order of the requests, each of them whole, in
// which
//  - what ended before another was sent comes before it;
//  - requests of a client that overlap come in the order sent, but for a read that was lost: reads
//    that were sent later may have come before it was done again;
//  - every read sees what the order gives, and so does whoever looks when all is over.
bool legal(const std::vector<Happened>& history, const Cells& before, const Cells& after);

}  // namespace forebay::order
