#include "fuse/write_back.h"

#include <algorithm>

#include "core/log.h"

namespace forebay::fuse {

namespace {

using namespace std::chrono_literals;

// One small write is not worth a lease, and one that was refused is not asked for at each.
constexpr unsigned kWorthALease = 3;
constexpr Duration kAskAgain = 200ms;
constexpr Duration kLookAround = 100ms;

}  // namespace

void WriteBack::start() {
  if (wanted_) thread_ = std::thread([this] { work(); });
}

void WriteBack::stop() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

bool WriteBack::good(const KeptWrites& kept) const {
  return kept.lease != 0 && !kept.recalled.load() && since_boot() < store_.leases_until();
}

// ---- Keeping. With the file's lock held ----

bool WriteBack::keep(Node& node, const Writer& writer, uint64_t at,
                     std::span<const std::byte> data) {
  if (!wanted_ || data.empty() || data.size() > kMostOfWrite || at > kMaxOffset - data.size()) {
    return false;
  }
  KeptWrites& kept = node.kept();
  std::lock_guard lock(kept.mutex);
  if (kept.readers > 0 || kept.refused) return false;
  if (!good(kept) && !take(node, writer)) return false;
  const bool another = kept.any && kept.right != writer.right;
  if (another || kept.bytes + data.size() > kMostOfFile || kept_ + data.size() > kMostInAll) {
    write_out(node);
  }
  if (kept_ + data.size() > kMostInAll) return false;
  if (!kept.any) {
    kept.right = writer.right;
    kept.caller = writer.caller;
    kept.since = since_boot();
    kept.any = true;
  }
  add(kept, at, data);
  return true;
}

// Runs that touch become one.
void WriteBack::add(KeptWrites& kept, uint64_t at, std::span<const std::byte> data) {
  const uint64_t end = at + data.size();
  auto run = kept.runs.upper_bound(at);
  if (run != kept.runs.begin() && std::prev(run)->first + std::prev(run)->second.size() >= at) {
    --run;
  } else {
    run = kept.runs.emplace_hint(run, at, std::vector<std::byte>());
  }
  const uint64_t before = kept.bytes;
  std::vector<std::byte>& bytes = run->second;
  const uint64_t old_end = run->first + bytes.size();
  if (end > old_end) {
    kept.bytes += end - old_end;
    bytes.resize(end - run->first);
  }
  std::ranges::copy(data, bytes.begin() + static_cast<ptrdiff_t>(at - run->first));
  for (auto next = std::next(run); next != kept.runs.end() && next->first <= end;) {
    const uint64_t next_end = next->first + next->second.size();
    const uint64_t shared = std::min(end, next_end) - next->first;
    kept.bytes -= shared;
    bytes.insert(bytes.end(), next->second.begin() + static_cast<ptrdiff_t>(shared),
                 next->second.end());
    next = kept.runs.erase(next);
  }
  kept_ += kept.bytes - before;
}

bool WriteBack::take(Node& node, const Writer& writer) {
  KeptWrites& kept = node.kept();
  if (kept.lease != 0) give_up(node);
  const Duration now = since_boot();
  if (++kept.small < kWorthALease || now - kept.asked < kAskAgain) return false;
  kept.asked = now;
  uint64_t losses = 0;
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return false;
    ++takes_;
    losses = losses_;
  }
  const Result<Reply> reply = store_.call(
      {.op = Op::lease, .caller = writer.caller, .handle = node.handle(), .right = writer.right});
  bool taken = false;
  {
    std::lock_guard lock(mutex_);
    const bool recalled = reply && early_.erase(reply->value) != 0;
    if (--takes_ == 0) early_.clear();
    taken = reply && !recalled && losses == losses_ && !stopping_;
    if (taken) held_[reply->value] = &node;
    if (taken) kept.recalled = false;
  }
  if (!reply) kept.refused = reply.error().code() == EOPNOTSUPP;
  if (reply && !taken) store_.give_back(reply->value);
  if (taken) kept.lease = reply->value;
  changed_.notify_all();
  return taken;
}

// ---- Writing. With the file's lock held ----

