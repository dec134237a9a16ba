#include "client/shortcuts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>

#include <algorithm>
#include <random>

#include "client/around_cache.h"
#include "store/posix_io.h"

namespace forebay {

namespace {

// Beyond what a program that opens something by the number of our descriptor might read first, and
// within every local file system's longest file.
constexpr uint64_t kLeastMark = 1ull << 32;

// A long request says so often that it moves, and looks whether it should go on.
constexpr uint64_t kStep = 4_MiB;

// A shortcut that lasted so long was worth asking for: the next one is, too.
constexpr Duration kLasted = std::chrono::seconds(1);

// The server reads over small holes, and gathers small pieces (server/sieved_store.h): a call for
// each would be dearer.
bool is_scattered(const Request& r) {
  constexpr uint64_t kMostPieces = 8, kSmall = 4_KiB;
  return r.file.pieces() > kMostPieces && r.file.total().value / r.file.pieces() < kSmall;
}

// By one call, to one piece.
constexpr size_t kMostMemory = 64;  // pieces
bool is_whole(const Request& r) {
  return r.op == Op::write && r.file.pieces() == 1 && r.file.total().value <= kMostInCommon &&
         r.memory.shape.pieces() <= kMostMemory;
}

// Not to be asked again.
bool is_final(const Error& why) {
  return why.code() == EOPNOTSUPP || why.code() == EACCES || why.code() == EPERM ||
         why.code() == EBADF || why.code() == EINVAL;
}

Time coarse_now() {
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return Time{std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec)};
}

struct Identity {
  uint64_t device = 0, inode = 0;
  bool operator==(const Identity&) const = default;
};

// Without its times: the next write to a file whose times were asked for must give it new ones,
// which costs as much again (multigrain timestamps, Linux 6.13).
std::optional<Identity> identity_of(int fd) {
  struct statx is;
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_INO, &is) != 0 || !S_ISREG(is.stx_mode)) {
    return std::nullopt;
  }
  return Identity{makedev(is.stx_dev_major, is.stx_dev_minor), is.stx_ino};
}

bool stands_at(int fd, off_t place) {
  return ::lseek(fd, 0, SEEK_CUR) == place;
}

// The path may be anything by now: it is opened only if it is the file that was meant.
Result<Fd> open_file(const std::string& path, const Identity& meant, int flags) {
  const Fd there(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!there) return Error(errno);
  if (identity_of(there.get()) != meant) return Error(ESTALE);
  const auto again = fmt::format("/proc/self/fd/{}", there.get());
  const Fd opened(::open(again.c_str(), flags | O_CLOEXEC | O_NOCTTY));
  if (!opened) return Error(errno);
  // Out of the way of programs that close what they do not know (preload/).
  Fd moved(::fcntl(opened.get(), F_DUPFD_CLOEXEC, 3));
  if (!moved) return Error(errno);
  return moved;
}

}  // namespace

struct Shortcuts::OpenFile final : posix::GatheredWrites::File {
  Fd fd;
  Identity identity;
  off_t mark = -1;  // where it stands, which nothing else has a use for
  bool reads = false, writes = false, direct = false;
  Descriptor* known = nullptr;  // for a forked child

  // False: it cannot be known again.
  bool put_mark() {
    std::random_device random;
    mark = static_cast<off_t>(kLeastMark + (uint64_t(random()) << 8));
    return ::lseek(fd.get(), mark, SEEK_SET) == mark;
  }
  // Is it still by its number?
  bool there() const { return stands_at(fd.get(), mark); }
  bool is(const Identity& other) const { return identity == other && there(); }
  int descriptor() const override { return there() ? fd.get() : -1; }
  ~OpenFile() {
    if (known) known->fd.store(-1);
    // If the program has closed it, and opened something else by its number, it is not ours.
    if (fd && !there()) fd.release();
  }
};

struct Shortcuts::Path {
  Handle file;
  Time since;
  std::shared_ptr<OpenFile> opened;
  bool reads = false, writes = false;
  bool common = false;  // with others, who write too
  uint64_t block = 0;   // around the page cache; 0: not
  std::shared_ptr<SharedRegion> region;
  ShortcutWord* word = nullptr;
  uint32_t generation = 0;
  uint64_t connection = 0;
  std::shared_ptr<GatherRoom> room;  // in common; null: none
  Turns turns;

