// RightHolders: how many sessions of an export hold a right, and how many rights of a file are
// held. A right may be passed from one client to another, and a Store knows it as open or not: so
// it is closed there when its last holder lets go of it, and an unlinked file does not vanish under
// the others. What is only for those who have a file open goes with the last right to it.
//
// Any thread.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

namespace forebay::server {

class RightHolders {
 public:
  // One more session holds the right. `file`: Store::identity().
  void hold(const std::string& right, std::string_view file) {
    std::lock_guard lock(mutex_);
    auto& held = rights_[right];
    if (held.sessions++ != 0) return;
    held.file = file;
    ++files_[held.file];
  }
  // One session less. True: and that was the last that anybody held of its file.
  bool let_go(const std::string& right) {
    std::lock_guard lock(mutex_);
    const auto found = rights_.find(right);
    if (found == rights_.end() || --found->second.sessions != 0) return false;
    const auto file = files_.find(found->second.file);
    rights_.erase(found);
    if (--file->second != 0) return false;
    files_.erase(file);
    return true;
  }
  bool held(const std::string& right) const {
    std::lock_guard lock(mutex_);
    return rights_.contains(right);
  }
  bool open(std::string_view file) const {
    std::lock_guard lock(mutex_);
    return files_.contains(file);
  }

 private:
  struct Held {
    size_t sessions = 0;
    std::string file;
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Held> rights_;
  std::unordered_map<std::string, size_t, Hash, std::equal_to<>> files_;
};

}  // namespace forebay::server
