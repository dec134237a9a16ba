// The threads that serve a mount. There is always one that waits for the kernel, up to a limit: a
// request that waits for a lost server must not keep others, nor the news of its own interruption,
// from being read.
//
// Few wait for the kernel (kReaders): it wakes them in turn, and each has megabytes of memory that
// should be warm. With two, the one that has just answered is not back when the next request comes,
// and a third is woken here for nothing each time. Others rest here, because a thread and its
// memory are dear to make; more than kResting end.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>

#include "store/store.h"

struct fuse_session;

namespace forebay::fuse {

class Workers {
 public:
  // `ended` is called once, by the last thread, when the kernel has let go of the mount.
  Workers(fuse_session* session, Store& store, std::function<void()> ended);
  ~Workers();  // waits for them

  void start();

 private:
  static constexpr unsigned kMost = 256, kReaders = 3, kResting = 16;
  void work();
  void serve();
  bool wait_for_turn();  // to read; false: it is over, or there are enough of us
  void took_request();   // somebody else must read now
  void over();
  void spawn_locked();

  fuse_session* const session_;
  Store& store_;
  const std::function<void()> ended_;
  std::mutex mutex_;
  std::condition_variable fewer_, turn_;
  unsigned threads_ = 0, readers_ = 0, resting_ = 0;
  unsigned turns_ = 0;  // given to those who rest and not taken yet; counted as readers already
  bool over_ = false;
};

}  // namespace forebay::fuse
