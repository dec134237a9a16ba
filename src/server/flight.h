// Flight: one request under way, from its arrival to its reply: a small state machine (paper 1,
// section IV, ends where we begin: "a series of state machines with many smaller units of work").
//
//   [wait for another's write lease] -> [place, if it appends] -> reserve -> [charge and pull the
//   extent list] -> begin -> Store calls
//   -> answer
//
// Kinds: CallFlight is one call of the Store (everything but bulk data, eager writes and small
// reads included), NameFlight (name_flight.h) one that changes names, once; WriteFlight and
// ReadFlight (bulk.h) move bulk data in chunks.
//
// Owned by its session's slot, and by every Store call, wait or send that will come back to it.
// Threads: the session's loop; only completed() may be called by a Store's thread.
//
// Invariants:
//  1. A flight is answered at most once. What it holds (reservation, list, buffers) is released
//     before the answer, or, if it is answered while a Store call is out (timed out, aborted), when
//     the last such call has ended.
//  2. A right that it presents stays open, whoever closes it, until its last Store call has ended.
//  3. A flight that is not spoken (its connection was lost and the client has not asked again)
//     sends no reply: the slot remembers it for the repeated request.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <stop_token>

#include "core/buffer_pool.h"
#include "core/clock.h"
#include "core/op.h"
#include "server/export.h"
#include "server/held_right.h"
#include "server/list_pull.h"
#include "server/reserve.h"
#include "server/small_writes.h"
#include "wire/codec.h"

namespace forebay::server {

class Session;

// Pieces of one part of a request: 128 KiB of list at most beside its data.
inline constexpr size_t kMaxPieces = 8192;

class Flight : public std::enable_shared_from_this<Flight> {
 public:
  // `data` is the payload of an eager write, or the share of a small read that is to have one. The
  // request is checked; its caller is set.
  static std::shared_ptr<Flight> make(std::shared_ptr<Session> session,
                                      wire::RequestMessage&& message, SmallData&& data);
  virtual ~Flight() = default;
  Flight(const Flight&) = delete;

  const wire::RequestId id;
  const Op op;
  bool spoken = true;             // invariant 3; the session's to change
  uint32_t eager_bytes = 0;       // credit that it holds
  SmallMemory::Share list_share;  // of a list that came with it

  void start();

  // ---- What its session tells it. ----
  // Where a pulled part goes; an empty Memory if it is not wanted any more.
  Memory landing(const wire::Pull& pull);
  void landed(const wire::Pull& pull);
  virtual void detached() { list_asked_ = false; }
  virtual void attached();                // pulls again what was asked for and has not come
  virtual void repeated() {}              // the client asks again, after a resume
  void cancel();                          // the client has lost interest
  void time_out(const std::string& why);  // answers ETIMEDOUT
  void abort();                           // never answers: the session ends, or the server stops

  bool begun() const { return begun_; }
  bool answered() const { return answered_; }
  // Answered, but others are still to drop their copies of what it has changed.
  bool recalls() const { return recalls_; }
  unsigned busy() const { return busy_; }  // Store calls out
  Time progress() const { return progress_; }
  Time arrived() const { return arrived_; }
  // The file that it is about, if its client may have to be told of bytes that were lost there.
  const Handle& owed() const { return owed_; }
  // May it take as long as it takes?
  virtual bool patient() const { return false; }
  // Does it wait for the client, so that `stall` and `grace` rule and not `deadline`?
  virtual bool waits_for_client() const { return list_ && charge_; }

 protected:
  Flight(std::shared_ptr<Session> session, wire::RequestMessage&& message);

