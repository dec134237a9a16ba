#include "capi/shapes.h"

#include <fmt/format.h>

namespace forebay::capi {
namespace {

constexpr unsigned kMaxDimensions = 32;  // beyond what arrays have

std::byte* address(const void* p) {
  return static_cast<std::byte*>(const_cast<void*>(p));
}

Result<Sides> matched(Result<Extents> file, Result<Memory> memory) {
  if (!file) return std::move(file).error().at("the file side");
  if (!memory) return std::move(memory).error().at("the memory side");
  const uint64_t in_file = file->total().value, in_memory = memory->shape.total().value;
  if (in_file != in_memory)
    return Error(EINVAL,
                 fmt::format("the file side has {} bytes, the memory side {}", in_file, in_memory));
  return Sides{std::move(*file), std::move(*memory)};
}

Result<Extents> loops(const fb_strided& s) {
  if (s.dimensions > kMaxDimensions)
    return Error(EINVAL, fmt::format("{} dimensions; at most {}", s.dimensions, kMaxDimensions));
  if (s.dimensions != 0 && (!s.counts || !s.strides))
    return Error(EINVAL, "counts or strides are NULL");
  std::vector<Stride> strides;
  for (unsigned i = 0; i < s.dimensions; ++i) strides.push_back({s.counts[i], s.strides[i]});
  return Extents::make({{Offset(s.offset), Length(s.length)}}, std::move(strides));
}

Result<Memory> based(const void* base, Result<Extents> shape) {
  if (!shape) return std::move(shape).error();
  if (!base && !shape->empty()) return Error(EINVAL, "the base is NULL");
  return Memory{address(base), std::move(*shape)};
}

}  // namespace

Result<Sides> contiguous(const void* buffer, size_t size, uint64_t offset) {
  return matched(Extents::make({{Offset(offset), Length(size)}}),
                 based(buffer, Extents::make({{Offset(0), Length(size)}})));
}

Result<Sides> lists(std::span<const fb_extent> extents, std::span<const fb_piece> pieces) {
  if ((!extents.data() && !extents.empty()) || (!pieces.data() && !pieces.empty()))
    return Error(EINVAL, "a list is NULL");
  std::vector<Extent> file, memory;
  file.reserve(extents.size());
  memory.reserve(pieces.size());
  for (const fb_extent& e : extents) file.push_back({Offset(e.offset), Length(e.length)});
  for (const fb_piece& p : pieces) {
    if (p.length == 0) continue;  // its address may be anything
    if (!p.address) return Error(EINVAL, "a piece of memory is at NULL");
    memory.push_back({Offset(reinterpret_cast<uintptr_t>(p.address)), Length(p.length)});
  }
  Result<Extents> shape = Extents::make(std::move(memory));
  if (!shape) return std::move(shape).error().at("the memory side");
  return matched(Extents::make(std::move(file)), Memory{nullptr, std::move(*shape)});
}

Result<Sides> strided(const fb_strided* view, const void* base, const fb_strided* memory) {
  if (!view) return Error(EINVAL, "the view is NULL");
  Result<Extents> file = loops(*view);
  if (!file) return std::move(file).error().at("the file side");
  Result<Extents> shape = memory ? loops(*memory) : Extents::make({{Offset(0), file->total()}});
  return matched(std::move(file), based(base, std::move(shape)));
}

}  // namespace forebay::capi
