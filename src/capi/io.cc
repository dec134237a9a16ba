// Reads, writes and syncs, blocking and not: one way in for all shapes.
#include "capi/error.h"
#include "capi/request.h"
#include "capi/shapes.h"

using namespace forebay;
using namespace forebay::capi;

namespace {

Request transfer(const Use& use, Op op, Sides&& sides) {
  Request request = use.request(op, op == Op::write ? use.file().write_flags.load() : 0);
  request.file = std::move(sides.file);
  request.memory = std::move(sides.memory);
  return request;
}

// shape() is called once the file is known to be open, and gives Result<Sides>.
template <class Shape>
int64_t move_bytes(const char* function, Op op, fb_file* file, Shape&& shape) {
  return count({function}, [&]() -> Result<uint64_t> {
    auto use = Use::begin(file);
    if (!use) return use.error();
    Result<Sides> sides = shape();
    if (!sides) return sides.error();
    if (sides->file.empty()) return 0;
    auto reply = use->store().call(transfer(*use, op, std::move(*sides)));
    if (!reply) return reply.error();
    return reply->count;
  });
}

template <class Shape>
int begin_moving(const char* function, Op op, fb_file* file, fb_request** request, Shape&& shape) {
  return status({function}, [&]() -> Result<void> {
    if (auto ok = given({request}); !ok) return ok;
    *request = nullptr;
    auto use = Use::begin(file);
    if (!use) return use.error();
    Result<Sides> sides = shape();
    if (!sides) return sides.error();
    if (sides->file.empty()) {
      *request = begin_nothing(function, *use);
      return {};
    }
    Request moving = transfer(*use, op, std::move(*sides));
    *request = begin(function, std::move(*use), std::move(moving));
    return {};
  });
}

int begin_sync(const char* function, fb_file* file, uint32_t flags, fb_request** request) {
  return status({function}, [&]() -> Result<void> {
    if (auto ok = given({request}); !ok) return ok;
    *request = nullptr;
    auto use = Use::begin(file);
    if (!use) return use.error();
    Request syncing = use->request(Op::commit, flags);
    *request = begin(function, std::move(*use), std::move(syncing));
    return {};
  });
}

}  // namespace

// ---- Blocking ----

int64_t fb_pread(fb_file* file, void* buffer, size_t size, uint64_t offset) {
  return move_bytes("fb_pread", Op::read, file, [&] { return contiguous(buffer, size, offset); });
}

int64_t fb_pwrite(fb_file* file, const void* buffer, size_t size, uint64_t offset) {
  return move_bytes("fb_pwrite", Op::write, file, [&] { return contiguous(buffer, size, offset); });
}

int64_t fb_readv_list(fb_file* file, const fb_extent* extents, size_t extent_count,
                      const fb_piece* pieces, size_t piece_count) {
  return move_bytes("fb_readv_list", Op::read, file, [&] {
    return lists({extents, extent_count}, {pieces, piece_count});
  });
}

int64_t fb_writev_list(fb_file* file, const fb_extent* extents, size_t extent_count,
                       const fb_piece* pieces, size_t piece_count) {
  return move_bytes("fb_writev_list", Op::write, file, [&] {
    return lists({extents, extent_count}, {pieces, piece_count});
  });
}

int64_t fb_read_strided(fb_file* file, const fb_strided* view, void* base,
                        const fb_strided* memory) {
  return move_bytes("fb_read_strided", Op::read, file, [&] { return strided(view, base, memory); });
}

int64_t fb_write_strided(fb_file* file, const fb_strided* view, const void* base,
                         const fb_strided* memory) {
  return move_bytes("fb_write_strided", Op::write, file,
                    [&] { return strided(view, base, memory); });
}

// ---- Non-blocking ----

int fb_ipread(fb_file* file, void* buffer, size_t size, uint64_t offset, fb_request** request) {
  return begin_moving("fb_ipread", Op::read, file, request,
                      [&] { return contiguous(buffer, size, offset); });
}

int fb_ipwrite(fb_file* file, const void* buffer, size_t size, uint64_t offset,
               fb_request** request) {
  return begin_moving("fb_ipwrite", Op::write, file, request,
                      [&] { return contiguous(buffer, size, offset); });
}

int fb_ireadv_list(fb_file* file, const fb_extent* extents, size_t extent_count,
                   const fb_piece* pieces, size_t piece_count, fb_request** request) {
  return begin_moving("fb_ireadv_list", Op::read, file, request, [&] {
    return lists({extents, extent_count}, {pieces, piece_count});
  });
}

int fb_iwritev_list(fb_file* file, const fb_extent* extents, size_t extent_count,
                    const fb_piece* pieces, size_t piece_count, fb_request** request) {
  return begin_moving("fb_iwritev_list", Op::write, file, request, [&] {
    return lists({extents, extent_count}, {pieces, piece_count});
  });
}

int fb_iread_strided(fb_file* file, const fb_strided* view, void* base, const fb_strided* memory,
                     fb_request** request) {
  return begin_moving("fb_iread_strided", Op::read, file, request,
                      [&] { return strided(view, base, memory); });
}

int fb_iwrite_strided(fb_file* file, const fb_strided* view, const void* base,
                      const fb_strided* memory, fb_request** request) {
  return begin_moving("fb_iwrite_strided", Op::write, file, request,
                      [&] { return strided(view, base, memory); });
}

int fb_ifsync(fb_file* file, fb_request** request) {
  return begin_sync("fb_ifsync", file, 0, request);
}

int fb_ifdatasync(fb_file* file, fb_request** request) {
  return begin_sync("fb_ifdatasync", file, kFlagDataOnly, request);
}
