// What tests of the stores share. Header only.
#pragma once

#include "core/op.h"

namespace forebay {

// By this process; the rest of its fields are the test's to fill in.
inline Request request(Op op, Handle handle) {
  Request r;
  r.op = op;
  r.handle = std::move(handle);
  r.caller = this_process_caller();
  return r;
}

}  // namespace forebay
