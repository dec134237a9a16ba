#include "server/small_writes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "server/export.h"
#include "server/session.h"

namespace forebay::server {

namespace {

using Piece = SmallQueue::Piece;
using State = SmallWrite::State;

// More runs are not done on the thread that submits (store/posix.cc), and longer calls gain
// nothing.
constexpr size_t kMostRuns = 32;
// Calls of 1 MiB are faster on a file system that has just freed memory, and several times slower
// on one that must find whole large pages (docs/performance.md).
constexpr uint64_t kMostBytes = 256_KiB;

// In a turn, of runs that are shorter than this.
constexpr unsigned kMostShort = 8;
constexpr uint64_t kShortRun = 8_KiB;

// Of one client, which has nothing to add before it is answered: not worth waiting for others.
constexpr uint64_t kLongRun = 16_KiB;

constexpr size_t kKeptQueues = 256;  // that nobody uses

// Puts the pieces of a write in their place; false if they overlap others, or each other.
bool put(std::vector<Piece>& pieces, SmallWrite& w) {
  bool apart = true;
  std::byte* memory = w.data.data();
  for (const Extent& block : w.file.blocks()) {
    const auto next = std::ranges::upper_bound(pieces, block.offset, {},
                                               [](const Piece& p) { return p.file.offset; });
    apart = apart && (next == pieces.end() || block.end() <= next->file.offset) &&
            (next == pieces.begin() || std::prev(next)->file.end() <= block.offset);
    pieces.insert(next, {block, memory, &w, w.session.get()});
    memory += block.length.value;
  }
  return apart;
}

bool touches(const Piece& a, const Piece& b) {
  return a.file.end() == b.file.offset;
}

bool is_chosen(const Piece& p) {
  return p.write->chosen;
}

// All of its write.
bool is_whole(const Piece& p) {
  return p.file.length.value == p.write->data.size();
}

size_t runs_of(std::span<const Piece> pieces) {
  size_t runs = pieces.empty() ? 0 : 1;
  for (size_t i = 1; i < pieces.size(); ++i) runs += !touches(pieces[i - 1], pieces[i]);
  return runs;
}

// What touches is one block.
Extents file_side(std::span<const Piece> pieces) {
  std::vector<Extent> blocks;
  for (const Piece& piece : pieces) {
    if (!blocks.empty() && blocks.back().end() == piece.file.offset) {
      blocks.back().length += piece.file.length;
    } else {
      blocks.push_back(piece.file);
    }
  }
  return Extents::make(std::move(blocks)).value();  // parts of valid Extents
}

Memory memory_side(std::span<const Piece> pieces) {
  std::vector<Extent> blocks;
  blocks.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    blocks.push_back({Offset(reinterpret_cast<uintptr_t>(piece.memory)), piece.file.length});
  }
  return {nullptr, Extents::make(std::move(blocks)).value()};  // addresses of this process
}

Request request_with(const HeldRight& held) {
  Request r;
  r.op = Op::write;
  r.caller = held.holder.caller;
  r.handle = held.holder.handle;
  r.right = held.right;
  return r;
}

Request request_for(const SmallWrite& w) {
  Request r = request_with(*w.held);
  r.file = w.file;
  r.memory = Memory::of(w.data);
  return r;
}

// Chooses the write at pieces[first] and, of the run that goes on from there, what follows it, up
// to a limit of bytes or pieces; returns where the run ends.
size_t choose(std::span<const Piece> pieces, size_t first, size_t most_pieces) {
  uint64_t bytes = 0;
  size_t count = 0;
  for (size_t i = first; i < pieces.size(); ++i) {
    if (i > first && !touches(pieces[i - 1], pieces[i])) return i;
    SmallWrite& w = *pieces[i].write;
    if (w.chosen) continue;
    bytes += w.data.size();
    count += w.file.blocks().size();
    if (i > first && (bytes > kMostBytes || count > most_pieces)) return i;
    w.chosen = true;
  }
  return pieces.size();
}

}  // namespace

