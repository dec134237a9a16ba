#include "server/relay.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

namespace forebay::server {
namespace {

// A name that changes each time we look is somebody's mischief.
constexpr int kMostTries = 16;

enum class Way : uint8_t { home, typed, lookup, readdir, create, remove, rename, here };

Way way_of(const Request& request) {
  switch (request.op) {
    case Op::getattr:
    case Op::setattr:
      return Way::typed;
    case Op::lookup:
      return Way::lookup;
    case Op::create:
      return Way::create;
    case Op::remove:
      return (request.flags & kFlagDirectory) != 0 ? Way::here : Way::remove;
    case Op::rename:
      return Way::rename;
    case Op::readdir:
      return (request.flags & kFlagPlus) != 0 ? Way::readdir : Way::here;
    case Op::mkdir:
    case Op::symlink:
    case Op::readlink:
    case Op::statfs:
    case Op::layout:
    case Op::xattr_get:
    case Op::xattr_set:
    case Op::xattr_list:
    case Op::xattr_remove:
      return Way::here;
    default:
      return Way::home;
  }
}

bool is_file(const Result<Reply>& found) {
  return found && found->attr.type == FileType::file;
}

Request about(Op op, const CallerRef& caller, const Handle& handle) {
  Request request;
  request.op = op;
  request.caller = caller;
  request.handle = handle;
  return request;
}

bool out_of_reach(const Error& error) {
  return error.code() == ENOTCONN || error.code() == ETIMEDOUT;
}

// A home that cannot be reached is not the fault of the connection that the client has.
Result<Reply> explained(Result<Reply>&& result, const std::string& home) {
  if (result) return std::move(result);
  const Error& error = result.error();
  if (!out_of_reach(error)) return std::move(result);
  Error out(error.code() == ENOTCONN ? EHOSTDOWN : ETIMEDOUT,
            fmt::format("the file lives at server '{}': {}", home, error.what()));
  if (error.is_outcome_unknown()) out = std::move(out).with_unknown_outcome();
  return std::move(out).with_done(error.done());
}

}  // namespace

class Relay::State : public std::enable_shared_from_this<State> {
 public:
  explicit State(Parts parts)
      : parts_(std::move(parts)), homes_(parts_.cluster->servers), self_(place_of_self()) {
    for (size_t i = 0; i < homes_.names().size(); ++i) others_.push_back(std::make_unique<Other>());
  }

  size_t home_of(const Handle& file) const { return homes_.of(parts_.local->identity(file)); }
  bool lives_here(const Handle& file) const { return home_of(file) == self_; }
  const std::string& name_of_home(const Handle& file) const {
    return homes_.names()[home_of(file)];
  }

  void submit(Request&& request, Completion&& done, Origin origin);
  void submit_at(const std::string& server, Request&& request, Completion&& done, Origin origin);
  void settle(Request&& request, Completion&& done, Origin origin);
  void submit_at(size_t place, Request&& request, Completion&& done, Loop& loop) {
    at(place, std::move(request), std::move(done), {&loop, 0, {}, false});
  }
  size_t servers() const { return homes_.names().size(); }
  size_t self() const { return self_; }
  void lease(Request&& ask, uint64_t client, Loop& loop, RelayedLeases::Taken then);
  std::optional<Duration> leases_left(Loop& loop);
  void close();

  bool acknowledged() const { return acknowledged_; }
  std::string status() const;
  uint64_t relayed() const;

 private:
  struct Reached {
    std::shared_ptr<RelayedLeases> leases;  // outlives the Store
    std::unique_ptr<Store> store;
  };
  using Stores = std::map<size_t, Reached>;  // by the server's place
  struct Call {                              // one that takes several steps
    Request request;
    Completion done;
    Origin origin;
    int tries = 0;
    size_t left = 0;      // answers to come
    bool narrow = false;  // of a create: the mode is still to be set
    Result<Reply> reply{std::in_place};
  };
  using CallRef = std::shared_ptr<Call>;

