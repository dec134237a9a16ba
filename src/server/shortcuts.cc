#include "server/shortcuts.h"

#include <sys/stat.h>

#include <algorithm>
#include <vector>

#include "core/log.h"
#include "core/process.h"
#include "server/session.h"
#include "transport/shared_pages.h"
#include "transport/shared_region.h"

namespace forebay::server {

namespace {

constexpr Duration kFirstPause = std::chrono::milliseconds(1);
constexpr Duration kLongestPause = std::chrono::milliseconds(16);

bool to_write(const Request& request) {
  return (request.flags & kFlagShared) == 0;
}

}  // namespace

ShortcutUse ShortcutUse::said_in(const SharedRegion& region) {
  const ShortcutTotals& now = region.shortcut_totals();
  const auto value = [](const std::atomic<uint64_t>& v) {
    return v.load(std::memory_order_relaxed);
  };
  return {value(now.reads), value(now.writes), value(now.bytes_read), value(now.bytes_written)};
}

// ---- Of an export ----

void ShortcutTable::used(const ShortcutUse& by) {
  std::lock_guard lock(mutex_);
  used_ += by;
}

ShortcutUse ShortcutTable::used() const {
  std::lock_guard lock(mutex_);
  return used_;
}

ShortcutTable::Lately ShortcutTable::Wanted::lately(Time now) const {
  const auto is = [&](const std::optional<Time>& when) { return when && now - *when < kQuiet; };
  return is(by_others) ? Lately::others : is(by_writer) ? Lately::a_writer : Lately::nobody;
}

ShortcutTable::Lately ShortcutTable::wanted_by(const std::string& file, Time now) {
  std::lock_guard lock(mutex_);
  const auto found = wanted_.find(file);
  return found == wanted_.end() ? Lately::nobody : found->second.lately(now);
}

void ShortcutTable::wanted(const std::string& file, ReservationTable::Mode by, Time now) {
  recalled.add();
  std::lock_guard lock(mutex_);
  if (wanted_.size() >= kMost) {
    std::erase_if(wanted_,
                  [&](const auto& one) { return one.second.lately(now) == Lately::nobody; });
    if (wanted_.size() >= kMost) wanted_.clear();
  }
  Wanted& of = wanted_[file];
  (by == ReservationTable::Mode::whole ? of.by_writer : of.by_others) = now;
}

bool ShortcutTable::give_space(Shortcut& to, uint32_t user, uint64_t layout) {
  std::lock_guard lock(mutex_);
  std::erase_if(spaces_, [](const auto& one) { return one.second.expired(); });
  const SpaceOf key{to.file_, user, layout};
  const auto found = spaces_.find(key);
  if (found != spaces_.end()) to.space_ = found->second.lock();
  if (!to.space_ && spaces_.size() < kMostSpaces) {
    if (auto made = SharedPages::create(kGatherSpace)) spaces_[key] = to.space_ = std::move(*made);
  }
  return to.space_ != nullptr;
}

// For good: nobody has it any more.
void ShortcutTable::take_space(Shortcut& from, bool for_good) {
  std::vector<std::shared_ptr<Shortcut>> all;  // let go of without the lock
  Space space;
  std::lock_guard lock(mutex_);
  space = std::exchange(from.space_, nullptr);
  if (!space || !for_good) return;
  std::erase_if(spaces_, [&](const auto& one) { return one.second.lock() == space; });
  for (const auto& [number, weak] : all_) {
    all.push_back(weak.lock());
    const auto& one = all.back();
    if (one && one->space_ == space) one->loop_.post([one] { one->recall(); });
  }
}

// What waits for them is never told: its loop is gone, or goes.
void ShortcutTable::end_all() {
  std::unordered_map<const Shortcut*, std::weak_ptr<Shortcut>> all;
  {
    std::lock_guard lock(mutex_);
    all.swap(all_);
  }
  for (const auto& [number, weak] : all) {
    if (const auto one = weak.lock()) one->end();
  }
}

// ---- One of them ----

Shortcut::Shortcut(Session& session, size_t number, uint32_t generation, const Request& request,
                   bool direct)
    : export_(session.exported().shared_from_this()),
      region_(session.region()),
      session_(session.weak_from_this()),
      loop_(session.loop()),
      pid_(session.kernel_pid()),
      number_(number),
      generation_(generation),
      writes_(to_write(request)),
      direct_(direct),
      amid_writes_(session.amid_writes()),
      right_(request.right.bytes),
      stall_(session.options().stall),
      most_(stall_ + session.options().deadline),
      pause_(kFirstPause) {}

ShortcutWord& Shortcut::word() const {
  return region_->shortcut(number_);
}

bool Shortcut::hold(ReservationTable::Mode mode) {
  return export_->reservations.hold(
      reservation_, file_, mode, Extents({Offset(0), Length(kMaxOffset)}), loop_,
      [weak = weak_from_this()](ReservationTable::Mode by) {
        const auto self = weak.lock();
        if (!self) return;
        // What a client has given back itself nobody had to ask for.
        if (self->word().is_open(self->generation_))
          self->export_->shortcuts.wanted(self->file_, by, self->loop_.now());
        self->recall();
      });
}

// What is looked at after the reservation cannot change while it is held.
Result<void> Shortcut::reserve(const Handle& handle) {
  using Mode = ReservationTable::Mode;
  file_ = export_->store().identity(handle);
  using Lately = ShortcutTable::Lately;
  const Lately lately = export_->shortcuts.wanted_by(file_, loop_.now());
  const bool may_share = writes_ && !direct_;
  if (lately == Lately::others || (lately == Lately::a_writer && !may_share)) {
    return Error(EAGAIN, "others use the file");
  }
  // What a client goes on sending before it has the answer would take the file back from itself.
  common_ = may_share &&
            (lately == Lately::a_writer || amid_writes_ || export_->reservations.in_use(file_));
  const Mode mode = common_ ? Mode::common : writes_ ? Mode::write : Mode::read;
  if (!hold(mode)) return Error(EAGAIN, "the file is in use");
  ++export_->shortcuts.out_;
  if (export_->store().keeps(handle)) return Error(EAGAIN, "writes of others wait in memory");
  if (!writes_) {
    if (export_->leases->writers()) return Error(EAGAIN, "somebody may have a lease to write");
    return {};
  }
  if (export_->state().keeps_end(handle)) return Error(EAGAIN, "the file is appended to");
  lent_ = export_->leases->lend(file_);
  if (!lent_) return Error(EAGAIN, "somebody has a lease of the file");
  return {};
}

void Shortcut::open() {
  opened_ = true;
  export_->shortcuts.granted.add();
  {
    std::lock_guard lock(export_->shortcuts.mutex_);
    export_->shortcuts.all_.emplace(this, weak_from_this());
  }
  word().open(generation_);
}

void Shortcut::gather(Session& session, uint32_t user, uint64_t layout) {
  ShortcutTable& table = export_->shortcuts;
  if (!common_ || layout == 0 || !table.give_space(*this, user, layout)) return;
  struct stat st;
  if (::fstat(space_->descriptor(), &st) != 0 || !session.hand(space_->descriptor()))
    return table.take_space(*this, false);
  space_inode_ = st.st_ino;
}

void Shortcut::recall() {
  if (ended() || std::exchange(recalled_, true)) return;
  if (!opened_) return end();
  word().close();
  progress_ = word().progress();
  asked_ = moved_ = loop_.now();
  look();
}

void Shortcut::look() {
  if (ended()) return;
  if (!word().used(generation_) || process_is_gone(pid_)) return end();
  if (const uint32_t now = word().progress(); now != progress_) {
    progress_ = now;
    moved_ = loop_.now();
  }
  if (loop_.now() - moved_ >= stall_ || loop_.now() - asked_ >= most_) {
    log::warn("a client with pid {} works on a file itself and does not let go of it: cut off",
              pid_);
    if (const auto session = session_.lock()) {
      session->shortcuts().bar();
      session->cut_off_holder();
    }
    return end();
  }
  loop_.after(pause_, [self = shared_from_this()] { self->look(); });
  pause_ = std::min(pause_ * 2, kLongestPause);
}

void Shortcut::end() {
  if (ended()) return;
  if (opened_) word().close();
  if (lent_) export_->leases->returned(file_);
  --export_->shortcuts.out_;
  {
    std::lock_guard lock(export_->shortcuts.mutex_);
    export_->shortcuts.all_.erase(this);
  }
  export_->shortcuts.take_space(*this, opened_ && word().used(generation_));
  reservation_.release();
  if (const auto session = session_.lock()) session->shortcut_ended();
}

// ---- Of a session ----

// A word for it: one that nobody uses, or the next one in turn.
Result<size_t> Shortcuts::room(const Request& request) {
  close(request.right.bytes);  // it wants another one
  const auto is_free = [](const std::shared_ptr<Shortcut>& one) { return !one || one->ended(); };
  auto found = std::ranges::find_if(all_, is_free);
  if (found == all_.end()) {
    found = all_.begin() + static_cast<ptrdiff_t>(next_++ % all_.size());
    (*found)->recall();
    if (!(*found)->ended()) return Error(EAGAIN, "too many files at once");
  }
  return static_cast<size_t>(found - all_.begin());
}

Result<Reply> Shortcuts::take(const Request& request) {
  if (barred_until_ && session_.loop().now() < *barred_until_) {
    return Error(EAGAIN, "a shortcut of this client had to be cut off");
  }
  Request probe;
  probe.op = to_write(request) ? Op::write : Op::read;
  probe.caller = request.caller;
  probe.handle = request.handle;
  probe.right = request.right;
  Export& exported = session_.exported();
  if (auto good = exported.store().admits(probe); !good) return std::move(good).error();
  Result<Store::LocalFile> file = exported.store().local_file(probe);
  if (!file) return std::move(file).error();
  if (file->direct != 0 && to_write(request) && exported.store().keeps_all(session_.near())) {
    return Error(EOPNOTSUPP, "writes of the file wait in memory");
  }
  const Result<size_t> number = room(request);
  if (!number) return number.error();
  const auto made =
      std::make_shared<Shortcut>(session_, *number, ++generation_, request, file->direct != 0);
  if (auto reserved = made->reserve(request.handle); !reserved) return std::move(reserved).error();
  made->open();
  made->gather(session_, request.caller->uid, request.value);
  all_[*number] = made;
  Reply reply;
  probe.op = Op::read;
  reply.end = exported.store().admits(probe).has_value();
  reply.value = made->value();
  reply.data = std::move(file->path);
  reply.count = file->device;
  reply.attr.file_id = file->inode;
  reply.attr.rdev = made->space_inode();
  reply.attr.block_size = file->direct;
  return reply;
}

void Shortcuts::close(std::string_view right) {
  for (const auto& one : all_) {
    if (one && one->right() == right) one->recall();
  }
}

void Shortcuts::recall_all() {
  for (const auto& one : all_) {
    if (one) one->recall();
  }
}

void Shortcuts::bar() {
  barred_until_ = session_.loop().now() + kBarred;
}

void Shortcuts::drop() {
  for (auto& one : all_) {
    if (const auto gone = std::exchange(one, nullptr)) gone->end();
  }
}

bool Shortcuts::none() const {
  return std::ranges::all_of(all_, [](const auto& one) { return !one || one->ended(); });
}

}  // namespace forebay::server
