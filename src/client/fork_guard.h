// ForkGuard: tells a forked child from the process that made the guard, without a system call and
// without anything global: one word in a page that the kernel wipes in children (MADV_WIPEONFORK).
// Any thread.
#pragma once

#include <atomic>

namespace forebay {

class ForkGuard {
 public:
  ForkGuard();
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;

  bool forked() const { return word_->load(std::memory_order_relaxed) == 0; }

 private:
  std::atomic<int>* word_;
};

}  // namespace forebay
