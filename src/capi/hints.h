// Hints: what a program tells of a file, as keys and values. hints() in hints.cc is the table of
// the known ones.
#pragma once

#include <string_view>

#include "capi/store.h"

namespace forebay::capi {

// EINVAL with the nearest known key, or with the values that the key takes. The file is in use, or
// not yet open.
Result<void> set_hint(fb_file& file, std::string_view key, std::string_view value);

// "key=value" texts, ended by NULL; or NULL. Stops at the first that is not good.
Result<void> set_hints(fb_file& file, const char* const* hints);

}  // namespace forebay::capi
