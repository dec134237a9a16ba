// SignalWord: a number in memory that processes share, which one of them changes and others wait
// for. Whoever waits looks at it awake for a moment, gives way some times, and then sleeps: where
// ranks outnumber cores, who stays awake takes the processor from those it waits for, even if it
// yields (which lets nobody of another session run, where the kernel groups processes by sessions,
// and some launchers make one for each rank). A wake-up costs more than a look, so only the change
// that somebody waits for should wake.
#pragma once

#include <atomic>
#include <cstdint>

namespace forebay::mpiio {

struct alignas(64) SignalWord {
  std::atomic<uint32_t> value{0};
  std::atomic<uint32_t> sleepers{0};

  // Adds one, and returns what that makes. Wakes whoever sleeps if it is `wanted`.
  uint32_t add_and_wake_at(uint32_t wanted) {
    const uint32_t now = value.fetch_add(1) + 1;
    if (now == wanted && sleepers.load()) wake();
    return now;
  }
  void add_and_wake() {
    value.fetch_add(1);
    wake_sleepers();
  }
  void set_and_wake(uint32_t to) {
    value.store(to);
    wake_sleepers();
  }
  void wake_sleepers() {
    if (sleepers.load()) wake();
  }

  // Until ready(value). `meanwhile` is called before it sleeps.
  template <class Ready, class Meanwhile>
  void wait(Ready&& ready, Meanwhile&& meanwhile) {
    for (int looks = 0; !ready(value.load()); ++looks) {
      if (looks < kLooks) continue;
      if (looks < kLooks + kYields) {
        yield();
        continue;
      }
      meanwhile();
      sleep(ready);
    }
  }

 private:
  static constexpr int kLooks = 100, kYields = 16;
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
