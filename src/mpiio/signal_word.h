// SignalWord: a number in memory that processes share, which one of them changes and others wait
// for. Whoever waits looks at it awake for a moment and then sleeps: where ranks outnumber cores,
// who stays awake takes the processor from those it waits for, whether it yields or not. A wake-up
// costs more than a look, so only the change that somebody waits for should wake.
#pragma once

#include <atomic>
#include <cstdint>

namespace forebay::mpiio {

struct alignas(64) SignalWord {
  std::atomic<uint32_t> value{0};
  std::atomic<uint32_t> sleepers{0};

  // Adds one. Wakes whoever sleeps if that makes it `wanted`.
  void add_and_wake_at(uint32_t wanted) {
    if (value.fetch_add(1) + 1 == wanted && sleepers.load()) wake();
  }
  void add_and_wake() {
    value.fetch_add(1);
    if (sleepers.load()) wake();
  }

  // Until ready(value). `meanwhile` is called now and then, also between sleeps.
  template <class Ready, class Meanwhile>
  void wait(Ready&& ready, Meanwhile&& meanwhile) {
    for (int looks = 0; !ready(value.load()); ++looks) {
      if (looks < kLooks) continue;
      meanwhile();
      if (looks < kLooks + kYields)
        yield();
      else
        sleep(ready);
    }
  }

 private:
  static constexpr int kLooks = 100, kYields = 4;
  static void yield();
  void wake();
  void sleep_on(uint32_t seen);
  template <class Ready>
  void sleep(Ready&& ready) {
    sleepers.fetch_add(1);
    const uint32_t seen = value.load();
    if (!ready(seen)) sleep_on(seen);
    sleepers.fetch_sub(1);
  }
};

}  // namespace forebay::mpiio
