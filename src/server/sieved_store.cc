#include "server/sieved_store.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>

#include "plan/sieve.h"
#include "server/shared_reads.h"

namespace forebay::server {

namespace {

// A back end that works on the thread that submits holds it for all windows of a request, some 1 ms
// for so much; what is wider goes to it as it is.
constexpr uint64_t kMostInline = 8_MiB;

// A local file system in the page cache: a call costs what 4 KiB (tmpfs) to 10 KiB (ext4) cost to
// read, and its reads are no faster than copies. The smaller holds for both; and what is not in the
// cache comes in by pages anyway. A window that stays in the processor's cache until it is copied
// is cheaper than a larger one.
constexpr plan::SieveCosts kLocal{.call = 4_KiB, .copies = 2, .window = 256_KiB};
// All else pays a round trip to a daemon or a device: worth some 20 KiB through FUSE to a local
// disk, 100 KiB through FUSE to GlusterFS; O_DIRECT 40 KiB. Copies do not matter there.
constexpr plan::SieveCosts kOther{.call = 32_KiB, .copies = 8, .window = 1_MiB};

plan::SieveCosts costs_of(const SieveOptions& options, const Store& inner, const BufferPool& pool,
                          const Request& r) {
  plan::SieveCosts costs = inner.concurrency() == 0 ? kLocal : kOther;
  if (options.call > 0) costs.call = options.call;
  if (r.op == Op::write) costs.begin = costs.call;
  costs.window = std::min(costs.window, pool.buffer_size());
  if (r.length) costs.window = std::min(costs.window, r.length.value);
  // Who asks for it wants it whatever the holes cost.
  if (r.flags & kFlagSieve) costs.call = costs.copies = costs.window, costs.begin = 0;
  return costs;
}

bool wanted(const SieveOptions& options, const Request& r) {
  if (r.op != Op::write || (r.flags & kFlagNoSieve)) return false;
  return options.writes == When::always ||
         (options.writes == When::asked && (r.flags & kFlagSieve));
}

// One sieved request. Used by one thread at a time: the one that submits a step, then the one on
// which it completes.
struct Sieving {
  Sieving(Request&& r, Completion&& d, const plan::SieveCosts& costs, Buffer&& b)
      : request(std::move(r)),
        done(std::move(d)),
        steps(request.file, costs),
        file(request.file),
        memory(request.memory.shape),
        buffer(std::move(b)) {}

  const Request request;
  Completion done;
  plan::Sieve steps;
  plan::SieveStep step;
  enum class Do : uint8_t {
    read,    // a window
    write,   // a window that is read and filled
    pieces,  // the step as it is
    plain,   // the whole request as it came: it does not end before that
  } now = Do::read;
  ExtentCursor file, memory;  // at the beginning of the step
  Buffer buffer;
  uint64_t count = 0;
  std::optional<Result<Reply>> result;  // of the step
  std::atomic<int> parties{0};          // its completion, and whoever submitted it

