#include "mpiio/exchange.h"

#include <cstring>
#include <iterator>

namespace forebay::mpiio {
namespace {

enum Tag { kHeader = 1, kData = 2, kRuns = 3 };

// Measured over TCP with Open MPI: pieces of 128 bytes cost less if they are copied, those of 4 KiB
// if they are not, and from 256 to 1024 it is about the same.
constexpr uint64_t kStraightPiece = 512;

// One side of an MPI_Alltoallw: at most one item of a type of its own for each rank.
struct OwnedTypes {
  explicit OwnedTypes(size_t ranks) : counts(ranks, 0), places(ranks, 0), types(ranks, MPI_BYTE) {}
  ~OwnedTypes() {
    for (size_t i = 0; i < types.size(); ++i)
      if (counts[i] > 0) PMPI_Type_free(&types[i]);
  }
  std::vector<int> counts, places;
  std::vector<MPI_Datatype> types;
};

}  // namespace

void Exchange::Pieces::add(std::byte* at, uint64_t length) {
  const auto address = reinterpret_cast<MPI_Aint>(at);
  if (!lengths.empty() && addresses.back() + lengths.back() == address) {
    lengths.back() += static_cast<int>(length);
    return;
  }
  lengths.push_back(static_cast<int>(length));
  addresses.push_back(address);
}

MPI_Datatype Exchange::Pieces::type() const {
  MPI_Datatype type;
  PMPI_Type_create_hindexed(static_cast<int>(lengths.size()), lengths.data(), addresses.data(),
                            MPI_BYTE, &type);
  PMPI_Type_commit(&type);
  return type;
}

void Exchange::tell(int rank, uint32_t step, News news) {
  Message& message = sent_.emplace_back();
  message.step = step;
  message.news = std::move(news);
  const std::vector<Extent>& runs = message.news.runs;
  message.news.header.runs = runs.size();
  PMPI_Isend(&message.news.header, sizeof(Header), MPI_BYTE, rank, kHeader, comm_,
             &message.requests[0]);
  if (runs.empty()) return;
  PMPI_Isend(runs.data(), static_cast<int>(runs.size() * sizeof(Extent)), MPI_BYTE, rank, kRuns,
             comm_, &message.requests[1]);
}

Exchange::News Exchange::learn(int aggregator) {
  News news;
  PMPI_Recv(&news.header, sizeof(Header), MPI_BYTE, aggregator, kHeader, comm_, MPI_STATUS_IGNORE);
  news.runs.resize(news.header.runs);
  if (!news.runs.empty())
    PMPI_Recv(news.runs.data(), static_cast<int>(news.runs.size() * sizeof(Extent)), MPI_BYTE,
              aggregator, kRuns, comm_, MPI_STATUS_IGNORE);
  return news;
}

uint64_t Exchange::copied(const Scattered& data) {
  return data.mean_piece < kStraightPiece ? data.bytes : 0;
}

// Where its bytes lie, or room for a copy of them.
Exchange::Message Exchange::message(int peer, uint32_t step, const Scattered& data) {
  Message message;
  message.peer = peer;
  message.step = step;
  if (copied(data) == 0) {
    data.for_each([&](std::byte* at, uint64_t length) { message.pieces.add(at, length); });
  } else {
    message.packed.resize(data.bytes);
    message.pieces.add(message.packed.data(), data.bytes);
  }
  return message;
}

void Exchange::send(int to, uint32_t step, const Scattered& data) {
  if (data.bytes == 0) return;
  Message made = message(to, step, data);
  if (!made.packed.empty()) {
    std::byte* next = made.packed.data();
    data.for_each([&](const std::byte* at, uint64_t length) {
      std::memcpy(next, at, length);
      next += length;
    });
  }
  if (by_alltoallw_) return to_send_.push_back(std::move(made));
  Message& message = sent_.emplace_back(std::move(made));
  copied_ += message.packed.size();
  MPI_Datatype type = message.pieces.type();
  PMPI_Isend(MPI_BOTTOM, 1, type, to, kData, comm_, &message.requests[0]);
  PMPI_Type_free(&type);
}

void Exchange::receive(int from, uint32_t step, Scattered data) {
  if (data.bytes == 0) return;
  received_.push_back({message(from, step, data), std::move(data)});
  if (by_alltoallw_) return;
  Message& message = received_.back().message;
  MPI_Datatype type = message.pieces.type();
  PMPI_Irecv(MPI_BOTTOM, 1, type, from, kData, comm_, &message.requests[0]);
  PMPI_Type_free(&type);
}

void Exchange::complete(uint32_t step) {
  if (by_alltoallw_) all_to_all(step);
  for (; !received_.empty() && received_.front().message.step <= step; received_.pop_front()) {
    Received& one = received_.front();
    PMPI_Wait(&one.message.requests[0], MPI_STATUS_IGNORE);
    if (one.message.packed.empty()) continue;
    const std::byte* next = one.message.packed.data();
    one.data.for_each([&](std::byte* at, uint64_t length) {
      std::memcpy(at, next, length);
      next += length;
    });
  }
  to_send_.clear();
}

void Exchange::all_to_all(uint32_t step) {
  std::vector<Pieces> to(ranks_), from(ranks_);
  const auto collect = [](Message& message, std::vector<Pieces>& by_rank) {
    Pieces& all = by_rank[static_cast<size_t>(message.peer)];
    if (all.lengths.empty()) return void(all = std::move(message.pieces));
    all.lengths.insert(all.lengths.end(), message.pieces.lengths.begin(),
                       message.pieces.lengths.end());
    all.addresses.insert(all.addresses.end(), message.pieces.addresses.begin(),
                         message.pieces.addresses.end());
  };
  for (Message& message : to_send_) collect(message, to);
  for (Received& one : received_)
    if (one.message.step <= step) collect(one.message, from);
  OwnedTypes out(ranks_), in(ranks_);
  for (size_t rank = 0; rank < ranks_; ++rank) {
    if (!to[rank].lengths.empty()) out.types[rank] = to[rank].type(), out.counts[rank] = 1;
    if (!from[rank].lengths.empty()) in.types[rank] = from[rank].type(), in.counts[rank] = 1;
  }
  PMPI_Alltoallw(MPI_BOTTOM, out.counts.data(), out.places.data(), out.types.data(), MPI_BOTTOM,
                 in.counts.data(), in.places.data(), in.types.data(), comm_);
}

std::list<Exchange::Message>::iterator Exchange::end_send(std::list<Message>::iterator message) {
  PMPI_Waitall(static_cast<int>(message->requests.size()), message->requests.data(),
               MPI_STATUSES_IGNORE);
  copied_ -= message->packed.size();
  return sent_.erase(message);
}

void Exchange::end_sends(uint32_t before) {
  for (auto it = sent_.begin(); it != sent_.end();)
    it = it->step < before ? end_send(it) : std::next(it);
}

void Exchange::make_room(uint64_t bytes, uint64_t most) {
  for (auto it = sent_.begin(); it != sent_.end() && copied_ + bytes > most;)
    it = it->packed.empty() ? std::next(it) : end_send(it);
}

}  // namespace forebay::mpiio
