// Attributes, the journal, and who waits for it. Appends are in shared_appends.cc.
#include "server/shared_state.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <cctype>
#include <cstring>

#include "core/crc32c.h"
#include "core/log.h"

namespace forebay::server {

namespace {

constexpr Duration kLookEvery = std::chrono::minutes(1);
constexpr Duration kLazySync = std::chrono::milliseconds(50);
constexpr size_t kRoom = 4096;  // files that are forgotten at once

uint64_t random_id() {
  uint64_t id = 0;
  while (id == 0) {
    if (::getrandom(&id, sizeof id, 0) != sizeof id) id = 0;
  }
  return id;
}

attr::Command::Kind kind_of(Op op) {
  using Kind = attr::Command::Kind;
  switch (op) {
    case Op::attr_create:
      return Kind::create;
    case Op::attr_remove:
      return Kind::remove;
    case Op::attr_set:
      return Kind::set;
    case Op::attr_fetch_add:
      return Kind::add;
    default:
      FOREBAY_ASSERT(op == Op::attr_cas);
      return Kind::swap;
  }
}

// As a part of a file's name.
std::string plain(std::string_view name) {
  std::string out(name.substr(0, 64));
  for (char& c : out) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.') c = '_';
  }
  return out;
}

std::string listed(const attr::Values* values) {
  std::string data;
  if (!values) return data;
  values->each([&](std::string_view name, uint64_t value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    data.append(bytes, sizeof bytes).append(name).push_back('\0');
  });
  return data;
}

std::string listed(const std::vector<attr::Hole>& holes) {
  std::string data;
  for (const attr::Hole& hole : holes) {
    char bytes[sizeof hole.offset + sizeof hole.length];
    std::memcpy(bytes, &hole.offset, sizeof hole.offset);
    std::memcpy(bytes + sizeof hole.offset, &hole.length, sizeof hole.length);
    data.append(bytes, sizeof bytes);
  }
  return data;
}

}  // namespace

// ---- Beginning and end ----

Result<std::shared_ptr<SharedState>> SharedState::open(const StateOptions& options, Store& store,
                                                       const std::string& name, bool others) {
  if (options.folder.empty()) {
    return std::shared_ptr<SharedState>(new SharedState(random_id()));
  }
  auto root = store.root();
  if (!root) return std::move(root).error();
  attr::State state;
  const uint32_t top = crc32c(store.identity(*root));
  auto journal =
      Journal::open({fmt::format("{}/{}-{:08x}.journal", options.folder, plain(name), top),
                     fmt::format("export '{}', whose top is {:08x}", name, top), options.sync,
                     options.compact_at},
                    [&](const Command& c) -> Result<void> {
                      if (auto applied = state.apply(c); !applied)
                        return std::move(applied).error();
                      return {};
                    });
  if (!journal) return std::move(journal).error();
  if (options.vouch) {
    if (auto good = options.vouch((*journal)->id(), (*journal)->made()); !good) {
      return std::move(good).error();
    }
  }
  std::shared_ptr<SharedState> self(new SharedState((*journal)->id()));
  self->state_ = std::move(state);
  self->journal_ = std::move(*journal);
  if (auto loaded = self->load(store, name, others); !loaded) return std::move(loaded).error();
  if (options.sync) self->syncer_ = std::thread([raw = self.get()] { raw->run_syncs(); });
  return self;
}

// A new life: what nobody can come back for is settled, and files that are gone are forgotten.
Result<void> SharedState::load(Store& store, const std::string& name, bool others) {
  if (journal_->torn() != 0) {
    log::warn(
        "export '{}': the last {} bytes of its state's journal were cut off: a write that was not "
        "finished, and not answered",
        name, journal_->torn());
  }
  (void)apply({.kind = Kind::life, .value = state_.life() + 1});
  for (const Command& lost : state_.orphans()) (void)apply(lost);
  resolve_names(store, name, others);
  look_for_files(store, name);
  inherit_temporaries();
  const uint64_t upto = journal_->last();
  if (auto written = journal_->write(journal_->take()); !written) return written;
  written_ = upto;
  seen_.journaled = true;
  seen_.sync = journal_->sync();
  return {};
}

