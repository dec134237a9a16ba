// MemoryStore: a whole file system in memory. It is the oracle of tests, because it does what Linux
// does, error for error, and it is a scratch export that is gone with its server.
//
// Everything is done on the submitting thread, under one lock; completions run after the lock is
// released. Handles and rights are sealed with a key of this life. Content is sparse.
//
// Access is checked as the caller, by mode bits (permission.h). Times are those of the wall clock;
// reading does not change atime.
#pragma once

#include <memory>

#include "store/store.h"

namespace forebay {

struct MemoryOptions {
  uint64_t limit = UINT64_MAX;  // bytes of content, in pages of 64 KiB; ENOSPC beyond
  uint64_t fs_id = 1;
};

class MemoryStore final : public Store {
 public:
  explicit MemoryStore(MemoryOptions options = {});
  ~MemoryStore() override;

  void submit(Request&& request, Completion&& done) override;
  Result<Reply> call(Request request) override;
  Result<void> admits(const Request& request) override;
  Result<Handle> root() override;

  size_t open_rights() const;  // for tests: does somebody forget to close?

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace forebay
