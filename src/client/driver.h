// Driver: runs a client's loop and session on the threads that use them.
//
// Whoever leads owns the loop, the session and everything bound to them; one thread leads at a
// time.
//  - A blocking call leads if nobody does: it sends, runs the loop until its answer is there, and
//    lets go. No hand-over, no wake-up, no thread.
//  - While somebody leads, other callers leave their request in the inbox, and wait. The lead is
//    never handed to anybody: whoever lets go wakes one that waits, and who comes first takes it,
//    so that a thread that calls again at once goes on leading while the other is still waking up.
//  - The first submit() from outside starts a thread that leads while such requests are unanswered
//    and nobody else does.
//  - A thread that waits for such requests may lead itself, with help(). From then on it is
//    expected to: small requests that find others under way are left in the inbox for it, and the
//    background thread comes only for those that need the client's hand soon, or after a while.
//  - While leases are held somebody must hear of recalls: when nobody has led for a moment the
//    background thread does, and lets go as soon as anybody calls.
//  - While locks are held somebody must notice that the server was restarted, and reclaim them:
//    when nobody has led for a while the background thread looks.
// Small writes that are gathered (gather_queue.h) wait for whoever waits for them, too, or for the
// background thread; they do not need the lead.
// A loop that somebody else runs (simulated) needs none of this: everything happens on its one
// thread.
//
// Order: the inbox is emptied before the leader sends anything of its own, so requests of one
// thread keep their order.
//
// Locks: mutex_ guards the lead, the inbox and those who wait. It is never held while the loop
// runs, a frame is sent or a completion runs.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "client/gather_queue.h"
#include "client/lent_memory.h"
#include "client/session.h"
#include "client/shortcuts.h"

namespace forebay {

class Driver {
 public:
  // `patient`: the first connect is tried for options.retry_for too. Connects at the first use.
  Driver(const RemoteOptions& options, const RemoteRuntime& runtime, bool patient);
  ~Driver();  // waits until every request has completed, says goodbye

  Result<Reply> call(Request&& request);
  void submit(Request&& request, Completion&& done);
  void help(Callback<bool()> enough, bool wait);
  Result<Handle> root();
  void hold_leases(LeaseHolder* holder);
  void give_back(uint64_t lease);
  Duration leases_until() const { return session_->leases_until(); }

  RemoteStore::Stats stats() const;
  int descriptor() const { return session_->descriptor(); }
  LentMemory* lent() const { return lent_.get(); }  // null: none
  void abandon_shortcuts() {
    if (shortcuts_) shortcuts_->abandon();
  }

 private:
  struct Waiter {
    bool done = false;  // by the leader; under mutex_ unless it is the leader's own
    std::condition_variable changed;
  };

  Result<Reply> send(Request&& request);
  void enqueue(Request&& request, Completion&& done, Session::Count* counted = nullptr);
  bool gathers(Request& request, Completion& done);
  void settle_gathered();
  void send_later(Request&& request, Completion&& done);
  Shortcuts::Answer ask_shortcut(Request&& request);
  void ask_shortcut_later(Request&& request, Shortcuts::Parts::Answered answered);
  template <class Begin>
  void run(Waiter& waiter, Begin&& begin);
  void finish(Waiter& waiter);
  void follow(std::unique_lock<std::mutex>& lock, Waiter& waiter);
  void lead(Waiter& waiter);
  void turn(Callback<bool()>& enough);
  void drain();
  void settle(const Request& request);
  void take_lead();
  void let_go();
  void nudge();
  void work_in_background();
  void call_background();
  void begin_background();
  void look();
  bool await_work(std::unique_lock<std::mutex>& lock);
  bool await_gathered(std::unique_lock<std::mutex>& lock);
  void leave();

  std::unique_ptr<Loop> own_loop_;
  Loop& loop_;
  std::unique_ptr<Transport> transport_;
  std::shared_ptr<LentMemory> lent_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<Shortcuts> shortcuts_;   // null: a simulation, or for other clients
  std::unique_ptr<GatherQueue> gathered_;  // null where there are no shortcuts
  std::atomic<uint64_t> submitted_{0};     // and not completed; counted for the shortcuts
  Session::Count sent_{0};                 // of these: the session has, and has not done
  std::atomic<bool> leaving_{false};       // nothing more is asked

  // The leader's.
  Waiter* leading_for_ = nullptr;
  bool visited_ = false;  // the inbox had something

  std::atomic<std::thread::id> leader_{};
  std::atomic<bool> asleep_{false};        // the leader may be waiting in the loop
  std::atomic<bool> inbox_filled_{false};  // read by the leader without the lock

  std::mutex mutex_;
  bool led_ = false;
  bool stopping_ = false;
  bool background_left_ = false;     // when nobody leads: requests of submit() are unanswered
  bool background_idle_ = false;     // its thread waits to be called
  std::atomic<bool> helped_{false};  // whoever waits helps
  bool urgent_ = false;              // the background thread is to come at once
  Duration quiet_{0};                // when nobody leads: after this the background thread listens
  bool warned_ = false;              // that its thread cannot be had
  uint64_t leads_ = 0;               // counts leaders
  uint64_t gatherings_ = 0;          // and what was gathered anew
  std::vector<Task> inbox_;
  std::vector<Waiter*> followers_;
  std::condition_variable background_changed_;
  std::thread background_;
};

}  // namespace forebay
