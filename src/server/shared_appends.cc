// Where appends go: the ends of files, and what moves them.
#include <fmt/format.h>

#include <algorithm>

#include "core/log.h"
#include "server/shared_state.h"
#include "server/small_writes.h"

namespace forebay::server {

// Under the lock.
SharedState::LiveRef SharedState::live_of(const Handle& handle, bool make) {
  const std::string_view key = key_of(handle);
  if (const auto found = live_.find(key); found != live_.end()) return found->second;
  if (!make) return nullptr;
  auto live = std::make_shared<Live>();
  live->handle = handle;
  live_.emplace(key, live);
  live_files_ = live_.size();
  return live;
}

// Under the lock. One whose end is known stays, as far as there is room for all.
void SharedState::drop_if_idle(const LiveRef& live) {
  if (!live->queue.empty() || live->resizing != 0 || live->learning) return;
  if (live->end && live_.size() <= kMostLive) return;
  const auto found = live_.find(key_of(live->handle));
  if (found != live_.end() && found->second == live) live_.erase(found);
  live_files_ = live_.size();
}

bool SharedState::push_end(const Handle& handle, uint64_t end) {
  std::lock_guard lock(mutex_);
  const LiveRef live = closed_ ? nullptr : live_of(handle, false);
  if (!live) return false;
  uint64_t& moved = live->end ? *live->end : live->floor;
  moved = std::max(moved, end);
  return true;
}

// One that others have moved on meanwhile stays: what they were given is behind it.
void SharedState::not_written(const Handle& handle, uint64_t end) {
  std::lock_guard lock(mutex_);
  const LiveRef live = closed_ ? nullptr : live_of(handle, false);
  if (live && live->end == end) unlearn(live);
}

// Under the lock. The next append asks the file system, when all that is under way has ended.
void SharedState::unlearn(const LiveRef& live) {
  live->end.reset();
  live->floor = 0;
  drop_if_idle(live);
}

bool SharedState::keeps_end(const Handle& handle) {
  std::lock_guard lock(mutex_);
  return closed_ || live_of(handle, false) != nullptr;
}

// ---- Places ----

// Under the lock; the end is known.
Result<SharedState::Place> SharedState::grant(Live& live, const Once& once, const Caller& caller,
                                              uint64_t length) {
  if (failure_) return refusal();
  const uint64_t offset = *live.end;
  if (length == 0) return Place{offset};
  const Result<uint32_t> file = number_of(live.handle, true);
  if (!file) return file.error();
  if (auto granted = apply_for(caller, {Kind::append, *file, offset, length, once}); !granted) {
    return std::move(granted).error();
  }
  *live.end += length;
  ++seen_.granted;
  return Place{offset, journal_ ? journal_->last() : 0};
}

// Under the lock. The place that the request has, if it came before.
Result<std::optional<SharedState::Place>> SharedState::placed_before(const Request& r,
                                                                     uint64_t length) {
  if (r.once.empty()) return std::optional<Place>();
  auto done = state_.recall(r.once);
  if (!done) return std::move(done).error();
  if (!*done) return std::optional<Place>();
  if ((*done)->kind != Kind::append || (*done)->length != length) {
    return Error(EINVAL, "append: once: was another operation");
  }
  ++seen_.repeated;
  if ((*done)->open) state_.came_again(**done);
  return std::optional(Place{(*done)->value, journal_ ? journal_->last() : 0, !(*done)->open});
}

void SharedState::place(const Request& r, uint64_t length, Loop& loop, Placed placed) {
  std::optional<Result<Place>> now;
  LiveRef live;
  bool post = false;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    auto before = placed_before(r, length);
    if (!before) {
      now = std::move(before).error();
    } else if (*before) {
      now = **before;
    } else {
      live = live_of(r.handle, true);
      if (live->end && live->queue.empty() && live->resizing == 0) {
        now = grant(*live, r.once, *r.caller, length);
      } else {
        live->queue.push_back({r.once, length, std::move(placed), {}, &loop, r.caller});
      }
    }
    if (!r.once.empty()) {
      state_.touch(r.once, tick_of(loop.now()));
      forget_old(loop.now());
    }
    if (failure_) post = put_off({}, loop);
  }
  if (post) post_flush(loop);
  if (now) return placed(std::move(*now));
  serve(live);
}

void SharedState::settle(const Handle& handle, const Once& once, uint64_t offset, Settled how,
                         Loop& loop) {
  bool post = false;
  {
    std::lock_guard lock(mutex_);
    const uint32_t file = closed_ ? 0 : state_.find(key_of(handle));
    if (file == 0) return;
    if (how != Settled::untouched || !give_back(handle, file, offset)) {
      const Kind kind = how == Settled::written ? Kind::wrote : Kind::lost;
      (void)apply({kind, file, offset, 0, once});
      if (how == Settled::untouched) state_.untouched(file, offset);
      if (kind == Kind::lost) {
        log::warn("an append failed: nothing was written at byte {} of its file", offset);
      }
    }
    post = put_off({}, loop);  // nobody waits for it, but a crash would make a hole of it
  }
  if (post) post_flush(loop);
}

