// The memory of one data call: as large as the memory type asks, with a margin, filled with a
// pattern that shows any byte touched that should not be.
#pragma once

#include <optional>
#include <string>

#include "script.h"

namespace fuzz {

class Buffer {
 public:
  explicit Buffer(const Access& access);

  void* address() { return bytes_.data() + margin - low_; }
  // What lies where the memory type points, in its order.
  Bytes packed() const;
  // Where the memory differs from what the call must leave. If the data are short, the rest of what
  // the call was to fill may be anything.
  std::optional<std::string> difference(const Bytes& data, bool zeros) const;

 private:
  static constexpr int64_t margin = 64;
  template <class Visit>
  void for_each_piece(Visit visit) const;
  Bytes image(const Bytes& data, const Bytes& rest) const;

  const Access& access_;
  int64_t low_ = 0, high_ = 0;
  Bytes bytes_;
};

}  // namespace fuzz
