// Exchange: what ranks and aggregators of different nodes send each other in a collective call:
// what a window holds, and the data of it. Data goes by nonblocking messages between each rank and
// aggregator, or by one MPI_Alltoallw of all ranks in each step; both straight out of and into the
// memory where it lies, with a datatype, unless its pieces are so small that to describe them costs
// more than to copy them.
//
// Messages of copies are short, and a rank has as many of them under way as its limit allows, in
// each direction: who sends waits with the rest, and who receives takes what has been offered, in
// whatever order that comes. So nobody waits for room that only a third one can make.
//
// One call's, on the program's thread; calls MPI.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "core/extents.h"
#include "mpiio/mpi_api.h"

namespace forebay::mpiio {

// Bytes that lie in pieces, in the order in which they are sent.
struct Scattered {
  using Piece = std::function<void(std::byte*, uint64_t)>;
  uint64_t bytes = 0;
  // Not 0: they are copied, in so many parts of Exchange::part_bytes(); the last may be shorter.
  size_t parts = 0;
  // Of a part; of those that are not copied, of all. Until the exchange of them has ended.
  std::function<void(size_t, const Piece&)> for_each{};
};

class Exchange {
 public:
  // What a far rank is told of a window.
  struct Header {
    uint64_t from = 0, to = 0;  // all of the realm between them
    uint64_t runs = 0;          // not 0: only so many runs, which follow
    uint64_t last = 0;
  };
  struct News {
    Header header;
    std::vector<Extent> runs;
  };
  // Of many ranks, and of each the ones that concern it.
  struct SharedRuns {
    std::shared_ptr<const std::vector<Extent>> all;
    std::span<const Extent> part{};
  };

  // Measured over TCP with Open MPI: pieces of 128 bytes cost less if they are copied, those of
  // 4 KiB if they are not, and from 256 to 1024 it is about the same.
  static constexpr uint64_t kStraightPiece = 512;

  // `half` of an aggregator's buffer. Copies take a quarter of the buffer in both directions
  // together, which is what windows leave of (1 + Threshold) x buffer; but as little as possible
  // (an eighth) if windows may be `extended` to that.
  Exchange(MPI_Comm comm, int ranks, bool by_alltoallw, uint64_t half, bool extended);
  uint64_t part_bytes() const { return part_bytes_; }

  // `step`: of who receives it.
  void tell(int rank, uint32_t step, Header header, SharedRuns runs);
  News learn(int aggregator);

  // Data of a step. Between two ranks it arrives in the order in which it is sent, and all of it is
  // copied or none. It may be sent earlier than in the step in which it is received, and must stay:
  // what is copied until complete(), the rest until end_sends().
  void send(int to, uint32_t step, Scattered data);
  void receive(int from, uint32_t step, Scattered data);  // may be called before the step
  // Has received what is for the step, and copied what is to be sent in it; by MPI_Alltoallw also
  // sent it: then every rank calls it in every step.
  void complete(uint32_t step);
  // What was sent for earlier steps has arrived, or does without anything that we have yet to do.
  void end_sends(uint32_t before);
  // Does what can be done without waiting. False: that was nothing.
  bool progress();

 private:
  struct Pieces {
    std::vector<int> lengths;
    std::vector<MPI_Aint> addresses;
    void add(std::byte* at, uint64_t length);
    MPI_Datatype type() const;  // to be freed; of absolute addresses
  };
  struct Message {
    int peer = 0;
    uint32_t step = 0;
    Header header;
    SharedRuns runs;
    Pieces pieces;
    std::vector<std::byte> packed;
    std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  };
  struct Received {
    Message message;
    Scattered data;
  };
  struct InParts {
    int peer;
    uint32_t step;
    Scattered data;
    size_t next = 0;           // part that is not under way
    size_t left = data.parts;  // that have not come
  };
  struct Part {  // under way
    uint32_t step = 0;
    uint64_t bytes = 0;
    InParts* of = nullptr;  // of one that is received, and which
    size_t number = 0;
    std::vector<std::byte> copy;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  struct Copies {  // of a direction
    std::vector<std::vector<std::byte>> free;
    size_t made = 0;
  };
  bool take(Copies& copies, std::vector<std::byte>& copy) const;
  uint64_t bytes_of(const Scattered& data, size_t part) const;
  bool send_parts();
  bool take_offered(InParts& from);
  bool receive_parts();
  static Message message(int peer, uint32_t step, const Scattered& data);
  void all_to_all(uint32_t step);

  const MPI_Comm comm_;
  const size_t ranks_;
  const bool by_alltoallw_;
  const uint64_t part_bytes_;
  const size_t most_copies_;      // of a direction; one at least
  std::list<Message> sent_;       // MPI reads them where they are
  std::vector<Message> to_send_;  // by MPI_Alltoallw
  std::deque<InParts> to_copy_;   // by rising step: what is to be sent yet
  std::list<Part> sent_parts_;
  std::list<InParts> expected_;  // of each rank, by rising step
  std::list<Part> offered_;
  Copies out_, in_;
  std::deque<Received> received_;  // by rising step
};

}  // namespace forebay::mpiio
