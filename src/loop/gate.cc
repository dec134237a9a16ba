#include "loop/gate.h"

namespace forebay {

bool Gate::enter() {
  std::lock_guard lock(mutex_);
  if (closing_) return false;
  ++inside_;
  return true;
}

void Gate::leave() {
  Callback<void()> empty;
  {
    std::lock_guard lock(mutex_);
    FOREBAY_ASSERT(inside_ > 0);
    if (--inside_ == 0) empty = std::move(empty_);
  }
  if (empty) empty();
}

void Gate::close(Callback<void()> empty) {
  {
    std::lock_guard lock(mutex_);
    FOREBAY_ASSERT(!closing_);
    closing_ = true;
    if (inside_ != 0) {
      empty_ = std::move(empty);
      return;
    }
  }
  if (empty) empty();
}

bool Gate::closing() const {
  std::lock_guard lock(mutex_);
  return closing_;
}

uint64_t Gate::inside() const {
  std::lock_guard lock(mutex_);
  return inside_;
}

}  // namespace forebay
