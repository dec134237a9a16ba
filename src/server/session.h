// Session: one client of an export. It remembers, across connections, the client's slots with their
// last replies (every request is applied once), its credits and the rights that it holds; and it
// feeds frames of the connection of the moment to the flights (flight.h).
//
// Lives on one worker loop, where everything but the constructor and info() is called. Owned by the
// lobby (server.cc), and by flights that a Store has not answered.
//
// Invariants:
//  1. Slot s has seen requests 1..sequence; at most the last is unanswered, and then it has a
//     flight, or is a small write (small_writes.h).
//  2. pulls_ is what the client owes on this connection, in the order asked; data answers its
//     front.
//  3. After end() nothing begins; when the last Store call is back, the rights are closed and the
//     lobby is told. After drop() no Store is called at all.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/counters.h"
#include "core/histogram.h"
#include "server/export.h"
#include "server/flight.h"
#include "server/relayed_locks.h"
#include "transport/transport.h"
#include "wire/codec.h"

namespace forebay::server {

// What `status` shows of a session; shared with the lobby.
struct SessionInfo {
  uint64_t id = 0;
  std::string export_name, host, program, job;
  uint32_t pid = 0, uid = 0;
  std::atomic<bool> connected{false};
  Counter flights, requests, bytes_in, bytes_out;
  std::array<Counter, kOpCount> ops;
  Histogram latency;  // of its requests, from arrival to answer, in nanoseconds

  // By shortcuts, over the connection of the moment.
  ShortcutUse by_shortcut() const;
  void shares(std::shared_ptr<SharedRegion> region);  // null: no more

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<SharedRegion> region_;
};

class Session final : public std::enable_shared_from_this<Session>, private ConnectionHandler {
 public:
  struct Parts {
    std::shared_ptr<const ServerOptions> options;
    std::shared_ptr<Export> exported;
    Loop& loop;
    std::shared_ptr<SessionInfo> info;
    CallerRef caller;       // the peer, as the kernel knows it
    wire::Welcome welcome;  // what every connection of this session is told
    bool relayed = false;   // another server, for its clients: about files that live here
    // Tells the lobby, from this loop, that the session cannot be resumed any more; that it only
    // keeps rights, for a while, if it does; and then that nothing of it is left.
    enum class News { ended, keeps_rights, gone };
    Callback<void(News)> tell;
  };
  explicit Session(Parts parts);
  ~Session() override;

  // A connection whose hello named this session; the old one, if any, is fenced. Leaves
  // `connection` alone and returns false if the session has ended meanwhile.
  bool attach(std::unique_ptr<Connection>& connection, bool resumed);

  // The server stops: begins nothing more, answers what has begun, says goodbye, ends. One that has
  // ended keeps its rights no longer.
  void stop();
  void stop_now();  // without waiting for anything
  void drop();      // a crash: lets go of everything at once, tells nobody

  // ---- For flights ----
  uint64_t id() const { return parts_.info->id; }
  uint32_t pid() const { return parts_.info->pid; }  // as the client says
  uint32_t kernel_pid() const { return connection_ ? connection_->peer().pid : 0; }
  bool relayed() const { return parts_.relayed; }
  // As the one whose writes may be lost (BehindStore). Nobody can tell which of another server's
  // clients is to be told: they all learn it from the file's verifier, as if they were gone.
  uint64_t writer() const { return parts_.relayed ? 0 : id(); }
  // On this node: it has shared memory with us, perhaps over another connection.
  bool near() const { return near_; }
  ScheduledStore::Origin origin() const { return {&loop(), writer(), {}, near()}; }
  // A request goes to where its file lives; one that was relayed has arrived.
  void submit(Request&& request, Completion&& done);
  void settle(Request&& close, Completion&& done);
  void look(Request&& request, Completion&& done);  // here, wherever the file lives
  void submit_at(const std::string& server, Request&& request, Completion&& done);
  bool relays() const { return exported().relay != nullptr && !parts_.relayed; }
  RelayedLocks& relayed_locks() { return relayed_locks_; }
  bool lives_here(const Handle& file) const {
    return parts_.relayed || exported().lives_here(file);
  }
  const ServerOptions& options() const { return *parts_.options; }
  Export& exported() const { return *parts_.exported; }
  Loop& loop() const { return parts_.loop; }
  bool connected() const { return connection_ != nullptr && !closing_; }
  // The buffers in the memory that the client of this connection shares; null: it shares none.
  const std::shared_ptr<BufferPool>& area() const { return area_; }
  // The memory that the client of this connection lends; null: none.
  std::shared_ptr<SharedPages> lent() const;
  // The memory that the client of this connection shares; null: none.
  const std::shared_ptr<SharedRegion>& region() const { return region_; }
  Shortcuts& shortcuts() { return shortcuts_; }
  // To the client, before the answers that follow; false: it cannot be.
  bool hand(int descriptor) { return connection_ && connection_->hand(descriptor); }
  // Had it small writes of the file under way when it asked for the shortcut?
  bool amid_writes() const { return amid_writes_; }
  void shortcut_ended() { leave_if_drained(); }
  // The most that moves in one frame: what both sides have agreed on.
  uint32_t chunk() const { return parts_.welcome.chunk; }
  // `into`: where in the area the bytes are to be put, if that is where they go.
  void pull(std::shared_ptr<Flight> flight, wire::Part part, uint64_t position, uint32_t length,
            const std::byte* into = nullptr);
  // `bytes` stay untouched until `sent` runs: in the area if `in_area`.
  void push(wire::RequestId id, uint64_t position, std::span<std::byte> bytes, bool in_area,
            Connection::Sent sent);
  // A flight's last call goes to the Store now: if that takes no other thread, the client may wake
  // up for the answer.
  void announce();
  void answer(Flight& flight, const Result<Reply>& result, SmallData&& data);
  void aborted(Flight& flight);
  void retired(Flight& flight);     // answered before, and now its last Store call has ended
  void written(SmallWrite& write);  // or not: it says so

