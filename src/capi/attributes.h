// Attributes as the C API gives them, and the mode of what is made.
#pragma once

#include "core/op.h"
#include "forebay/forebay.h"

namespace forebay::capi {

uint32_t type_bits(FileType type);  // S_IFREG and so on; 0 for unknown
fb_attr to_c(const Attr& attr);

// A server creates with exactly the mode that it is told: the umask is ours to apply.
uint32_t masked(unsigned mode);

}  // namespace forebay::capi
