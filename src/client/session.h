// Session: one client's side of a session with a server (docs/wire-format.md, "The conversation"):
// slots, credits, what is unanswered, and how to send it again (paper 1, section II; the slots and
// their sequence numbers are ours).
//
// A request waits in the queue until the link is up and a slot is free, then it is in its slot
// until its reply. After a lost connection:
//  - the session was resumed: what is in the slots is sent again, in the order sent, as it was;
//  - the server said goodbye: it had not begun what it had not answered; back to the queue. (What
//    was also sent over an earlier connection may have been answered there: that is as the next
//    case.)
//  - the session is gone and the server restarted: repeatable requests go back to the queue, in
//    their order, and so do those that the server does once in all its lives (Once), if it still
//    has what its clients share (Welcome.state); the others fail with outcome_unknown;
//  - the session is gone and the server lives on (it forgot us): the same, but nothing that changes
//    something is sent again;
//  - the link gave up: everything fails, with outcome_unknown what may have changed something.
// So requests are sent, and sent again, in the order of submission.
//
// Joints: small writes of one file that wait at the same time, disjoint and one after another in
// the queue, travel as one request (paper 1, section III.B, merges at the server only; a list of
// pieces costs both ends as much as one piece does). They wait at the same time because what
// completions submit is sent when all that has arrived is delivered. If a joint fails each of its
// requests is sent again alone and has its own result.
//
// Invariants:
//  1. A flight is completed once, and only when no send of its memory is under way.
//  2. Eager bytes of the flights in slots are within the credit that the server gave.
//  3. What writes is not sent while a read of ours that it overlaps is unanswered: after a resume
//     the server does such a read again, and must not show it what came later.
//  4. What the server acknowledged before writing it, and lost, is reported (uncommitted.h).
//  5. While a request that was cut into parts (parts.h) is under way, nothing behind it is sent.
//  6. Nothing that overlaps a joint is sent while the joint is unanswered: should it fail, its
//     requests are sent after what is already under way.
//  7. Nothing that must come after a write in a box is sent while that is unanswered, and nothing
//     that must come after an unanswered frame goes into a box: between the two there is no order.
//  8. Nothing that must come after what is being done here is sent meanwhile: should that fail, it
//  is
//     sent after all.
//
// Boxes (transport/shared_box.h): a small write in one piece, to a server on this node (or a joint
// of some that go on from each other), is put into memory instead of being encoded and sent. If the
// connection is lost, it is sent again as a frame.
//
// Shortcuts (shortcuts.h): a small write, or a joint of some that go on from each other, is done
// here instead of being sent, when its turn has come and nothing else of its file is unanswered. A
// large request on a file around the page cache is done by a thread of the shortcuts'.
//
// Locks that wait (Op::lock) keep their slots as long as that takes. So that there are always slots
// for what they wait for, only some do; the others are tried from time to time, and all have their
// turn to wait. What is held is reclaimed from a server's next life before anything else is sent to
// it (lock_ledger.h); while something is held the connection is made again though nobody asks for
// anything.
//
// Leases end with the connection, and are renewed while there is one; what is recalled is the
// holder's to drop and to give back.
//
// Threads: everything on the loop, except stats(), leases_until(), descriptor(), connection()
// and a request's stop_token, which may be stopped from any thread. Completions run on the loop and
// may submit.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "client/lent_memory.h"
#include "client/link.h"
#include "client/lock_ledger.h"
#include "client/parts.h"
#include "client/shortcuts.h"
#include "client/uncommitted.h"
#include "core/counters.h"

namespace forebay {

class Session final : private Link::User {
 public:
  Session(Loop& loop, Transport& transport, const RemoteOptions& options, bool patient);
  ~Session() override;  // idle only

  // `background`: nobody waits for it on a thread of their own (see background()). `counted`: has
  // one less as soon as it is done, and nothing has to come after it any more.
  using Count = std::atomic<uint64_t>;
  void submit(Request&& request, Completion&& done, bool background, Count* counted = nullptr);

  // The handle of the top, as soon as the link is up.
  using Up = Callback<void(Result<Handle>)>;
  void when_up(Up up);
  // Runs once nothing is unanswered.
  void when_idle(Task task);

  bool idle() const { return live_ == 0 && up_waiters_.empty(); }
  size_t background() const { return background_; }  // of the unanswered ones

