// From the C API's buffers, lists and strides to the two sides of a read or write. Pure.
#pragma once

#include <span>

#include "core/extents.h"
#include "core/memory.h"
#include "forebay/forebay.h"

namespace forebay::capi {

struct Sides {
  Extents file;
  Memory memory;
};

// All of them: EINVAL for what is NULL, out of bounds or of different lengths; EOVERFLOW for totals
// beyond 63 bits.
Result<Sides> contiguous(const void* buffer, size_t size, uint64_t offset);
Result<Sides> lists(std::span<const fb_extent> extents, std::span<const fb_piece> pieces);
Result<Sides> strided(const fb_strided* view, const void* base, const fb_strided* memory);

}  // namespace forebay::capi
