// Rights: what open grants, as sealed bytes that the client presents with every read and write.
// They hold after a restart, because they say themselves what they are for.
#pragma once

#include <optional>

#include "store/posix_files.h"
#include "store/sealed.h"

namespace forebay::posix {

class Rights {
 public:
  explicit Rights(SealKey key) : key_(std::move(key)) {}

  // A new right, unlike any other, to the file of this handle (which must be sealed).
  Right make(const Handle& handle, Grant grant) const;
  // EBADF if it is forged, damaged or of another handle.
  Result<Grant> open(const Handle& handle, const Right& right) const;

 private:
  const SealKey key_;
};

}  // namespace forebay::posix
