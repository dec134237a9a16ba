// SharedState: what the clients of an export share about its files (attr/state.h), served: it does
// the attribute operations, gives appends their places, and keeps a journal (journal.h), so that
// all of it is there after a crash ("paper 4": attributes "remain in the forwarding server and are
// never stored on the filesystem").
//
// A request changes the state at once, in the order of arrival, and is answered when its record is
// written: the records of one turn of a loop are one write, before the answers (with `sync`, one
// fdatasync, on a thread of its own). So nobody ever sees a number that a crash could take back.
//
// Appends. A flight that appends asks for its place when it starts, then reserves it, and begins
// when the grant is written: from there on it is an ordinary write, that merges with its neighbours
// as any other. The end of a file is learnt once, as the larger of what the journal says and the
// size that the file has when nobody writes to it; from then on every write, resize and truncation
// that goes through this server moves it. What fails after it has moved the end makes it unknown
// again; whoever may not write never moves it.
//
// Invariants:
//  1. What was answered is in the journal; what was answered to a request with a Once is answered
//     again, the same, if the request comes again, from wherever and in whatever life.
//  2. No two appends get the same place, and none a place that an ordinary write was given before.
//  3. A change that cannot be written is answered as unknown, and everything after it is refused
//     until the whole state could be written anew.
//  4. Files, attributes and remembered requests are bounded, the latter user by user; clients are
//     forgotten when they say goodbye, or kRetain after their last request.
//
// Threads: any; one lock, never held while the Store, a completion or a file is used. Completions
// run on the loop that the request came from. Loops must outlive this.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "attr/record.h"
#include "attr/state.h"
#include "core/clock.h"
#include "loop/loop.h"
#include "server/journal.h"
#include "server/reserve.h"
#include "server/server.h"
#include "store/store.h"

namespace forebay::server {

class RightHolders;
class SmallWrites;

class SharedState : public std::enable_shared_from_this<SharedState> {
 public:
  // As long as the requests of one client may be apart, and it still has its answers.
  static constexpr Duration kRetain = std::chrono::minutes(15);

  // As long as temporary attributes stay after their last use if it is not known who has their file
  // open (shared_temporaries.cc).
  static constexpr Duration kDoubt = std::chrono::hours(24);

  static constexpr size_t kMostLive = 65536;  // files whose end is known

  // Memory of all attributes of an export, about.
  static constexpr size_t kMostAttributeBytes = 64_MiB;

  // What it asks about files.
  struct Around {
    Store& store;  // sizes; gone after close()
    ReservationTable& reservations;
    SmallWrites& small_writes;
    const RightHolders& holders;
  };

  // Reads the journal, if there is to be one. `store` is asked which of the files are gone:
  // blocking. `name` is the export's. Other servers change the same names if it has `others`.
  static Result<std::shared_ptr<SharedState>> open(const StateOptions& options, Store& store,
                                                   const std::string& name, bool others = false);
  ~SharedState();
  void begin(const Around& around);
  // The list of servers may be another than in the life before: files that live elsewhere now are
  // forgotten. EXDEV if that would lose attributes which are not temporary. Before anybody asks.
  Result<void> forget_others(const std::function<bool(const Handle&)>& lives_here);
  void close();  // before the Store goes: what is not answered never will be

  // Another number: nothing that clients shared before is there any more.
  uint64_t id() const { return id_; }

  // An attribute operation, whose right is good; from a loop, or from none (then it blocks).
  void submit(Request&& request, Completion&& done, Loop* loop);