uint64_t SmallQueue::bytes() const {
  uint64_t sum = 0;
  for (const SmallWriteRef& w : writes) sum += w->data.size();
  return sum;
}

// Writes of one file and caller that go to the Store as one request.
struct SmallWrites::Batch {
  std::vector<SmallWriteRef> writes;
  std::vector<Piece> pieces;
  Reservation reservation;
  std::atomic<size_t> parties{0};  // requests of single writes that are under way

  uint64_t total() const {
    uint64_t sum = 0;
    for (const SmallWriteRef& w : writes) sum += w->data.size();
    return sum;
  }
  Request request() const {
    if (writes.size() == 1) return request_for(*writes.front());
    Request r = request_with(*writes.front()->held);
    r.file = file_side(pieces);
    r.memory = memory_side(pieces);
    return r;
  }
};

std::shared_ptr<SmallQueue> SmallWrites::queue_of(const Holder& holder) {
  if (queues_.size() > kKeptQueues) {
    std::erase_if(queues_, [](const auto& one) { return one.second.expired(); });
  }
  const Caller& c = *holder.caller;
  std::string key = fmt::format("{} {} {} ", c.uid, c.gid, fmt::join(c.groups, ","));
  key += exported_.store().identity(holder.handle);
  std::weak_ptr<Queue>& known = queues_[key];
  std::shared_ptr<Queue> queue = known.lock();
  if (!queue) known = queue = std::make_shared<Queue>();
  return queue;
}

void SmallWrites::add(SmallWriteRef write) {
  Loop& loop = write->session->loop();
  bool post;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    std::shared_ptr<Queue>& queue = write->held->queue;
    if (!queue) queue = queue_of(write->held->holder);
    queue->overlaps |= !put(queue->pieces, *write);
    SmallWrite& w = *write;
    w.place = queue->writes.insert(queue->writes.end(), std::move(write));
    post = line_up(queue);
  }
  if (post) post_turn(loop);
}

uint64_t SmallWrites::end_of(std::string_view identity) {
  std::lock_guard lock(mutex_);
  uint64_t end = 0;
  for (const auto& [key, known] : queues_) {
    const auto queue = key.ends_with(identity) ? known.lock() : nullptr;
    if (!queue) continue;
    for (const Piece& piece : queue->pieces) end = std::max(end, piece.file.end().value);
  }
  return end;
}

// True if a turn is to be posted.
bool SmallWrites::line_up(const std::shared_ptr<Queue>& queue) {
  if (queue->in_line || queue->busy || queue->writes.empty()) return false;
  queue->in_line = true;
  line_.push_back(queue);
  return !std::exchange(turn_posted_, true);
}

void SmallWrites::post_turn(Loop& loop) {
  loop.post([held = exported_.shared_from_this(), &loop] { held->small_writes.turn(loop); });
}

void SmallWrites::turn(Loop& here) {
  std::vector<std::shared_ptr<Queue>> mine;
  Batches batches;
  const auto is_kept = [this](const SmallWriteRef& w) { return kept(w); };
  {
    std::lock_guard lock(mutex_);
    turn_posted_ = false;
    mine.swap(line_);
    if (closed_) return;  // the Store is gone
    for (const auto& queue : mine) {
      queue->in_line = false;
      queue->busy = true;
      if (queue->overlaps) {
        all_in_order(*queue, batches);
      } else if (std::ranges::any_of(queue->writes, is_kept) &&
                 exported_.store().has_room(queue->bytes())) {
        all_at_once(*queue, batches);
      } else {
        low_runs(*queue, batches);
        long_runs(*queue, batches);
      }
    }
    ++issuing_;
  }
  for (const BatchRef& batch : batches) submit(batch, here);
  bool post = false;
  {
    std::lock_guard lock(mutex_);
    for (const auto& queue : mine) {
      queue->busy = false;
      post = line_up(queue) || post;
    }
  }
  end_issuing();
  if (post) post_turn(here);
}

