// A request that is an eager write of a right's holder and nothing else, as a server has them by
// the hundred thousand a second: seen in place, without the copies that decode_request() makes of
// every field. Verified as that does; any thread.
#pragma once

#include <optional>
#include <string_view>

#include "wire/codec.h"

namespace forebay::wire {

struct SmallWriteView {
  RequestId id;
  std::string_view handle, right;  // in the message
  Extents file;                    // not empty
};
// nullopt for all other requests, and for bytes that are none: decode_request() tells what they
// are.
std::optional<SmallWriteView> view_small_write(Bytes message);

}  // namespace forebay::wire
