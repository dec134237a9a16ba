// GatherQueue: small writes of submit() that are gathered with what other processes write to the
// file (gather_room.h). They wait for nothing but that, so they have no flight; and they are
// settled together, because others can only be waited for once.
//
// Invariants:
//  1. While something is gathered here nothing else of the client is under way, or it does not come
//     after it: whoever sends something settles first.
//  2. Requests that overlap are never here at the same time.
//
// Threads: any. Locks: two, one for each of the invariants; neither is held while the completions
// of what is in the file run. What is sent may complete within that, and submit more.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "client/shortcuts.h"

namespace forebay {

class GatherQueue {
 public:
  // Who has them otherwise.
  struct Sender {
    std::atomic<uint64_t>&
        sent;  // that are under way there; none may be when something is gathered
    std::function<void(Request&&, Completion&&)> send;  // after all; it is counted
    std::function<void(Completion&&, Result<Reply>&&)> complete;
  };
  GatherQueue(Shortcuts& shortcuts, Sender sender)
      : shortcuts_(shortcuts), sender_(std::move(sender)) {}

  // No: it is to be sent. So are those that go on from the one before: they are joined there, by
  // the client alone. First: there was nothing here.
  enum class Added { no, yes, first };
  Added add(Request& request, Completion& done);
  // Returns when all that was here, whoever settles it, is in the file or has been sent; completes
  // it.
  void settle();
  bool any() const { return size_.load() != 0; }

 private:
  static constexpr size_t kMost = 64;
  struct Entry {
    Request request;
    Completion done;
  };

  void settle_now(std::unique_lock<std::mutex>* settling = nullptr);

  Shortcuts& shortcuts_;
  const Sender sender_;
  std::mutex mutex_;
  std::vector<Entry> entries_, spare_;       // the other's memory is used again
  std::vector<Shortcuts::Gathered> writes_;  // of each
  std::atomic<size_t> size_{0};
  std::atomic<uint64_t> end_of_last_{0};  // in its file; a guess
  std::mutex settling_;                   // before the other one
  std::atomic<std::thread::id> settles_{};
};

}  // namespace forebay