  // What is submitted while it lives is sent when it ends, so that small writes may travel
  // together.
  class Gathering {
   public:
    explicit Gathering(Session& session) : session_(session) { session_.gathering_ = true; }
    ~Gathering() {
      session_.gathering_ = false;
      session_.pump();
    }

   private:
    Session& session_;
  };
  // Says goodbye. Idle only; unsent() says what the kernel has not taken yet.
  void leave() { link_.leave(); }
  uint64_t unsent() const { return link_.unsent(); }

  // May do small writes. It outlives what is submitted.
  void use(Shortcuts* shortcuts) { shortcuts_ = shortcuts; }

  // Requests whose memory lies in it name their place, where the server can reach it.
  void lend(std::shared_ptr<LentMemory> lent) { lent_ = std::move(lent); }

  void hold_leases(LeaseHolder* holder) { holder_ = holder; }
  void give_back(uint64_t lease);
  // Must somebody listen all the time: for recalls, or until locks are reclaimed?
  bool watches() const { return !leases_.empty() || (!locks_.empty() && link_.trying()); }
  // Must somebody look so often whether the server is still there? Zero: nobody.
  Duration looks_every() const { return locks_.empty() ? Duration::zero() : look_every_; }
  Duration leases_until() const { return leases_until_.load(); }

  RemoteStore::Stats stats() const;
  int descriptor() const { return link_.descriptor(); }
  // The memory that it shares with the server just now; null: none.
  const std::shared_ptr<SharedRegion>& region() const { return region_; }
  // Is anything about the file unanswered, or is there a loss to be told of first?
  bool busy_with(const Handle& file) const;
  bool lacks(const Handle& file) const { return uncommitted_.knows(file); }  // the latter
  bool shares_memory() const {
    return shares_memory_.load(std::memory_order_relaxed);
  }  // any thread
  // To what a shortcut's question was. Not of use: the server may have crashed meanwhile, and lost
  // what it had acknowledged.
  Shortcuts::Answer shortcut_answer(Result<Reply>&& reply, bool of_use);
  // Another number after every connection that was lost. Any thread.
  uint64_t connection() const { return lost_connections_.load(); }

 private:
  struct Flight;
  using FlightRef = std::unique_ptr<Flight>;
  struct Slot {
    uint64_t sequence = 0;  // of the last request
    FlightRef flight;       // the one under way
  };
  struct StopRelay;

  void on_up(const wire::Welcome& welcome, bool resumed) override;
  Result<Memory> on_frame(const wire::FrameHeader& header,
                          std::span<const std::byte> message) override;
  void on_payload() override;
  void on_posts(uint64_t bits) override;
  void on_parting() override {
    ++lost_connections_;
    lose_leases();
  }
  void on_down(bool farewell, bool written) override;
  void on_give_up(const Error& why) override;
  bool waiting() const override { return !idle() || !locks_.empty(); }

  // Sending.
  void name_once(Flight& flight);
  void pump();
  void pump_soon();
  FlightRef next_flight();
  FlightRef join(size_t count);
  size_t joinable(bool in_box) const;
  bool joins(const Flight& first, const Flight& next) const;
  bool must_wait(const Request& request) const;
  bool meets(const Request& request, bool in_box) const;
  bool fits_box(const Flight& flight) const;
  void put_in_box(Flight& flight);
  bool report_loss();

  // Done here (session_here.cc).
  bool waits_for_shortcut() const;
  bool follows_sent(const Request& request) const;
  bool written_here(FlightRef& flight);
  bool asks_for_shortcut();
  bool waits_for_thread() const;
  bool begun_here(FlightRef& flight);
  void ended_here(const Flight* which, std::optional<Result<Reply>> result);
  bool meets_begun(const Request& request) const;
  size_t here() const;
  bool needs_no_server() const { return live_ == here() && up_waiters_.empty(); }

  void issue(FlightRef flight);
  void shape(Flight& flight);
  uint64_t place_of(const Flight& flight) const;
  void transmit(Flight& flight);
  void sent(Flight& flight, bool ok);
  void resend();

  // Locks (session_locks.cc).
  Completion unlocks(const Request& request, Completion&& done);
  void queue_lock(Flight& flight);
  bool retries_lock(FlightRef& flight);
  void give_way();
  void note_lock(const Flight& flight, const Result<Reply>& result);
  void reclaim_locks();
  void come_back_later();