  int fd() const { return opened->fd.get(); }
  void give_back() const { word->give_back(generation); }
  bool takes(const Request& r) const {
    if (common) return is_whole(r);
    if (block != 0 && (!is_blocks(r, block) || (r.op == Op::read && !may_read_around_cache())))
      return false;
    return r.op == Op::read ? reads : writes;
  }
};

Shortcuts::~Shortcuts() {
  give_back();
}

// With the lock held.
void Shortcuts::give_back(Known& known) {
  if (!known.path) return;
  known.path->give_back();
  known.path.reset();
  --paths_;
}

void Shortcuts::give_back() {
  std::lock_guard lock(mutex_);
  for (auto& [right, known] : rights_) give_back(known);
}

// Its descriptor is closed without the lock: the last one of a removed file may take long.
void Shortcuts::forget(const Right& right) {
  decltype(rights_)::node_type gone;
  std::lock_guard lock(mutex_);
  gone = rights_.extract(right.bytes);
  if (gone) give_back(gone.mapped());
}

void Shortcuts::abandon() {
  for (Descriptor& d : descriptors_) {
    const int fd = d.fd.exchange(-1);
    if (fd >= 0 && stands_at(fd, d.mark.load())) ::close(fd);
  }
}

std::optional<Result<Reply>> Shortcuts::call(const Request& r) {
  if (r.op == Op::close) {
    forget(r.right);
    return std::nullopt;
  }
  // What it would wait for itself.
  if (r.op == Op::resize || r.op == Op::fallocate || (r.flags & kFlagAppend) != 0) {
    give_back(r.handle, Time());
    return std::nullopt;
  }
  if (!is_transfer(r.op) || r.cookie != 0 || r.file.empty() || !r.caller || !check(r) ||
      !r.caller->same_identity(*self_)) {
    return std::nullopt;
  }
  if (is_scattered(r)) {
    give_back(r.handle, coarse_now() + kFirstPause);
    return std::nullopt;
  }
  const Found found = find(r);
  const PathRef path = found.ask ? ask(r) : found.path;
  return path && path->takes(r) ? use(path, r, Wait::yes) : std::nullopt;
}

bool Shortcuts::enter(const PathRef& path, const Request& r) {
  if ((path->room ? connected(*path) : alive(*path)) && path->word->enter(path->generation))
    return true;
  lost(r, path);
  return false;
}

std::optional<Result<Reply>> Shortcuts::use(const PathRef& path, const Request& r, Wait wait) {
  if (!enter(path, r)) return std::nullopt;
  struct Inside {
    ShortcutWord* word;
    ~Inside() { word->leave(); }
  };
  Result<Reply> result = [&] {
    const Inside inside{path->word};
    return move(r, *path, wait);
  }();
  if (!result && result.error().code() == EAGAIN) return std::nullopt;  // another thread's turn
  return outcome(path, r, std::move(result));
}

// The server is gone, or the descriptor, or the kernel does not do it around the page cache: it is
// sent, whole.
std::optional<Result<Reply>> Shortcuts::outcome(const PathRef& path, const Request& r,
                                                Result<Reply>&& result) {
  const int code = result ? 0 : result.error().code();
  const bool refused = code == EINVAL && path->block != 0;
  if (code != ENOTCONN && code != EBADF && !refused) return std::move(result);
  path->give_back();
  lost(r, path, refused);
  return std::nullopt;
}

void Shortcuts::sending(const Request& r) {
  if (r.op == Op::close) return forget(r.right);
  if (paths_.load() == 0 || (!is_transfer(r.op) && r.op != Op::resize && r.op != Op::fallocate)) {
    return;
  }
  give_back(r.handle, coarse_now() + kFirstPause, is_whole(r));
}

bool Shortcuts::may_write_here(const Request& r) {
  constexpr uint64_t kSmall = 64_KiB;
  return r.op == Op::write && (r.flags & kFlagAppend) == 0 && r.cookie == 0 &&
         r.file.pieces() == 1 && r.file.total().value <= kSmall;
}

// With the lock held.
Shortcuts::PathRef Shortcuts::path_for(const Request& r) {
  const auto found = rights_.find(r.right.bytes);
  if (found == rights_.end()) return nullptr;
  const PathRef& path = found->second.path;
  return path && path->block == 0 && path->takes(r) ? path : nullptr;
}

bool Shortcuts::has(const Request& r) {
  if (paths_.load() == 0) return false;
  std::lock_guard lock(mutex_);
  return path_for(r) != nullptr;
}

