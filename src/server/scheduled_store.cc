#include "server/scheduled_store.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

#include "plan/auto_policy.h"
#include "plan/schedule.h"
#include "server/merge_keys.h"
#include "server/merged_request.h"

namespace forebay::server {

namespace {

// A long list of pieces costs a local file system little, as long as they are not tiny. Others
// (FUSE, network) pay for every page that a piece touches, and then again for every call.
constexpr Staging kLocalStaging{.piece = 512, .batch = 64_KiB};
constexpr Staging kOtherStaging{.piece = 4_KiB, .batch = 256_KiB};

// A mount cuts what it reads into requests of its own, and sends them one after the other:
// GlusterFS 128 KiB each. Several calls at a time use what is behind it. (Of writes it takes one at
// a time into a file.)
constexpr uint64_t kReadPart = 256_KiB;

// Turns of a loop for which requests that gather wait for those who are just coming.
constexpr unsigned kMostTurns = 64;

// What one task may issue before the loop looks at other things: a back end that works inline takes
// a millisecond for so much.
constexpr unsigned kBatchesPerTask = 4;
constexpr uint64_t kBytesPerTask = 4_MiB;

// What moves nothing or is malformed (core/op.h, check()) in a way that merging would stumble over
// is the back end's to answer.
bool schedulable(const Request& r) {
  return r.caller && !r.file.empty() && r.memory.shape.total() == r.file.total();
}

plan::ScheduleOptions plan_options(const SchedulerOptions& options, const Store& inner) {
  plan::ScheduleOptions o;
  o.quantum = std::max(options.quantum, 1u);
  o.merger = options.brute_force ? plan::Merger::Kind::brute : plan::Merger::Kind::tree;
  o.in_service = inner.concurrency();
  if (o.in_service > 0) {
    o.reads = o.writes = plan::Gather::useful;
    o.full = o.limits.bytes;
    o.part = kReadPart;
  } else {
    // The kernel lets one writer at a time into a file, and any number of readers.
    o.reads = plan::Gather::never;
    o.writes = plan::Gather::always;
  }
  return o;
}

}  // namespace

class ScheduledStore::State : public std::enable_shared_from_this<State> {
 public:
  State(Store& inner, const SchedulerOptions& options, BufferPool& pool)
      : options_(options),
        inner_(inner),
        pool_(pool),
        works_inline_(inner.concurrency() == 0),
        schedule_(plan_options(options, inner)) {
    if (options.policy == SchedulerOptions::Policy::fifo) schedule_.use(plan::Policy::fifo);
  }

  void submit(Request&& request, Completion&& done, Origin origin);
  void forget(const Right& right) {
    std::lock_guard lock(mutex_);
    keys_.forget(right);
  }
  void close();
  SchedulerStatus status() const;

 private:
  struct Entry {  // one request
    Request request;
    Completion done;
    Origin origin;
    size_t requests = 1;  // that it is made of
    Time arrived;
    plan::QueueId queue = 0;
    uint64_t bytes = 0;
    Right unproven;  // empty: it has proved good before
    std::optional<Result<Reply>> result;
  };
  using EntryPtr = std::unique_ptr<Entry>;

  // One batch with the back end. Its end is handled by the last of `parties`: the completions of
  // the back end, and whoever submits, so that what completes inline does not nest.
  struct Service {
    plan::QueueId queue = 0;
    uint32_t run = 0;       // of the schedule's
    bool scheduled = true;  // the schedule knows of it
    bool alone = false;     // each member is a request of its own
    std::vector<EntryPtr> members, cancelled;
    std::optional<MergedRequest> merged;
    std::optional<Result<Reply>> result;
    std::atomic<size_t> parties{0};
  };

  void enlist(Request&& request, Completion&& done, Origin origin);
  struct Turn {
    Loop* loop;
    bool posted = false;
    unsigned waited = 0;   // turns, without issuing anything
    uint64_t arrived = 0;  // of all requests, when the last one ended
  };
  bool claim_turn(Loop& loop);
  bool waits_for_more(Turn& turn) const;
  void post_turn(Loop& loop);
  void turn(Loop& loop);
  void drain(Loop* here);
  struct Share {  // of the work that a task has done
    unsigned batches = 0;
    uint64_t bytes = 0;
    bool full() const { return batches >= kBatchesPerTask || bytes >= kBytesPerTask; }
  };
  bool hands_over(Loop* here, const Share& share, Loop*& to);
  std::unique_ptr<Service> next_service();
  bool begin_issuing();
  void end_issuing();

  void serve(std::unique_ptr<Service> service);
  void serve_whole(Service* s);
  void serve_alone(Service* s);
  void party_left(Service* s, bool on_completion);
  void go_on(Loop* loop);
  static void drop_cancelled(Service& s);
  static bool failed(const Service& s);
  void finish(Service* s);
  static void share(Service& s);
  void ended(const Service& s);
  void leave(const Entry& entry, Time when);
  void count(const Service& s);

