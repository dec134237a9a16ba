// The threads that serve a mount. There is always one that waits for the kernel, up to a limit: a
// request that waits for a lost server must not keep others, nor the news of its own interruption,
// from being read. Threads beyond a few that wait end again.
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
  static constexpr unsigned kMost = 256, kMostIdle = 2;
  void work();
  void serve();
  void spawn_locked();

  fuse_session* const session_;
  Store& store_;
  const std::function<void()> ended_;
  std::mutex mutex_;
  std::condition_variable fewer_;
  unsigned threads_ = 0, idle_ = 0;
};

}  // namespace forebay::fuse