void SmallWrites::issue_with(const SmallWrite& write, Loop& here) {
  Batches batches;
  {
    std::lock_guard lock(mutex_);
    if (!write.held->queue) return;  // it came after the end
    Queue& queue = *write.held->queue;
    if (queue.overlaps) all_in_order(queue, batches);
    while (!queue.writes.empty()) next_run(queue, batches);
    ++issuing_;
  }
  for (const BatchRef& batch : batches) submit(batch, here);
  end_issuing();
}

bool SmallWrites::drop(SmallWrite& write) {
  std::lock_guard lock(mutex_);
  if (write.state != State::waiting) return false;
  write.state = State::dropped;
  write.reservation.release();
  if (Queue* const queue = write.held->queue.get()) {
    std::erase_if(queue->pieces, [&](const Piece& p) { return p.write == &write; });
    if (write.place) queue->writes.erase(*std::exchange(write.place, std::nullopt));
  }
  return true;
}

void SmallWrites::close() {
  std::vector<SmallWriteRef> dropped;
  std::unique_lock lock(mutex_);
  closed_ = true;
  for (const auto& [key, weak] : queues_) {
    const auto queue = weak.lock();
    if (!queue) continue;
    queue->pieces.clear();
    for (SmallWriteRef& w : std::exchange(queue->writes, {})) {
      w->place.reset();
      dropped.push_back(std::move(w));
    }
  }
  quiet_.wait(lock, [this] { return issuing_ == 0; });
  lock.unlock();
}

bool SmallWrites::begin_issuing() {
  std::lock_guard lock(mutex_);
  issuing_ += !closed_;
  return !closed_;
}

void SmallWrites::end_issuing() {
  std::lock_guard lock(mutex_);
  if (--issuing_ == 0 && closed_) quiet_.notify_all();
}

// ---- Who goes next; with the lock held ----

// The lowest run; and while it is short, of clients that are behind with nobody at their side, the
// next one too, so that they catch up.
void SmallWrites::low_runs(Queue& queue, Batches& out) {
  for (unsigned i = 0; i < kMostShort && !queue.writes.empty(); ++i) {
    const size_t before = out.size();
    next_run(queue, out);
    if (out.size() == before || out.back()->total() >= kShortRun) return;
  }
}

void SmallWrites::next_run(Queue& queue, Batches& out) {
  if (queue.writes.empty()) return;
  const SmallWrite* const oldest = queue.writes.front().get();
  size_t first = 0;
  if (queue.passed >= kMostPassed) {
    while (queue.pieces[first].write != oldest) ++first;
  }
  take_run(queue, first, out);
  queue.passed =
      queue.writes.empty() || queue.writes.front().get() != oldest ? 0 : queue.passed + 1;
}

void SmallWrites::take_run(Queue& queue, size_t first, Batches& out) {
  const size_t end = choose(queue.pieces, first, SIZE_MAX);
  // Nothing of these writes lies anywhere else, as a rule.
  const std::span run = std::span(queue.pieces).subspan(first, end - first);
  if (std::ranges::all_of(run, is_whole)) return take(queue, {run.begin(), run.end()}, out);
  std::vector<Piece> chosen;
  std::ranges::copy_if(queue.pieces, std::back_inserter(chosen), is_chosen);
  if (runs_of(chosen) > kMostRuns) {  // lists of pieces: fewer of them
    for (const Piece& p : chosen) p.write->chosen = false;
    choose(queue.pieces, first, kMostRuns);
    std::erase_if(chosen, [](const Piece& p) { return !is_chosen(p); });
  }
  take(queue, std::move(chosen), out);
}

