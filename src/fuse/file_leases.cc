#include "fuse/file_leases.h"

#include <algorithm>

namespace forebay::fuse {

namespace {

using namespace std::chrono_literals;

// A question of the kernel's that was asked before pages were dropped has reached us by then.
constexpr Duration kSettled = 10ms;
constexpr Duration kTryAgain = 20ms;

// Threads that wait for pages: others must be there to bring them.
constexpr unsigned kMostDroppers = 128;

}  // namespace

void FileLeases::start(Drop drop, LeaseHolder* also) {
  if (!wanted_) return;
  drop_ = std::move(drop);
  also_ = also;
  store_.hold_leases(this);
  thread_ = std::thread([this] { work(); });
}

void FileLeases::stop() {
  if (!thread_.joinable()) return;
  store_.hold_leases(nullptr);
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

bool FileLeases::good(const Node& node) const {
  return node.view().lease.load() != 0 && since_boot() < store_.leases_until();
}

size_t FileLeases::held() const {
  std::lock_guard lock(mutex_);
  return held_.size();
}

bool FileLeases::opened(Node& node) {
  std::lock_guard lock(mutex_);
  ++node.view().opens;
  const auto held = held_.find(node.view().lease.load());
  return good(node) && held != held_.end() && !dropping_.contains(held->second.second);
}

void FileLeases::closed(Node& node) {
  uint64_t lease = 0;
  {
    std::unique_lock lock(mutex_);
    if (--node.view().opens > 0) return;
    loose_.erase(&node);
    changed_.wait(lock, [&] { return at_work_ != &node; });
    loose_.erase(&node);
    lease = node.view().lease.exchange(0);
    node.view().attr.reset();
    held_.erase(lease);
  }
  if (lease != 0) store_.give_back(lease);
}

// ---- Recalls ----

void FileLeases::recalled(uint64_t lease) {
  if (also_) also_->recalled(lease);
  std::lock_guard lock(mutex_);
  const auto found = held_.find(lease);
  if (found == held_.end()) {  // given back meanwhile, or not known yet
    if (takes_ != 0) early_.insert(lease);
    return;
  }
  const auto [node, number] = found->second;
  held_.erase(found);
  node->view().lease = 0;
  node->view().attr.reset();
  ++dropping_[number];
  jobs_.push_back({number, lease});
  changed_.notify_all();
}

void FileLeases::lost() {
  if (also_) also_->lost();
  std::lock_guard lock(mutex_);
  ++losses_;
  early_.clear();
  for (const auto& [lease, file] : std::exchange(held_, {})) {
    file.first->view().lease = 0;
    file.first->view().attr.reset();
    ++dropping_[file.second];
    // The connection may still be there, and somebody wait.
    jobs_.push_back({file.second, lease});
  }
  changed_.notify_all();
}

void FileLeases::work() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (!jobs_.empty()) {
      const Job job = jobs_.front();
      jobs_.pop_front();
      drop_now(lock, job.number, job.lease);
    } else if (loose_.empty()) {
      changed_.wait(lock);
    } else {
      changed_.wait_for(lock, kTryAgain);
      if (jobs_.empty() && !stopping_) try_again(lock);
    }
  }
}

void FileLeases::drop_now(std::unique_lock<std::mutex>& lock, uint64_t number, uint64_t lease) {
  lock.unlock();
  drop_(number);
  if (lease != 0) store_.give_back(lease);
  lock.lock();
  const auto count = dropping_.find(number);
  if (--count->second == 0) dropping_.erase(count);
  const Duration now = since_boot();
  if (dropped_.size() > 1024) {
    std::erase_if(dropped_, [&](const auto& one) { return now - one.second > kSettled; });
  }
  dropped_[number] = now;
}

// Whoever maps a file asks us no more, so we look after it ourselves.
void FileLeases::try_again(std::unique_lock<std::mutex>& lock) {
  for (const auto& [node, loose] : std::map<Node*, Loose>(loose_)) {
    if (!loose_.contains(node)) continue;
    at_work_ = node;
    lock.unlock();
    const bool had = good(*node);
    const bool held = had || take(*node, loose.number, loose.asker).has_value();
    lock.lock();
    at_work_ = nullptr;
    changed_.notify_all();
    if (node->view().refused) loose_.erase(node);
    if (!held) continue;
    loose_.erase(node);
    if (had) ++dropping_[loose.number];
    drop_now(lock, loose.number, 0);
  }
}

// ---- Taking ----

void FileLeases::tell(Node& node, uint64_t number, uint64_t size) {
  if (!wanted_) return;
  std::lock_guard lock(mutex_);
  KernelView& view = node.view();
  const auto dropped = dropped_.find(number);
  const bool heeded = view.lease == 0 && !dropping_.contains(number) &&
                      (dropped == dropped_.end() || since_boot() - dropped->second > kSettled);
  if (size != view.told) view.known = false;
  view.told = size;
  view.known = view.known || heeded;
}

