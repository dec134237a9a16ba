// Crew: a collective call of ranks that are all on one node. Nobody has a duty but to plan: the
// aggregator of a realm says what lies in its windows (mpiio/window_area.h), and whoever is there
// does the rest. Of a write, who is the last to copy its bytes into a window moves it to the Store;
// of a read, who comes first to one fills it for all. So nobody waits for a certain rank to get its
// turn on the processor, which is what most of the time went into where ranks outnumber cores.
//
// Long pieces of who moves a window are not copied, but moved from or to its memory
// (plan/own_pieces.h); of a read only where no two ranks want the same bytes.
//
// Every rank goes through windows 0 of all aggregators, then windows 1 and so on, and is done with
// what it moves before it goes on. So a window is moved when all ranks have left it (a write), or
// one has come to it (a read), that is after all windows of smaller numbers have been moved: where
// windows are in the order of storage targets (plan/order.h), a target serves one at a time.
#pragma once

#include "mpiio/windowed_call.h"

namespace forebay::mpiio {

class Crew : private WindowedCall {
 public:
  Crew(Collective& kept, Transfer& transfer, const plan::Realms& realms)
      : WindowedCall(kept, transfer, realms) {}
  void run();

 private:
  void plan_next();
  void visit(size_t aggregator);
  void read_window(WindowArea& area, uint32_t window);
  void write_window(WindowArea& area, uint32_t window);
  void fill(WindowArea& area, uint32_t window, plan::OwnPieces& own);
  void copy(const WindowArea::Seen& seen, plan::OwnPieces& own);

  bool planned_last_ = false;  // of this aggregator's windows
};

}  // namespace forebay::mpiio