  // ---- What a kind does. All on the loop, except keep(). ----
  virtual void begin() = 0;  // reserved, list complete: request_.file is the whole truth
  // A Store call has ended. keep() runs on the Store's thread and puts the result where nobody
  // else looks; done() handles it on the loop, unless the flight is answered: then late().
  virtual void keep(unsigned call, Result<Reply>&& result) = 0;
  virtual void done(unsigned call) = 0;
  virtual void late(unsigned) {}
  virtual void fail(Error error) = 0;  // stop as soon as possible and answer this
  virtual void let_go() {}             // release what it holds or waits for, but not of calls out
  virtual uint64_t written() const { return 0; }  // for an error's done()
  // Is it, being a write in one piece, one call of the Store? What came with its data is.
  virtual bool one_call() const { return eager_bytes != 0; }
  virtual Memory stream_landing(const wire::Pull&) { return {}; }
  virtual void stream_landed(const wire::Pull&) {}

  void submit(Request&& request, unsigned call);
  Completion returns(unsigned call);
  void settle(Request&& close, unsigned call);  // as submit(), but closes nothing
  void answer(const Result<Reply>& result, SmallData&& data = {});
  void proved();  // a write has succeeded
  uint64_t tell_resized(bool done);
  // Is the right that it presents one of its file and its caller?
  Result<void> vouched();
  void touch();
  Export& exported() const;
  Loop& loop() const;
  LeaseTable::File leased(const Handle& file) const;
  template <class Self>
  std::shared_ptr<Self> self() {
    return std::static_pointer_cast<Self>(shared_from_this());
  }

  const std::shared_ptr<Session> session_;
  Request request_;
  const uint64_t total_;
  const uint64_t resized_to_;
  std::stop_source stop_{std::nostopstate};
  const bool here_;  // its file lives at this server
  Handle made_;      // by a create that may have cut it

 private:
  void ask_place();
  void placed(Result<SharedState::Place> place);
  void settle_place(const Result<Reply>* result);
  void wait_for_resize();
  bool may_write();
  void note_end();
  bool reserve();
  Result<Extents> wanted() const;
  void granted();
  void charge_list();
  void charged(BufferPool::Charge charge);
  void pull_list();
  void completed(unsigned call, Result<Reply>&& result);
  void settle(unsigned call);
  void release();
  void go();
  bool held_back();
  void scout();
  void scouted(const Result<Reply>& found);
  void gate_open();
  std::optional<Handle> changed() const;
  void tell_holders();
  void reply(const Result<Reply>& result, SmallData&& data);

  const uint64_t under_lease_;  // a write of what was kept under it; 0: none
  unsigned gates_ = 0;          // that it waits for
  Handle owed_;
  Handle changes_;                        // what presents no right: the file that it changes
  std::shared_ptr<HeldRight> presented_;  // null: none, or none that is good
  struct Append {
    Handle handle;
    Once once;
    SharedState::Place place;
    bool written = false;              // the grant is, in the journal
    std::atomic<bool> touched{false};  // some of it may be in the file
    Append(Handle h, const Once& o) : handle(std::move(h)), once(o) {}
  };
  std::optional<Append> append_;
  struct End {
    Handle handle;
    uint64_t end = 0;
  };
  std::optional<End> moved_;       // of a file, by what is not known to be written
  std::optional<Handle> resizes_;  // until the shared state knows the outcome
  Reservation reservation_;
  std::unique_ptr<ListPull> list_;
  std::optional<BufferPool::Charge> charge_;
  uint64_t charge_ticket_ = 0;
  bool list_asked_ = false;
  bool begun_ = false;
  bool answered_ = false;
  bool recalls_ = false;
  unsigned busy_ = 0;
  Time progress_, arrived_;
};

// One call of the Store.
class CallFlight : public Flight {
 public:
  CallFlight(std::shared_ptr<Session> session, wire::RequestMessage&& message, SmallData&& data);

 protected:
  void begin() override;
  void done(unsigned call) override;
  void late(unsigned call) override;
  std::optional<Result<Reply>> result_;

 private:
  void keep(unsigned call, Result<Reply>&& result) override;
  void fail(Error error) override;
  bool opened() const;
  Holder opener() const;
  void begin_shared();
  void cut();

  SmallData data_;
  bool truncates_ = false;  // a create that may
  // Of an open or create: who holds the right; the request itself moves into the Store.
  CallerRef caller_;
  Handle handle_;
};

}  // namespace forebay::server