  // Leases (session_leases.cc).
  struct HeldLease {
    Handle handle;
    Right right;
    CallerRef caller;
  };
  void note_lease(const Flight& flight, const Result<Reply>& result);
  Result<void> on_recall(std::span<const std::byte> message);
  void lose_leases();
  void renew_later();
  void renew();

  // Receiving.
  Result<Memory> dispatch(const wire::FrameHeader& header, std::span<const std::byte> message);
  Result<Flight*> find(const wire::RequestId& id);
  Result<Memory> on_reply(std::span<const std::byte> message, uint32_t payload);
  Result<Memory> on_data(std::span<const std::byte> message, uint32_t payload);
  void note_stability(const Flight& flight, Result<Reply>& result);
  Result<void> on_pull(std::span<const std::byte> message);
  Result<std::span<std::byte>> in_area(uint64_t place, uint64_t length) const;
  Result<void> copy_out_of_area(const Flight& flight, const wire::Data& data);
  Result<void> send_stream(Flight& flight, const wire::Pull& pull);
  Result<void> send_list(Flight& flight, const wire::Pull& pull);

  // Ending.
  void answered(Flight& flight, Result<Reply>&& result);
  void finish(uint16_t slot);
  bool goes_on(Flight& flight);
  void part_joint(FlightRef joint);
  void complete(FlightRef flight, Result<Reply>&& result);
  void cancel(uint64_t number);
  void abandon(Flight& flight);
  std::vector<FlightRef> take_slots();
  void requeue(std::vector<FlightRef> flights);
  void fail_unknown(std::vector<FlightRef> flights);
  void open_slots(const wire::Welcome& welcome);
  void check_idle();

  Loop& loop_;
  const Once client_;                 // its name: random
  const bool relays_;                 // for clients who see to invariant 4 themselves
  std::shared_ptr<LentMemory> lent_;  // null: none
  Shortcuts* shortcuts_ = nullptr;    // null: none
  std::vector<Slot> slots_;
  std::vector<uint16_t> free_slots_;
  std::deque<FlightRef> queue_;
  std::vector<FlightRef> written_;  // here, and about to be completed
  std::vector<FlightRef> begun_;    // here, by other threads
  bool asking_ = false;             // for a shortcut, before the front of the queue is sent:
  Handle asked_;                    // to this file
  std::optional<Time> drained_by_;  // nothing of it is under way, or it is not asked
  std::vector<uint64_t> lanes_;     // the last sequence of each (core/op.h, Once)
  std::vector<uint16_t> free_lanes_;
  bool in_parts_ = false;    // a request that was cut is in a slot
  bool delivering_ = false;  // frames: what is submitted meanwhile may wait for more
  bool gathering_ = false;   // it does, and somebody pumps afterwards
  bool pump_posted_ = false;
  size_t live_ = 0, background_ = 0;
  size_t reads_ = 0, joints_ = 0, boxed_ = 0, lock_waits_ = 0;  // in slots
  uint64_t spent_boxes_ = 0;  // bits of those that the server's Store may still read
  uint64_t submitted_ = 0, transmitted_ = 0;
  uint64_t eager_left_ = 0;
  wire::Welcome welcome_;
  std::shared_ptr<SharedRegion> region_;  // while the link is up; null: none
  std::atomic<bool> shares_memory_{false};
  std::atomic<uint64_t> lost_connections_{0};
  Uncommitted uncommitted_;
  LockLedger locks_;
  Duration look_every_{0};
  bool coming_back_ = false;            // a timer runs
  std::vector<FlightRef> tried_locks_;  // to be tried again
  LeaseHolder* holder_ = nullptr;
  std::map<uint64_t, HeldLease> leases_;
  std::atomic<Duration> leases_until_{Duration::zero()};
  Duration lease_term_{0};
  bool renewal_due_ = false;           // a timer runs
  size_t lease_asks_ = 0;              // unanswered
  std::set<uint64_t> recalled_early_;  // before the answer

  // A reply whose payload is landing.
  Flight* landing_ = nullptr;
  Result<Reply> landing_reply_ = Reply{};

  std::vector<Up> up_waiters_;
  std::vector<Task> idle_waiters_;
  Counter requests_, resent_, reconnects_, lent_requests_, in_area_, in_boxes_;
  std::shared_ptr<Session*> alive_ = std::make_shared<Session*>(this);
  Link link_;  // last: what it tells us while it ends must find the rest
};

}  // namespace forebay
