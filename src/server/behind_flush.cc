// Files and their rounds: how what was acknowledged is written.
#include <fmt/format.h>

#include <algorithm>

#include "core/log.h"
#include "server/behind_state.h"

namespace forebay::server {
namespace {

// One call of the Store: larger ones into fresh files are now and then much dearer.
constexpr uint64_t kBatchBytes = 1_MiB;
constexpr size_t kBatchPieces = 1024;
constexpr unsigned kBatchesOut = 4;  // of a file, and what one task of a loop issues
constexpr size_t kMostEnded = 4096;  // files; beyond, every file counts as one of them

// When memory is short, what touches over so many bytes is written first: its neighbours are there.
// At most a part of the budget, of which there may be little.
constexpr uint64_t kLongRun = 128_KiB;
constexpr uint64_t kRunsInBudget = 64;
constexpr uint64_t kStepsInBudget = 8;  // one of which comes in before it is looked at again

Error going_away() {
  return Error(ESHUTDOWN, "the server is going away");
}

}  // namespace

BehindStore::State::Client* BehindStore::State::File::find(uint64_t id) {
  const auto found = std::ranges::find(clients, id, &Client::id);
  return found == clients.end() ? nullptr : &*found;
}

BehindStore::State::State(ScheduledStore& inner, const WriteBehindOptions& options, uint64_t boot)
    : inner_(inner),
      options_(options),
      boot_(boot),
      works_inline_(inner.concurrency() == 0),
      in_page_cache_(inner.writes_whole(Handle())),
      most_out_(std::max(kBatchesOut, inner.concurrency())),
      budget_(options.memory) {}

// Under the lock.
BehindStore::State::FileRef BehindStore::State::find(std::string_view key) const {
  const auto found = files_.find(std::string(key));
  return found == files_.end() ? nullptr : found->second;
}

// The file of the handle, if something that was acknowledged to it is not settled.
BehindStore::State::FileRef BehindStore::State::busy(const Handle& handle) const {
  if (busy_ == 0) return nullptr;
  std::lock_guard lock(mutex_);
  FileRef file = find(inner_.identity(handle));
  return file && file->busy() ? file : nullptr;
}

// Under the lock.
void BehindStore::State::drop_if_unused(const FileRef& file) {
  if (file->busy() || !file->waiters.empty()) return;
  std::erase_if(file->clients, [](const Client& c) { return c.id == 0; });
  const auto found = files_.find(file->key);  // which may be a later one of the same name
  if (file->clients.empty() && found != files_.end() && found->second == file) files_.erase(found);
}

// ---- The Store, which may be going away ----

bool BehindStore::State::begin_issuing() {
  std::lock_guard lock(mutex_);
  if (!closing_) ++issuing_;
  return !closing_;
}

void BehindStore::State::end_issuing() {
  std::lock_guard lock(mutex_);
  if (--issuing_ == 0 && closing_) quiet_.notify_all();
}

// From wherever we are, which may be a thread of the Store.
void BehindStore::State::forward(Request&& request, Completion&& done) {
  if (!begin_issuing()) return done(going_away());
  inner_.submit(std::move(request), std::move(done));
  end_issuing();
}

// ---- Waiting ----

void BehindStore::State::Cancel::operator()() const {
  const auto self = state.lock();
  const auto where = file.lock();
  const auto who = waiter.lock();
  if (self && where && who) self->give_up(where, who);
}

// Runs `go` when all that was acknowledged to the file before is settled; at once if it is.
void BehindStore::State::when_settled(const FileRef& file, std::stop_token stop, Go go) {
  const auto waiter = std::make_shared<Waiter>();
  {
    std::unique_lock lock(mutex_);
    if (closing_ || !file->busy()) {
      const bool gone = closing_;
      lock.unlock();
      return go(gone ? std::optional(going_away()) : std::nullopt);
    }
    waiter->upto = file->wanted = file->newest;
    waiter->go = std::move(go);
    file->waiters.push_back(waiter);
  }
  if (stop.stop_possible()) {
    waiter->stop.emplace(std::move(stop), Cancel{weak_from_this(), file, waiter});
  }
  pump(file);
}

void BehindStore::State::when_settled(std::vector<FileRef> files, Go go) {
  struct All {
    std::atomic<size_t> left;
    Go go;
  };
  const auto all = std::make_shared<All>();
  all->left = files.size() + 1;
  all->go = std::move(go);
  const auto one = [all](std::optional<Error> why) {
    if (--all->left == 0) all->go(std::move(why));
  };
  for (const FileRef& file : files) when_settled(file, {}, one);
  one(std::nullopt);
}

// Not inside the stop request, whose maker may be at anything.
void BehindStore::State::give_up(const FileRef& file, const WaiterRef& waiter) {
  Loop* loop;
  {
    std::lock_guard lock(mutex_);
    if (std::erase(file->waiters, waiter) == 0) return;  // its turn has come
    loop = loop_;
  }
  loop->post([go = std::move(waiter->go)]() mutable { go(Error(ECANCELED)); });
}

void BehindStore::State::drain(Task done) {
  std::vector<FileRef> files;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [key, file] : files_) {
      if (file->busy()) files.push_back(file);
    }
  }
  when_settled(std::move(files), [task = std::move(done)](auto) mutable { task(); });
}

