// fb_request: a non-blocking operation, from its begin to the call that learns how it ended.
//
// Owners: the application, from begin() until a wait or test frees it; the completion touches it
// last with arrive(). A request that is done keeps its result, whatever becomes of file and store.
//
// Threads: one waits for or tests a request at a time; any may cancel it; arrive() runs on whatever
// thread the Store completes on.
#pragma once

#include <atomic>
#include <optional>
#include <stop_token>

#include "capi/store.h"

namespace forebay::capi {

// A thread that waits for one of several requests. On its stack.
class Waiter {
 public:
  void arrived();                // called by the completions
  bool has(unsigned many);       // have so many arrived?
  void wait_for(unsigned many);  // until so many have arrived
 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  unsigned arrived_ = 0;
};

}  // namespace forebay::capi

struct fb_request {
  fb_request(const char* function_, const forebay::capi::Use& use)
      : function(function_), life(use.life()), helpers(use.file().owner.helpers) {}
  fb_request(const fb_request&) = delete;

  enum class Watch { done, watching, taken };  // taken: somebody waits for it already
  bool done() const { return state_.load(std::memory_order_acquire) == done_mark(); }
  Watch watch(forebay::capi::Waiter& waiter);
  bool unwatch(forebay::capi::Waiter& waiter);  // false: it arrives, or has arrived, at the waiter
  void arrive(forebay::Result<forebay::Reply>&& how);

  const char* const function;
  const forebay::capi::LifeRef life;
  const std::shared_ptr<forebay::capi::Helpers> helpers;  // whoever waits is one
  std::stop_source stop;
  std::optional<forebay::Result<forebay::Reply>> result;  // once done()
  uint64_t* value = nullptr;  // where the reply's goes, when it is taken

 private:
  // nullptr while nobody waits, the waiter, or an address that no waiter has.
  static forebay::capi::Waiter* done_mark() {
    return reinterpret_cast<forebay::capi::Waiter*>(uintptr_t{1});
  }
  std::atomic<forebay::capi::Waiter*> state_{nullptr};
};

namespace forebay::capi {

// Submits it. The use of the file ends with the request.
fb_request* begin(const char* function, Use use, Request request, uint64_t* value = nullptr);
// One that has nothing to do.
fb_request* begin_nothing(const char* function, const Use& use);

}  // namespace forebay::capi
