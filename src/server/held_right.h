// A right that a session holds, and what it takes to close it. It is held until the client has
// closed it and no flight uses it any more: a Store opens a right again that is presented after its
// close, and nobody would close it then.
#pragma once

#include "core/op.h"

namespace forebay::server {

struct SmallQueue;

struct Holder {
  CallerRef caller;
  Handle handle;
};

struct HeldRight {
  Right right;
  Holder holder;
  unsigned users = 0;                      // flights that present it
  bool closed = false;                     // by the client
  bool writes = false;                     // the Store has taken a write with it
  std::shared_ptr<SmallQueue> queue = {};  // of its small writes (small_writes.h)
};

}  // namespace forebay::server