std::optional<Result<Reply>> Shortcuts::write_here(const Request& r) {
  if (paths_.load() == 0 || !r.caller || !r.caller->same_identity(*self_)) return std::nullopt;
  PathRef path;
  {
    std::lock_guard lock(mutex_);
    path = path_for(r);
  }
  return path ? use(path, r, Wait::no) : std::nullopt;
}

// ---- Together with others ----

bool Shortcuts::gather(const Request& r, Gathered& gathered) {
  if (paths_.load() == 0 || !r.caller || !r.caller->same_identity(*self_)) return false;
  PathRef path;
  {
    std::lock_guard lock(mutex_);
    path = path_for(r);
  }
  if (!path || !path->room || !path->room->writes().takes(r.file.total().value)) return false;
  if (!enter(path, r)) return false;
  posix::GatheredWrites& with_others = path->room->writes();
  if (!with_others.put(*path->opened, r.file.bounds().offset, r.memory, gathered.piece)) {
    path->word->leave();
    return false;
  }
  gathered.path = std::move(path);
  return true;
}

std::vector<Shortcuts::Written> Shortcuts::settle(std::span<const Request* const> requests,
                                                  std::span<Gathered> gathered) {
  std::vector<posix::GatheredWrites::Piece> pieces;
  std::vector<size_t> of_path;
  std::vector<bool> done(gathered.size());
  for (size_t first = 0; first < gathered.size(); ++first) {
    if (done[first]) continue;
    Path& path = *gathered[first].path;
    pieces.clear(), of_path.clear();
    for (size_t i = first; i < gathered.size(); ++i) {
      if (gathered[i].path.get() != &path) continue;
      pieces.push_back(gathered[i].piece);
      of_path.push_back(i);
      done[i] = true;
    }
    path.room->writes().settle(*path.opened, pieces);
    for (size_t i = 0; i < pieces.size(); ++i) gathered[of_path[i]].piece = pieces[i];
  }
  std::vector<Written> written;
  for (size_t i = 0; i < gathered.size(); ++i) {
    const Request& r = *requests[i];
    const PathRef path = std::move(gathered[i].path);
    Result<uint64_t> bytes = r.file.total().value;
    path->room->writes().count(*bytes);
    gathered_.add(!gathered[i].piece.alone);
    if (gathered[i].piece.alone) bytes = write_alone(r, *path);
    Result<Reply> reply = moved(r, *path, std::move(bytes));
    path->word->move_on();
    path->word->leave();
    written.push_back(outcome(path, r, std::move(reply)));
  }
  return written;
}

// ---- By threads of ours ----

bool Shortcuts::may_begin(const Request& r) {
  constexpr uint64_t kLeast = 256_KiB,
                     kMost = 64_MiB;  // less is the kernel's queue's, by the server
  return is_transfer(r.op) && (r.flags & kFlagAppend) == 0 && r.cookie == 0 &&
         r.file.total().value >= kLeast && r.file.total().value <= kMost && is_blocks(r, 4_KiB);
}

bool Shortcuts::worth_asking(const Request& r) {
  if (!r.caller || !r.caller->same_identity(*self_)) return false;
  std::lock_guard lock(mutex_);
  const auto found = rights_.find(r.right.bytes);
  if (found == rights_.end()) return rights_.size() < kMostRights;
  const Known& known = found->second;
  if (known.never || known.cached || coarse_now() < known.ask_at) return false;
  return !known.path || (known.path->block != 0 && !known.path->writes && r.op == Op::write);
}

Request Shortcuts::question(const Request& r) {
  find(r);  // counts it as asked
  return question_for(r);
}

void Shortcuts::answered(const Request& question, Answer&& answer) {
  install(question, std::move(answer), std::nullopt);
}

bool Shortcuts::begin(const Request& r, Begun done) {
  if (paths_.load() == 0 || !r.caller || !r.caller->same_identity(*self_)) return false;
  PathRef path;
  {
    std::lock_guard lock(mutex_);
    const auto found = rights_.find(r.right.bytes);
    if (found != rights_.end()) path = found->second.path;
  }
  if (!path || path->block == 0 || !path->takes(r) || !enter(path, r)) return false;
  auto turn =
      std::make_unique<Turns::Turn>(path->turns, r.file.bounds(), r.op == Op::write, Wait::no);
  bool taken = turn->mine();
  if (taken) {
    Task task = [this, path, &r, turn = std::move(turn), done = std::move(done)]() mutable {
      Result<uint64_t> bytes = alive(*path) ? move_bytes(r, *path, Wait::no) : Error(ENOTCONN);
      auto result = outcome(path, r, moved(r, *path, std::move(bytes)));
      turn.reset();
      path->word->leave();
      done(std::move(result));
    };
    taken = pool_.submit(task, this) == posix::Pool::Taken::yes;
  }
  if (!taken) path->word->leave();
  return taken;
}

