// Gate: orderly stop as a type. Work enters and leaves; close() lets nobody in any more and runs
// its callback when the last one has left. Destroying a gate with work inside asserts.
//
// Any thread. The callback runs once, outside the lock, inside close() or on the thread of the last
// leave(); from then on the gate may be destroyed, also by the callback.
#pragma once

#include <cstdint>
#include <mutex>
#include <utility>

#include "core/assert.h"
#include "core/callback.h"

namespace forebay {

class Gate {
 public:
  Gate() = default;
  ~Gate() { FOREBAY_ASSERT(inside_ == 0); }
  Gate(const Gate&) = delete;

  [[nodiscard]] bool enter();  // false once closing
  void leave();
  void close(Callback<void()> empty);  // at most once

  bool closing() const;
  uint64_t inside() const;

  // Enters when made, leaves when destroyed; false if the gate was closing. Movable.
  class Pass {
   public:
    Pass() = default;
    explicit Pass(Gate& gate) : gate_(gate.enter() ? &gate : nullptr) {}
    Pass(Pass&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)) {}
    Pass& operator=(Pass&& other) noexcept {
      release();
      gate_ = std::exchange(other.gate_, nullptr);
      return *this;
    }
    ~Pass() { release(); }
    explicit operator bool() const { return gate_ != nullptr; }
    void release() {
      if (Gate* gate = std::exchange(gate_, nullptr)) gate->leave();
    }

   private:
    Gate* gate_ = nullptr;
  };

 private:
  mutable std::mutex mutex_;
  uint64_t inside_ = 0;
  bool closing_ = false;
  Callback<void()> empty_;
};

}  // namespace forebay
