// Memory for fb_alloc: the one place that decides where it comes from: the Store's own, which it
// reaches without a copy, or page-aligned anonymous memory.
// Any thread.
#pragma once

#include <cstddef>

#include "store/store.h"

namespace forebay::capi {

Result<void*> allocate(Store& store, size_t size);
Result<void> release(Store& store, void* memory);  // EINVAL for what allocate() did not give

}  // namespace forebay::capi
