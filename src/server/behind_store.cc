// The way of each kind of request past what was acknowledged before it.
#include "server/behind_store.h"

#include <algorithm>

#include "server/behind_state.h"

namespace forebay::server {
namespace {

constexpr size_t kMostRights = 1 << 16;   // proven; beyond, each is proven again by its next use
constexpr size_t kMostUnreported = 1024;  // files; beyond, every file's verifier changes

uint64_t mixed(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

void BehindStore::State::submit(Request&& r, Completion&& done, Origin origin) {
  if (r.op == Op::open || r.op == Op::create) done = proving(r, std::move(done));
  switch (r.op) {
    case Op::write:
      return write(std::move(r), std::move(done), origin);
    case Op::read:
      return read(std::move(r), std::move(done), origin);
    case Op::commit:
    case Op::close:
      return settle(std::move(r), std::move(done), origin, false);
    case Op::lookup:
      return watch(std::move(r), std::move(done));
    case Op::create:
      if ((r.flags & kFlagExclusive) == 0) return watch(std::move(r), std::move(done));
      break;
    case Op::readdir:
      if ((r.flags & kFlagPlus) != 0) return watch(std::move(r), std::move(done));
      break;
    case Op::open:
    case Op::link:
    case Op::getattr:
    case Op::setattr:
    case Op::resize:
    case Op::fallocate:
      if (const FileRef file = busy(r.handle)) {
        std::stop_token stop = r.stop;
        return when_settled(
            file, std::move(stop),
            [self = shared_from_this(), request = std::make_unique<Request>(std::move(r)),
             done = std::move(done)](std::optional<Error> why) mutable {
              if (why) return done(std::move(*why));
              self->forward(std::move(*request), std::move(done));
            });
      }
      break;
    default:
      break;
  }
  inner_.submit(std::move(r), std::move(done), origin);
}

// ---- Rights ----

// Under the lock. Has the Store accepted this right for such a request?
const BehindStore::State::Proof* BehindStore::State::proof(std::string_view key,
                                                           const Request& r) const {
  const auto found = proven_.find(r.right.bytes);
  if (found == proven_.end()) return nullptr;
  const Proof& p = found->second;
  const bool good = (r.op == Op::write ? p.write : p.read) && p.file == key &&
                    (p.writer->caller == r.caller || p.writer->caller->same_identity(*r.caller));
  return good ? &p : nullptr;
}

void BehindStore::State::prove(const Request& r, std::shared_ptr<const Writer> writer) {
  const std::string_view key = inner_.identity(writer->handle);
  std::lock_guard lock(mutex_);
  if (proven_.size() >= kMostRights) proven_.clear();
  Proof& p = proven_[writer->right.bytes];
  if (p.file != key || !p.writer->caller->same_identity(*writer->caller)) {
    p = {std::string(key), std::move(writer)};
  }
  (r.op == Op::write ? p.write : p.read) = true;
}

// Of an open: the Store itself has just given the right, so its first use need not prove it. With
// many ranks that write a few times each, the first writes would be most of what is not merged.
Completion BehindStore::State::proving(const Request& r, Completion&& done) {
  if (options_.when == When::never || !r.caller) return std::move(done);
  return [self = shared_from_this(), caller = r.caller, handle = r.handle, access = r.access,
          done = std::move(done)](Result<Reply>&& result) mutable {
    if (result && !result->right.empty()) {
      auto writer = std::make_shared<const Writer>(
          Writer{caller, result->handle.empty() ? handle : result->handle, result->right});
      for (const auto& [op, needed] :
           {std::pair(Op::write, Access::write), std::pair(Op::read, Access::read)})
        if (allows(access, needed)) self->prove({.op = op}, writer);
    }
    done(std::move(result));
  };
}

// ---- Writes ----

bool BehindStore::State::early(const Request& r, const Origin& origin) const {
  if (r.op != Op::write || options_.when == When::never || (r.flags & kFlagStable) != 0) {
    return false;
  }
  return (options_.when == When::always || (r.flags & kFlagBehind) != 0) && origin.loop &&
         r.caller && !r.file.empty() && r.memory.shape.total() == r.file.total() &&
         gains(origin.near);
}

void BehindStore::State::write(Request&& r, Completion&& done, Origin origin) {
  if (!early(r, origin)) return write_through(std::move(r), std::move(done), origin, false);
  used_ = true;
  std::shared_ptr<const Writer> writer;
  {
    std::lock_guard lock(mutex_);
    if (const Proof* p = proof(inner_.identity(r.handle), r)) writer = p->writer;
  }
  std::optional<std::vector<Piece>> pieces;
  if (writer) pieces = copy_pieces(r, writer, budget_);
  if (!pieces) return write_through(std::move(r), std::move(done), origin, !writer);
  Reply reply;
  reply.count = r.file.total().value;
  const std::string key(inner_.identity(r.handle));
  accept(r, std::move(*pieces), origin);
  {
    std::lock_guard lock(mutex_);
    reply.verifier = verifier(key);
  }
  done(std::move(reply));
}

void BehindStore::State::accept(const Request& r, std::vector<Piece> pieces, Origin origin) {
  std::vector<FileRef> due;
  bool arm_timer;
  {
    std::lock_guard lock(mutex_);
    FileRef& file = files_[std::string(inner_.identity(r.handle))];
    if (!file) file = std::make_shared<File>(std::string(inner_.identity(r.handle)));
    if (!file->busy()) ++busy_;
    if (file->dirty.empty()) file->since = origin.loop->now();
    file->newest = ++newest_;
    // In the order of the stream: where it meets itself the later bytes count.
    file->accepted += cost_of(r.file.total().value, pieces.size());
    for (Piece& piece : pieces) file->dirty.put(std::move(piece));
    const std::span<const uint64_t> writers =
        origin.clients.empty() ? std::span(&origin.client, 1) : origin.clients;
    for (const uint64_t id : writers) {
      Client* client = file->find(id);
      if (!client) client = &file->clients.emplace_back(Client{id, 0, {}});
      client->last = file->newest;
    }
    seen_.writes += writers.size();
    seen_.bytes += r.file.total().value;
    loop_ = origin.loop;
    due = press(file);
    arm_timer = !std::exchange(armed_, true);
  }
  if (arm_timer) arm(*origin.loop, options_.age);
  for (const FileRef& file : due) pump(file);
}

// To the Store, after what was acknowledged of the same bytes.
void BehindStore::State::write_through(Request&& r, Completion&& done, Origin origin,
                                       bool may_prove) {
  if (may_prove) {
    auto writer = std::make_shared<const Writer>(Writer{r.caller, r.handle, r.right});
    done = [self = shared_from_this(), writer = std::move(writer),
            done = std::move(done)](Result<Reply>&& result) mutable {
      Request kind;
      kind.op = Op::write;
      if (result) self->prove(kind, std::move(writer));
      done(std::move(result));
    };
  }
  FileRef file = busy(r.handle);
  {
    std::lock_guard lock(mutex_);
    seen_.through += early(r, origin);
    // What lies in its holes would be read and written back as it was before.
    const Extents whole = r.owns_holes ? Extents(r.file.bounds()) : Extents();
    const Extents& touched = r.owns_holes ? whole : r.file;
    if (file && !file->dirty.touch(touched) && !file->flushing.touch(touched)) file = nullptr;
  }
  if (!file) return inner_.submit(std::move(r), std::move(done), origin);
  std::stop_token stop = r.stop;
  when_settled(file, std::move(stop),
               [self = shared_from_this(), request = std::make_unique<Request>(std::move(r)),
                done = std::move(done)](std::optional<Error> why) mutable {
                 if (why) return done(std::move(*why));
                 self->forward(std::move(*request), std::move(done));
               });
}

// ---- Reads ----

void BehindStore::State::read(Request&& r, Completion&& done, Origin origin) {
  const FileRef file = busy(r.handle);
  if (!file) return inner_.submit(std::move(r), std::move(done), origin);
  bool touched;
  std::optional<std::vector<PieceCopy>> copies;
  {
    std::lock_guard lock(mutex_);
    touched = file->dirty.touch(r.file) || file->flushing.touch(r.file);
    const bool well_formed = r.caller && r.memory.shape.total() == r.file.total();
    if (touched && well_formed && proof(file->key, r)) {
      copies = gather(file->dirty, file->flushing, r.file);
    }
  }
  if (!touched) return read_around(file, std::move(r), std::move(done));
  if (!copies) return read_store(file, std::move(r), std::move(done));
  for (const PieceCopy& copy : *copies) {
    copy_in({copy.from, copy.length}, r.memory.slice(Length(copy.place), Length(copy.length)));
  }
  Reply reply;
  reply.count = r.file.total().value;
  done(std::move(reply));
}

// From the Store, when it has everything.
void BehindStore::State::read_store(const FileRef& file, Request&& r, Completion&& done) {
  std::stop_token stop = r.stop;
  when_settled(file, std::move(stop),
               [self = shared_from_this(), request = std::make_unique<Request>(std::move(r)),
                done = std::move(done)](std::optional<Error> why) mutable {
                 if (why) return done(std::move(*why));
                 auto writer = std::make_shared<const Writer>(
                     Writer{request->caller, request->handle, request->right});
                 self->forward(std::move(*request),
                               [self, writer = std::move(writer),
                                done = std::move(done)](Result<Reply>&& result) mutable {
                                 Request kind;
                                 kind.op = Op::read;
                                 if (result) self->prove(kind, std::move(writer));
                                 done(std::move(result));
                               });
               });
}

// None of its bytes are here; but what is here may lie behind them, so that where the Store sees
// the end of the file there is a hole.
void BehindStore::State::read_around(const FileRef& file, Request&& r, Completion&& done) {
  const uint64_t total = r.file.total().value;
  auto again = std::make_unique<Request>(r);
  forward(std::move(r), [self = shared_from_this(), file, total, again = std::move(again),
                         done = std::move(done)](Result<Reply>&& result) mutable {
    if (!result || result->count == total) return done(std::move(result));
    self->read_store(file, std::move(*again), std::move(done));
  });
}

// ---- Names: which file it is about is known only from the result ----

void BehindStore::State::watch(Request&& r, Completion&& done) {
  if (busy_ == 0) return inner_.submit(std::move(r), std::move(done));
  uint64_t since;
  {
    std::lock_guard lock(mutex_);
    ++watchers_;
    since = ++events_;
  }
  auto again = std::make_unique<Request>(r);
  forward(std::move(r), [self = shared_from_this(), since, again = std::move(again),
                         done = std::move(done)](Result<Reply>&& result) mutable {
    self->watched(since, std::move(*again), std::move(result), std::move(done));
  });
}

// If the result is about a file to which something was acknowledged and not written when the
// request began, it may be too old: then it is asked for again.
void BehindStore::State::watched(uint64_t since, Request&& r, Result<Reply>&& result,
                                 Completion&& done) {
  std::vector<FileRef> files;
  bool stale = false;
  {
    std::lock_guard lock(mutex_);
    const auto look_at = [&](const Handle& handle) {
      const std::string key(inner_.identity(handle));
      if (FileRef file = find(key); file && file->busy()) files.push_back(std::move(file));
      const auto ended = ended_.find(key);
      stale |= since < floor_ || (ended != ended_.end() && ended->second > since);
    };
    if (result && !result->handle.empty()) look_at(result->handle);
    if (result) std::ranges::for_each(result->entries, look_at, &Entry::handle);
    if (--watchers_ == 0) ended_.clear();
  }
  if (files.empty() && !stale) return done(std::move(result));
  when_settled(std::move(files),
               [self = shared_from_this(), request = std::make_unique<Request>(std::move(r)),
                reply = std::make_unique<Reply>(std::move(*result)),
                done = std::move(done)](std::optional<Error> why) mutable {
                 if (why) return done(std::move(*why));
                 if (request->op == Op::create) {
                   return self->correct(std::move(*request), std::move(*reply), std::move(done));
                 }
                 self->forward(std::move(*request), std::move(done));
               });
}

// A file that a create found: its attributes as they are now; and if it was truncated, what was
// written since then was acknowledged before, and is cut off as well.
void BehindStore::State::correct(Request&& create, Reply&& reply, Completion&& done) {
  Request r;
  r.op = Op::getattr;
  if ((create.flags & kFlagTruncate) != 0) {
    r.op = Op::resize;
    if (allows(create.access, Access::write)) r.right = reply.right;
  }
  r.caller = create.caller;
  r.handle = reply.handle;
  forward(std::move(r), [self = shared_from_this(), caller = create.caller,
                         reply = std::make_unique<Reply>(std::move(reply)),
                         done = std::move(done)](Result<Reply>&& result) mutable {
    if (result) {
      reply->attr = result->attr;
      return done(std::move(*reply));
    }
    if (!reply->right.empty()) {
      Request close;
      close.op = Op::close;
      close.caller = std::move(caller);
      close.handle = std::move(reply->handle);
      close.right = std::move(reply->right);
      self->forward(std::move(close), [](Result<Reply>&&) {});
    }
    done(std::move(result));
  });
}

// ---- Commit and close ----

void BehindStore::State::settle(Request&& r, Completion&& done, Origin origin, bool held) {
  std::string key(inner_.identity(r.handle));
  FileRef file;
  uint64_t upto = 0;
  {
    std::lock_guard lock(mutex_);
    // Before it waits: nothing more is acknowledged for a right that is being closed.
    if (r.op == Op::close && !held) proven_.erase(r.right.bytes);
    file = find(key);
    if (file) upto = file->newest;
  }
  std::stop_token stop = r.stop;
  Go go = [self = shared_from_this(), request = std::make_unique<Request>(std::move(r)),
           done = std::move(done), key = std::make_unique<std::string>(std::move(key)),
           client = origin.client, upto, held](std::optional<Error> why) mutable {
    if (why) return done(std::move(*why));
    auto finish = [self, done = std::move(done), key = std::move(key), client,
                   upto](Result<Reply>&& result) mutable {
      if (result) {
        self->committed(*key, client, upto);
        std::lock_guard lock(self->mutex_);
        result->verifier = self->verifier(*key);
      }
      done(std::move(result));
    };
    if (held) return finish(Reply{});
    self->forward(std::move(*request), std::move(finish));
  };
  if (!file) return go(std::nullopt);
  when_settled(file, std::move(stop), std::move(go));
}

// The client owes nothing for its writes up to this one, unless it has yet to be told of a loss.
void BehindStore::State::committed(const std::string& key, uint64_t client, uint64_t upto) {
  std::lock_guard lock(mutex_);
  const FileRef file = find(key);
  if (!file) return;
  std::erase_if(file->clients,
                [&](const Client& c) { return c.id == client && !c.loss && c.last <= upto; });
  drop_if_unused(file);
}

// ---- Losses ----

std::optional<Error> BehindStore::State::take_loss(uint64_t client, const Handle& handle) {
  std::lock_guard lock(mutex_);
  const FileRef file = find(inner_.identity(handle));
  Client* found = file ? file->find(client) : nullptr;
  if (!found || !found->loss) return std::nullopt;
  auto loss = std::exchange(found->loss, std::nullopt);
  // What is settled has been told; a later write makes it known here again.
  if (found->last <= file->settled)
    file->clients.erase(file->clients.begin() + (found - file->clients.data()));
  drop_if_unused(file);
  return loss;
}

void BehindStore::State::forget(uint64_t client) {
  std::lock_guard lock(mutex_);
  std::vector<FileRef> files;
  for (const auto& [key, file] : files_) {
    if (file->find(client)) files.push_back(file);
  }
  for (const FileRef& file : files) {
    Client& found = *file->find(client);
    if (found.loss) unreported(file->key);
    found = {};
    drop_if_unused(file);
  }
}

void BehindStore::State::untold(const Handle& handle) {
  std::lock_guard lock(mutex_);
  unreported(std::string(inner_.identity(handle)));
}

// Under the lock, as the next.
void BehindStore::State::unreported(const std::string& key) {
  ++unreported_[key];
  if (unreported_.size() <= kMostUnreported) return;
  ++forgotten_;
  unreported_.clear();
}

uint64_t BehindStore::State::verifier(const std::string& key) const {
  const auto found = unreported_.find(key);
  const uint64_t losses = found == unreported_.end() ? 0 : found->second;
  return std::max<uint64_t>(mixed(mixed(mixed(boot_) + forgotten_) + losses), 1);
}

bool BehindStore::State::all_told() const {
  std::lock_guard lock(mutex_);
  return unreported_.empty() && forgotten_ == 0;
}

BehindStatus BehindStore::State::status() const {
  std::lock_guard lock(mutex_);
  BehindStatus s = seen_;
  s.when = options_.when == When::never ? "off" : options_.when == When::asked ? "hint" : "on";
  s.memory = budget_.used();
  s.limit = budget_.limit();
  s.files = busy_;
  return s;
}

// ---- The face ----

BehindStore::BehindStore(std::unique_ptr<ScheduledStore> inner, const WriteBehindOptions& options,
                         uint64_t boot)
    : Decorator(std::move(inner)),
      scheduled_(static_cast<ScheduledStore&>(this->inner())),
      state_(std::make_shared<State>(scheduled_, options, boot)) {}

BehindStore::~BehindStore() {
  state_->close();
  end_inner();
}

void BehindStore::submit(Request&& request, Completion&& done, Origin origin) {
  // Nobody has asked for it so far: as if it were not here.
  if (!state_->used() && !state_->early(request, origin)) {
    return scheduled_.submit(std::move(request), std::move(done), origin);
  }
  state_->submit(std::move(request), std::move(done), origin);
}

void BehindStore::submit(Request&& request, Completion&& done) {
  submit(std::move(request), std::move(done), {});
}

void BehindStore::settle(Request&& close, Completion&& done, Origin origin) {
  state_->settle(std::move(close), std::move(done), origin, true);
}

void BehindStore::drain(Task done) {
  state_->drain(std::move(done));
}
std::optional<Error> BehindStore::take_loss(uint64_t client, const Handle& handle) {
  return state_->used() ? state_->take_loss(client, handle) : std::nullopt;
}
void BehindStore::forget(uint64_t client) {
  state_->forget(client);
}
void BehindStore::untold(const Handle& handle) {
  state_->untold(handle);
}
bool BehindStore::all_told() const {
  return state_->all_told();
}
bool BehindStore::keeps(const Handle& file) const {
  return state_->keeps(file);
}
bool BehindStore::keeps_all(bool near) const {
  return state_->keeps_all(near);
}
bool BehindStore::has_room(uint64_t bytes) const {
  return state_->has_room(bytes);
}
bool BehindStore::used() const {
  return state_->used();
}
BehindStatus BehindStore::status() const {
  return state_->status();
}

}  // namespace forebay::server