// All pieces of the writes that are chosen.
void SmallWrites::take(Queue& queue, std::vector<Piece> pieces, Batches& out) {
  const auto at = std::ranges::find(queue.pieces, pieces.front().write, &Piece::write);
  const auto count = static_cast<ptrdiff_t>(pieces.size());
  if (count <= queue.pieces.end() - at && at[count - 1].file == pieces.back().file) {
    queue.pieces.erase(at, at + count);
  } else {
    std::erase_if(queue.pieces, is_chosen);
  }
  auto batch = std::make_shared<Batch>();
  batch->pieces = std::move(pieces);
  batch->writes.reserve(batch->pieces.size());
  for (const Piece& p : batch->pieces) {
    if (!p.write->place) continue;  // another piece of it
    const auto place = *std::exchange(p.write->place, std::nullopt);
    batch->writes.push_back(std::move(*place));
    queue.writes.erase(place);
  }
  reserve(std::move(batch), out);
}

void SmallWrites::long_runs(Queue& queue, Batches& out) {
  for (size_t first = 0; first < queue.pieces.size();) {
    const Session* const session = queue.pieces[first].session;
    uint64_t bytes = queue.pieces[first].file.length.value;
    bool own = true;
    size_t end = first + 1;
    for (; end < queue.pieces.size() && touches(queue.pieces[end - 1], queue.pieces[end]); ++end) {
      bytes += queue.pieces[end].file.length.value;
      own = own && queue.pieces[end].session == session;
    }
    if (bytes < kLongRun || !own) {
      first = end;
    } else {
      const size_t before = queue.pieces.size();
      take_run(queue, first, out);
      if (before - queue.pieces.size() != end - first) first = 0;  // and some elsewhere
    }
  }
}

// What is only copied need not wait for its neighbours: they meet in memory.
void SmallWrites::all_at_once(Queue& queue, Batches& out) {
  queue.passed = 0;
  while (!queue.writes.empty()) {
    uint64_t bytes = 0;
    for (const SmallWriteRef& w : queue.writes) {
      bytes += w->data.size();
      if (bytes > kMostBytes && bytes > w->data.size()) break;
      w->chosen = true;
    }
    std::vector<Piece> chosen;
    std::ranges::copy_if(queue.pieces, std::back_inserter(chosen), is_chosen);
    take(queue, std::move(chosen), out);
  }
}

void SmallWrites::all_in_order(Queue& queue, Batches& out) {
  queue.pieces.clear();
  queue.overlaps = false;
  queue.passed = 0;
  for (const SmallWriteRef& w : std::exchange(queue.writes, {})) {
    w->place.reset();
    reserve_alone(w, out);
  }
}

// Acknowledged when it is in memory.
bool SmallWrites::kept(const SmallWriteRef& write) const {
  return exported_.store().keeps_all(write->near);
}

// What is in one piece is written by one call; what is kept in memory, by whatever call comes.
ReservationTable::Mode SmallWrites::mode_of(std::span<const SmallWriteRef> writes,
                                            const Extents& file) const {
  const bool whole = file.pieces() == 1 &&
                     exported_.store().writes_whole(writes.front()->held->holder.handle) &&
                     std::ranges::none_of(writes, [this](const auto& w) { return kept(w); });
  return whole ? ReservationTable::Mode::whole : ReservationTable::Mode::write;
}

void SmallWrites::reserve(BatchRef batch, Batches& out) {
  const SmallWrite& first = *batch->writes.front();
  Extents file = file_side(batch->pieces);
  const ReservationTable::Mode mode = mode_of(batch->writes, file);
  const bool free = exported_.reservations.add(
      batch->reservation, exported_.store().identity(first.held->holder.handle), mode,
      std::move(file), first.session->loop(), [] {});
  if (free) {
    for (const SmallWriteRef& w : batch->writes) w->state = State::issued;
    return out.push_back(std::move(batch));
  }
  batch->reservation.release();
  for (const SmallWriteRef& w : batch->writes) reserve_alone(w, out);
}

