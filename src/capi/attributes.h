// Attributes as the C API gives them.
#pragma once

#include "core/op.h"
#include "forebay/forebay.h"

namespace forebay::capi {

uint32_t type_bits(FileType type);  // S_IFREG and so on; 0 for unknown
fb_attr to_c(const Attr& attr);

}  // namespace forebay::capi
