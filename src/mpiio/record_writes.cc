#include "mpiio/record_writes.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <new>
#include <span>

namespace forebay::mpiio {
namespace {

// So many records go by themselves after one that was taken back.
constexpr unsigned kStuck = 1000;

uint64_t mark_of(int rank) {
  return uint64_t{1} << rank;
}

// Also if nobody has asked what became of it.
bool has_ended(int32_t process) {
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, process, 0));
  if (fd < 0) return ::kill(process, 0) != 0 && errno == ESRCH;
  pollfd ended{.fd = fd, .events = POLLIN, .revents = 0};
  const bool has = ::poll(&ended, 1, 0) == 1;
  ::close(fd);
  return has;
}

bool write_run(std::span<const NodeRecords::Record> run, const NodeRecords::Write& by) {
  try {
    return NodeRecords::write_run(run, by) == 0;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace

uint64_t RecordWrites::space(int ranks) {
  return sizeof(Head) + static_cast<uint64_t>(ranks) * sizeof(Slot) + NodeRecords::space(ranks);
}

RecordWrites::RecordWrites(std::byte* space, int rank, int ranks)
    : head_(reinterpret_cast<Head*>(space)),
      slots_(reinterpret_cast<Slot*>(space + sizeof(Head))),
      records_(reinterpret_cast<std::byte*>(slots_ + ranks)),
      rank_(rank),
      process_(::getpid()) {}

bool RecordWrites::write(Offset at, const plan::TiledMap& memory, const NodeRecords::Write& by) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  if (skipped_ > 0) return --skipped_, false;
  offer(at, memory);
  wait_for_company();
  wait_for_verdict(by);
  if (slot(rank_).verdict.load() != Verdict::written) return false;
  note_company(slot(rank_).others > 0);
  return true;
}

void RecordWrites::offer(Offset at, const plan::TiledMap& memory) {
  Slot& mine = slot(rank_);
  records_.fill(static_cast<size_t>(rank_), memory);
  mine.at = at.value;
  mine.length = memory.total().value;
  mine.verdict.store(Verdict::none);
  head_->offered.fetch_or(mark_of(rank_));
}

// More turns of others would cost more than another record in the call saves.
void RecordWrites::wait_for_company() const {
  constexpr int kMost = 2;
  if (in_vain_ > 0) return;
  for (int i = 0; i < kMost && head_->offered.load() == mark_of(rank_); ++i) ::sched_yield();
}

void RecordWrites::wait_for_verdict(const NodeRecords::Write& by) {
  bool back = false;
  unsigned sleeps = 0;
  const auto over = [&] { return back || slot(rank_).verdict.load() != Verdict::none; };
  while (!over()) {
    if (take_turn(by)) continue;
    head_->events.wait([&](uint32_t) { return over() || head_->writer.load() == 0; },
                       [&] { back = takes_back(++sleeps); });
  }
  if (back) skipped_ = kStuck;
}

// Our record is in no other's hands any more.
bool RecordWrites::takes_back(unsigned sleeps) {
  constexpr unsigned kPatience = 50;  // milliseconds
  if (sleeps < kPatience) return false;
  if ((head_->offered.fetch_and(~mark_of(rank_)) & mark_of(rank_)) != 0) return true;
  const int32_t writer = head_->writer.load();
  return writer != 0 && has_ended(writer);
}

// Whoever was alone so many times will be for a while. (Not after a few: where the kernel lets each
// rank have its turn of some milliseconds, it is alone for some records of each turn.)
void RecordWrites::note_company(bool any) {
  constexpr unsigned kPatience = 20, kMost = 6;
  if (any) return void(in_vain_ = 0);
  in_vain_ = std::min(in_vain_ + 1, kPatience + kMost);
  if (in_vain_ > kPatience) skipped_ = (1u << (in_vain_ - kPatience)) - 2;
}

bool RecordWrites::take_turn(const NodeRecords::Write& by) {
  int32_t nobody = 0;
  if (head_->writer.load() != 0 || !head_->writer.compare_exchange_strong(nobody, process_))
    return false;
  write_for_all(by);
  head_->writer.store(0);
  head_->events.add_and_wake();
  return true;
}

void RecordWrites::write_for_all(const NodeRecords::Write& by) {
  std::array<NodeRecords::Record, kMostRanks> records;
  size_t count = 0;
  for (uint64_t taken = head_->offered.exchange(0); taken != 0; taken &= taken - 1) {
    const int rank = std::countr_zero(taken);
    const Slot& one = slot(rank);
    records[count++] = {Offset(one.at), Length(one.length),
                        records_.buffer(static_cast<size_t>(rank))};
  }
  std::sort(records.begin(), records.begin() + count,
            [](const auto& a, const auto& b) { return a.at < b.at; });
  for (std::span<const NodeRecords::Record> left(records.data(), count); !left.empty();) {
    const auto run = left.first(NodeRecords::length_of_run(left));
    const Verdict verdict = write_run(run, by) ? Verdict::written : Verdict::alone;
    for (const auto& record : run) {
      Slot& one = slot(records_.rank_of(record));
      one.others = static_cast<uint32_t>(count - 1);
      one.verdict.store(verdict);
    }
    left = left.subspan(run.size());
  }
}

}  // namespace forebay::mpiio