  bool next_step(const SieveCounters& counters);
  Request next_request() const;
  bool wrote_less(uint64_t got) const;
  bool take(uint64_t got);
  bool take_window(uint64_t got);
  uint64_t copy(uint64_t got);
};

// False: there is no more.
bool Sieving::next_step(const SieveCounters& counters) {
  const auto next = steps.next();
  if (!next) return false;
  step = *next;
  now = step.window.empty() ? Do::pieces : Do::read;
  if (now == Do::pieces) return true;
  counters.windows.add();
  counters.bytes.add(step.window.length.value);
  return true;
}

Request Sieving::next_request() const {
  if (now == Do::plain) return request;
  Request r;
  r.op = now == Do::read ? Op::read : now == Do::write ? Op::write : request.op;
  r.flags = now == Do::read ? 0 : request.flags;
  r.caller = request.caller;
  r.handle = request.handle;
  r.right = request.right;
  r.stop = request.stop;
  if (now == Do::pieces) {
    r.file = request.file.slice(file.position(), step.stream);
    r.memory = request.memory.slice(file.position(), step.stream);
  } else {
    r.file = Extents(step.window);
    r.memory = Memory::of(buffer.bytes().first(step.window.length.value));
  }
  return r;
}

// No Store may; the plain request will tell.
bool Sieving::wrote_less(uint64_t got) const {
  if (request.op == Op::read || now == Do::read || now == Do::plain) return false;
  return got != (now == Do::write ? step.window.length : step.stream).value;
}

// The call has moved so many bytes. True: on to the next step. False: there is more to do in this
// one, and `now` says what; or the end of file is reached.
bool Sieving::take(uint64_t got) {
  if (now == Do::read) return take_window(got);
  if (now == Do::pieces) {
    count += got;
    file.advance(step.stream);
    memory.advance(step.stream);
    return got == step.stream.value;
  }
  count += step.stream.value;
  return true;
}

bool Sieving::take_window(uint64_t got) {
  if (request.op == Op::write) {
    const bool whole = got == step.window.length.value;
    if (whole) copy(got);
    now = whole ? Do::write : Do::pieces;
    return false;
  }
  const uint64_t copied = copy(got);
  count += copied;
  return copied == step.stream.value;
}

// Between the memory of the request and the window, of which `got` bytes are there.
uint64_t Sieving::copy(uint64_t got) {
  const Offset end = step.window.offset + Length(got);
  uint64_t copied = 0;
  while (copied < step.stream.value) {
    const Extent piece = file.current(), place = memory.current();
    const uint64_t left = step.stream.value - copied;
    const uint64_t most = std::min({piece.length.value, place.length.value, left});
    const uint64_t n = std::min(most, piece.offset < end ? (end - piece.offset).value : 0);
    std::byte* const there = request.memory.at(place.offset);
    std::byte* const here = buffer.bytes().data() + (piece.offset - step.window.offset).value;
    request.op == Op::read ? std::memcpy(there, here, n) : std::memcpy(here, there, n);
    copied += n;
    if (n < most) break;
    file.advance(Length(n));
    memory.advance(Length(n));
  }
  return copied;
}

}  // namespace

bool sieves(const SieveOptions& options, Store& store, const BufferPool& pool, const Request& r) {
  if (!wanted(options, r)) return false;
  if (!plan::likely_sieved(r.file, costs_of(options, store, pool, r))) return false;
  Request read;
  read.op = Op::read;
  read.caller = r.caller;
  read.handle = r.handle;
  read.right = r.right;
  return store.admits(read).has_value();
}

class SievedStore::State : public std::enable_shared_from_this<State> {
 public:
  State(Store& inner, const SieveOptions& options, BufferPool& pool, SieveCounters counters)
      : inner_(inner), options_(options), pool_(pool), counters_(counters) {
    plan::SieveCosts costs = costs_of(options, inner, pool, {});
    costs.grid = costs.window;
    if (inner.concurrency() > 0)
      shared_ = std::make_shared<SharedReads>(inner, pool, costs, counters_);
  }

  bool shares(const Request& request) const;
  void submit(Request&& request, Completion&& done);
  void close();

 private:
  using SievingRef = std::shared_ptr<Sieving>;
  plan::SieveCosts costs(const Request& r) const { return costs_of(options_, inner_, pool_, r); }
  bool worth_it(const Request& request) const;
  void run(const SievingRef& s);
  bool begin_issuing();
  void end_issuing();
  bool goes_on(Sieving& s);

  Store& inner_;
  const SieveOptions options_;
  BufferPool& pool_;
  const SieveCounters counters_;
  std::shared_ptr<SharedReads> shared_;  // null: the back end works on the thread that submits

