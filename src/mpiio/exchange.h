// Exchange: what ranks and aggregators of different nodes send each other in a collective call:
// what a window holds, and the data of it. Data goes by nonblocking messages between each rank and
// aggregator, or by one MPI_Alltoallw of all ranks in each step; both straight out of and into the
// memory where it lies, with a datatype, unless its pieces are so small that to describe them costs
// more than to copy them.
//
// One call's, on the program's thread; calls MPI.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <list>
#include <vector>

#include "core/extents.h"
#include "mpiio/mpi_api.h"

namespace forebay::mpiio {

// Bytes that lie in pieces, in the order in which they are sent.
struct Scattered {
  using Piece = std::function<void(std::byte*, uint64_t)>;
  uint64_t bytes = 0;
  uint64_t mean_piece = 0;                       // about
  std::function<void(const Piece&)> for_each{};  // until the exchange of them has ended
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

  Exchange(MPI_Comm comm, int ranks, bool by_alltoallw)
      : comm_(comm), ranks_(static_cast<size_t>(ranks)), by_alltoallw_(by_alltoallw) {}
  bool by_alltoallw() const { return by_alltoallw_; }

  // `step`: of who receives it.
  void tell(int rank, uint32_t step, News news);
  News learn(int aggregator);

  // Data of a step. Between two ranks it arrives in the order in which it is sent. What is sent by
  // messages must stay until end_sends(); and it may be sent earlier than in the step in which it
  // is received.
  void send(int to, uint32_t step, const Scattered& data);
  void receive(int from, uint32_t step, Scattered data);  // may be called before the step
  // Has received what is for the step; by MPI_Alltoallw also sent: then every rank calls it in
  // every step.
  void complete(uint32_t step);
  // What was sent for earlier steps has arrived, or does without anything that we have yet to do.
  void end_sends(uint32_t before);

  // How much of it is copied to be sent by a message; and the end of sends, until with so much more
  // there is no more of that than `most`. Their receivers must not wait for us before they receive.
  static uint64_t copied(const Scattered& data);
  void make_room(uint64_t bytes, uint64_t most);

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
    News news;
    Pieces pieces;
    std::vector<std::byte> packed;
    std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  };
  struct Received {
    Message message;
    Scattered data;
  };
  static Message message(int peer, uint32_t step, const Scattered& data);
  std::list<Message>::iterator end_send(std::list<Message>::iterator message);
  void all_to_all(uint32_t step);

  const MPI_Comm comm_;
  const size_t ranks_;
  const bool by_alltoallw_;
  std::list<Message> sent_;        // MPI reads them where they are
  uint64_t copied_ = 0;            // bytes in sent_
  std::vector<Message> to_send_;   // by MPI_Alltoallw
  std::deque<Received> received_;  // by rising step
};

}  // namespace forebay::mpiio