// Under the lock. The file system is asked for the end: nothing but what is there counts.
bool SharedState::give_back(const Handle& handle, uint32_t file, uint64_t offset) {
  const LiveRef live = live_of(handle, false);
  if (live && live->end && *live->end != state_.end(file)) return false;
  const std::vector<Command> commands = state_.giving_back(file, offset);
  for (const Command& command : commands) (void)apply(command);
  if (live && live->end && !commands.empty()) unlearn(live);
  return !commands.empty();
}

// ---- Those who wait for the end to be known ----

// In the order of arrival, until somebody must wait.
void SharedState::serve(const LiveRef& live) {
  for (;;) {
    Asking next;
    std::optional<Result<Place>> place;
    {
      std::lock_guard lock(mutex_);
      if (closed_ || live->learning || live->resizing != 0) return;
      if (live->queue.empty()) return drop_if_idle(live);
      if (live->queue.front().placed && !live->end) {
        live->learning = true;
        break;
      }
      next = std::move(live->queue.front());
      live->queue.pop_front();
      if (next.placed) {
        place = grant(*live, next.once, *next.caller, next.length);
      } else {
        begin_resize(*live);
      }
    }
    if (!place) {
      next.loop->post(std::move(next.then));
      continue;
    }
    next.loop->post([placed = std::move(next.placed),
                     place = std::make_unique<Result<Place>>(std::move(*place))]() mutable {
      placed(std::move(*place));
    });
  }
  learn(live);
}

// When nobody writes to it: all that was reserved before is done, and what comes later is noted.
void SharedState::learn(const LiveRef& live) {
  const uint64_t gathered = around_->small_writes.end_of(key_of(live->handle));
  Loop* loop;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    live->floor = std::max(live->floor, gathered);
    loop = live->queue.front().loop;  // nobody takes it while we learn
  }
  const Extents all({Offset(0), Length(kMaxOffset)});
  if (around_->reservations.add(live->reservation, key_of(live->handle),
                                ReservationTable::Mode::read, all, *loop,
                                [self = shared_from_this(), live] { self->ask_size(live); })) {
    ask_size(live);
  }
}

void SharedState::ask_size(const LiveRef& live) {
  Request r;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    r.op = Op::getattr;
    r.caller = live->queue.front().caller;
    r.handle = live->handle;
  }
  around_->store.submit(std::move(r), [self = shared_from_this(), live](Result<Reply>&& result) {
    self->learnt(live, std::move(result));
  });
}

void SharedState::learnt(const LiveRef& live, Result<Reply>&& result) {
  Asking failed;
  Reservation done;
  {
    std::lock_guard lock(mutex_);
    live->learning = false;
    done = std::move(live->reservation);
    if (closed_) return;
    if (result) {
      live->end =
          std::max({result->attr.size, live->floor, state_.end(state_.find(key_of(live->handle)))});
    } else {
      failed = std::move(live->queue.front());
      live->queue.pop_front();
    }
  }
  done.release();
  if (failed.placed) {
    failed.loop->post([placed = std::move(failed.placed),
                       why = std::make_unique<Error>(std::move(result).error())]() mutable {
      placed(std::move(*why));
    });
  }
  serve(live);
}

// ---- What makes files shorter ----

// Under the lock. What is admitted from now on comes after it.
void SharedState::begin_resize(Live& live) {
  ++live.resizing;
  live.end.reset();
  live.floor = 0;
}

void SharedState::resizes(const Handle& handle, Loop& loop, Task then) {
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    const LiveRef live = live_of(handle, true);
    if (!live->queue.empty()) {
      live->queue.push_back({{}, 0, {}, std::move(then), &loop, nullptr});
      return;
    }
    begin_resize(*live);
  }
  then();
}

uint64_t SharedState::resized(const Handle& handle, std::optional<uint64_t> size) {
  LiveRef live;
  uint64_t record = 0;
  {
    std::lock_guard lock(mutex_);
    live = closed_ ? nullptr : live_of(handle, false);
    if (!live) return 0;
    --live->resizing;
    if (size) record = cut(handle, *size);
  }
  serve(live);
  return record;
}

uint64_t SharedState::truncated(const Handle& handle) {
  std::lock_guard lock(mutex_);
  if (closed_) return 0;
  if (const LiveRef live = live_of(handle, false); live && live->resizing == 0 && !live->learning) {
    live->end.reset();
    live->floor = 0;
  }
  return cut(handle, 0);
}

// Under the lock.
uint64_t SharedState::cut(const Handle& handle, uint64_t size) {
  const uint32_t file = state_.find(key_of(handle));
  if (file == 0 || state_.end(file) == 0) return 0;
  (void)apply({.kind = Kind::cut, .file = file, .value = size});
  return journal_ ? journal_->last() : 0;
}

}  // namespace forebay::server
