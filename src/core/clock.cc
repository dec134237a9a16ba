#include "core/clock.h"

namespace forebay {

Time SteadyClock::now() const {
  return {
      std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch())};
}

}  // namespace forebay
