// FairLock: a lock that many share or one has alone, and whoever wants it alone waits for those who
// share it at that moment only: who comes later waits behind. A std::shared_mutex lets new ones in
// as long as anybody shares it, which with a few busy threads is for ever.
//
// Not recursive, also not for those who share it.
#pragma once

#include <mutex>
#include <shared_mutex>

namespace forebay::mpiio {

class FairLock {
 public:
  void lock() {
    std::lock_guard next(door_);
    lock_.lock();
  }
  void unlock() { lock_.unlock(); }
  void lock_shared() {
    std::lock_guard next(door_);
    lock_.lock_shared();
  }
  void unlock_shared() { lock_.unlock_shared(); }

 private:
  std::mutex door_;  // of whoever waits to be let in
  std::shared_mutex lock_;
};

}  // namespace forebay::mpiio
