// RemoteStore: a server's export as a Store (paper 1, section II: the forwarding client).
//
// Threads: none of its own while it is used by blocking calls: the calling thread sends, and one of
// the waiting threads at a time runs the loop for all (leader and followers). The first submit()
// from outside starts one thread, which runs the loop while such requests are unanswered and no
// caller does. Any thread may call; completions of submit() run on the thread that runs the loop
// and must not block.
//
// Once: every request has a slot and a sequence number; after a lost connection the client resumes
// its session and sends what is unanswered again, and the server applies it once. If the server has
// restarted, repeatable operations are sent again, and the others fail with outcome_unknown, unless
// the old server said goodbye (then what is unanswered was not begun). Rights are presented again
// as they are. It keeps trying for `retry_for`, then fails what waits with the reason.
//
// Order: requests are sent, and sent again, in the order of submission. A read or write whose
// extent list is longer than the server takes is done in parts, one after another, and is not
// atomic then.
//
// Fork: a child must not use its parent's session. It opens one of its own at its first call;
// handles and rights stay good. Requests that the parent had under way do not complete in the
// child.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/clock.h"
#include "loop/loop.h"
#include "store/store.h"
#include "transport/transport.h"

namespace forebay {

// Of a server that speaks for its clients to another one, the home of their files (server/relay.h).
struct RelayIdentity {
  std::string self, home, servers;  // names: its own, the other's, all of them (wire::Hello)
  Handle root;                      // of the export here
};

struct RemoteOptions {
  // Asked anew at every connect, because a restarted server may have another port.
  std::function<Result<Address>()> address;
  std::string export_name;
  Duration connect_timeout = std::chrono::seconds(5);
  Duration retry_for = std::chrono::seconds(60);  // keep trying to reconnect for so long
  std::string program, job;                       // for the server's status
  uint32_t chunk = 0;  // bulk data moves in no larger pieces; 0: in the server's
  // Not null: requests are relayed ones. What is acknowledged and lost is then left to the clients
  // to find out, by the verifiers of their replies: there are many, and each must be told.
  std::shared_ptr<const RelayIdentity> relay = {};
};

// What a RemoteStore runs on. The real one makes an EpollLoop and a socket transport, anew after a
// fork; the simulated one hands out the simulator's.
struct RemoteRuntime {
  std::function<std::unique_ptr<Loop>()> make_loop;  // used when `loop` is null
  Loop* loop = nullptr;                              // simulated: somebody else runs it
  uint64_t lent = 0;  // bytes that Store::allocate() can give, lent to a server on the same node
  std::function<std::unique_ptr<Transport>(Loop&)> make_transport;
};

class RemoteStore : public Store {
 public:
  // Connects; an error says what could not be reached and how to start it. With a loop that
  // somebody else runs (simulated), returns at once and connects in the background.
  static Result<std::unique_ptr<RemoteStore>> connect(RemoteOptions options, RemoteRuntime runtime);

  struct Stats {
    uint64_t reconnects = 0, resent = 0, requests = 0;
    // Through memory that is shared with the server: requests on lent memory, chunks in the area,
    // writes in boxes.
    uint64_t lent = 0, in_area = 0, boxed = 0;
    uint64_t by_shortcut = 0;  // reads and writes that were done here (client/shortcuts.h)
    uint64_t gathered = 0;     // of these: writes that went by the memory of all (gather_room.h)
  };
  virtual Stats stats() const = 0;
};

// One control request ("status", "stop") to the server at an address; the answer is JSON.
Result<std::string> control(const Address& address, std::string_view verb, Duration timeout,
                            RemoteRuntime runtime);

}  // namespace forebay