  size_t place_of_self() const {
    const auto& names = homes_.names();
    const auto found = std::ranges::find(names, parts_.cluster->self);
    FOREBAY_ASSERT(found != names.end(), "a server that is none of the list");
    return static_cast<size_t>(found - names.begin());
  }

  // Goes on where `result` is, on the call's loop.
  template <class Fn>
  void then(const CallRef& call, Request&& step, Fn&& fn);
  void at(size_t home, Request&& request, Completion&& done, Origin origin);
  void heard(size_t home, const Result<Reply>& result);
  void finish(const CallRef& call, size_t home);
  Result<Reached*> reach(size_t home, Loop& loop);

  void typed(const CallRef& call);
  void lookup(const CallRef& call);
  void readdir(const CallRef& call);
  void ask_attributes(const CallRef& call);
  void create(const CallRef& call);
  void create_here(const CallRef& call);
  void open_new(const CallRef& call);
  void set_mode(const CallRef& call);
  void remove(const CallRef& call);
  void rename(const CallRef& call);
  void rename_source(const CallRef& call);

  const Parts parts_;
  const plan::Homes homes_;
  const size_t self_;
  std::mutex mutex_;  // of stores_, but not of a loop's own
  std::map<Loop*, Stores> stores_;
  std::atomic<bool> closed_{false};
  std::atomic<bool> acknowledged_{false};
  struct Other {  // a server of the list
    Counter sent, under_way;
    enum class Seen : uint8_t { not_yet, there, no_answer };
    std::atomic<Seen> seen{Seen::not_yet};
  };
  std::vector<std::unique_ptr<Other>> others_;
};

// ---- Where to ----

Result<Relay::State::Reached*> Relay::State::reach(size_t home, Loop& loop) {
  Stores* mine;
  {
    std::lock_guard lock(mutex_);
    mine = &stores_[&loop];
  }
  Reached& there = (*mine)[home];
  if (there.store) return &there;
  auto made = parts_.cluster->reach(home, parts_.export_name, parts_.root, loop);
  if (!made) return made.error();
  there.store = std::move(*made);
  there.leases = std::make_shared<RelayedLeases>(*there.store, loop, parts_.leases);
  there.store->hold_leases(there.leases.get());
  return &there;
}

void Relay::State::lease(Request&& ask, uint64_t client, Loop& loop, RelayedLeases::Taken then) {
  if (closed_) return then(Error(ESHUTDOWN, "the server is stopping"));
  const auto there = reach(home_of(ask.handle), loop);
  if (!there) return then(there.error());
  std::string identity(parts_.local->identity(ask.handle));
  (*there)->leases->take(std::move(ask), {client, std::move(identity)}, std::move(then));
}

std::optional<Duration> Relay::State::leases_left(Loop& loop) {
  std::lock_guard lock(mutex_);
  std::optional<Duration> least;
  for (const auto& [home, there] : stores_[&loop]) {
    const auto left = there.leases ? there.leases->left() : std::nullopt;
    if (left) least = std::min(*left, least.value_or(*left));
  }
  return least;
}

void Relay::State::at(size_t home, Request&& request, Completion&& done, Origin origin) {
  if (closed_) return done(Error(ESHUTDOWN, "the server is stopping"));
  if (home == self_) return parts_.local->submit(std::move(request), std::move(done), origin);
  const auto there = reach(home, *origin.loop);
  if (!there) return done(there.error());
  others_[home]->sent.add();
  others_[home]->under_way.add();
  const bool write = request.op == Op::write;
  (*there)->store->submit(std::move(request),
                          [self = shared_from_this(), home, write,
                           done = std::move(done)](Result<Reply>&& result) mutable {
                            if (write && result && result->verifier != 0)
                              self->acknowledged_ = true;
                            self->heard(home, result);
                            done(explained(std::move(result), self->homes_.names()[home]));
                          });
}

void Relay::State::heard(size_t home, const Result<Reply>& result) {
  Other& other = *others_[home];
  other.under_way.subtract();
  const bool silent = !result && out_of_reach(result.error());
  other.seen = silent ? Other::Seen::no_answer : Other::Seen::there;
}

template <class Fn>
void Relay::State::then(const CallRef& call, Request&& step, Fn&& fn) {
  parts_.local->submit(
      std::move(step),
      [self = shared_from_this(), call, fn = std::forward<Fn>(fn)](Result<Reply>&& result) mutable {
        Loop& loop = *call->origin.loop;
        if (loop.on_loop()) return fn(*self, std::move(result));
        loop.post([self, call, fn = std::move(fn),
                   kept = std::make_unique<Result<Reply>>(std::move(result))]() mutable {
          fn(*self, std::move(*kept));
        });
      },
      call->origin);
}

// What is left of it is the home's.
void Relay::State::finish(const CallRef& call, size_t home) {
  at(home, std::move(call->request), std::move(call->done), call->origin);
}

void Relay::State::submit(Request&& request, Completion&& done, Origin origin) {
  if (closed_) return done(Error(ESHUTDOWN, "the server is stopping"));
  const Way way = way_of(request);
  if (way == Way::home) {
    const size_t home = home_of(request.handle);
    return at(home, std::move(request), std::move(done), origin);
  }
  if (way == Way::here) return at(self_, std::move(request), std::move(done), origin);
  const auto call = std::make_shared<Call>(Call{std::move(request), std::move(done), origin});
  switch (way) {
    case Way::typed:
      return typed(call);
    case Way::lookup:
      return lookup(call);
    case Way::readdir:
      return readdir(call);
    case Way::create:
      return create(call);
    case Way::remove:
      return remove(call);
    default:
      return rename(call);
  }
}

void Relay::State::submit_at(const std::string& server, Request&& request, Completion&& done,
                             Origin origin) {
  const auto found = std::ranges::find(homes_.names(), server);
  if (found == homes_.names().end()) {
    return done(Error::outcome_unknown(
        fmt::format("server '{}', which did it, is not there any more", server)));
  }
  at(static_cast<size_t>(found - homes_.names().begin()), std::move(request), std::move(done),
     origin);
}

// At another server the right stays open, and what was acknowledged is written: as a commit.
void Relay::State::settle(Request&& request, Completion&& done, Origin origin) {
  if (closed_) return done(Error(ESHUTDOWN, "the server is stopping"));
  const size_t home = home_of(request.handle);
  if (home == self_) return parts_.local->settle(std::move(request), std::move(done), origin);
  Request commit = about(Op::commit, request.caller, request.handle);
  commit.right = std::move(request.right);
  commit.flags = kFlagDataOnly;
  at(home, std::move(commit), std::move(done), origin);
}

// ---- Names ----

// Of a directory nothing is kept beside it, so that it is there whichever server is down. What
// cannot be found here the home may still know.
void Relay::State::typed(const CallRef& call) {
  if (lives_here(call->request.handle)) return finish(call, self_);
  Request look = about(Op::getattr, call->request.caller, call->request.handle);
  then(call, std::move(look), [call](State& s, Result<Reply>&& found) {
    const bool elsewhere = !found || is_file(found);
    s.finish(call, elsewhere ? s.home_of(call->request.handle) : s.self_);
  });
}

void Relay::State::lookup(const CallRef& call) {
  const CallerRef caller = call->request.caller;
  then(call, std::move(call->request), [call, caller](State& s, Result<Reply>&& found) {
    if (!is_file(found) || s.lives_here(found->handle)) return call->done(std::move(found));
    const size_t home = s.home_of(found->handle);
    Request ask = about(Op::getattr, caller, found->handle);
    call->reply = std::move(found);
    s.at(
        home, std::move(ask),
        [call](Result<Reply>&& now) {
          if (!now) return call->done(std::move(now));
          call->reply->attr = now->attr;
          call->done(std::move(call->reply));
        },
        call->origin);
  });
}

void Relay::State::readdir(const CallRef& call) {
  Request step = call->request;
  then(call, std::move(step), [call](State& s, Result<Reply>&& found) {
    call->reply = std::move(found);
    if (!call->reply) return call->done(std::move(call->reply));
    s.ask_attributes(call);
  });
}

void Relay::State::ask_attributes(const CallRef& call) {
  std::vector<size_t> elsewhere;
  for (size_t i = 0; i < call->reply->entries.size(); ++i) {
    const Entry& entry = call->reply->entries[i];
    if (entry.type == FileType::file && !entry.handle.empty() && !lives_here(entry.handle)) {
      elsewhere.push_back(i);
    }
  }
  call->left = elsewhere.size() + 1;
  const auto answered = [](const CallRef& one) {
    if (--one->left == 0) one->done(std::move(one->reply));
  };
  for (const size_t i : elsewhere) {
    if (!call->reply) break;  // one could not be asked
    const Handle handle = call->reply->entries[i].handle;
    at(
        home_of(handle), about(Op::getattr, call->request.caller, handle),
        [call, i, answered](Result<Reply>&& now) {
          // One that has gone meanwhile was there when the directory was read.
          const bool gone = !now && (now.error().code() == ESTALE || now.error().code() == ENOENT);
          if (now && call->reply) call->reply->entries[i].attr = now->attr;
          if (!now && !gone && call->reply) call->reply = now.error();
          answered(call);
        },
        call->origin);
  }
  answered(call);
}

// ---- Files that come and go ----

void Relay::State::create(const CallRef& call) {
  if ((call->request.flags & kFlagExclusive) != 0) return create_here(call);
  Request look = about(Op::lookup, call->request.caller, call->request.handle);
  look.name = call->request.name;
  then(call, std::move(look), [call](State& s, Result<Reply>&& found) {
    if (!found && found.error().code() == ENOENT) return s.create_here(call);
    s.finish(call, is_file(found) ? s.home_of(found->handle) : s.self_);
  });
}

// It is not there, and nobody else may come before us: who does is its home's business. It is
// opened where it lives, with a mode that lets its creator do so, and then gets its own.
void Relay::State::create_here(const CallRef& call) {
  Request step = call->request;
  const uint32_t needed = (allows(step.access, Access::read) ? 0400u : 0u) |
                          (allows(step.access, Access::write) ? 0200u : 0u);
  call->narrow = (step.mode & needed) != needed;
  step.mode |= needed;
  step.access = Access::none;
  step.flags = (step.flags | kFlagExclusive) & ~uint32_t{kFlagTruncate | kFlagDirect};
  then(call, std::move(step), [call](State& s, Result<Reply>&& result) {
    const bool raced = !result && result.error().code() == EEXIST &&
                       (call->request.flags & kFlagExclusive) == 0 && ++call->tries < kMostTries;
    if (raced) return s.create(call);
    if (!result || call->request.access == Access::none) return call->done(std::move(result));
    call->reply = std::move(result);
    s.open_new(call);
  });
}

void Relay::State::open_new(const CallRef& call) {
  Request open = about(Op::open, call->request.caller, call->reply->handle);
  open.access = call->request.access;
  open.flags = call->request.flags & kFlagDirect;
  at(
      home_of(call->reply->handle), std::move(open),
      [self = shared_from_this(), call](Result<Reply>&& opened) {
        // The file is there, and whoever tries again finds it.
        if (!opened) return call->done(Error(opened.error()).with_unknown_outcome());
        call->reply->right = std::move(opened->right);
        call->narrow ? self->set_mode(call) : call->done(std::move(call->reply));
      },
      call->origin);
}

void Relay::State::set_mode(const CallRef& call) {
  const size_t home = home_of(call->reply->handle);
  Request set = about(Op::setattr, call->request.caller, call->reply->handle);
  set.set.what = SetAttr::kMode;
  set.set.mode = call->request.mode;
  at(
      home, std::move(set),
      [self = shared_from_this(), call, home](Result<Reply>&& now) {
        if (now) {
          call->reply->attr = now->attr;
          return call->done(std::move(call->reply));
        }
        Request close = about(Op::close, call->request.caller, call->reply->handle);
        close.right = call->reply->right;
        call->reply = std::move(now).error().with_unknown_outcome();  // the file is there
        self->at(
            home, std::move(close), [call](Result<Reply>&&) { call->done(std::move(call->reply)); },
            call->origin);
      },
      call->origin);
}

void Relay::State::remove(const CallRef& call) {
  Request look = about(Op::lookup, call->request.caller, call->request.handle);
  look.name = call->request.name;
  then(call, std::move(look), [call](State& s, Result<Reply>&& found) {
    s.finish(call, is_file(found) ? s.home_of(found->handle) : s.self_);
  });
}

// At the home of the file that it replaces, which may be open there; if there is none, at that of
// the file itself, which so knows where it went.
void Relay::State::rename(const CallRef& call) {
  Request look = about(Op::lookup, call->request.caller, call->request.handle2);
  look.name = call->request.name2;
  then(call, std::move(look), [call](State& s, Result<Reply>&& found) {
    if (is_file(found)) return s.finish(call, s.home_of(found->handle));
    s.rename_source(call);
  });
}

void Relay::State::rename_source(const CallRef& call) {
  Request look = about(Op::lookup, call->request.caller, call->request.handle);
  look.name = call->request.name;
  then(call, std::move(look), [call](State& s, Result<Reply>&& found) {
    s.finish(call, is_file(found) ? s.home_of(found->handle) : s.self_);
  });
}

// ---- The end, and what is shown ----

void Relay::State::close() {
  closed_ = true;
  std::map<Loop*, Stores> stores;
  {
    std::lock_guard lock(mutex_);
    stores.swap(stores_);
  }
  for (auto& [loop, mine] : stores) {
    for (auto& [home, there] : mine) {
      if (there.leases) there.leases->close();
    }
  }
}

uint64_t Relay::State::relayed() const {
  uint64_t sum = 0;
  for (const auto& other : others_) sum += other->sent.get();
  return sum;
}

std::string Relay::State::status() const {
  std::string servers;
  for (size_t i = 0; i < homes_.names().size(); ++i) {
    const Other& other = *others_[i];
    const char* const states[] = {"not asked yet", "there", "no answer"};
    servers += fmt::format(R"({}{{"name": "{}", "state": "{}", "relayed": {}, "under_way": {}}})",
                           i == 0 ? "" : ", ", homes_.names()[i],
                           i == self_ ? "this one" : states[static_cast<int>(other.seen.load())],
                           other.sent.get(), other.under_way.get());
  }
  return fmt::format(R"({{"self": "{}", "servers": [{}]}})", parts_.cluster->self, servers);
}

Relay::Relay(Parts parts) : state_(std::make_shared<State>(std::move(parts))) {}

Relay::~Relay() {
  close();
}

void Relay::close() {
  state_->close();
}

bool Relay::lives_here(const Handle& file) const {
  return state_->lives_here(file);
}

void Relay::submit(Request&& request, Completion&& done, Origin origin) {
  state_->submit(std::move(request), std::move(done), origin);
}

std::string Relay::home_of(const Handle& file) const {
  return state_->lives_here(file) ? std::string() : state_->name_of_home(file);
}

void Relay::submit_at(const std::string& server, Request&& request, Completion&& done,
                      Origin origin) {
  state_->submit_at(server, std::move(request), std::move(done), origin);
}

void Relay::submit_at(size_t place, Request&& request, Completion&& done, Loop& loop) {
  state_->submit_at(place, std::move(request), std::move(done), loop);
}

void Relay::lease(Request&& ask, uint64_t client, Loop& loop, RelayedLeases::Taken then) {
  state_->lease(std::move(ask), client, loop, std::move(then));
}

std::optional<Duration> Relay::leases_left(Loop& loop) const {
  return state_->leases_left(loop);
}

size_t Relay::servers() const {
  return state_->servers();
}

size_t Relay::self() const {
  return state_->self();
}

void Relay::settle(Request&& request, Completion&& done, Origin origin) {
  state_->settle(std::move(request), std::move(done), origin);
}

bool Relay::acknowledged() const {
  return state_->acknowledged();
}

uint64_t Relay::relayed() const {
  return state_->relayed();
}

std::string Relay::status() const {
  return state_->status();
}

}  // namespace forebay::server
