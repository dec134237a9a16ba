#include "store/memory.h"

#include <mutex>

#include "store/memory_fs.h"

namespace forebay {

struct MemoryStore::State {
  explicit State(const MemoryOptions& o) : fs(o.limit, o.fs_id) {}
  mutable std::mutex mutex;
  MemoryFs fs;
};

MemoryStore::MemoryStore(MemoryOptions options) : state_(std::make_unique<State>(options)) {}
MemoryStore::~MemoryStore() = default;

Result<Reply> MemoryStore::call(Request request) {
  if (auto good = check_at_back_end(request); !good) return good.error();
  if (request.stop.stop_requested()) return Error(ECANCELED);
  std::lock_guard lock(state_->mutex);
  return state_->fs.perform(request);
}

void MemoryStore::submit(Request&& request, Completion&& done) {
  done(call(std::move(request)));
}

Result<void> MemoryStore::admits(const Request& request) {
  std::lock_guard lock(state_->mutex);
  return state_->fs.admits(request);
}

Result<Handle> MemoryStore::root() {
  std::lock_guard lock(state_->mutex);
  return state_->fs.top();
}

size_t MemoryStore::open_rights() const {
  std::lock_guard lock(state_->mutex);
  return state_->fs.open_rights();
}

}  // namespace forebay