void FileLeases::changed(Node& node, uint64_t end) {
  if (!wanted_) return;
  std::lock_guard lock(mutex_);
  KernelView& view = node.view();
  view.attr.reset();
  ++view.changes;
  ++view.edition;
  if (end > view.told) view.known = false;
  // A page may have been read in the middle of it.
  const auto held = held_.find(view.lease.load());
  if (held == held_.end() || dropping_.contains(held->second.second)) return;
  ++dropping_[held->second.second];
  jobs_.push_back({held->second.second, 0});
  changed_.notify_all();
}

bool FileLeases::may_take(Node& node, uint64_t number) {
  std::lock_guard lock(mutex_);
  const KernelView& view = node.view();
  return view.known && !view.refused && view.opens > 0 && !dropping_.contains(number) && !stopping_;
}

// The attributes under a new lease; nothing: there is none. What the kernel has from before is to
// be dropped, and counted as such.
std::optional<Attr> FileLeases::take(Node& node, uint64_t number, const Asker& asker) {
  std::lock_guard one_at_a_time(node.view().taking);
  if (good(node) || !may_take(node, number)) return std::nullopt;  // another thread has, meanwhile
  uint64_t losses = 0, changes = 0, before = 0;
  {
    std::lock_guard lock(mutex_);
    ++takes_;
    losses = losses_;
    changes = node.view().changes;
    before = node.view().lease.exchange(0);
    held_.erase(before);
  }
  // The new one takes its place at the Store, but not if the file has another handle by now.
  if (before != 0) store_.give_back(before);
  const Result<Reply> reply = store_.call({.op = Op::lease,
                                           .flags = kFlagShared,
                                           .caller = asker.caller,
                                           .handle = node.handle(),
                                           .right = asker.right});
  const uint64_t lease = reply ? reply->value : 0;
  {
    std::lock_guard lock(mutex_);
    KernelView& view = node.view();
    const bool recalled = early_.erase(lease) != 0;
    if (--takes_ == 0) early_.clear();
    if (!reply) {
      if (reply.error().code() == EOPNOTSUPP) view.refused = true;
      return std::nullopt;
    }
    if (losses == losses_ && !recalled && view.known && view.told == reply->attr.size &&
        view.opens > 0) {
      view.lease = lease;
      held_[lease] = {&node, number};
      if (view.changes == changes) view.attr = reply->attr;
      ++dropping_[number];
      return reply->attr;
    }
  }
  store_.give_back(lease);
  return std::nullopt;
}

Attr FileLeases::shown(Node& node, Attr attr) const {
  attr.mtime.nanoseconds -= attr.mtime.nanoseconds % 1000;
  attr.mtime.nanoseconds += node.view().edition % 1000;
  return attr;
}

Result<Attr> FileLeases::gate(Node& node, uint64_t number, const Asker& asker, const Ask& ask) {
  uint64_t before = 0, changes = 0;
  {
    std::lock_guard lock(mutex_);
    const bool vouched = good(node) && !dropping_.contains(number);
    if (vouched && node.view().attr) return shown(node, *node.view().attr);
    before = vouched ? node.view().lease.load() : 0;
    changes = node.view().changes;
  }
  std::optional<Attr> attr;
  if (!good(node)) attr = take(node, number, asker);
  const bool taken = attr.has_value();
  if (!attr) {
    Result<Reply> reply = ask();
    if (!reply) return std::move(reply).error();
    attr = std::move(reply->attr);
  }
  std::unique_lock lock(mutex_);
  KernelView& view = node.view();
  // The same lease all the time: what the kernel has is good.
  if (before != 0 && view.lease.load() == before && good(node)) {
    if (view.changes == changes) view.attr = attr;
    lock.unlock();
    tell(node, number, attr->size);
    lock.lock();
    return shown(node, *attr);
  }
  const bool has_size = view.known && view.told == attr->size;
  lock.unlock();
  tell(node, number, attr->size);
  lock.lock();
  ++view.edition;
  const Attr answer = shown(node, *attr);
  if (has_size && droppers_ < kMostDroppers) {
    ++droppers_;
    if (!taken) ++dropping_[number];
    drop_now(lock, number, 0);
    --droppers_;
  } else if (taken) {
    jobs_.push_back({number, 0});
    changed_.notify_all();
  }
  return answer;
}

void FileLeases::reads(Node& node, uint64_t number, const Asker& asker) {
  if (!wanted_ || good(node)) return;
  const bool held = take(node, number, asker).has_value();
  std::lock_guard lock(mutex_);
  if (node.view().refused) return;
  if (held) {
    jobs_.push_back({number, 0});
  } else {
    loose_.insert_or_assign(&node, Loose{number, asker});
  }
  changed_.notify_all();
}

}  // namespace forebay::fuse