// A handle that is more than its file's identity says where that was, and is stale if the file was
// moved: then it may be anywhere, and whoever opens it there finds its attributes.
void SharedState::look_for_files(Store& store, const std::string& name) {
  size_t gone = 0;
  for (const auto& [number, handle] : state_.files()) {
    Request r;
    r.op = Op::getattr;
    r.caller = this_process_caller();
    r.handle = handle;
    const Result<Reply> there = store.call(std::move(r));
    if (there || there.error().code() != ESTALE) continue;
    if (store.identity(handle) != handle.bytes) {
      missing_.insert(number);
      continue;
    }
    (void)apply({.kind = Kind::forget_file, .file = number});
    ++gone;
  }
  if (gone != 0)
    log::info("export '{}': attributes of {} files that are gone are forgotten", name, gone);
  if (!missing_.empty()) {
    log::info("export '{}': {} files with attributes were removed, or are not where they were",
              name, missing_.size());
  }
}

void SharedState::begin(const Around& around) {
  knows_files_ = state_.counts().files != 0;
  around_.emplace(around);
  store_ = &around.store;
}

void SharedState::close() {
  std::vector<std::unique_ptr<Mailbox>> dropped;
  std::unordered_map<std::string, LiveRef, Hash, std::equal_to<>> live;
  {
    std::unique_lock lock(mutex_);
    if (std::exchange(closed_, true)) return;
    if (journal_ && !journal_->sync()) write_some(lock);
    dropped = std::exchange(mailboxes_, {});
    live = std::exchange(live_, {});
    live_files_ = 0;
    wake_.notify_all();
  }
  if (syncer_.joinable()) syncer_.join();
  std::unique_lock lock(mutex_);
  quiet_.wait(lock, [&] { return !writing_; });
  journal_.reset();  // tasks that are posted may keep us longer
}

SharedState::~SharedState() {
  close();
}

std::string_view SharedState::key_of(const Handle& handle) const {
  return store_->identity(handle);
}

// ---- The state, under the lock ----

Result<uint64_t> SharedState::apply(const Command& command) {
  Result<uint64_t> result = state_.apply(command);
  if (result && journal_) {
    journal_->add(command);
    ++seen_.records;
  }
  return result;
}

// What is remembered of its request is of this user's share.
Result<uint64_t> SharedState::apply_for(const Caller& caller, const Command& command) {
  if (auto room = state_.room_for(command.once, caller.uid); !room) return std::move(room).error();
  // A journal that cannot be written will have it from the whole state, if it can be again.
  Result<uint64_t> result = failure_ ? state_.apply(command) : apply(command);
  if (!result || command.once.empty() || state_.has_user(command.once)) return result;
  const Command whose{
      .kind = Kind::user, .value = caller.uid, .once = {command.once.client, command.once.client2}};
  (void)(failure_ ? state_.apply(whose) : apply(whose));
  return result;
}

Result<uint32_t> SharedState::number_of(const Handle& handle, bool make) {
  const std::string_view key = key_of(handle);
  if (const uint32_t number = state_.find(key); number != 0 || !make) {
    if (!missing_.empty() && missing_.erase(number) != 0) {
      (void)apply({.kind = Kind::file, .file = number, .name = key, .handle = handle.bytes});
    }
    return number;
  }
  knows_files_ = true;
  const Command add{.kind = Kind::file,
                    .file = state_.next_file(),
                    .name = key,
                    .handle = key == handle.bytes ? std::string_view() : handle.bytes};
  Result<uint64_t> made = apply(add);
  if (!made && made.error().code() == ENOSPC) {
    make_room();
    made = apply(add);
  }
  if (!made) return std::move(made).error();
  return static_cast<uint32_t>(*made);
}

// For files. First go those of which the file system knows as much.
void SharedState::make_room() {
  std::vector<uint32_t> old = state_.bare_files(kRoom);
  if (old.empty()) old.assign(missing_.begin(), missing_.end());
  if (old.size() > kRoom) old.resize(kRoom);
  for (const uint32_t file : old) forget_file(file);
}

Result<uint64_t> SharedState::perform(const Request& r, std::string& data) {
  if (r.op == Op::attr_create) {
    const size_t more = attr::State::attribute_bytes(r.name);
    while (state_.attribute_bytes() + more > kMostAttributeBytes && !missing_.empty()) {
      forget_file(*missing_.begin());
    }
    if (state_.attribute_bytes() + more > kMostAttributeBytes) {
      return Error(ENOSPC, fmt::format("the server keeps {} MiB of attributes, and no more",
                                       kMostAttributeBytes >> 20));
    }
  }
  const Result<uint32_t> file = number_of(r.handle, r.op == Op::attr_create);
  if (!file) return file.error();
  if (r.op == Op::attr_get) return state_.get(*file, r.name);
  if (r.op == Op::attr_list) {
    const bool holes = (r.flags & kFlagPlus) != 0;
    data = holes ? listed(state_.holes(*file)) : listed(state_.values(*file));
    return holes ? state_.hole_count(*file) : uint64_t{0};
  }
  if (r.op == Op::attr_cas || *file == 0) {
    const Result<uint64_t> before = state_.get(*file, r.name);
    if (!before || *before != r.expected) return before;
  }
  const Command command{kind_of(r.op), *file, r.value, r.expected, r.once, r.name};
  Result<uint64_t> result = apply_for(*r.caller, command);
  if (!doubtful_.empty() && is_temporary(r.name)) note_temporary(*file);
  return result;
}