  // Leases (lease_table.h).
  void send_recalls(const std::vector<LeaseTable::Number>& leases);
  void send_recalls() { send_recalls(exported().leases->take_recalls(id())); }
  void cut_off_holder();                               // of a lease, or of a shortcut
  uint64_t attachment() const { return attachment_; }  // which of its connections this is

  // Rights. A session holds what it has opened, and what it presents that was granted before (to
  // another session, or in another life of the server).
  void hold(const Right& right, Holder holder);
  // A flight presents the right of its request from now on, until end_use(); null: it has none, or
  // none that is good.
  std::shared_ptr<HeldRight> use(const Request& request);
  void end_use(HeldRight& held);
  // Before a close goes to the Store: this session's part of it. False if flights or other sessions
  // use the right, so that the Store must not close it: the last of them will.
  bool let_go(const Right& right);
  void give_up(const HeldRight& held);
  void close_right(const Holder& holder, const Right& right);

 private:
  struct Wrote {
    uint64_t count, verifier;
    Result<Reply> reply() const {
      Result<Reply> result(std::in_place);
      result->count = count;
      result->verifier = verifier;
      return result;
    }
  };
  struct Slot {
    uint64_t sequence = 0;
    std::shared_ptr<Flight> flight;
    SmallWriteRef small;         // instead of a flight
    std::string reply;           // remembered, encoded; empty: do it again
    std::optional<Wrote> wrote;  // the same, of what was answered in its box
    bool sending = false;        // the reply is not out yet, so the client cannot have seen it
    uint64_t cancelled = 0;      // the last sequence that the client gave up
    Handle told;  // the reply tells of a loss there; it is seen when the next request comes
  };
  struct Owed {
    std::shared_ptr<Flight> flight;
    wire::Pull pull;
    Time asked;
  };
  struct Given {  // data in the area that the client has not copied out yet
    Connection::Sent sent;
    Time at;
  };
  struct Incoming {  // an eager write whose payload is on its way
    wire::RequestMessage message;
    SmallData data;
  };
  enum class Landing { nowhere, eager, small, pulled };

  // ConnectionHandler
  Result<Memory> on_message(const wire::FrameHeader& header, wire::Bytes message) override;
  void on_payload() override;
  void on_posts(uint64_t bits) override;
  void on_closed(const Error& why) override;

