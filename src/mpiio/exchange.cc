#include "mpiio/exchange.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

namespace forebay::mpiio {
namespace {

enum Tag { kHeader = 1, kData = 2, kRuns = 3 };

// Of a copy. More costs memory, and fewer bytes cost more messages than they are worth.
constexpr uint64_t kMostOfPart = 256_KiB, kPartsOfHalf = 8;

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

// To or from a copy of a part; where the next one is.
std::byte* pack(const Scattered& data, size_t part, std::byte* copy) {
  data.for_each(part, [&](const std::byte* at, uint64_t length) {
    std::memcpy(copy, at, length);
    copy += length;
  });
  return copy;
}
const std::byte* unpack(const Scattered& data, size_t part, const std::byte* copy) {
  data.for_each(part, [&](std::byte* at, uint64_t length) {
    std::memcpy(at, copy, length);
    copy += length;
  });
  return copy;
}

bool ended(MPI_Request& request) {
  int done = 0;
  PMPI_Test(&request, &done, MPI_STATUS_IGNORE);
  return done != 0;
}

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

void Exchange::tell(int rank, uint32_t step, Header header, SharedRuns shared) {
  Message& message = sent_.emplace_back();
  message.step = step;
  message.header = header;
  message.runs = std::move(shared);
  const std::span<const Extent> runs = message.runs.part;
  message.header.runs = runs.size();
  PMPI_Isend(&message.header, sizeof(Header), MPI_BYTE, rank, kHeader, comm_, &message.requests[0]);
  if (runs.empty()) return;
  PMPI_Isend(runs.data(), static_cast<int>(runs.size_bytes()), MPI_BYTE, rank, kRuns, comm_,
             &message.requests[1]);
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

Exchange::Exchange(MPI_Comm comm, int ranks, bool by_alltoallw, uint64_t half, bool extended)
    : comm_(comm),
      ranks_(static_cast<size_t>(ranks)),
      by_alltoallw_(by_alltoallw),
      part_bytes_(std::clamp<uint64_t>(half / kPartsOfHalf, 1, kMostOfPart)),
      most_copies_(extended ? 1 : half / 4 / part_bytes_) {}

// Without memory for more, those that there are must do.
bool Exchange::take(Copies& copies, std::vector<std::byte>& copy) const {
  if (copies.free.empty()) {
    if (copies.made >= most_copies_) return false;
    try {
      copies.free.reserve(copies.made + 1);
      copies.free.emplace_back(part_bytes_);
    } catch (const std::bad_alloc&) {
      if (copies.made == 0) throw;
      return false;
    }
    ++copies.made;
  }
  copy = std::move(copies.free.back());
  copies.free.pop_back();
  return true;
}

uint64_t Exchange::bytes_of(const Scattered& data, size_t part) const {
  return std::min(part_bytes_, data.bytes - part * part_bytes_);
}

// Where its bytes lie, or room for a copy of them.
Exchange::Message Exchange::message(int peer, uint32_t step, const Scattered& data) {
  Message message;
  message.peer = peer;
  message.step = step;
  if (data.parts == 0) {
    data.for_each(0, [&](std::byte* at, uint64_t length) { message.pieces.add(at, length); });
  } else {
    message.packed.resize(data.bytes);
    message.pieces.add(message.packed.data(), data.bytes);
  }
  return message;
}

void Exchange::send(int to, uint32_t step, Scattered data) {
  if (data.bytes == 0) return;
  if (by_alltoallw_) {
    Message& made = to_send_.emplace_back(message(to, step, data));
    std::byte* next = made.packed.data();
    for (size_t part = 0; part < data.parts; ++part) next = pack(data, part, next);
    return;
  }
  if (data.parts > 0) {
    to_copy_.push_back({to, step, std::move(data)});
    send_parts();
    return;
  }
  Message& message = sent_.emplace_back(Exchange::message(to, step, data));
  MPI_Datatype type = message.pieces.type();
  PMPI_Isend(MPI_BOTTOM, 1, type, to, kData, comm_, &message.requests[0]);
  PMPI_Type_free(&type);
}

void Exchange::receive(int from, uint32_t step, Scattered data) {
  if (data.bytes == 0) return;
  if (data.parts > 0 && !by_alltoallw_) {
    expected_.push_back({from, step, std::move(data)});
    return;
  }
  received_.push_back({message(from, step, data), std::move(data)});
  if (by_alltoallw_) return;
  Message& message = received_.back().message;
  MPI_Datatype type = message.pieces.type();
  PMPI_Irecv(MPI_BOTTOM, 1, type, from, kData, comm_, &message.requests[0]);
  PMPI_Type_free(&type);
}

bool Exchange::send_parts() {
  bool any = false;
  for (auto it = sent_parts_.begin(); it != sent_parts_.end();) {
    if (!ended(it->request)) {
      ++it;
      continue;
    }
    out_.free.push_back(std::move(it->copy));
    it = sent_parts_.erase(it);
    any = true;
  }
  for (std::vector<std::byte> copy; !to_copy_.empty() && take(out_, copy); any = true) {
    InParts& first = to_copy_.front();
    Part& part = sent_parts_.emplace_back();
    part.step = first.step;
    part.copy = std::move(copy);
    pack(first.data, first.next, part.copy.data());
    PMPI_Isend(part.copy.data(), static_cast<int>(bytes_of(first.data, first.next)), MPI_BYTE,
               first.peer, kData, comm_, &part.request);
    if (++first.next == first.data.parts) to_copy_.pop_front();
  }
  return any;
}

// The next part, if its sender has begun with it and there is room.
bool Exchange::take_offered(InParts& from) {
  int found = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  std::vector<std::byte> copy;
  if (!take(in_, copy)) return false;
  PMPI_Improbe(from.peer, kData, comm_, &found, &message, MPI_STATUS_IGNORE);
  if (!found) {
    in_.free.push_back(std::move(copy));
    return false;
  }
  Part& part = offered_.emplace_back();
  part.step = from.step;
  part.of = &from;
  part.number = from.next++;
  part.bytes = bytes_of(from.data, part.number);
  part.copy = std::move(copy);
  PMPI_Imrecv(part.copy.data(), static_cast<int>(part.bytes), MPI_BYTE, &message, &part.request);
  return true;
}

bool Exchange::receive_parts() {
  bool any = false;
  for (auto it = offered_.begin(); it != offered_.end();) {
    if (!ended(it->request)) {
      ++it;
      continue;
    }
    unpack(it->of->data, it->number, it->copy.data());
    if (--it->of->left == 0)
      expected_.remove_if([&](const InParts& one) { return &one == it->of; });
    in_.free.push_back(std::move(it->copy));
    it = offered_.erase(it);
    any = true;
  }
  if (expected_.empty()) return any;
  std::vector<char> looked(ranks_, 0);  // messages of a rank come in order
  for (InParts& one : expected_) {
    if (one.next == one.data.parts || std::exchange(looked[static_cast<size_t>(one.peer)], 1))
      continue;
    while (one.next < one.data.parts && take_offered(one)) any = true;
  }
  return any;
}

bool Exchange::progress() {
  const bool sent = send_parts();
  return receive_parts() || sent;
}

void Exchange::complete(uint32_t step) {
  if (by_alltoallw_) all_to_all(step);
  const auto now = [&](const InParts& one) { return one.step <= step; };
  while (std::any_of(to_copy_.begin(), to_copy_.end(), now) ||
         std::any_of(expected_.begin(), expected_.end(), now))
    if (!progress()) std::this_thread::yield();
  for (; !received_.empty() && received_.front().message.step <= step; received_.pop_front()) {
    Received& one = received_.front();
    PMPI_Wait(&one.message.requests[0], MPI_STATUS_IGNORE);
    const std::byte* next = one.message.packed.data();
    for (size_t part = 0; part < one.data.parts; ++part) next = unpack(one.data, part, next);
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

void Exchange::end_sends(uint32_t before) {
  const auto earlier = [&](const auto& one) { return one.step < before; };
  while (std::any_of(to_copy_.begin(), to_copy_.end(), earlier) ||
         std::any_of(sent_parts_.begin(), sent_parts_.end(), earlier))
    if (!progress()) std::this_thread::yield();
  for (auto it = sent_.begin(); it != sent_.end();) {
    if (!earlier(*it)) {
      ++it;
      continue;
    }
    PMPI_Waitall(static_cast<int>(it->requests.size()), it->requests.data(), MPI_STATUSES_IGNORE);
    it = sent_.erase(it);
  }
}

}  // namespace forebay::mpiio
