// Helpers: the threads that do a Store's work while they wait for their requests (Store::help). A
// request may be done, its file closed and the connection be ended while the thread that saw to it
// is still on its way out of the Store: whoever ends the connection waits for that.
//
// Owned jointly by the fb_store and its requests, which may outlive it. Any thread.
#pragma once

#include "capi/life.h"
#include "store/store.h"

namespace forebay::capi {

class Helpers {
 public:
  Helpers(Store& store, const Life& life) : store_(store) { uses_.open(life); }

  // As Store::help(), of which there is none after end().
  void help(Life& life, Callback<bool()> enough, bool wait) {
    if (!uses_.begin(life)) return;
    const Out out{uses_, life};
    store_.help(std::move(enough), wait);
  }
  void end(Life& life) { uses_.close(life); }  // nobody is inside any more

 private:
  struct Out {
    Uses& uses;
    Life& life;
    ~Out() { uses.end(life); }
  };

  Store& store_;
  Uses uses_;
};

}  // namespace forebay::capi