bool Shortcuts::differ(const Request& a, const Request& b) {
  std::lock_guard lock(mutex_);
  const auto opened = [&](const Request& r) -> const OpenFile* {
    const auto found = rights_.find(r.right.bytes);
    if (found == rights_.end()) return nullptr;
    const Known& known = found->second;
    return known.path ? known.path->opened.get() : known.opened.get();
  };
  const OpenFile *one = opened(a), *other = opened(b);
  return one && other && one->identity != other->identity;
}

// ---- Having one ----

void Shortcuts::ask_later(const Request& r) {
  if (!r.caller || !r.caller->same_identity(*self_) || !find(r).ask) return;
  Request question = question_for(r);
  Request kept = question;
  parts_.ask_later(std::move(question), [this, kept = std::move(kept)](Answer&& answer) {
    install(kept, std::move(answer), std::nullopt);
  });
}

void Shortcuts::give_back(const Handle& file, Time ask_at, bool but_common) {
  if (paths_.load() == 0) return;
  std::lock_guard lock(mutex_);
  for (auto& [right, known] : rights_) {
    if (!known.path || known.path->file != file) continue;
    if (but_common && known.path->common) continue;
    give_back(known);
    known.pause = kFirstPause;
    known.ask_at = ask_at;
  }
}

Shortcuts::Found Shortcuts::find(const Request& r) {
  std::lock_guard lock(mutex_);
  auto found = rights_.find(r.right.bytes);
  if (found == rights_.end()) {
    if (rights_.size() >= kMostRights) return {};
    found = rights_.emplace(r.right.bytes, Known{}).first;
  }
  Known& known = found->second;
  if (known.path && known.path->takes(r)) return {known.path};
  if (known.never || (known.path && known.path->writes)) return {};
  if (known.path) {  // for reading: now it wants to write
    give_back(known);
    known.ask_at = Time();
  } else {
    ++known.calls;
    if (known.calls < kCallsWorthAsking && r.file.total().value < kWorthAsking) return {};
  }
  const Time now = coarse_now();
  if (now < known.ask_at) return {};
  known.ask_at = now + known.pause;
  known.pause = std::min(known.pause * 2, kLongestPause);
  return {nullptr, true};
}

Request Shortcuts::question_for(const Request& r) {
  Request question;
  question.op = Op::shortcut;
  question.caller = r.caller;
  question.handle = r.handle;
  question.right = r.right;
  r.op == Op::read ? question.flags = kFlagShared : question.value = posix::GatheredWrites::kLayout;
  return question;
}

Shortcuts::PathRef Shortcuts::ask(const Request& r) {
  const uint64_t submits = submits_.load();
  const Request question = question_for(r);
  return install(question, parts_.ask(Request(question)), submits);
}

// `submits`: nothing may have been submitted since.
Shortcuts::PathRef Shortcuts::install(const Request& question, Answer&& answer,
                                      std::optional<uint64_t> submits) {
  const std::string& right = question.right.bytes;
  std::shared_ptr<OpenFile> before;
  std::shared_ptr<GatherRoom> room;
  {
    std::lock_guard lock(mutex_);
    const auto known = rights_.find(right);
    if (known != rights_.end()) {
      before = std::move(known->second.opened);
      room = std::move(known->second.room);
    }
  }
  Result<PathRef> path = open(answer, (question.flags & kFlagShared) == 0, std::move(before));
  if (path && (answer.reply->value & kGathering) != 0) {
    (*path)->room = GatherRoom::enter(std::move(answer.handed), std::move(room));
  }
  std::lock_guard lock(mutex_);
  const auto found = rights_.find(right);
  if (!path) {
    if (found != rights_.end()) found->second.never = is_final(path.error());
    return nullptr;
  }
  // Closed by another thread meanwhile, or something was submitted that comes first.
  if (found == rights_.end() || (submits && submits_.load() != *submits)) {
    (*path)->give_back();
    return nullptr;
  }
  found->second.cached = (*path)->block == 0;
  (*path)->file = question.handle;
  (*path)->since = coarse_now();
  give_back(found->second);  // another thread's, of the same right
  found->second.path = *path;
  if ((*path)->opened->known) found->second.opened = (*path)->opened;
  found->second.room = (*path)->room;
  ++paths_;
  return *path;
}

