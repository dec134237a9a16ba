// Hostile: a client on the server's node that keeps to no rule. It has a real socket and real
// shared memory, and does to them what the steps of a program say: valid requests, answers that
// lie, bytes and ring places out of nowhere, memory that changes while it is used.
//
// What it hears it understands as far as it needs to go on (handles, pulls, data to take). As long
// as it has not spoilt the ring to itself, every frame of the server must decode and make sense.
//
// One thread.
#pragma once

#include <deque>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "transport/shared_offer.h"
#include "transport/shared_region.h"
#include "wire/codec.h"

namespace forebay::fuzz {

inline constexpr uint32_t kHostileChunk = 4096;
inline constexpr uint32_t kHostileEager = 256;
inline constexpr uint16_t kHostileSlots = 4;
inline constexpr uint64_t kHostileArea = 1 << 20;  // the most that the server takes

// What it offers. From `plain` on, nothing is shared; from `unsealed` on, because the server must
// refuse it.
enum class OfferKind : uint8_t {
  good,
  no_lent,
  alias,  // the memory that it lends is the region itself, rings and all
  plain,
  unsealed,
  other_size,
  too_large,
  odd_ring,
  no_memfd,
  other_lent,
  half,
  count
};

// Numbers of one step. What they mean is the step's business.
struct Operands {
  uint8_t how = 0;
  uint16_t a = 0, b = 0;
};

// Writes to memory all the time, from a thread and through a mapping of its own, as another process
// would. (To the thread sanitizer that is other memory, so what is meant to race does not trouble
// it.)
class Scribbler {
 public:
  Scribbler(int memory, uint64_t size, uint64_t from);
  Scribbler(Scribbler&&) = default;

 private:
  static void run(const std::stop_token& stop, const SharedPages& pages, uint64_t from);
  std::jthread thread_;
};

class Hostile {
 public:
  explicit Hostile(std::string socket) : path_(std::move(socket)) {}

  void connect(OfferKind kind, uint8_t size = 0);
  void hang_up();
  // Connects, says hello, creates a file: as far as it comes.
  void begin(OfferKind kind, uint8_t size, bool resume);

  // Frames that are well formed.
  void hello(bool resume);
  void create(const std::string& name = "hostile", Access access = Access::both);
  void transfer(Op op, const Operands& x);
  void list(Op op, const Operands& x);
  void settle_file(Op op, const Operands& x);  // commit, close
  void answer_pull(const Operands& x);
  void take_data(const Operands& x);
  void cancel(const Operands& x);
  void box(const Operands& x);  // or what is none
  // A file that it is lent (server/shortcuts.h): asks for one, or does to a word of one, its own or
  // not, what nobody should: counts itself in and never out, out twice, or scribbles on it.
  void shortcut(const Operands& x);
  void goodbye() { send(wire::encode_goodbye("enough")); }

  // And what is not.
  void send(const std::string& bytes);
  void set_word(const Operands& x);
  void scribble_ring(const Operands& x);
  void scribble_area(const Operands& x);
  void scribble_lent(const Operands& x);
  void punch(const Operands& x);     // a hole into its memory
  void truncate(const Operands& x);  // which the seal forbids
  void ring_bell(const Operands& x);
  void send_on_socket(const std::string& bytes);

  void listen();  // to what has come
  bool refused() const { return refused_; }
  unsigned files_lent() const { return files_lent_; }  // to it
  bool quiet = false;                                  // does not ring when the server sleeps
  bool restless = false;  // what it shares for data changes all the time
  bool reckless = false;  // and the rings as well, if it is restless

 private:
  struct Made {
    Fd region, lent;
    shared::Offer offer;
  };
  Made make_offer(OfferKind kind, uint8_t size);
  void hear_answer(OfferKind kind);
  void begin_scribbling();
  void hear(const wire::FrameHeader& header, wire::Bytes message);
  void hear_reply(const wire::ReplyMessage& reply);
  void hear_posts(uint64_t bits);
  bool take_frame();
  template <class Pred>
  void listen_until(Pred&& pred);
  uint16_t pick_slot(uint8_t how) const;
  wire::RequestId next_id(uint8_t how);
  uint64_t pick_place(uint8_t how, uint16_t a, uint64_t length) const;
  Request request(Op op) const;
  void send_payload(const std::string& head, size_t payload);

  const std::string path_;
  Fd socket_, bell_;
  std::shared_ptr<SharedRegion> region_;  // null: frames go through the socket
  SharedRegion::Lent lent_;
  std::optional<RingWriter> writer_;
  std::optional<RingReader> reader_;
  std::vector<Scribbler> scribblers_;
  bool sullied_ = false;  // what it hears may be its own doing
  bool aliased_ = false;  // the memory that it lends is that of the rings
  bool refused_ = false, deaf_ = false;
  unsigned files_lent_ = 0;

  std::string in_;
  wire::Welcome welcome_;
  bool welcomed_ = false;
  Handle handle_;
  Right right_;
  std::deque<wire::Pull> pulls_;
  std::deque<uint64_t> given_;  // places of data in the area
  struct Slot {
    uint64_t sequence = 0;
    bool busy = false;
  };
  std::vector<Slot> slots_ = std::vector<Slot>(kHostileSlots + 2);
};

}  // namespace forebay::fuzz
