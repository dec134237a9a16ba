// Bulk data, directed by the server: WriteFlight pulls a request's stream from the client,
// ReadFlight pushes it, chunk by chunk through buffers of the export's pool (paper 1, section III.A
// and its Figure 4).
//
// The three pipelines are one machine, which asks before each move of a chunk whether it may go to
// the Store, and whether it may be transferred:
//
//             to the Store if                        transferred if
//   none      nothing is being transferred           nothing is with the Store
//   serial    nothing is with the Store              a buffer is free
//   parallel  it is there (read: a buffer is free)   a buffer is free
//
// So `none` moves a request in rounds of as many chunks as there are buffers, in most cases one.
//
// Unlike the paper's, chunks are bounded in pieces as well as in bytes, and a flight is bounded in
// chunks, so that memory is the pool and a small part of it for the lists of pieces.
//
// Invariants:
//  1. A flight takes a first buffer in its turn and further ones, up to its window, only if nobody
//     waits for one. With a buffer in hand it waits for its client and the Store only, never for
//     another buffer, so every buffer comes back. (Of a file that lives elsewhere the Store is
//     another server, whose buffers it waits for: its own are of a pool apart, export.h.)
//  2. The file side is walked once, in the order of issue: a list of a million pieces stays linear.
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "server/flight.h"

namespace forebay::server {

// A buffer of the export's pool, or of the area that the client shares, which it keeps alive.
class Room {
 public:
  Room() = default;
  Room(std::shared_ptr<BufferPool> area, Buffer buffer)
      : area_(std::move(area)), buffer_(std::move(buffer)) {}
  Room(Room&&) = default;
  Room& operator=(Room&& other) noexcept {
    release();
    area_ = std::move(other.area_);
    buffer_ = std::move(other.buffer_);
    return *this;
  }
  explicit operator bool() const { return static_cast<bool>(buffer_); }
  std::span<std::byte> bytes() const { return buffer_.bytes(); }
  const std::shared_ptr<BufferPool>& area() const { return area_; }
  void release() {
    buffer_.release();
    area_.reset();
  }

 private:
  std::shared_ptr<BufferPool> area_;  // null: the export's pool
  Buffer buffer_;
};

class BulkFlight : public Flight {
 public:
  bool waits_for_client() const override;

 protected:
  BulkFlight(std::shared_ptr<Session> session, wire::RequestMessage&& message);

  enum class State : uint8_t {
    idle,
    lost,     // was asked of the client, and the connection broke: to be asked for again
    pulled,   // asked of the client; its buffer is where the data lands
    landed,   // its buffer holds the data, which waits for its turn to go on
    storing,  // with the Store
    sending,  // on its way to the client; `sent` holds the buffer
  };
  struct Chunk {
    State state = State::idle;
    uint32_t length = 0;
    uint64_t position = 0;  // in the stream
    Room room;
    Extents file;
    uint64_t count = 0;  // of the Store's reply
    uint64_t verifier = 0;
    std::optional<Error> error;
  };

  // Runs step() until nothing more changes. Whatever completes inside step() (a Store that
  // completes inline, a send that is taken at once) comes back here and only leaves a mark, so that
  // a request of any size runs in bounded stack.
  void advance();
  virtual void step() = 0;

  void start_stream();  // (again) from its start
  bool all_issued() const { return cursor_->done(); }
  uint64_t issued() const { return cursor_->position().value; }
  // An idle chunk with a buffer, or null: then a buffer is on order, or the window is full.
  Chunk* ready_chunk();
  // Gives the chunk a buffer; false: none is free, and one is on order if the flight has no other.
  bool furnish(Chunk& chunk);
  // Gives the chunk the next part of the stream, and walks past it.
  void assign(Chunk& chunk);
  uint64_t size_at(uint64_t position, uint64_t room) const;
  Request part_of_request(Chunk& chunk) const;
  // The chunk is through. Its buffer goes back if it is not the only one, or not needed.
  void idle(Chunk& chunk, bool more);
  unsigned count(State state) const;
  Chunk* first(State state);  // in the order of the stream; null: there is none
  // Is a request transferred and stored in turns?
  bool apart() const { return exported().options.pipeline == Pipeline::none; }
  bool may_store() const;
  bool may_transfer() const;
  unsigned index_of(const Chunk& chunk) const {
    return static_cast<unsigned>(&chunk - chunks_.data());
  }

  void detached() override;
  void keep(unsigned call, Result<Reply>&& result) override;
  void late(unsigned call) override;
  void let_go() override;

  std::vector<Chunk> chunks_;  // the window, from begin() on; never resized
  // Chunks go to the Store one after the other.
  bool in_order_;
  std::optional<Error> error_;

 private:
  size_t window() const;
  unsigned owned() const;
  std::shared_ptr<BufferPool> area() const;
  BufferPool& pool() const;
  void order_buffer();
  void got_buffer(uint64_t order, Room room);
  void cancel_order();

  std::optional<ExtentCursor> cursor_;
  // A buffer on order, and from where; and one that has come and is nobody's yet.
  std::optional<std::shared_ptr<BufferPool>> ordered_;
  uint64_t ticket_ = 0, orders_ = 0;
  Room spare_;
  bool advancing_ = false, again_ = false;
};

class WriteFlight final : public BulkFlight {
 public:
  WriteFlight(std::shared_ptr<Session> session, wire::RequestMessage&& message)
      : BulkFlight(std::move(session), std::move(message)) {}

  void detached() override;
  void attached() override;

 private:
  void begin() override;
  void step() override;
  void done(unsigned call) override;
  void fail(Error error) override;
  Memory stream_landing(const wire::Pull& pull) override;
  void stream_landed(const wire::Pull& pull) override;
  uint64_t written() const override;
  bool one_call() const override;
  Chunk* pulled_at(uint64_t position);
  Chunk* next_to_ask();
  void ask(Chunk& chunk);
  void store(Chunk& chunk);
  void drop_lost();
  void lose(const Chunk& chunk, uint64_t landed);

  bool asking_ = false;    // until the window is full
  uint64_t verifier_ = 0;  // not 0: some of it is acknowledged only
  uint64_t lost_at_ = std::numeric_limits<uint64_t>::max();  // first byte not known to be written
};

// A read is short at the end of file: its count is the place in the stream of the first byte that
// is not there, also for a list whose later pieces could be read.
class ReadFlight final : public BulkFlight {
 public:
  ReadFlight(std::shared_ptr<Session> session, wire::RequestMessage&& message)
      : BulkFlight(std::move(session), std::move(message)) {}

  void detached() override;
  void repeated() override;  // pushes again, from the start; the reservation was held meanwhile
  bool waits_for_client() const override { return !pushing_ || BulkFlight::waits_for_client(); }

 private:
  void begin() override;
  void step() override;
  void done(unsigned call) override;
  void fail(Error error) override;
  void push(Chunk& chunk);
  void keep_no_buffers();
  void sent(unsigned chunk, uint32_t round, Room room, bool taken);
  bool over() const;

  bool pushing_ = true;
  uint32_t round_ = 0;             // one more with each start from the beginning
  std::vector<uint32_t> read_in_;  // the round in which a chunk was given to the Store
  uint64_t end_ = std::numeric_limits<uint64_t>::max();  // first byte of the stream not there
};

}  // namespace forebay::server