  // ---- Appends ----
  struct Place {
    uint64_t offset = 0;
    uint64_t record = 0;  // of the grant; 0: none is needed
    bool done = false;    // it was written before: this is its answer
  };
  using Placed = Callback<void(Result<Place>)>;
  // Where `length` bytes of this request go. Calls `placed` at once, or later on the loop.
  void place(const Request& request, uint64_t length, Loop& loop, Placed placed);
  // Calls `then` at once or later on the loop: when the record is written, or cannot be.
  void when_written(uint64_t record, Loop& loop, Callback<void(Result<void>)> then);
  // What was placed is in the file, or is given up. `untouched`: for certain nothing was, and
  // nothing will be written there; then, if it is the last place, it is the next one's.
  enum class Settled { written, lost, untouched };
  void settle(const Handle& handle, const Once& once, uint64_t offset, Settled how, Loop& loop);

  // ---- Names (name_flight.h) ----
  // What came of it, if it was done or may have been; nothing: it is new, or was not done.
  struct Before {
    attr::Named outcome = attr::Named::unknown;
    std::string home;  // not empty: this server knows
  };
  Result<std::optional<Before>> named_before(const Once& once);
  // Returns the record that must be written before it is done.
  Result<uint64_t> intend(const Once& once, const CallerRef& caller, const attr::Intent& intent,
                          Loop& loop);
  void named(const Once& once, attr::Named outcome);

  // ---- What moves the end. ----
  // Before it reserves, by whoever may write. Writes in order of arrival: so are places. True: the
  // end is kept here, and if it comes to nothing not_written() is to be called.
  bool writes_to(const Handle& handle, uint64_t end) {
    return live_files_.load(std::memory_order_relaxed) != 0 && push_end(handle, end);
  }
  // What was to end there has failed. If it had moved the end, that is learnt again.
  void not_written(const Handle& handle, uint64_t end);
  // Is the end of any file kept here?
  bool keeps_ends() const { return live_files_.load(std::memory_order_relaxed) != 0; }
  // Is the end of the file kept here, so that whoever moves it must say so?
  bool keeps_end(const Handle& handle);
  // Around a resize: `then` runs at once, or later on the loop, and ends with resized().
  void resizes(const Handle& handle, Loop& loop, Task then);
  // It has the size now; nothing: it failed. Returns the record that says so, or 0.
  uint64_t resized(const Handle& handle, std::optional<uint64_t> size);
  // An open has truncated it, unannounced. Returns as resized().
  uint64_t truncated(const Handle& handle);

  // The client has said goodbye: it will ask for no answer again.
  void forget(const Once& client, Loop& loop);

  // Nobody is known to have the file open any more: its temporary attributes go. Not `certain`:
  // somebody may have that we do not know of.
  void unused(const Handle& handle, bool certain);

  // A name of the file was removed, or given to another: if that was the last one, and nobody has
  // the file open any more, all that is kept about it goes.
  void removed(const Handle& handle);
  // Was anything ever kept about any file?
  bool knows_files() const { return knows_files_.load(std::memory_order_relaxed); }

  struct Status {
    attr::State::Counts counts;
    uint64_t life = 0, records = 0, writes = 0, journal_bytes = 0, compactions = 0;
    uint64_t repeated = 0;  // requests that were answered from memory
    uint64_t granted = 0;   // appends
    bool journaled = false, sync = false, failing = false;
  };
  Status status() const;
  // Places of appends that nobody has written to; those of a file that are listed.
  std::vector<attr::Hole> holes(const Handle& handle) const;

 private:
  using Kind = attr::Command::Kind;
  using Command = attr::Command;

  // An answer that waits for its record.
  struct Waiting {
    uint64_t record = 0;
    Completion done;  // one of the two
    Callback<void(Result<void>)> then;
    uint64_t value = 0;
    std::string data;
    void run(const Result<void>& written);
  };
  struct Mailbox {  // of a loop
    Loop* loop = nullptr;
    std::vector<Waiting> waiting;
    bool posted = false;
  };
  // Of a file that is appended to or resized in this life.
  struct Asking {
    Once once;
    uint64_t length = 0;
    Placed placed;  // an append
    Task then;      // or a resize
    Loop* loop = nullptr;
    CallerRef caller;
  };
  struct Live {
    Handle handle;
    std::optional<uint64_t> end;
    uint64_t floor = 0;     // writes while the end is not known go up to here
    unsigned resizing = 0;  // resizes under way
    bool learning = false;
    Reservation reservation;  // while it learns
    std::deque<Asking> queue;
  };
  using LiveRef = std::shared_ptr<Live>;
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };

  explicit SharedState(uint64_t id) : id_(id) {}
  Result<void> load(Store& store, const std::string& name, bool others);
  void resolve_names(Store& store, const std::string& name, bool others);
  void look_for_files(Store& store, const std::string& name);

  // Under the lock.
  Result<uint64_t> apply(const Command& command);
  Result<uint64_t> apply_for(const Caller& caller, const Command& command);
  Result<uint32_t> number_of(const Handle& handle, bool make);
  void make_room();
  Result<uint64_t> perform(const Request& request, std::string& data);
  Result<std::optional<uint64_t>> recalled(const Request& request);
  void forget_old(Time now);
  void inherit_temporaries();
  void drop_temporaries(uint32_t file);
  void note_temporary(uint32_t file);
  void forget_doubtful(Time now);
  void forget_file(uint32_t file);
  Error refusal() const;
  static uint64_t tick_of(Time t);
  Mailbox& mailbox(Loop& loop);
  bool put_off(Waiting waiting, Loop& loop);
  std::string_view key_of(const Handle& handle) const;

  void look_for_removed(const Handle& handle);
  void gone(const Handle& handle, bool certain);

  void post_flush(Loop& loop);
  void flush(Loop& here);
  void write_some(std::unique_lock<std::mutex>& lock);
  std::optional<Error> write_now(std::unique_lock<std::mutex>& lock, uint64_t record);
  void run_syncs();

  // Appends (shared_appends.cc).
  bool push_end(const Handle& handle, uint64_t end);
  LiveRef live_of(const Handle& handle, bool make);
  uint64_t cut(const Handle& handle, uint64_t size);
  Result<Place> grant(Live& live, const Once& once, const Caller& caller, uint64_t length);
  Result<std::optional<Place>> placed_before(const Request& request, uint64_t length);
  void begin_resize(Live& live);
  void serve(const LiveRef& live);
  void learn(const LiveRef& live);
  void ask_size(const LiveRef& live);
  void learnt(const LiveRef& live, Result<Reply>&& result);
  void drop_if_idle(const LiveRef& live);
  void unlearn(const LiveRef& live);
  bool give_back(const Handle& handle, uint32_t file, uint64_t offset);

  const uint64_t id_;
  std::optional<Around> around_;
  Store* store_ = nullptr;  // for identities; null after close()

  mutable std::mutex mutex_;
  attr::State state_;
  std::unique_ptr<Journal> journal_;  // null: everything is in memory only
  uint64_t written_ = UINT64_MAX;     // records up to here are
  uint64_t failed_ = 0;               // or could not be, up to here
  std::optional<Error> failure_;      // of the last write
  bool writing_ = false;
  bool urgent_ = false;  // with `sync`: somebody waits for what was added
  std::vector<std::unique_ptr<Mailbox>> mailboxes_;
  Time last_look_{};
  // Files whose temporary attributes may be somebody's that we do not know of; the tick of their
  // last use, or 0: since the last look.
  std::unordered_map<uint32_t, uint64_t> doubtful_;
  std::unordered_set<uint32_t> missing_;  // files that are not where they were
  // Files that lost a name while somebody had them open, by key.
  std::unordered_set<std::string, Hash, std::equal_to<>> removed_;
  std::atomic<bool> knows_files_{false};
  Status seen_;
  bool closed_ = false;

  std::unordered_map<std::string, LiveRef, Hash, std::equal_to<>> live_;  // by key
  std::atomic<size_t> live_files_{0};

  std::condition_variable wake_, quiet_;  // of the thread that syncs; of whoever waits for a write
  std::thread syncer_;
};

}  // namespace forebay::server