// EAGAIN: another time perhaps.
Result<Shortcuts::PathRef> Shortcuts::open(const Answer& answer, bool writes,
                                           std::shared_ptr<OpenFile> before) {
  if (!answer.reply) return answer.reply.error();
  const Reply& reply = *answer.reply;
  const auto number = static_cast<uint32_t>(reply.value) & ~kShortcutMarks;
  if (!answer.region || number >= kShortcuts) return Error(EAGAIN);
  auto path = std::make_shared<Path>();
  path->region = answer.region;
  path->word = &answer.region->shortcut(number);
  path->generation = static_cast<uint32_t>(reply.value >> 32);
  path->connection = answer.connection;
  path->common = (reply.value & kInCommon) != 0;
  const bool direct = (reply.value & kAroundCache) != 0;
  path->block = direct ? std::max<uint64_t>(reply.attr.block_size, 4_KiB) : 0;
  if (direct && !writes && !may_read_around_cache()) {
    path->give_back();
    return Error(EOPNOTSUPP);
  }
  const Identity meant{reply.count, reply.attr.file_id};
  const bool reads = reply.end;
  if (before && before->is(meant) && (before->writes || !writes) && before->reads == reads &&
      before->direct == direct) {
    path->opened = std::move(before);
  } else {
    auto opened = std::make_shared<OpenFile>();
    const int how = direct ? O_DIRECT : 0;
    const int access = !writes ? O_RDONLY : reads ? O_RDWR : O_WRONLY;
    Result<Fd> fd = open_file(reply.data, meant, access | how);
    opened->reads = fd.has_value() && reads;
    if (!fd && writes && reads) fd = open_file(reply.data, meant, O_WRONLY | how);
    if (!fd) {
      path->give_back();
      return std::move(fd).error();
    }
    opened->fd = std::move(*fd);
    opened->identity = meant;
    if (!opened->put_mark()) {
      path->give_back();
      return Error(EOPNOTSUPP);
    }
    opened->writes = writes;
    opened->direct = direct;
    opened->known = keep(*opened);
    path->opened = std::move(opened);
  }
  path->writes = writes;
  path->reads = path->opened->reads;
  return path;
}

Shortcuts::Descriptor* Shortcuts::keep(const OpenFile& opened) {
  for (Descriptor& d : descriptors_) {
    int none = -1;
    if (!d.fd.compare_exchange_strong(none, kTaken)) continue;
    d.mark.store(opened.mark);
    d.fd.store(opened.fd.get());
    return &d;
  }
  return nullptr;
}

// The server wants it back, or is gone.
void Shortcuts::lost(const Request& r, const PathRef& path, bool for_good) {
  std::lock_guard lock(mutex_);
  const auto found = rights_.find(r.right.bytes);
  if (found == rights_.end() || found->second.path != path) return;
  Known& known = found->second;
  known.path.reset();
  --paths_;
  known.never = known.never || for_good;
  if (coarse_now() - path->since >= kLasted) known.pause = kFirstPause;
  known.ask_at = coarse_now() + known.pause;
}

bool Shortcuts::alive(const Path& path) {
  return path.opened->there() && connected(path);
}

bool Shortcuts::connected(const Path& path) {
  if (parts_.connection() != path.connection) return false;
  const Duration::rep now = coarse_now().since_start.count();
  if (now - looked_.load(std::memory_order_relaxed) < Duration(kLookEvery).count()) return true;
  pollfd look{parts_.socket(), POLLRDHUP, 0};
  if (look.fd < 0 || ::poll(&look, 1, 0) < 0 || look.revents & (POLLHUP | POLLRDHUP | POLLERR)) {
    return false;
  }
  looked_.store(now, std::memory_order_relaxed);
  return true;
}

// ---- Using it ----