// ---- When to write ----

// On the loop.
void BehindStore::State::arm(Loop& loop, Duration after) {
  loop.after(std::max(after, Duration(0)), [weak = weak_from_this(), &loop] {
    if (const auto self = weak.lock()) self->tick(loop);
  });
}

void BehindStore::State::tick(Loop& loop) {
  std::vector<FileRef> due;
  std::optional<Duration> next;
  {
    std::lock_guard lock(mutex_);
    const Time now = loop.now();
    for (const auto& [key, file] : files_) {
      if (file->dirty.empty() || file->wanted >= file->newest) continue;
      const Duration left = file->since + options_.age - now;
      if (left <= Duration(0)) {
        file->wanted = file->newest;
        due.push_back(file);
      } else {
        next = std::min(next.value_or(left), left);
      }
    }
    armed_ = next.has_value();
  }
  if (next) arm(loop, *next);
  for (const FileRef& file : due) {  // one by one: there may be many, and a loop has more to do
    loop.post([weak = weak_from_this(), file] {
      if (const auto self = weak.lock()) self->pump(file);
    });
  }
}

BehindStore::State::Used BehindStore::State::used_part() const {
  const uint64_t used = budget_.used(), eighth = budget_.limit() / 8;
  if (used > eighth * (used_part_ == Used::most ? 5 : 6)) return Used::most;
  return used > eighth * (used_part_ == Used::little ? 4 : 2) ? Used::half : Used::little;
}

// A write has come in, under the lock: of which files is something to be written now? When half of
// the budget is used, or most of it, of all; and then of the one that is written to, until much is
// free again, so that writers seldom meet the end of it.
std::vector<BehindStore::State::FileRef> BehindStore::State::press(const FileRef& file) {
  std::vector<FileRef> due;
  const Used before = std::exchange(used_part_, used_part());
  if (used_part_ > before) {
    for (const auto& [key, one] : files_) {
      if (one->busy()) due.push_back(one);
    }
  } else if (used_part_ == Used::most ||
             (used_part_ == Used::half && file->accepted >= budget_.limit() / kStepsInBudget)) {
    due.push_back(file);
  }
  for (const FileRef& one : due) one->pressed = true;
  return due;
}

// ---- Rounds ----

// Does what is to be done about the file, on this thread, and not by recursion: a Store that works
// inline comes back here from each batch, and those who waited may write again.
void BehindStore::State::pump(const FileRef& file) {
  std::unique_lock lock(mutex_);
  if (file->pumping) return;
  file->pumping = true;
  Loop* go_on = nullptr;
  for (unsigned issued = 0; !closing_;) {
    turn_round(*file);
    std::vector<WaiterRef> ready;
    std::erase_if(file->waiters, [&](WaiterRef& waiter) {
      if (waiter->upto > file->settled) return false;
      ready.push_back(std::move(waiter));
      return true;
    });
    std::vector<Batch> batches;
    // A loop has other things to do as well.
    if (works_inline_ && loop_ && issued >= kBatchesOut && !file->pending.empty()) go_on = loop_;
    while (!go_on && file->out < most_out_ && !file->pending.empty()) {
      batches.push_back(std::move(file->pending.front()));
      file->pending.pop_front();
      ++file->out;
      ++issued;
    }
    if (ready.empty() && batches.empty()) break;
    ++issuing_;
    lock.unlock();
    for (Batch& batch : batches) issue(file, std::move(batch));
    for (const WaiterRef& waiter : ready) waiter->go(std::nullopt);
    ready.clear();
    lock.lock();
    if (--issuing_ == 0 && closing_) quiet_.notify_all();
    if (go_on) break;
  }
  file->pumping = false;
  drop_if_unused(file);
  lock.unlock();
  if (go_on) {
    go_on->post([weak = weak_from_this(), file] {
      if (const auto self = weak.lock()) self->pump(file);
    });
  }
}

// Ends the round that is through, and begins the next if it is wanted.
void BehindStore::State::turn_round(File& file) {
  if (file.out > 0 || !file.pending.empty()) return;
  FOREBAY_ASSERT(file.flushing.empty());
  const uint64_t through = file.dirty.empty() ? file.newest : file.round;
  if (through > file.settled) {
    file.settled = through;
    if (!file.busy()) --busy_;
    if (watchers_ > 0) ended_[file.key] = ++events_;
    if (ended_.size() > kMostEnded) {
      floor_ = events_;
      ended_.clear();
    }
  }
  const bool pressed = std::exchange(file.pressed, false);
  if (!file.busy()) return;
  if (file.wanted > file.settled) {
    begin_round(file);
  } else if (pressed) {
    relieve(file);
  }
}