  std::mutex mutex_;
  std::condition_variable quiet_;
  unsigned issuing_ = 0;
  bool closing_ = false;
};

// What is malformed is the back end's to answer.
bool SievedStore::State::worth_it(const Request& r) const {
  if (!(r.op == Op::read ? options_.reads : r.op == Op::write && r.owns_holes)) return false;
  if (r.file.contiguous() || r.memory.shape.total() != r.file.total()) return false;
  if (inner_.concurrency() == 0 && r.file.bounds().length.value > kMostInline) return false;
  const auto first = plan::Sieve(r.file, costs(r)).next();
  return !first->window.empty() || first->stream < r.file.total();
}

// A read that meets others under way.
bool SievedStore::State::shares(const Request& r) const {
  if (r.op != Op::read || !shared_ || !options_.reads || r.length) return false;
  return r.caller && r.memory.shape.total() == r.file.total() &&
         plan::likely_sieved(r.file, costs(r));
}

void SievedStore::State::submit(Request&& request, Completion&& done) {
  Buffer buffer;
  if (shares(request) && inner_.admits(request) && shared_->submit(request, done)) return;
  if (worth_it(request)) buffer = pool_.try_take();
  if (!buffer) return inner_.submit(std::move(request), std::move(done));
  (request.op == Op::read ? counters_.reads : counters_.writes).add();
  const plan::SieveCosts cost = costs(request);
  const auto s =
      std::make_shared<Sieving>(std::move(request), std::move(done), cost, std::move(buffer));
  if (s->next_step(counters_)) run(s);
}

// Step by step, not by recursion: back ends complete inline. Whoever comes last, the completion or
// we, takes the next one.
void SievedStore::State::run(const SievingRef& s) {
  do {
    if (!begin_issuing()) {
      s->buffer.release();
      return s->done(Error(ESHUTDOWN, "the server is going away"));
    }
    s->parties = 2;
    inner_.submit(s->next_request(), [self = shared_from_this(), s](Result<Reply>&& result) {
      s->result.emplace(std::move(result));
      if (s->parties.fetch_sub(1) == 1 && self->goes_on(*s)) self->run(s);
    });
    end_issuing();
    if (s->parties.fetch_sub(1) != 1) return;
  } while (goes_on(*s));
}

// A call has ended. False: so has the request.
bool SievedStore::State::goes_on(Sieving& s) {
  using Do = Sieving::Do;
  Result<Reply>& result = *s.result;
  const bool plain = s.now == Do::plain;
  const bool cancelled = !result && result.error().code() == ECANCELED;
  const bool less = result && s.wrote_less(result->count);
  if (!plain && !cancelled && (!result || less)) {
    s.buffer.release();
    s.now = Do::plain;
    return true;
  }
  if (result && !plain) {
    const Do was = s.now;
    if (s.take(result->count) ? s.next_step(counters_) : s.now != was) return true;
    result->count = s.count;
  }
  if (cancelled && !plain) result = std::move(result).error().with_done(s.count);
  s.buffer.release();
  s.done(std::move(result));
  return false;
}

bool SievedStore::State::begin_issuing() {
  std::lock_guard lock(mutex_);
  if (!closing_) ++issuing_;
  return !closing_;
}

void SievedStore::State::end_issuing() {
  std::lock_guard lock(mutex_);
  if (--issuing_ == 0 && closing_) quiet_.notify_all();
}

// From now on nobody but the destructor's thread calls the back end.
void SievedStore::State::close() {
  if (shared_) shared_->close();
  std::unique_lock lock(mutex_);
  closing_ = true;
  quiet_.wait(lock, [this] { return issuing_ == 0; });
}

SievedStore::SievedStore(std::unique_ptr<Store> inner, const SieveOptions& options,
                         BufferPool& pool, SieveCounters counters)
    : Decorator(std::move(inner)),
      state_(std::make_shared<State>(this->inner(), options, pool, counters)) {}

SievedStore::~SievedStore() {
  state_->close();
  end_inner();
}

void SievedStore::submit(Request&& request, Completion&& done) {
  state_->submit(std::move(request), std::move(done));
}

bool SievedStore::gathers(const Request& request) const {
  return state_->shares(request);
}

Result<Reply> SievedStore::call(Request request) {
  if (is_transfer(request.op)) return Store::call(std::move(request));
  return inner().call(std::move(request));
}

}  // namespace forebay::server