// If it was done before, its result; nothing: it is new.
Result<std::optional<uint64_t>> SharedState::recalled(const Request& r) {
  if (r.once.empty()) return std::optional<uint64_t>();
  auto done = state_.recall(r.once);
  if (!done) return std::move(done).error();
  if (!*done) return std::optional<uint64_t>();
  if ((*done)->kind != kind_of(r.op)) {
    return Error(EINVAL, fmt::format("{}: once: was another operation", op_info(r.op).name));
  }
  ++seen_.repeated;
  return std::optional((*done)->value);
}

uint64_t SharedState::tick_of(Time t) {
  return static_cast<uint64_t>(t.since_start / std::chrono::seconds(1)) + 1;
}

// Clients that have not asked for anything for long.
void SharedState::forget_old(Time now) {
  if (now - last_look_ < kLookEvery && last_look_ != Time{}) return;
  last_look_ = now;
  for (const Once& known : state_.clients_before(1)) state_.touch(known, tick_of(now));
  forget_doubtful(now);
  if (now.since_start < kRetain) return;
  for (const Once& old : state_.clients_before(tick_of({now.since_start - kRetain}))) {
    (void)apply({.kind = Kind::forget_client, .once = old});
  }
}

Error SharedState::refusal() const {
  return Error(failure_->code(),
               fmt::format("what clients share cannot be changed, because its journal cannot be "
                           "written: {}",
                           failure_->what()));
}

// ---- Requests ----

void SharedState::submit(Request&& r, Completion&& done, Loop* loop) {
  Waiting waiting;
  std::optional<Error> error;
  bool post = false, wait = false;
  {
    std::unique_lock lock(mutex_);
    if (closed_) return;
    auto known = op_info(r.op).changes ? recalled(r) : std::optional<uint64_t>();
    Result<uint64_t> result = uint64_t{0};
    if (!known) {
      result = std::move(known).error();
    } else if (*known) {
      result = **known;
    } else if (failure_ && op_info(r.op).changes) {
      result = refusal();
    } else {
      result = perform(r, waiting.data);
    }
    if (!result) error = std::move(result).error();
    if (!error) waiting.value = *result;
    if (loop && !r.once.empty()) {
      state_.touch(r.once, tick_of(loop->now()));
      forget_old(loop->now());
    }
    waiting.record = journal_ ? journal_->last() : 0;
    wait = !error && waiting.record > written_;
    if (wait && !loop) error = write_now(lock, waiting.record), wait = false;
    waiting.done = std::move(done);
    if (wait || (failure_ && loop)) post = put_off(wait ? std::move(waiting) : Waiting{}, *loop);
  }
  if (post) post_flush(*loop);
  if (wait) return;
  if (error) return waiting.done(std::move(*error));
  waiting.run({});
}

void SharedState::Waiting::run(const Result<void>& written) {
  if (then) return then(written);
  if (!written) return done(Error(written.error()).with_unknown_outcome());
  Reply reply;
  reply.value = value;
  reply.data = std::move(data);
  done(std::move(reply));
}

void SharedState::when_written(uint64_t record, Loop& loop, Callback<void(Result<void>)> then) {
  bool post = false;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    if (record > written_) {
      Waiting waiting;
      waiting.record = record;
      waiting.then = std::move(then);
      post = put_off(std::move(waiting), loop);
    }
  }
  if (post) return post_flush(loop);
  if (then) then({});
}

void SharedState::forget(const Once& client, Loop& loop) {
  bool post = false;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    (void)apply({.kind = Kind::forget_client, .once = client});
    post = put_off({}, loop);
  }
  if (post) post_flush(loop);
}

// ---- Writing the journal ----

SharedState::Mailbox& SharedState::mailbox(Loop& loop) {
  for (const auto& box : mailboxes_) {
    if (box->loop == &loop) return *box;
  }
  mailboxes_.push_back(std::make_unique<Mailbox>());
  mailboxes_.back()->loop = &loop;
  return *mailboxes_.back();
}