void WriteBack::write_out(Node& node) {
  KeptWrites& kept = node.kept();
  if (!kept.any) return;
  std::vector<std::byte> bytes;
  std::vector<Extent> places;
  bytes.reserve(kept.bytes);
  for (const auto& [at, run] : kept.runs) {
    places.push_back({Offset(at), Length(run.size())});
    bytes.insert(bytes.end(), run.begin(), run.end());
  }
  Result<Extents> file = Extents::make(std::move(places));
  const Result<Reply> written =
      file ? store_.call({.op = Op::write,
                          .flags = kFlagStable,
                          .caller = kept.caller,
                          .handle = node.handle(),
                          .right = kept.right,
                          .cookie = kept.lease,
                          .file = std::move(*file),
                          .memory = Memory::of(std::span<const std::byte>(bytes))})
           : Result<Reply>(std::move(file).error());
  if (!written) {
    log::error("{} bytes that were to be written are lost: {}", kept.bytes,
               written.error().message());
    // Whoever hears it asks for no stale handle.
    kept.error =
        written.error().code() == ESTALE ? Error(EIO, written.error().message()) : written.error();
    ++kept.errors;
  }
  kept.runs.clear();
  kept_ -= std::exchange(kept.bytes, 0);
  kept.any = false;
}

void WriteBack::give_up(Node& node) {
  KeptWrites& kept = node.kept();
  write_out(node);
  const uint64_t lease = std::exchange(kept.lease, 0);
  if (lease == 0) return;
  {
    std::lock_guard lock(mutex_);
    held_.erase(lease);
  }
  kept.small = 0;
  store_.give_back(lease);
}

bool WriteBack::settle(Node& node) {
  if (!wanted_ || !node.kept().any.load()) return false;
  std::lock_guard lock(node.kept().mutex);
  write_out(node);
  return true;
}

std::optional<Error> WriteBack::take_error(Node& node, uint64_t& seen) {
  if (!wanted_) return std::nullopt;
  const KeptWrites& kept = node.kept();
  std::lock_guard lock(node.kept().mutex);
  if (std::exchange(seen, kept.errors) == kept.errors) return std::nullopt;
  return kept.error;
}

uint64_t WriteBack::errors(Node& node) {
  std::lock_guard lock(node.kept().mutex);
  return node.kept().errors;
}

// ---- Who has it open ----

void WriteBack::opened_to_write(Node& node) {
  if (!wanted_) return;
  std::lock_guard lock(node.kept().mutex);
  ++node.kept().writers;
}

void WriteBack::closed_to_write(Node& node) {
  if (!wanted_) return;
  {
    std::lock_guard lock(node.kept().mutex);
    write_out(node);  // with the right that is about to be closed
    if (--node.kept().writers > 0) return;
    give_up(node);
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return at_work_ != &node; });
}

void WriteBack::opened_to_read(Node& node) {
  if (!wanted_) return;
  std::lock_guard lock(node.kept().mutex);
  ++node.kept().readers;
  give_up(node);
}

void WriteBack::closed_to_read(Node& node) {
  if (!wanted_) return;
  std::lock_guard lock(node.kept().mutex);
  --node.kept().readers;
}

// ---- Recalls, and what grows old ----

void WriteBack::recalled(uint64_t lease) {
  std::lock_guard lock(mutex_);
  const auto found = held_.find(lease);
  if (found == held_.end()) {  // not ours, given back meanwhile, or not known yet
    if (takes_ != 0) early_.insert(lease);
    return;
  }
  found->second->kept().recalled = true;
  recalls_.push_back(lease);
  changed_.notify_all();
}

void WriteBack::lost() {
  std::lock_guard lock(mutex_);
  ++losses_;
  early_.clear();
  for (const auto& [lease, node] : held_) {
    node->kept().recalled = true;
    recalls_.push_back(lease);
  }
  changed_.notify_all();
}

void WriteBack::visit(std::unique_lock<std::mutex>& lock, Node& node, bool leave) {
  at_work_ = &node;
  lock.unlock();
  {
    KeptWrites& kept = node.kept();
    std::lock_guard file(kept.mutex);
    if (leave) {
      give_up(node);
    } else if (kept.any && since_boot() - kept.since >= kAge) {
      write_out(node);
    }
  }
  lock.lock();
  at_work_ = nullptr;
  changed_.notify_all();
}

void WriteBack::work() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (!recalls_.empty()) {
      const auto found = held_.find(recalls_.front());
      recalls_.pop_front();
      if (found != held_.end()) visit(lock, *found->second, true);
      continue;
    }
    if (held_.empty()) {
      changed_.wait(lock);
    } else {
      changed_.wait_for(lock, kLookAround);
    }
    for (const auto& [lease, node] : std::map<uint64_t, Node*>(held_)) {
      if (!recalls_.empty() || stopping_) break;
      if (held_.contains(lease) && node->kept().any) visit(lock, *node, false);
    }
  }
  while (!held_.empty()) visit(lock, *held_.begin()->second, true);
}

}  // namespace forebay::fuse
