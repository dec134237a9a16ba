#include "store/posix_files.h"

#include <unistd.h>

#include <algorithm>

namespace forebay::posix {

Descriptor::~Descriptor() {
  --count_;
  if (direct() < 0) return;
  const Fd twin(direct());
  --count_;
}

int Descriptor::keep_direct(Fd twin) const {
  int known = kNotTried;
  if (!direct_.compare_exchange_strong(known, twin ? twin.get() : kNone)) return known;
  if (twin) ++count_;
  return twin ? twin.release() : kNone;
}

DescriptorPtr File::path() const {
  used_.store(true, std::memory_order_relaxed);
  std::lock_guard lock(mutex_);
  return path_;
}

File::Use File::use(const std::string& right, Access access) const {
  used_.store(true, std::memory_order_relaxed);
  std::lock_guard lock(mutex_);
  const auto found = rights_.find(right);
  if (found == rights_.end()) return {};
  return {true, found->second, access == Access::read ? read_ : write_};
}

bool File::has_rights() const {
  std::lock_guard lock(mutex_);
  return !rights_.empty();
}

FileTable::FileTable(size_t budget, bool can_override, CounterSet& counters)
    : budget_(budget), can_override_(can_override), evictions_(counters.get("posix.evictions")) {}

// Descriptors count themselves in us, so they go first.
FileTable::~FileTable() {
  ring_.clear();
  by_inode_.clear();
  for (Shard& s : shards_) s.files.clear();
  FOREBAY_ASSERT(count_ == 0);
}

const FileTable::Shard& FileTable::shard(const std::string& handle) const {
  return shards_[std::hash<std::string>()(handle) % kShards];
}

FileTable::Shard& FileTable::shard(const std::string& handle) {
  return shards_[std::hash<std::string>()(handle) % kShards];
}

FilePtr FileTable::find(const std::string& handle) const {
  const Shard& s = shard(handle);
  std::lock_guard lock(s.mutex);
  const auto found = s.files.find(handle);
  return found == s.files.end() ? nullptr : found->second;
}

FilePtr FileTable::find(const InodeId& id) const {
  std::lock_guard lock(mutex_);
  const auto found = by_inode_.find(id);
  return found == by_inode_.end() ? nullptr : found->second;
}

FileTable::Adopted FileTable::adopt(const Handle& handle, Fd path, const FileStat& stat) {
  auto descriptor = std::make_shared<const Descriptor>(std::move(path), count_);
  DescriptorPtr cached;
  FilePtr file;
  {
    std::lock_guard lock(mutex_);
    FilePtr& known = by_inode_[stat.id];
    if (!known) known = std::make_shared<File>(stat.id, stat.attr.type);
    file = known;
    add_alias(file, handle.bytes);
    enter_ring(file);
    std::lock_guard file_lock(file->mutex_);
    if (!file->path_) file->path_ = descriptor;
    cached = file->path_;
    file->used_ = true;
  }
  descriptor.reset();
  shrink();
  return {std::move(file), std::move(cached)};
}

void FileTable::add_alias(const FilePtr& file, const std::string& handle) {
  auto& names = file->handles_;
  if (std::find(names.begin(), names.end(), handle) != names.end()) return;
  if (names.size() == kMaxAliases) {
    // The first is most likely the one by which the file was opened, so it stays.
    const auto oldest = names.begin() + 1;
    Shard& old = shard(*oldest);
    std::lock_guard lock(old.mutex);
    old.files.erase(*oldest);
    names.erase(oldest);
  }
  names.push_back(handle);
  Shard& s = shard(handle);
  std::lock_guard lock(s.mutex);
  s.files[handle] = file;
}

bool FileTable::add_right(File& file, const std::string& right, Grant grant) {
  std::lock_guard lock(file.mutex_);
  if (file.dropped_) return false;
  file.rights_.emplace(right, grant);
  return true;
}

bool FileTable::remove_right(File& file, const std::string& right) {
  Doomed doomed;
  std::lock_guard lock(file.mutex_);
  if (file.rights_.erase(right) == 0) return false;
  if (!file.rights_.empty()) return false;
  // What was opened for rights goes with the last of them: nobody keeps a program file "busy", and
  // network file systems flush on close.
  doomed.push_back(std::move(file.read_));
  doomed.push_back(std::move(file.write_));
  file.direct = false;
  unpin_locked(file);
  return file.hidden || file.orphan;
}

DescriptorPtr FileTable::keep(const FilePtr& file, Access access, Fd fd, Access needed) {
  auto descriptor = std::make_shared<const Descriptor>(std::move(fd), count_);
  DescriptorPtr result;
  {
    std::lock_guard lock(mutex_);
    std::lock_guard file_lock(file->mutex_);
    // A dropped file is in no list that would ever close it; nor is one whose rights are gone.
    if (file->dropped_ || file->rights_.empty()) return descriptor;
    enter_ring(file);
    if (allows(access, Access::read) && !file->read_) file->read_ = descriptor;
    if (allows(access, Access::write) && !file->write_) file->write_ = descriptor;
    result = needed == Access::write ? file->write_ : file->read_;
  }
  descriptor.reset();
  shrink();
  return result;
}

bool FileTable::pin(const FilePtr& file, Fd&& path) {
  std::lock_guard lock(mutex_);
  std::lock_guard file_lock(file->mutex_);
  if (!file->pinned_ && !pin_locked(*file)) return false;
  if (path && !file->path_) {
    file->path_ = std::make_shared<const Descriptor>(std::move(path), count_);
    enter_ring(file);
  }
  return true;
}

bool FileTable::pin_locked(File& file) {
  if (pinned_.fetch_add(1) >= std::max<size_t>(budget_ / 2 / 3, 1)) {
    --pinned_;
    return false;
  }
  return file.pinned_ = true;
}

void FileTable::unpin_locked(File& file) {
  if (!file.pinned_) return;
  file.pinned_ = false;
  --pinned_;
}

void FileTable::shrink() {
  if (count_.load(std::memory_order_relaxed) <= budget_) return;
  Doomed doomed;
  std::lock_guard lock(mutex_);
  // An eighth at a time, so that a full cache is not swept for every new descriptor.
  sweep(budget_ - budget_ / 8, doomed);
}

void FileTable::make_room(size_t count) {
  Doomed doomed;
  const size_t now = count_;
  std::lock_guard lock(mutex_);
  sweep(now > count ? now - count : 0, doomed);
}

// Goes round until enough is released or everything was seen twice: the first time takes the bit.
void FileTable::sweep(size_t target, Doomed& doomed) {
  for (size_t steps = 2 * ring_.size(); steps > 0 && !ring_.empty(); --steps) {
    if (count_ <= target + doomed.size()) return;
    if (hand_ >= ring_.size()) hand_ = 0;
    const FilePtr file = ring_[hand_];
    if (file->used_.exchange(false, std::memory_order_relaxed) || !release(*file, doomed)) {
      ++hand_;
      continue;
    }
    evictions_.add();
    leave_ring(*file);
    if (file->dropped_) forget(*file);
  }
}

// Takes the descriptors of a file, unless they are pinned or a call is using them (which would
// close nothing now, and send that call's next step back to the handle). A file without rights is
// then dropped.
bool FileTable::release(File& file, Doomed& doomed) {
  std::lock_guard lock(file.mutex_);
  const bool in_use = !file.rights_.empty();
  const long io_owners = file.read_ == file.write_ ? 2 : 1;
  if (file.path_.use_count() > 1 || file.read_.use_count() > io_owners ||
      file.write_.use_count() > io_owners)
    return false;
  if (file.pinned_ || (in_use && must_pin(file) && pin_locked(file))) return false;
  if (file.read_ == file.write_) file.write_.reset();
  for (DescriptorPtr* d : {&file.path_, &file.read_, &file.write_})
    if (*d) doomed.push_back(std::exchange(*d, nullptr));
  file.dropped_ = !in_use;
  return true;
}

bool FileTable::must_pin(File& file) const {
  const DescriptorPtr& any = file.path_ ? file.path_ : file.write_ ? file.write_ : file.read_;
  if (!any || (!file.read_ && !file.write_)) return false;
  const Result<FileStat> stat = stat_of(any->get());
  if (stat && stat->attr.links == 0) return true;
  if (can_override_) return false;
  const int mode = (file.read_ ? R_OK : 0) | (file.write_ ? W_OK : 0);
  return ::faccessat(any->get(), "", mode, AT_EMPTY_PATH | AT_EACCESS) != 0;
}

void FileTable::drop(const FilePtr& file) {
  Doomed doomed;
  std::lock_guard lock(mutex_);
  {
    std::lock_guard file_lock(file->mutex_);
    if (file->dropped_ || !file->rights_.empty()) return;
    file->dropped_ = true;
    doomed.push_back(std::exchange(file->path_, nullptr));
  }
  leave_ring(*file);
  forget(*file);
}

void FileTable::forget(File& file) {
  for (const std::string& handle : file.handles_) {
    Shard& s = shard(handle);
    std::lock_guard lock(s.mutex);
    s.files.erase(handle);
  }
  by_inode_.erase(file.id);
}

void FileTable::enter_ring(const FilePtr& file) {
  if (file->place_ != kNowhere) return;
  file->place_ = ring_.size();
  ring_.push_back(file);
}

void FileTable::leave_ring(File& file) {
  if (file.place_ == kNowhere) return;
  ring_.back()->place_ = file.place_;
  std::swap(ring_[file.place_], ring_.back());
  ring_.pop_back();
  file.place_ = kNowhere;
}

}  // namespace forebay::posix
