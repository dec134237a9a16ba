// SignalWord: a number in memory that processes share, which one of them changes and others wait
// for. Whoever waits looks at it awake for a moment, gives the processor to others for a while, and
// then sleeps; ranks outnumber cores more often than not.
#pragma once

#include <atomic>
#include <cstdint>

namespace forebay::mpiio {

struct alignas(64) SignalWord {
  std::atomic<uint32_t> value{0};
  std::atomic<uint32_t> sleepers{0};

  void set(uint32_t to) {
    value.store(to);
    if (sleepers.load()) wake();
  }
  void add(uint32_t step) {
    value.fetch_add(step);
    if (sleepers.load()) wake();
  }

  // Until ready(value). `meanwhile` is called between looks, and sleeps are short if it is given.
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
  static constexpr int kLooks = 100, kYields = 200;
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