  Duration busy(Time when) const;
  Time now(Loop* loop) const { return loop ? loop->now() : clock_.now(); }

  const SchedulerOptions options_;
  Store& inner_;
  BufferPool& pool_;
  const bool works_inline_;
  const SteadyClock clock_;

  mutable std::mutex mutex_;
  std::condition_variable quiet_;
  plan::Schedule schedule_;
  plan::AutoPolicy auto_;
  MergeKeys keys_;
  std::vector<EntryPtr> waiting_;  // by the id that the schedule knows; null: free
  std::vector<size_t> free_;
  plan::Schedule::Batch batch_;  // kept for its capacity
  uint64_t arrived_ = 0;         // requests, ever
  std::vector<Turn> turns_;      // few: one for each loop
  unsigned issuing_ = 0;         // threads that are about to call the back end for others
  bool closing_ = false;

  uint64_t live_ = 0;  // requests, waiting and in service
  Time busy_since_;    // if there are any
  Duration busy_before_{0};
  SchedulerStatus seen_;
  Histogram latency_;
};

// ---- In ----

void ScheduledStore::State::submit(Request&& request, Completion&& done, Origin origin) {
  bool gathers, post;
  {
    std::lock_guard lock(mutex_);
    enlist(std::move(request), std::move(done), origin);
    gathers = origin.loop && schedule_.policy() == plan::Policy::hbrr;
    post = gathers && claim_turn(*origin.loop);
  }
  if (post) post_turn(*origin.loop);
  if (!gathers) drain(origin.loop);
}

void ScheduledStore::State::enlist(Request&& request, Completion&& done, Origin origin) {
  auto e = std::make_unique<Entry>();
  const auto key = keys_.enter(request, inner_.identity(request.handle));
  e->queue = key.queue;
  e->bytes = request.file.total().value;
  if (!key.proven) e->unproven = request.right;
  e->arrived = now(origin.loop);
  e->origin = {origin.loop, origin.client};
  e->requests = origin.requests();
  e->done = std::move(done);
  e->request = std::move(request);
  ++arrived_;
  if (live_++ == 0) busy_since_ = e->arrived;
  if (free_.empty()) {
    free_.push_back(waiting_.size());
    waiting_.emplace_back();
  }
  const size_t id = free_.back();
  free_.pop_back();
  schedule_.add({.id = id,
                 .queue = e->queue,
                 .write = e->request.op == Op::write,
                 .client = origin.client,
                 .bounds = e->request.file.bounds(),
                 .bytes = e->bytes,
                 .pieces = key.proven ? mergeable_pieces(e->request) : 0});
  waiting_[id] = std::move(e);
  seen_.most_waiting = std::max<uint64_t>(seen_.most_waiting, schedule_.pending());
}

// True if nobody has posted to this loop what is now to be posted.
bool ScheduledStore::State::claim_turn(Loop& loop) {
  for (Turn& t : turns_) {
    if (t.loop == &loop) return !std::exchange(t.posted, true);
  }
  turns_.push_back({.loop = &loop, .posted = true});
  return true;
}

void ScheduledStore::State::post_turn(Loop& loop) {
  loop.post([self = shared_from_this(), &loop] { self->turn(loop); });
}

void ScheduledStore::State::turn(Loop& loop) {
  bool waits = false;
  {
    std::lock_guard lock(mutex_);
    for (Turn& t : turns_) {
      if (t.loop == &loop) t.posted = waits = waits_for_more(t);
    }
  }
  waits ? post_turn(loop) : drain(&loop);
}

// Those who were answered together come again within a few turns, in which a loop lets them have
// its core. A call for the first of them alone would keep all others waiting, and cost as much as
// one for all. So where merging has paid what is there waits until a turn has brought nothing.
bool ScheduledStore::State::waits_for_more(Turn& t) const {
  const bool quiet = std::exchange(t.arrived, arrived_) == arrived_;
  const bool waits =
      !works_inline_ && !quiet && t.waited < kMostTurns && schedule_.may_gather_more();
  t.waited = waits ? t.waited + 1 : 0;
  return waits;
}

// ---- To the back end ----

// Issues what may be issued, on this thread.
void ScheduledStore::State::drain(Loop* here) {
  for (Share share;; ++share.batches) {
    std::unique_ptr<Service> next;
    Loop* other = nullptr;
    {
      std::lock_guard lock(mutex_);
      if (closing_) return;
      if (!hands_over(here, share, other)) next = next_service();
      if (next) ++issuing_;
    }
    if (next) {
      for (const EntryPtr& e : next->members) {
        share.bytes += std::max(e->bytes, e->request.file.bounds().length.value);
      }
    }
    if (other) return post_turn(*other);
    if (!next) return;
    serve(std::move(next));
    end_issuing();
  }
}

// Has this thread done its share? Then another task goes on, to be posted to a loop if it is not
// yet.
bool ScheduledStore::State::hands_over(Loop* here, const Share& share, Loop*& to) {
  if (!works_inline_ || !share.full() || schedule_.pending() == 0) return false;
  if (!here && turns_.empty()) return false;
  Loop* const next = here ? here : turns_.front().loop;
  if (claim_turn(*next)) to = next;  // else it is posted already
  return true;
}

std::unique_ptr<ScheduledStore::State::Service> ScheduledStore::State::next_service() {
  if (!schedule_.next(batch_)) return nullptr;
  auto s = std::make_unique<Service>();
  s->queue = batch_.queue;
  s->run = batch_.run;
  s->members.reserve(batch_.ids.size());
  for (const uint64_t id : batch_.ids) {
    s->members.push_back(std::move(waiting_[id]));
    free_.push_back(id);
  }
  return s;
}

bool ScheduledStore::State::begin_issuing() {
  std::lock_guard lock(mutex_);
  if (!closing_) ++issuing_;
  return !closing_;
}

void ScheduledStore::State::end_issuing() {
  std::lock_guard lock(mutex_);
  if (--issuing_ == 0 && closing_) quiet_.notify_all();
}

void ScheduledStore::State::serve(std::unique_ptr<Service> service) {
  Service* const s = service.release();  // finish() destroys it
  drop_cancelled(*s);
  if (s->members.empty()) return finish(s);
  if (s->members.size() == 1) return serve_whole(s);
  std::vector<const Request*> parts;
  parts.reserve(s->members.size());
  for (const EntryPtr& e : s->members) parts.push_back(&e->request);
  s->merged =
      MergedRequest::make(std::move(parts), pool_, works_inline_ ? kLocalStaging : kOtherStaging);
  if (s->merged) return serve_whole(s);
  serve_alone(s);
}

void ScheduledStore::State::drop_cancelled(Service& s) {
  const auto stopped = [](const EntryPtr& e) { return e->request.stop.stop_requested(); };
  if (std::ranges::none_of(s.members, stopped)) return;
  for (EntryPtr& e : s.members) {
    if (!stopped(e)) continue;
    e->result.emplace(Error(ECANCELED));
    s.cancelled.push_back(std::move(e));
  }
  std::erase(s.members, nullptr);
}

void ScheduledStore::State::serve_whole(Service* s) {
  s->parties = 2;
  inner_.submit(s->merged ? s->merged->request() : std::move(s->members.front()->request),
                [self = shared_from_this(), s](Result<Reply>&& result) {
                  s->result.emplace(std::move(result));
                  self->party_left(s, true);
                });
  party_left(s, false);
}

void ScheduledStore::State::serve_alone(Service* s) {
  s->alone = true;
  s->parties = s->members.size() + 1;
  for (const EntryPtr& member : s->members) {
    Entry* const e = member.get();
    inner_.submit(std::move(e->request), [self = shared_from_this(), s, e](Result<Reply>&& result) {
      e->result.emplace(std::move(result));
      self->party_left(s, true);
    });
  }
  party_left(s, false);
}

void ScheduledStore::State::party_left(Service* s, bool on_completion) {
  if (s->parties.fetch_sub(1) > 1) return;
  Loop* const loop = (s->members.empty() ? s->cancelled : s->members).front()->origin.loop;
  finish(s);
  if (on_completion) go_on(loop);
}

// What may be issued now that a batch is back; those who were in it are about to come again.
void ScheduledStore::State::go_on(Loop* loop) {
  bool post = false;
  {
    std::lock_guard lock(mutex_);
    if (works_inline_ || closing_ || !schedule_.may_gather_more()) loop = nullptr;
    if (loop) post = claim_turn(*loop);
  }
  if (!loop) return drain(nullptr);
  if (post) post_turn(*loop);
}

// ---- Back ----

bool ScheduledStore::State::failed(const Service& s) {
  if (!*s.result) return true;
  const Op op = s.members.front()->request.op;
  uint64_t total = 0;
  for (const EntryPtr& e : s.members) total += e->bytes;
  return op == Op::write && (**s.result).count != total;
}

void ScheduledStore::State::finish(Service* s) {
  if (s->merged && failed(*s) && begin_issuing()) {
    s->merged.reset();
    serve_alone(s);
    return end_issuing();
  }
  const std::unique_ptr<Service> own(s);
  if (!s->alone && !s->members.empty()) share(*s);
  s->merged.reset();  // its buffer may be what others wait for
  ended(*s);
  for (const auto* entries : {&s->members, &s->cancelled}) {
    for (const EntryPtr& e : *entries) e->done(std::move(*e->result));
  }
}

void ScheduledStore::State::share(Service& s) {
  if (!s.merged) {
    s.members.front()->result.emplace(std::move(*s.result));
    return;
  }
  if (*s.result) s.merged->share((**s.result).count);
  for (size_t i = 0; i < s.members.size(); ++i) {
    auto& result = s.members[i]->result;
    if (*s.result) {
      result.emplace(std::in_place);
      (**result).count = s.merged->count(i);
    } else {
      result.emplace(Error(s.result->error()).with_done(0));
    }
  }
}

// The schedule, the keys and the numbers, before anybody hears of it.
void ScheduledStore::State::ended(const Service& s) {
  const Entry& any = *(s.members.empty() ? s.cancelled : s.members).front();
  const Time when = now(any.origin.loop);
  std::lock_guard lock(mutex_);
  if (s.scheduled) schedule_.ended(s.queue, s.run);
  count(s);
  for (const EntryPtr& e : s.members) {
    if (!e->unproven.empty() && *e->result) keys_.prove(e->queue, e->unproven);
  }
  for (const auto* entries : {&s.members, &s.cancelled}) {
    for (const EntryPtr& e : *entries) leave(*e, when);
  }
}

void ScheduledStore::State::leave(const Entry& e, Time when) {
  keys_.leave(e.queue);
  latency_.add(static_cast<uint64_t>(std::max<int64_t>((when - e.arrived).count(), 0)));
  if (--live_ == 0) busy_before_ += std::max(when - busy_since_, Duration::zero());
}

void ScheduledStore::State::count(const Service& s) {
  if (s.members.empty()) return;
  uint64_t n = 0, bytes = 0;
  for (const EntryPtr& e : s.members) n += e->requests, bytes += e->bytes;
  seen_.requests += n;
  seen_.bytes += bytes;
  ++seen_.batches;
  if (s.alone) {
    seen_.retried += n;
  } else if (n > 1) {
    seen_.merged += n;
  }
  ++seen_.sizes[std::min<size_t>(std::bit_width(n) - 1, seen_.sizes.size() - 1)];
  if (options_.policy != SchedulerOptions::Policy::automatic || closing_) return;
  schedule_.use(auto_.batch(n, bytes, busy(now(s.members.front()->origin.loop))));
}

Duration ScheduledStore::State::busy(Time when) const {
  return busy_before_ +
         (live_ > 0 ? std::max(when - busy_since_, Duration::zero()) : Duration::zero());
}

// ---- The end ----

void ScheduledStore::State::close() {
  std::vector<EntryPtr> left;
  {
    std::unique_lock lock(mutex_);
    closing_ = true;
    quiet_.wait(lock, [this] { return issuing_ == 0; });
    left = std::exchange(waiting_, {});
  }
  for (EntryPtr& e : left) {
    if (!e) continue;
    auto s = std::make_unique<Service>();
    s->scheduled = false;
    s->members.push_back(std::move(e));
    serve(std::move(s));
  }
}

SchedulerStatus ScheduledStore::State::status() const {
  using P = SchedulerOptions::Policy;
  std::lock_guard lock(mutex_);
  SchedulerStatus s = seen_;
  s.policy = options_.policy == P::fifo ? "fifo" : options_.policy == P::hbrr ? "hbrr" : "auto";
  s.why = options_.policy == P::automatic ? auto_.why() : s.policy + ": as configured";
  s.waiting = schedule_.pending();
  s.in_service = schedule_.in_service();
  s.p50 = latency_.percentile(0.50);
  s.p90 = latency_.percentile(0.90);
  s.p99 = latency_.percentile(0.99);
  return s;
}

// ---- The face ----

ScheduledStore::ScheduledStore(std::unique_ptr<Store> inner, const SchedulerOptions& options,
                               BufferPool& pool)
    : Decorator(std::move(inner)), state_(std::make_shared<State>(this->inner(), options, pool)) {}

ScheduledStore::~ScheduledStore() {
  state_->close();
  end_inner();
}

void ScheduledStore::submit(Request&& request, Completion&& done, Origin origin) {
  if (request.op == Op::close) state_->forget(request.right);
  if (!is_transfer(request.op) || !schedulable(request) || inner().gathers(request)) {
    return inner().submit(std::move(request), std::move(done));
  }
  state_->submit(std::move(request), std::move(done), origin);
}

void ScheduledStore::submit(Request&& request, Completion&& done) {
  submit(std::move(request), std::move(done), {});
}

Result<Reply> ScheduledStore::call(Request request) {
  if (is_transfer(request.op)) return Store::call(std::move(request));
  if (request.op == Op::close) state_->forget(request.right);
  return inner().call(std::move(request));
}

SchedulerStatus ScheduledStore::status() const {
  return state_->status();
}

}  // namespace forebay::server