// Under the lock. True: a flush is to be posted.
bool SharedState::put_off(Waiting waiting, Loop& loop) {
  if (!journal_) return false;
  Mailbox& box = mailbox(loop);
  const bool waits = waiting.done || waiting.then;
  if (waits) box.waiting.push_back(std::move(waiting));
  if (journal_->sync()) {
    urgent_ = urgent_ || waits || failure_;
    return wake_.notify_one(), false;
  }
  return !std::exchange(box.posted, true);
}

// When all that has arrived on the loop has been looked at.
void SharedState::post_flush(Loop& loop) {
  loop.post([self = shared_from_this(), &loop] { self->flush(loop); });
}

void SharedState::flush(Loop& here) {
  std::vector<Waiting> ready;
  std::optional<Error> failure;
  uint64_t written = 0;
  {
    std::unique_lock lock(mutex_);
    if (closed_) return;
    mailbox(here).posted = false;
    if (!journal_->sync()) write_some(lock);
    if (closed_) return;
    // Those whose record is being written by somebody else are told when it is.
    Mailbox& box = mailbox(here);
    written = written_;
    const auto rest = std::ranges::find_if(
        box.waiting, [&](const Waiting& w) { return w.record > std::max(written, failed_); });
    ready.assign(std::make_move_iterator(box.waiting.begin()), std::make_move_iterator(rest));
    box.waiting.erase(box.waiting.begin(), rest);
    failure = failure_;
  }
  for (Waiting& waiting : ready) {
    waiting.run(waiting.record > written ? Result<void>(*failure) : Result<void>());
  }
}

// Writes what was added, unless somebody is at it; the lock is let go meanwhile.
void SharedState::write_some(std::unique_lock<std::mutex>& lock) {
  if (writing_ || (journal_->empty() && !failure_)) return;
  writing_ = true;
  const bool compact = journal_->wants_compaction();
  Journal::Snapshot snapshot;
  std::string records;
  compact ? void(snapshot = journal_->take_snapshot(state_)) : void(records = journal_->take());
  const uint64_t last = journal_->last();
  lock.unlock();
  Result<void> written = compact ? journal_->replace(snapshot) : journal_->write(records);
  lock.lock();
  writing_ = false;
  ++seen_.writes;
  seen_.compactions += compact && written;
  if (written) {
    written_ = last;
    failure_.reset();
  } else {
    if (!failure_) log::error("{}", written.error().message());
    failed_ = last;  // also of those who asked meanwhile, and changed nothing
    failure_ = std::move(written).error();
  }
  quiet_.notify_all();
  if (closed_) return;
  for (const auto& box : mailboxes_) {
    if (!box->waiting.empty() && !std::exchange(box->posted, true)) post_flush(*box->loop);
  }
}

// For those without a loop: until the record is written.
std::optional<Error> SharedState::write_now(std::unique_lock<std::mutex>& lock, uint64_t record) {
  while (record > written_ && record > failed_ && !closed_) {
    if (journal_->sync()) {
      urgent_ = true;
      wake_.notify_one();
      quiet_.wait(lock);
    } else if (writing_) {
      quiet_.wait(lock);
    } else {
      write_some(lock);
    }
  }
  if (record <= written_) return std::nullopt;
  return Error(failure_ ? failure_->code() : ESHUTDOWN, failure_ ? failure_->what() : "")
      .with_unknown_outcome();
}

void SharedState::run_syncs() {
  std::unique_lock lock(mutex_);
  const auto hurry = [&] { return closed_ || urgent_; };
  while (!closed_) {
    wake_.wait(lock, [&] { return hurry() || !journal_->empty(); });
    // What nobody waits for does not cost the next one a second wait for the disk.
    if (!hurry()) wake_.wait_for(lock, kLazySync, hurry);
    urgent_ = false;
    write_some(lock);
  }
  write_some(lock);
}

// ---- Status ----

SharedState::Status SharedState::status() const {
  std::lock_guard lock(mutex_);
  Status s = seen_;
  s.counts = state_.counts();
  s.life = state_.life();
  s.journal_bytes = journal_ ? journal_->size() : 0;
  s.failing = failure_.has_value();
  return s;
}

std::vector<attr::Hole> SharedState::holes(const Handle& handle) const {
  std::lock_guard lock(mutex_);
  return state_.holes(state_.find(key_of(handle)));
}

}  // namespace forebay::server
