// LeaseTable: the leases of one export (attr/leases.h), shared by sessions on different loops.
//
// Read leases. A change of a file is done first, and then, before it is answered, what others hold
// of the file is recalled (changed()). So it needs no reservation while it waits, and the holder
// may go on reading: what was granted before the change is recalled, what is granted later reads
// what is new. That is asked in two places, through which every change comes back:
// Flight::answer(), and Session::written() for small writes. Without a lease in the export it costs
// one load.
//
// Write leases. Whoever looks at a file or changes it, and is not the holder, first waits until the
// holder has written what it kept (conflicts()): a file's gate. Those who wait there go on in the
// order in which they came, and nobody passes them: a gate is there until the last of them is
// through. A lease that is taken meanwhile by somebody else conflicts with nothing that is already
// under way: that was before it. Flight::start() asks; while there is a gate or a write lease in
// the export, small writes are flights.
//
// A recall waits until the lease is given back, its time is over (then the client is cut off: it
// must not go on as if nothing had happened) or the client is known to be gone. Of a client whose
// connection was lost that is known only on this node, where the kernel tells it; anybody else may
// be alive and cut off, and has its time. So has everybody who may come back to write.
//
// What a holder writes back names its lease (writes()), which is looked at when the write has its
// reservation: whoever had to wait for the lease, and did so in vain, reserves later, or the lease
// is gone and the write is refused.
//
// Files that live at another server: our clients' leases of them are in this table too, and hang on
// one that we hold there (relayed_leases.h). As another server's, we are a client that may have
// copies whenever its connection is lost, on whatever node: its clients have them.
//
// After a restart nobody knows who held what. If there may have been leases (the life before left
// its marker, a file with their term), no change completes before they have run out. What was kept
// under write leases is refused then: their holders report it.
//
// Invariants:
//  1. What a client was asked for, it hears before the answer to any lease that it takes or renews
//     later: both hand out the recalls of that client that are not sent yet.
//  2. Whoever finds any() or writers() false has begun before the first such lease was granted.
//
// Threads: any; one lock, never held while somebody else's code runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "attr/leases.h"
#include "core/callback.h"
#include "core/op.h"
#include "loop/loop.h"

namespace forebay::server {

class Session;

class LeaseTable : public std::enable_shared_from_this<LeaseTable> {
 public:
  using Number = attr::Leases::Number;

  // `marker`: the file's name; empty: there was no life before. `boot`: this life.
  LeaseTable(std::string marker, Duration term, uint64_t boot);
  ~LeaseTable();

  // The server begins to serve. Before anything else.
  void begin(Time now);
  // It ends: whoever waits here is forgotten, because what waits may own this table.
  void close();

  // May anybody hold a lease? One to write, or have others waited for one?
  bool any() const { return any_.load(std::memory_order_seq_cst); }
  bool writers() const { return writers_.load(std::memory_order_seq_cst); }
  Duration term() const { return leases_.term(); }

  // A file, and the handle by which a client knows it.
  struct File {
    std::string_view identity;
    const Handle& handle;
  };
  struct Granted {
    Number lease = 0;
    std::vector<Number> recalls;  // to be sent before the answer
  };
  // On the session's loop. EAGAIN: others hold, or wait for, what conflicts with it.
  // `most`: how long it may be good, if less than the term.
  Result<Granted> take(const File& file, attr::Leases::Kind kind, Session& session,
                       Duration most = Duration::max());
  Result<Granted> renew(Number lease, Session& session, Duration most = Duration::max());
  bool holds(uint64_t client, Number lease) const;  // recalled or not
  void give_back(uint64_t client, Number lease);
  std::vector<Number> take_recalls(uint64_t client);
  // How a client has left: it has nothing of ours any more; it has no copies any more, but may come
  // back to write; it may have copies, but cannot be told. On the loop of its session.
  enum class Left { for_good, without_copies, out_of_reach };
  void lose(uint64_t client, Left how, Loop& loop);

  // A client has changed a file. True: nobody else keeps anything of it. False: `then` will be
  // posted to `loop`, on which this is called.
  bool changed(const File& file, uint64_t client, Loop& loop, Task then);
  // A client is about to look at a file, or to change it: the same, of what somebody else may have
  // written and not told us.
  bool conflicts(const File& file, uint64_t client, Loop& loop, Task then);
  // May a client write what it has kept under this lease?
  bool writes(uint64_t client, Number lease, std::string_view file) const;

  // A client is about to write to the file without our knowing (shortcuts.h): true if nobody holds
  // a lease of it, and then nobody is given one until each has returned() it.
  bool lend(std::string_view file);
  void returned(std::string_view file);

  bool held_of(std::string_view file) const;  // by anybody, recalled or not
  size_t held() const;
  size_t waiting() const;

 private:
  using Ticket = uint64_t;
  struct Change {
    std::string file;
    std::set<Number> leases;  // that are not gone
    bool survivors;           // it waits for those of the life before
    Loop* loop;
    Task then;
    Loop::TimerId timer = 0;
  };
  struct Gate {
    Number writer;
    bool open = false;  // those who wait are on their way
    size_t inside = 0;
    std::deque<std::pair<Loop*, Task>> waiting;  // in the order in which they came
    Loop* loop;                                  // of the timer
    Loop::TimerId timer = 0;
  };
  struct Reach {
    Loop* loop;
    std::weak_ptr<Session> session;
    Number first;                 // taken by this connection of the client
    std::vector<Number> recalls;  // not sent yet
  };
  using Tasks = std::vector<std::pair<Loop*, Task>>;

  Granted granted(Number lease, Session& session);
  void tell(const std::vector<attr::Leases::Held>& recalled, Tasks& out);
  void gone(Number lease, Tasks& out);
  void lapsed(const std::vector<attr::Leases::Held>& leases, Tasks& out);
  void prune(uint64_t client, Time now);
  void timed_out(Ticket ticket);
  void open_gate(const std::string& file, Tasks& out);
  Task passage(const std::string& file, Loop* loop);
  void pass(const std::string& file, Loop* loop);
  void gate_timed_out(const std::string& file, Time now);
  void update();
  void mark();
  static void run(Tasks tasks);

  const std::string marker_;
  mutable std::mutex mutex_;
  std::atomic<bool> any_{false}, writers_{false};
  attr::Leases leases_;
  Duration survivors_term_{};  // not 0: of leases of the life before
  Time survivors_end_{};
  bool marked_ = false;
  std::unordered_map<uint64_t, Reach> reach_;  // clients that have taken leases
  std::unordered_map<Ticket, Change> changes_;
  std::unordered_map<Number, std::set<Ticket>> waited_for_;
  std::unordered_map<std::string, Gate> gates_;       // by file
  std::unordered_map<Number, std::string> gates_of_;  // by the lease that they wait for
  std::multiset<std::string, std::less<>> lent_;
  Ticket last_ = 0;
};

}  // namespace forebay::server
