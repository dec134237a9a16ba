// MergeKeys: which requests may be merged: those of one file, one caller and one direction, whoever
// sent them, each of them with a right of its own that has proved good.
//
// A merged request presents the right of one of its parts. So a right must first have been accepted
// by the Store for this file, caller and direction, alone; it then counts as proven until it is
// closed. That also makes a right that was granted in another life of the server known to the
// Store, which keeps an unlinked file for it.
//
// Not thread-safe: its user locks.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/op.h"
#include "plan/schedule.h"

namespace forebay::server {

class MergeKeys {
 public:
  struct Entered {
    plan::QueueId queue;
    bool proven;  // its right: it may be merged
  };
  // A read or write of the file with this identity (Store::identity). Each enter() has its leave().
  Entered enter(const Request& request, std::string_view identity);
  void leave(plan::QueueId queue);

  // The Store accepted the right, for requests of this queue, which one is in.
  void prove(plan::QueueId queue, const Right& right);
  void forget(const Right& right);  // closed

 private:
  // Queues of files that nobody uses are kept up to this many, so that one in use is not made anew
  // for every request.
  static constexpr size_t kKeptQueues = 256;
  // Beyond, all are forgotten, and each is proven again by its next use.
  static constexpr size_t kMostRights = 1 << 16;

  struct View {
    std::string_view file;
    const Caller* caller;
    bool write;
  };
  struct Key {
    std::string file;
    CallerRef caller;
    bool write;
    operator View() const { return {file, caller.get(), write}; }
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(const View& v) const;
    size_t operator()(std::string_view v) const { return std::hash<std::string_view>()(v); }
  };
  struct Same {
    using is_transparent = void;
    bool operator()(const View& a, const View& b) const;
    bool operator()(std::string_view a, std::string_view b) const { return a == b; }
  };
  struct Queue {
    const Key* key = nullptr;
    uint64_t serial = 0;  // never used twice, unlike a queue's number
    unsigned uses = 0;
  };
  using Rights = std::unordered_map<std::string, uint64_t, Hash, Same>;  // to a queue's serial

  plan::QueueId make(const Request& request, std::string_view identity);

  std::unordered_map<Key, plan::QueueId, Hash, Same> numbers_;
  std::vector<Queue> queues_;
  std::vector<plan::QueueId> free_;
  uint64_t serials_ = 0;
  std::array<Rights, 2> rights_;  // for reads, for writes
};

}  // namespace forebay::server