void SmallWrites::reserve_alone(const SmallWriteRef& write, Batches& out) {
  auto batch = std::make_shared<Batch>();
  batch->writes.push_back(write);
  Loop& loop = write->session->loop();
  const bool free = exported_.reservations.add(
      write->reservation, exported_.store().identity(write->held->holder.handle),
      mode_of({&write, 1}, write->file), write->file, loop,
      [held = exported_.shared_from_this(), batch, &loop] {
        held->small_writes.submit_waited(batch, loop);
      });
  if (!free) return;
  write->state = State::issued;
  out.push_back(std::move(batch));
}

void SmallWrites::submit_waited(const BatchRef& batch, Loop& here) {
  {
    std::lock_guard lock(mutex_);
    SmallWrite& write = *batch->writes.front();
    if (closed_ || write.state != State::waiting) return;
    write.state = State::issued;
    ++issuing_;
  }
  submit(batch, here);
  end_issuing();
}

// ---- To the Store and back ----

void SmallWrites::submit(const BatchRef& batch, Loop& here) {
  std::vector<uint64_t> clients;
  clients.reserve(batch->writes.size());
  bool near = true;
  for (const SmallWriteRef& w : batch->writes) {
    clients.push_back(w->session->writer());
    near = near && w->near;
  }
  auto ends = [held = exported_.shared_from_this(), batch](Result<Reply>&& result) {
    held->small_writes.ended(batch, std::move(result));
  };
  exported_.store().submit(batch->request(), std::move(ends), {&here, 0, clients, near});
}

void SmallWrites::ended(const BatchRef& batch, Result<Reply>&& result) {
  if (result && result->count != batch->total()) {
    result = Error(EIO, "the store wrote less than it was given").with_done(result->count);
  }
  if (!result && batch->writes.size() > 1 && begin_issuing()) {
    submit_each(batch);
    return end_issuing();
  }
  for (const SmallWriteRef& w : batch->writes) {
    if (!result) w->error = result.error();
    if (result) w->verifier = result->verifier;
  }
  hand_back(*batch);
}

// Who is to blame? A write may be repeated: it is the same bytes.
void SmallWrites::submit_each(const BatchRef& batch) {
  batch->parties = batch->writes.size();
  // The last that comes back empties the batch.
  const std::vector<SmallWriteRef> writes = batch->writes;
  for (const SmallWriteRef& w : writes) {
    exported_.store().submit(
        request_for(*w),
        [held = exported_.shared_from_this(), batch, w](Result<Reply>&& result) {
          if (!result) w->error = std::move(result).error();
          if (result) w->verifier = result->verifier;
          if (batch->parties.fetch_sub(1) == 1) held->small_writes.hand_back(*batch);
        },
        {nullptr, w->session->writer()});
  }
}

// To each on its own loop.
void SmallWrites::hand_back(Batch& batch) {
  batch.reservation.release();
  std::vector<SmallWriteRef> writes = std::move(batch.writes);
  if (writes.size() == 1) {
    std::lock_guard lock(mutex_);
    writes.front()->reservation.release();
  }
  for (auto rest = std::span(writes); !rest.empty();) {
    Loop& loop = rest.front()->session->loop();
    const auto others =
        std::stable_partition(rest.begin(), rest.end(),
                              [&](const SmallWriteRef& w) { return &w->session->loop() == &loop; });
    std::vector<SmallWriteRef> here(std::make_move_iterator(rest.begin()),
                                    std::make_move_iterator(others));
    rest = rest.subspan(here.size());
    const auto tell = [](std::vector<SmallWriteRef>& done) {
      for (const SmallWriteRef& w : done) w->session->written(*w);
    };
    if (loop.on_loop()) {
      tell(here);
    } else {
      loop.post([tell, done = std::move(here)]() mutable { tell(done); });
    }
  }
}

}  // namespace forebay::server