  // Frames (session.cc)
  Memory take_request(wire::Bytes message, uint32_t payload);
  Memory take_data(wire::Bytes message, uint32_t payload);
  Memory take_cancel(wire::Bytes message, uint32_t payload);
  void cancel(uint16_t slot);
  Memory take_back(wire::Bytes message, uint32_t payload);
  Memory take_released(wire::Bytes message, uint32_t payload);
  void pulled();
  uint64_t place_in_area(const std::byte* at) const;
  std::optional<Error> misused(const wire::RequestMessage& message, uint32_t payload) const;
  bool repeats(const wire::RequestId& id) const;
  bool holds(const Request& request) const;
  bool good_right(const Request& request) const;
  void admit(wire::RequestMessage&& message, SmallData&& data);
  void repeat(Slot& slot, wire::RequestMessage&& message);
  void begin(wire::RequestMessage&& message, SmallData&& data);
  SmallMemory::Share take_shares(wire::RequestMessage& message, SmallData& data);
  Result<void> permit(wire::RequestMessage& message, const SmallData& data);
  Result<void> identify(Request& request);
  void note_client(const Once& once);
  void reply(wire::RequestId id, Op op, bool spoken, const Result<Reply>& result, SmallData&& data);
  void tell(wire::RequestId id, Op op, bool spoken, Error loss, const Handle& file);
  Memory refuse(Error why, uint32_t payload);
  Memory sink(uint32_t payload);
  void send(std::string head, Memory payload = {}, Connection::Sent sent = {});

  // Small writes (session_small.cc)
  bool take_small_write(wire::Bytes message, uint32_t payload);
  void take_box(uint16_t slot);
  std::shared_ptr<HeldRight> short_way(wire::RequestId id, std::string_view handle,
                                       std::string_view right, uint64_t size) const;
  void begin_small(SmallWriteRef write);
  void answer_small(const SmallWrite& write);
  void not_written(const SmallWrite& w);
  void issue_small();
  void forget_small(Slot& slot);
  void note_writes(const Handle& file);

  // Life (session_life.cc)
  template <class Fn>
  void each_flight(Fn&& fn);
  void forget_flight(Flight& flight);
  void flights_changed(int by);
  void abort_small(Slot& slot);
  void detach(const Error& why, LeaseTable::Left how);
  uint32_t own_pid() const;  // by which the client's end can be seen; 0: nobody can tell
  // Until its time is over, or its process is known to have ended.
  struct Away {
    uint32_t pid;  // as own_pid()
    Time until;
    Duration pause;
  };
  void await_client(Away away);
  void look_for_client(Away away);
  void keep_rights(Duration time);
  void keep_rights_no_more();
  void shed();
  void leave_if_drained();
  void say_goodbye();
  void pass_on_losses();
  void post_end();
  void end(Duration rights_for = Duration::zero());
  void abort_all();
  void close_rights();
  void free_locks();
  void arm_sweep();
  void sweep();
  bool stalled(Time now);
  void drop_stalled();
  void check_deadline(Flight& flight, Time now);
  void check_small(Time now);

  // A last frame (refused, goodbye) is given so long to be read before we close: a close with
  // unread input would make the kernel throw it away.
  static constexpr Duration kLinger = std::chrono::milliseconds(200);

  Parts parts_;
  std::unique_ptr<Connection> connection_;
  uint64_t attachment_ = 0;  // counts connections, so that news of an old one is known as such
  Time attached_at_;
  bool may_speak_for_others_ = false;
  CallerRef other_caller_;  // the last one spoken for: requests of one caller share one
  Once client_;             // whose requests these are; sequence: of none (0), one, or several (2)
  std::vector<Slot> slots_;
  unsigned flights_ = 0;  // and small writes
  unsigned small_ = 0;    // of those
  bool amid_writes_ = false;
  unsigned zombies_ = 0;  // answered or aborted, but still with the Store
  uint64_t eager_used_ = 0;
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view bytes) const { return std::hash<std::string_view>()(bytes); }
  };
  // By the right's bytes.
  std::unordered_map<std::string, std::shared_ptr<HeldRight>, Hash, std::equal_to<>> rights_;

  RelayedLocks relayed_locks_;

  std::shared_ptr<SharedRegion> region_;
  bool near_ = false;
  Shortcuts shortcuts_{*this};
  std::shared_ptr<BufferPool> area_;
  std::unordered_map<uint64_t, Given> given_;  // by the place in the area

  std::deque<Owed> pulls_;
  Landing landing_ = Landing::nowhere;
  std::optional<Incoming> incoming_;
  SmallWriteRef incoming_small_;
  std::vector<std::byte> sink_;

  bool closing_ = false;  // refused: only waits for the refusal to go out
  bool stopping_ = false, leaving_ = false, ended_ = false, gone_ = false, dropped_ = false;
  Loop::TimerId sweep_timer_ = 0, grace_timer_ = 0, rights_timer_ = 0;
  Time last_data_;       // when pulled data last landed on this connection
  Time last_moved_;      // the same, on any: a new connection is no excuse
  uint64_t handed_ = 0;  // bytes given to the connection
  uint64_t taken_ = 0;   // of those, taken by it when last looked at
  Time last_taken_;
};

}  // namespace forebay::server
