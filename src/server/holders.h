// RightHolders: how many sessions of an export hold a right. A right may be passed from one client
// to another, and a Store knows it as open or not: so it is closed there when its last holder lets
// go of it, and an unlinked file does not vanish under the others.
//
// Any thread.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <unordered_map>

namespace forebay::server {

class RightHolders {
 public:
  // One more session holds the right.
  void hold(const std::string& right) {
    std::lock_guard lock(mutex_);
    ++holders_[right];
  }
  // One session less.
  void let_go(const std::string& right) {
    std::lock_guard lock(mutex_);
    const auto found = holders_.find(right);
    if (found != holders_.end() && --found->second == 0) holders_.erase(found);
  }
  bool held(const std::string& right) const {
    std::lock_guard lock(mutex_);
    return holders_.contains(right);
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, size_t> holders_;
};

}  // namespace forebay::server
