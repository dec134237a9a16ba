// One run of a script on a stage: which step comes next is the chooser's to say.
#pragma once

#include "chooser.h"
#include "stage.h"

namespace forebay::order {

enum class Arrivals : uint8_t {
  first,     // all requests arrive before the first call of the Store ends
  answered,  // a client sends its next request when the one before is answered
  any,       // a client sends whenever it likes
};

struct Rules {
  Arrivals arrivals = Arrivals::first;
  // One of these clients may lose its connection, once: while a step is under way or when it is
  // over.
  std::vector<unsigned> cut = {};
  bool calls_in_order = false;  // the Store ends its calls in the order in which they came
  bool settle = true;           // each step is over before the next begins; otherwise they mix
};

// True if a connection was cut.
bool run(Stage& stage, const Script& script, const Rules& rules, Chooser& chooser);

// Three clients with three random requests each, in which chunks, lists and bytes overlap.
Script random_script(Chooser& dice);

}  // namespace forebay::order
