// Store: the seam of the system. Everything that holds bytes is one: a directory, a server across
// the network, a striped partition, a cache, a fault injector. Front doors consume one, the server
// serves one, decorators wrap one.
//
// The contract, which tests/conformance runs over every store:
//  1. submit() takes a request and completes it exactly once, with a Reply or an Error. It may
//     complete before it returns (inline), on the submitting thread, or later on a thread of its own;
//     never under a lock of its own that submit() takes. Callers must stand both, and hand over to
//     their own thread themselves.
//  2. Any thread may submit, also from within a completion.
//  3. Memory of a read or write belongs to the Store until the completion; the rest of the request is
//     moved in.
//  4. A completed write is in the Store: every later read sees it. A read is short only at the end of
//     file. A short write is an error whose done() says how much landed.
//  5. Requests under way at the same time have no order among them, and overlapping writes may be
//     torn: ordering is the server's business (server/), not the Store's.
//  6. The destructor waits until every request has completed.
#pragma once

#include "core/op.h"

namespace forebay {

class Store {
 public:
  virtual ~Store() = default;

  virtual void submit(Request request, Completion done) = 0;

  // Submits and waits, on the caller's thread. A Store that can do the work on this very thread
  // overrides it.
  virtual Result<Reply> call(Request request);

  // The handle of the top directory. Blocking; cheap after the first time.
  virtual Result<Handle> root() = 0;
};

}  // namespace forebay
