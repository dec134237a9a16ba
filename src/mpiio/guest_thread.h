// Threads of ours in a process that is the application's.
#pragma once

namespace forebay::mpiio {

// The first thing that such a thread does. A launcher may have bound its maker to one core, which
// is busy with a rank: it may run on every core that the process may use. Signals are the
// application's business, except for those that a thread brings on itself.
void behave_as_a_guest();

}  // namespace forebay::mpiio
