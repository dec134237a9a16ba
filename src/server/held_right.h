// A right that a session holds, and what it takes to close it.
#pragma once

#include "core/op.h"

namespace forebay::server {

struct Holder {
  CallerRef caller;
  Handle handle;
};

struct HeldRight {
  Right right;
  Holder holder;
  bool closed = false;  // by the client, while requests that presented it may still be out
};

}  // namespace forebay::server
