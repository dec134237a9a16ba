#include "mpiio/two_phase.h"

#include <algorithm>
#include <cstring>

namespace forebay::mpiio {
namespace {

enum Tag { kHeader = 1, kData = 2, kRuns = 3 };

// Between a rank's memory, of whatever shape, and a buffer.
void copy(plan::TiledCursor& memory, Length position, std::byte* buffer, uint64_t length,
          Direction direction) {
  if (memory.position() != position) memory.seek(position);
  while (length > 0) {
    const Extent piece = memory.take(Length(length));
    auto* at = reinterpret_cast<std::byte*>(piece.offset.value);
    const uint64_t n = piece.length.value;
    std::memcpy(direction == Direction::write ? buffer : at,
                direction == Direction::write ? at : buffer, n);
    buffer += n;
    length -= n;
  }
}

}  // namespace

TwoPhase::TwoPhase(Collective& kept, Transfer& transfer, const plan::Realms& realms)
    : kept_(kept),
      file_(kept.file_),
      transfer_(transfer),
      realms_(realms),
      part_(transfer.part()),
      memory_(transfer.memory(), Length(), part_.length),
      open_(kept.aggregators_.size(), 1),
      open_count_(open_.size()) {
  if (!aggregates()) return;
  near_ranks_ =
      static_cast<uint32_t>(std::count(kept_.rank_near_.begin(), kept_.rank_near_.end(), 1));
}

// With targets known all ranks take part: every aggregator has to know what the others have.
void TwoPhase::plan_windows() {
  const plan::Striping striping = kept_.striping();
  const size_t aggregators = kept_.aggregators_.size();
  const auto mine = static_cast<size_t>(std::max(kept_.index_, 0));
  std::vector<uint64_t> bytes(striping.known() ? aggregators * striping.targets : 0, 0);
  if (aggregates() && striping.known()) {
    const auto own_bytes = plan::bytes_by_target(kept_.parts_, realms_[mine], striping);
    std::copy(own_bytes.begin(), own_bytes.end(),
              bytes.begin() + static_cast<ptrdiff_t>(mine * striping.targets));
  }
  if (striping.known())
    PMPI_Allreduce(MPI_IN_PLACE, bytes.data(), static_cast<int>(bytes.size()), MPI_UINT64_T,
                   MPI_SUM, file_.comm);
  if (!aggregates()) return;
  const plan::WindowLimits limits{kept_.made_for_.buffer_half(), own().shape().runs};
  windows_ = striping.known() ? plan::windows_by_target(kept_.parts_, realms_[mine], striping,
                                                        limits, mine, std::move(bytes))
                              : plan::windows_by_offset(kept_.parts_, realms_[mine], limits);
}

void TwoPhase::run() {
  const bool several_nodes =
      std::any_of(file_.nodes.begin(), file_.nodes.end(), [](uint32_t node) { return node != 0; });
  plan_windows();
  if (aggregates()) open_next();
  for (; open_count_ > 0; ++step_) {
    step();
    end_far_sends(aggregates() ? step_ : step_ + 1);
    // On one node the windows themselves keep aggregators in step.
    if (several_nodes && kept_.striping().known()) PMPI_Barrier(file_.comm);
  }
  if (aggregates() && reading())  // the buffers are free when the call is over
    own().wait_for_all(own().opened() - 1, [this] { file_.progress(); });
  end_far_sends(UINT32_MAX);
  transfer_.set_moved(reading() ? moved_ : part_.length.value);
}

void TwoPhase::step() {
  if (windows_ && !windows_->done()) open_next();
  const size_t count = open_.size();
  const size_t first =
      aggregates() ? static_cast<size_t>(kept_.index_) : static_cast<size_t>(file_.rank) % count;
  for (const bool near : {true, false}) {
    for (size_t i = 0; i < count; ++i) {
      const size_t a = (first + i) % count;
      if (!open_[a] || (kept_.near_[a] != 0) != near) continue;
      near ? visit_near(a) : visit_far(a);
    }
  }
  if (opened_.empty()) return;
  const Window window = std::move(opened_.front());
  opened_.pop_front();
  if (reading()) return;
  const uint32_t number = own().opened() - 1 - static_cast<uint32_t>(opened_.size());
  std::byte* buffer = own().buffer(number);
  receive_from_far(window, buffer);
  own().wait_for_all(number, [this] { file_.progress(); });
  store(window, buffer);
}

void TwoPhase::open_next() {
  Window window;
  window.runs = windows_->next();
  for (const Extent& run : window.runs) window.bytes += run.length.value;
  const uint32_t number = own().opened();
  if (number >= 2) own().wait_for_all(number - 2, [this] { file_.progress(); });
  if (windows_opened_ > 0) end_far_sends(windows_opened_ - 1);  // those out of this half
  WindowAbout about{
      .bytes = window.bytes, .end = window.bytes, .runs = 0, .last = windows_->done()};
  if (reading()) about.end = fill(window, own().buffer(number));
  own().open(window.runs, about, near_ranks_);
  tell_far_ranks(window, about.end, about.last, own().buffer(number));
  ++windows_opened_;
  opened_.push_back(std::move(window));
}

Result<uint64_t> TwoPhase::call(Op op, const Window& window, const std::byte* buffer) {
  auto runs = Extents::make(window.runs);
  if (!runs) return runs.error();
  const Extents memory(Extent{Offset(reinterpret_cast<uintptr_t>(buffer)), Length(window.bytes)});
  return file_.move(op, std::move(*runs), memory, Allocate::yes);
}

// How many bytes there were.
uint64_t TwoPhase::fill(const Window& window, std::byte* buffer) {
  if (window.bytes == 0 || failed_) return 0;
  auto moved = call(Op::read, window, buffer);
  if (moved) return *moved;
  fail(moved.error());
  return 0;
}

void TwoPhase::store(const Window& window, const std::byte* buffer) {
  if (window.bytes == 0 || failed_) return;
  if (auto moved = call(Op::write, window, buffer); !moved) fail(moved.error());
}

void TwoPhase::fail(const Error& error) {
  failed_ = true;
  if (!transfer_.fault()) transfer_.fail(fault_of(error));
}

void TwoPhase::visit_near(size_t aggregator) {
  WindowArea& area = kept_.areas_[aggregator];
  const uint32_t number = kept_.next_window_[aggregator]++;
  const auto seen = area.enter(number, [this] { file_.progress(); });
  const Direction direction = transfer_.direction();
  plan::place_in_window(seen.runs, part_, [&](uint64_t at, Length stream, uint64_t length) {
    const uint64_t there = std::min(length, seen.about.end - std::min(seen.about.end, at));
    copy(memory_, stream - part_.from, seen.buffer + at, there, direction);
    moved_ += there;
  });
  if (seen.about.last) open_[aggregator] = 0, --open_count_;
  area.leave(number);
}

// The window as a far rank knows it: what it has itself of it lies in these.
std::vector<Extent> TwoPhase::learn_runs(size_t aggregator) {
  const int other = kept_.aggregators_[aggregator];
  Header header;
  PMPI_Recv(&header, sizeof header, MPI_BYTE, other, kHeader, file_.comm, MPI_STATUS_IGNORE);
  if (header.last) open_[aggregator] = 0, --open_count_;
  std::vector<Extent> runs(header.runs);
  if (header.runs > 0) {
    PMPI_Recv(runs.data(), static_cast<int>(runs.size() * sizeof(Extent)), MPI_BYTE, other, kRuns,
              file_.comm, MPI_STATUS_IGNORE);
    return runs;
  }
  const plan::Ranges ranges = plan::ranges_of(realms_[aggregator]);
  for (Offset at(header.from); at < Offset(header.to);) {
    const auto range = ranges(at);
    if (!range || range->offset >= Offset(header.to)) break;
    const Offset end = std::min(range->end(), Offset(header.to));
    runs.push_back({range->offset, end - range->offset});
    at = end;
  }
  return runs;
}

void TwoPhase::visit_far(size_t aggregator) {
  const int other = kept_.aggregators_[aggregator];
  const std::vector<Extent> runs = learn_runs(aggregator);
  std::vector<std::pair<Length, uint64_t>> pieces;
  uint64_t bytes = 0;
  plan::place_in_window(runs, part_, [&](uint64_t, Length stream, uint64_t length) {
    pieces.emplace_back(stream - part_.from, length);
    bytes += length;
  });
  if (bytes == 0) return;
  Sent message;
  message.step = step_;
  message.data.resize(bytes);
  uint64_t got = bytes;
  if (reading()) {
    MPI_Status status;
    int count = 0;
    PMPI_Recv(message.data.data(), static_cast<int>(bytes), MPI_BYTE, other, kData, file_.comm,
              &status);
    PMPI_Get_count(&status, MPI_BYTE, &count);
    got = static_cast<uint64_t>(count);
  }
  uint64_t at = 0;
  for (const auto& [position, length] : pieces) {
    const uint64_t there = std::min(length, got - at);
    copy(memory_, position, message.data.data() + at, there, transfer_.direction());
    at += there;
  }
  moved_ += got;
  if (reading()) return;
  PMPI_Isend(message.data.data(), static_cast<int>(bytes), MPI_BYTE, other, kData, file_.comm,
             &message.requests[0]);
  sent_.push_back(std::move(message));
}

// A rank's bytes of a window, where they lie in its buffer, as far as there are any; without a copy
// of them.
TwoPhase::InBuffer TwoPhase::in_buffer(size_t rank, const Window& window, uint64_t end) const {
  InBuffer in;
  std::vector<int> lengths;
  std::vector<MPI_Aint> places;
  plan::place_in_window(window.runs, kept_.parts_[rank], [&](uint64_t at, Length, uint64_t length) {
    in.named += length;
    const uint64_t there = std::min(length, end - std::min(end, at));
    if (there == 0) return;
    lengths.push_back(static_cast<int>(there));
    places.push_back(static_cast<MPI_Aint>(at));
  });
  if (in.named == 0) return in;
  PMPI_Type_create_hindexed(static_cast<int>(places.size()), lengths.data(), places.data(),
                            MPI_BYTE, &in.type);
  PMPI_Type_commit(&in.type);
  return in;
}

// Of a read also what it has of theirs, which stays in the buffer until it is sent.
void TwoPhase::tell_far_ranks(const Window& window, uint64_t end, bool last, std::byte* buffer) {
  for (size_t rank = 0; rank < kept_.rank_near_.size(); ++rank) {
    if (kept_.rank_near_[rank]) continue;
    Sent& message = sent_.emplace_back();
    message.step = windows_opened_;
    if (!window.runs.empty()) {
      message.header.from = window.runs.front().offset.value;
      message.header.to = window.runs.back().end().value;
    }
    message.header.last = last;
    if (kept_.striping().known()) {
      message.runs = window.runs;
      message.header.runs = window.runs.size();
    }
    const int to = static_cast<int>(rank);
    PMPI_Isend(&message.header, sizeof message.header, MPI_BYTE, to, kHeader, file_.comm,
               &message.requests[0]);
    if (!message.runs.empty())
      PMPI_Isend(message.runs.data(), static_cast<int>(message.runs.size() * sizeof(Extent)),
                 MPI_BYTE, to, kRuns, file_.comm, &message.requests[2]);
    if (!reading()) continue;
    InBuffer in = in_buffer(rank, window, end);
    if (in.named == 0) continue;
    PMPI_Isend(buffer, 1, in.type, to, kData, file_.comm, &message.requests[1]);
    PMPI_Type_free(&in.type);
  }
}

void TwoPhase::receive_from_far(const Window& window, std::byte* buffer) {
  std::vector<MPI_Request> requests;
  for (size_t rank = 0; rank < kept_.rank_near_.size(); ++rank) {
    if (kept_.rank_near_[rank]) continue;
    InBuffer in = in_buffer(rank, window, UINT64_MAX);
    if (in.named == 0) continue;
    PMPI_Irecv(buffer, 1, in.type, static_cast<int>(rank), kData, file_.comm,
               &requests.emplace_back());
    PMPI_Type_free(&in.type);
  }
  PMPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
}

// What earlier steps sent has arrived, or does without anything that we have yet to do.
void TwoPhase::end_far_sends(uint32_t before) {
  for (; !sent_.empty() && sent_.front().step < before; sent_.pop_front())
    PMPI_Waitall(static_cast<int>(sent_.front().requests.size()), sent_.front().requests.data(),
                 MPI_STATUSES_IGNORE);
}

}  // namespace forebay::mpiio