// Writes what is worth it: the neighbours of the rest may still come, of clients that are behind.
// When most of the budget is used, all of it.
void BehindStore::State::relieve(File& file) {
  if (used_part_ == Used::most) return begin_round(file);
  file.accepted = 0;
  file.flushing = file.dirty.take_runs(std::min(kLongRun, budget_.limit() / kRunsInBudget));
  if (!file.flushing.empty()) make_batches(file);
}

void BehindStore::State::begin_round(File& file) {
  FOREBAY_ASSERT(!file.dirty.empty() && file.flushing.empty());
  file.flushing = std::exchange(file.dirty, {});
  file.round = file.newest;
  file.accepted = 0;
  make_batches(file);
}

void BehindStore::State::make_batches(File& file) {
  ++seen_.rounds;
  struct Open {
    const Caller* caller;
    Batch batch;
  };
  std::vector<Open> open;  // one for each user who wrote
  file.flushing.each([&](const Piece& piece) {
    const Caller& caller = *piece.writer->caller;
    auto of = std::ranges::find_if(open, [&](const Open& o) {
      return o.caller == &caller || o.caller->same_identity(caller);
    });
    if (of == open.end()) of = open.insert(open.end(), {&caller, {}});
    Batch& batch = of->batch;
    if (!batch.pieces.empty() && (batch.bytes + piece.file.length.value > kBatchBytes ||
                                  batch.pieces.size() == kBatchPieces)) {
      file.pending.push_back(std::exchange(batch, {}));
    }
    batch.pieces.push_back(&piece);
    batch.bytes += piece.file.length.value;
  });
  for (Open& o : open) file.pending.push_back(std::move(o.batch));
}

// Its pieces are the Store's until it has landed: nobody else erases them.
void BehindStore::State::issue(const FileRef& file, Batch&& batch) {
  std::vector<Extent> places, memory;
  places.reserve(batch.pieces.size());
  memory.reserve(batch.pieces.size());
  for (const Piece* piece : batch.pieces) {
    places.push_back(piece->file);
    memory.push_back({Offset(reinterpret_cast<uintptr_t>(piece->data)), piece->file.length});
  }
  const Writer& writer = *batch.pieces.front()->writer;
  Request request;
  request.op = Op::write;
  request.caller = writer.caller;
  request.handle = writer.handle;
  request.right = writer.right;
  request.file = Extents::make(std::move(places)).value();
  request.memory = {nullptr, Extents::make(std::move(memory)).value()};
  inner_.submit(std::move(request),
                [self = shared_from_this(), file, batch = std::move(batch)](
                    Result<Reply>&& result) { self->landed(file, batch, result); });
}

void BehindStore::State::landed(const FileRef& file, const Batch& batch,
                                const Result<Reply>& result) {
  {
    std::lock_guard lock(mutex_);
    --file->out;
    ++seen_.batches;
    const bool good = result && result->count == batch.bytes;
    if (!good && batch.pieces.size() > 1 && !closing_) {
      seen_.retried += batch.pieces.size();
      for (auto piece = batch.pieces.rbegin(); piece != batch.pieces.rend(); ++piece) {
        file->pending.push_front({{*piece}, (*piece)->file.length.value});
      }
    } else {
      for (const Piece* piece : batch.pieces) {
        if (!good && !closing_) {
          lose(*file, *piece, result ? Error(EIO, "the store wrote less") : result.error());
        }
        file->flushing.erase(piece->file.offset);
      }
    }
  }
  pump(file);
}

// Invariant 5.
void BehindStore::State::lose(File& file, const Piece& piece, const Error& error) {
  const uint64_t size = piece.file.length.value;
  const Error loss(
      error.code(),
      fmt::format("{} bytes at {} of this file, acknowledged before, could not be "
                  "written{}{}",
                  size, piece.file.offset.value, error.what().empty() ? "" : ": ", error.what()));
  if (seen_.lost_pieces++ == 0) log::warn("write-behind: {}", loss.message());
  seen_.lost_bytes += size;
  for (Client& client : file.clients) {
    if (client.id == 0) {
      unreported(file.key);
    } else if (!client.loss) {
      client.loss = loss;
    }
  }
}

// ---- The end ----

void BehindStore::State::close() {
  std::vector<WaiterRef> waiters;
  {
    std::unique_lock lock(mutex_);
    closing_ = true;
    quiet_.wait(lock, [this] { return issuing_ == 0; });
    for (auto& [key, file] : files_) {
      for (WaiterRef& waiter : std::exchange(file->waiters, {}))
        waiters.push_back(std::move(waiter));
    }
  }
  for (const WaiterRef& waiter : waiters) waiter->go(going_away());
}

}  // namespace forebay::server
