// The simulated cluster of `forebay bench ibcs` (ibcs_model.h says what is simulated): virtual
// time, the network, and targets with queues, locks and seeks. Deterministic; one thread.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <queue>
#include <vector>

#include "bench/ibcs_load.h"
#include "bench/ibcs_model.h"
#include "core/extent_set.h"

namespace forebay::bench {

// Events in the order of their times; of the same time, in the order in which they were asked for.
class VirtualTime {
 public:
  using Action = std::function<void()>;
  double now() const { return now_; }
  void at(double time, Action action) { events_.push({time, count_++, std::move(action)}); }
  void run();  // until nothing is left to happen

 private:
  struct Event {
    double time;
    uint64_t number;
    Action action;
    bool operator<(const Event& o) const {
      return time != o.time ? time > o.time : number > o.number;
    }
  };
  std::priority_queue<Event> events_;
  double now_ = 0;
  uint64_t count_ = 0;
};

// Something that does one thing after the other: a direction of a link, a process, a disk.
class Serial {
 public:
  // Takes `seconds` as soon as it is free; returns when that is done.
  double take(double now, double seconds) { return free_ = std::max(free_, now) + seconds; }

 private:
  double free_ = 0;
};

// Places are nodes and servers, each with a full duplex link to the switch.
class Network {
 public:
  Network(VirtualTime& time, const IbcsModel& model, size_t places);

  struct Transfer {
    uint32_t from = 0, to = 0;
    uint64_t bytes = 0;
    VirtualTime::Action arrived;
  };
  // Begins now. What leaves a place for different others takes turns, packet by packet; what goes
  // to the same one follows in order, as on one connection.
  void send(Transfer transfer);

 private:
  struct Flow {
    Transfer transfer;
    uint64_t sent = 0, received = 0;
  };
  struct Link {
    std::vector<std::deque<std::shared_ptr<Flow>>> connections;  // out, by where they go
    size_t turn = 0;                                             // the last that had one
    bool sending = false;
    Serial in;
  };
  void send_packet(Link& link);

  VirtualTime& time_;
  const IbcsModel& model_;
  std::vector<Link> links_;
};

// A server's disk, the queue in front of it and the locks on its object.
class Target {
 public:
  Target(VirtualTime& time, const IbcsModel& model) : time_(time), model_(model) {}

  struct Request {
    uint32_t client = 0;
    bool write = false;
    Extent extent;  // of the object
    VirtualTime::Action served;
  };
  void add(Request request);

  uint64_t seeks() const { return seeks_; }
  uint64_t revocations() const { return revocations_; }
  const std::vector<Extent>& served() const { return served_; }

 private:
  struct Lock {
    uint32_t client;
    Extent extent;
  };
  void serve();
  size_t next_in_queue() const;
  bool lock(const Request& request);  // was a revocation needed?
  Extent grown(const Request& request, Extent wanted) const;
  Extent in_stripes(const Extent& extent) const;

  VirtualTime& time_;
  const IbcsModel& model_;
  std::vector<Request> queue_;  // in the order of arrival
  bool busy_ = false;
  uint64_t head_ = 0;  // where the last request ended
  std::vector<Lock> locks_;
  uint64_t seeks_ = 0, revocations_ = 0;
  std::vector<Extent> served_;
};

}  // namespace forebay::bench
