// SmallWrites: the short way of eager writes to a Store that works on the thread that submits.
//
// A flight (flight.h) costs a small write more than the write itself. Here the writes of all
// sessions of an export gather while their loops turn, and go to the Store merged: in each turn,
// of each file, the run of touching pieces with the lowest offset (paper 1, section III.B; a few of
// them while they are short), and what of one client is long by itself. What lies elsewhere waits
// for its turn, so that clients that write in strides and have drifted apart
// come together again: those behind are served until all are at the same place. For its client
// nothing is different from a flight.
//
// Only for writes whose right the Store has accepted before (HeldRight::writes), because the
// request that they make presents one of them.
//
// Invariants:
//  1. A session's requests are reserved in the order of arrival: before a flight of a session
//     reserves, issue_with() does it for what has gathered; and once writes of a file overlap, all
//     of it that has gathered is reserved in the order of arrival.
//  2. A request of several writes that fails is done again one by one, and each has its own result.
//  3. A write that overlaps something that is under way waits alone: nobody else waits with it.
//  4. No write is passed over by more than kMostPassed batches of its file.
//  5. Of a file, one thread at a time writes what has gathered: the kernel would let no other in.
//
// Threads: any loop of the export's sessions; one lock, never held while the Store or a session
// runs.
#pragma once

#include <atomic>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "core/clock.h"
#include "core/extents.h"
#include "loop/loop.h"
#include "server/held_right.h"
#include "server/reserve.h"
#include "server/small_memory.h"
#include "wire/codec.h"

namespace forebay {
class SharedRegion;
}

namespace forebay::server {

class Export;
class Session;

// The stream of an eager write, or of a small read. On the heap: bounded by the session's credits,
// or by its share of what the export has for reads.
struct SmallData {
  std::unique_ptr<std::byte[]> bytes;
  uint32_t size = 0;
  SmallMemory::Share share = {};
  std::span<std::byte> span() const { return {bytes.get(), size}; }
};

struct SmallWrite;
using SmallWriteRef = std::shared_ptr<SmallWrite>;

// What has gathered of one file and caller. Under the lock of SmallWrites.
struct SmallQueue {
  struct Piece {
    Extent file;
    std::byte* memory;
    SmallWrite* write;
    const Session* session;
  };
  std::vector<Piece> pieces;        // by their place in the file
  std::list<SmallWriteRef> writes;  // in the order of arrival
  bool overlaps = false;            // some of them do
  bool in_line = false;             // for the next turn
  bool busy = false;                // a thread writes some of it
  unsigned passed = 0;              // batches since the oldest was the oldest

  uint64_t bytes() const;
};

// One of them. Its session's loop owns what is not said to be somebody else's.
struct SmallWrite {
  std::shared_ptr<Session> session;
  std::shared_ptr<HeldRight> held;
  wire::RequestId id;
  Extents file;
  std::span<std::byte> data;
  std::variant<SmallData, std::shared_ptr<SharedRegion>> owner;  // of the data
  Time arrived;
  bool spoken = true;  // as Flight::spoken
  bool told = false;   // those who hold leases of its file
  bool near = false;   // its client is on this node
  bool boxed = false;  // it came in a box (transport/shared_box.h), and its answer goes there

  // Under the lock of SmallWrites.
  enum class State : uint8_t { waiting, issued, dropped } state = State::waiting;
  bool chosen = false;                                      // for the batch that is being made
  std::optional<std::list<SmallWriteRef>::iterator> place;  // in its queue
  Reservation reservation;                                  // if it waits alone
  // Of whoever writes it, until it is handed back.
  std::optional<Error> error;
  uint64_t verifier = 0;
};

class SmallWrites {
 public:
  explicit SmallWrites(Export& exported) : exported_(exported) {}

  // On its session's loop. It comes back there, to Session::written(), unless it is dropped.
  void add(SmallWriteRef write);
  // Reserves what has gathered of its file, so that what comes now comes after it; and writes it.
  void issue_with(const SmallWrite& write, Loop& here);
  // If it is not its turn yet, it never will be: true.
  bool drop(SmallWrite& write);
  // Where what has gathered of a file ends; 0: nothing has.
  uint64_t end_of(std::string_view identity);
  // What has gathered is dropped; waits until nothing is on its way into the Store.
  void close();

 private:
  struct Batch;
  using BatchRef = std::shared_ptr<Batch>;
  using Batches = std::vector<BatchRef>;
  static constexpr unsigned kMostPassed = 16;

  using Queue = SmallQueue;

  std::shared_ptr<Queue> queue_of(const Holder& holder);
  void post_turn(Loop& loop);
  void turn(Loop& here);
  bool line_up(const std::shared_ptr<Queue>& queue);
  void low_runs(Queue& queue, Batches& out);
  void next_run(Queue& queue, Batches& out);
  void take_run(Queue& queue, size_t first, Batches& out);
  void take(Queue& queue, std::vector<SmallQueue::Piece> pieces, Batches& out);
  void long_runs(Queue& queue, Batches& out);
  void all_at_once(Queue& queue, Batches& out);
  void all_in_order(Queue& queue, Batches& out);
  bool kept(const SmallWriteRef& write) const;
  ReservationTable::Mode mode_of(std::span<const SmallWriteRef> writes, const Extents& file) const;
  void reserve(BatchRef batch, Batches& out);
  void reserve_alone(const SmallWriteRef& write, Batches& out);
  void submit_waited(const BatchRef& batch, Loop& here);
  void submit(const BatchRef& batch, Loop& here);
  void ended(const BatchRef& batch, Result<Reply>&& result);
  bool begin_issuing();
  void end_issuing();
  void submit_each(const BatchRef& batch);
  void hand_back(Batch& batch);

  Export& exported_;
  std::mutex mutex_;
  std::condition_variable quiet_;
  // By file and caller; kept by the rights that use them.
  std::unordered_map<std::string, std::weak_ptr<Queue>> queues_;
  std::vector<std::shared_ptr<Queue>> line_;  // those that are not empty, and not busy
  bool turn_posted_ = false;
  unsigned issuing_ = 0;  // threads that are about to call the Store
  bool closed_ = false;
};

}  // namespace forebay::server
