// Flight: one request of a Session that has not been answered. Private to session*.cc.
#pragma once

#include <optional>
#include <stop_token>

#include "client/session.h"

namespace forebay {

// A request's stop_token may be stopped on any thread, also inside the registration: all it does is
// to tell the loop. The flight's end waits for a call under way, so the loop is still there.
struct Session::StopRelay {
  Loop* loop;
  std::weak_ptr<Session*> session;
  uint64_t number;

  void operator()() const {
    loop->post([session = session, number = number] {
      if (const auto s = session.lock()) (*s)->cancel(number);
    });
  }
};

// Where an append goes is not known here.
inline bool may_touch(const Request& a, const Request& b) {
  return ((a.flags | b.flags) & kFlagAppend) != 0 || may_overlap(a.file, b.file);
}

struct Session::Flight {
  Flight(Request&& request, Completion&& completion)
      : message(std::move(request)), caller(message.request.caller), done(std::move(completion)) {}

  wire::RequestMessage message;  // request.memory included, which the wire does not carry
  CallerRef caller;              // as asked; the message has it only if it is not this process
  Completion done;
  std::optional<std::stop_callback<StopRelay>> stop;
  uint64_t number = 0;  // in the order of submission
  Time since;           // submitted
  Duration asked{0};    // the same, of a lease, by since_boot()
  uint64_t order = 0;   // in the order of sending
  uint64_t total = 0;   // bytes of the stream
  uint64_t known = 0;   // Uncommitted::now() when it was issued
  unsigned sends = 0;   // of our memory, under way
  bool background = false;
  Count* counted = nullptr;
  bool cancelled = false;
  std::stop_source given_up{std::nostopstate};  // of what is done here by another thread
  bool sent_now = false;                        // to the server of this session
  bool sent_before = false;                     // over a connection that was lost
  bool lent = false;                            // its memory was
  bool boxed = false;                           // it is in the box of its slot
  bool tries = false;                           // a lock that would wait, sent as one that does not
  bool gives_way = false;                       // one that waits, and is to be tried for a while
  Time waits;                                   // when it last began to
  bool reclaims = false;                        // a lock of ours, from a server's next life
  std::optional<uint16_t> lane;                 // of its Once, if that is ours
  Extents list;                                 // a long file side, whose blocks the server pulls
  std::unique_ptr<Parts> parts;
  std::vector<FlightRef> members;  // of a joint: the requests that it is made of
  bool alone = false;              // never to be joined with others
  std::optional<Result<Reply>> result;

  void uncount() {
    if (Count* const by = std::exchange(counted, nullptr)) --*by;
    for (const FlightRef& member : members) member->uncount();
  }

  bool may_have_begun() const {
    return (sent_now || sent_before) && op_info(message.request.op).changes;
  }

  // To a server that does not know this session? `remembered`: but it knows whether it has done
  // this request (Once).
  bool may_be_sent_anew(bool remembered) const {
    return !sent_before || remembered || repeatable(message.request);
  }

  // Puts the file side back where shape() took it from.
  void unlist() {
    if (message.list_blocks == 0) return;
    message.request.file = std::move(list);
    list = {};
    message.list_blocks = 0;
  }
  // From now on in parts whose lists have at most so many blocks.
  void cut(uint64_t most) {
    unlist();
    Request& r = message.request;
    parts = std::make_unique<Parts>(std::move(r.file), std::move(r.memory), most);
  }
};

}  // namespace forebay
