#include "store/store.h"

#include <condition_variable>
#include <mutex>

namespace forebay {

Result<Reply> Store::call(Request request) {
  // On the stack: call() returns only after the completion has let go of all of it.
  std::mutex mutex;
  std::condition_variable arrived;
  std::optional<Result<Reply>> result;
  submit(std::move(request), [&](Result<Reply>&& r) {
    std::lock_guard lock(mutex);
    result.emplace(std::move(r));
    arrived.notify_one();  // under the lock: the waiter may destroy us as soon as it is free
  });
  std::unique_lock lock(mutex);
  arrived.wait(lock, [&] { return result.has_value(); });
  return std::move(*result);
}

}  // namespace forebay