// What is only begun is begun again by the server.
Result<uint64_t> Shortcuts::write_whole(const Request& r, const Path& path) {
  FOREBAY_ASSERT(is_whole(r));
  std::array<iovec, kMostMemory> memory;
  int count = 0;
  for (ExtentCursor at(r.memory.shape); !at.done(); at.advance(at.current().length)) {
    const Extent piece = at.current();
    memory[static_cast<size_t>(count++)] = {r.memory.at(piece.offset), piece.length.value};
  }
  const uint64_t total = r.file.total().value;
  const auto at = static_cast<off_t>(r.file.bounds().offset.value);
  const ssize_t n = count == 1 ? ::pwrite(path.fd(), memory[0].iov_base, memory[0].iov_len, at)
                               : ::pwritev(path.fd(), memory.data(), count, at);
  if (n < 0) return Error(errno);
  if (static_cast<uint64_t>(n) != total) return Error(ENOTCONN);
  return total;
}

// The descriptor is looked at only when it is used: by whoever writes for others, or here.
Result<uint64_t> Shortcuts::write_alone(const Request& r, const Path& path) {
  if (!path.opened->there()) return Error(EBADF);
  path.room->writes().make_way(*path.opened, r.file.bounds());
  return write_whole(r, path);
}

// Together with what others write, if that is faster.
Result<uint64_t> Shortcuts::write_in_common(const Request& r, Path& path) {
  const uint64_t total = r.file.total().value;
  if (!path.room) return write_whole(r, path);
  posix::GatheredWrites& with_others = path.room->writes();
  const bool written = with_others.write(*path.opened, r.file.bounds().offset, r.memory);
  gathered_.add(written);
  Result<uint64_t> result = written ? total : write_alone(r, path);
  with_others.count(total);
  return result;
}

// Those who wait for it themselves have it done by two threads.
Result<uint64_t> Shortcuts::move_around_cache(const Request& r, Path& path, Wait wait) {
  const MoveStep move = [&](Length from, Length length) -> Result<uint64_t> {
    if (from && !alive(path)) return Error(ENOTCONN);
    if (from && r.stop.stop_requested()) return Error(ECANCELED);
    auto moved = move_blocks(path.fd(), r, from, length, path.block);
    path.word->move_on();
    return moved;
  };
  const uint64_t total = r.file.total().value;
  if (wait == Wait::yes && total > kStep)
    return move_by_two(Length(total), Length(kStep), move, helpers_);
  for (uint64_t at = 0; at < total;) {
    const Length step(std::min(kStep, total - at));
    const auto part = move(Length(at), step);
    if (!part) return Error(part.error()).with_done(at + part.error().done());
    at += *part;
    if (*part < step.value) return at;  // the end of the file
  }
  return total;
}

Result<uint64_t> Shortcuts::move_bytes(const Request& r, Path& path, Wait wait) {
  const uint64_t total = r.file.total().value;
  const auto list = r.op == Op::write ? posix::write_list : posix::read_list;
  if (path.block != 0) return move_around_cache(r, path, wait);
  if (total <= kStep) return list(path.fd(), r.file, r.memory, io_calls_, {});
  uint64_t at = 0;
  while (at < total) {
    const Length step(std::min(kStep, total - at));
    const auto part = list(path.fd(), r.file.slice(Length(at), step),
                           r.memory.slice(Length(at), step), io_calls_, {});
    path.word->move_on();
    if (!part) return Error(part.error()).with_done(at + part.error().done());
    at += *part;
    if (*part < step.value) break;  // the end of the file
    if (!alive(path)) return Error(ENOTCONN);
    if (r.stop.stop_requested()) return Error(ECANCELED).with_done(at);
  }
  return at;
}

Result<Reply> Shortcuts::move(const Request& r, Path& path, Wait wait) {
  if (path.common) return moved(r, path, write_in_common(r, path));
  const Turns::Turn turn(path.turns, r.file.bounds(), r.op == Op::write, wait);
  if (!turn.mine()) return Error(EAGAIN);
  if (turn.waited() && !alive(path)) return Error(ENOTCONN);
  return moved(r, path, move_bytes(r, path, wait));
}

Result<Reply> Shortcuts::moved(const Request& r, const Path& path, Result<uint64_t> bytes) {
  if (!bytes) return std::move(bytes).error();
  const bool write = r.op == Op::write;
  ShortcutTotals& totals = path.region->shortcut_totals();
  (write ? totals.writes : totals.reads).fetch_add(1, std::memory_order_relaxed);
  (write ? totals.bytes_written : totals.bytes_read).fetch_add(*bytes, std::memory_order_relaxed);
  done_.add();
  Reply reply;
  reply.count = *bytes;
  return reply;
}

}  // namespace forebay
