#include "mpiio/size_limit.h"

#include <sys/resource.h>

#include <optional>

namespace forebay::mpiio {
namespace {

Error too_large() {
  return Error(EFBIG, "beyond the limit on the size of files (ulimit -f)");
}

std::optional<uint64_t> size_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::nullopt;
  return limit.rlim_cur;
}

// How much of the stream is there before its first byte that lies at the limit or behind it.
uint64_t bytes_before(uint64_t limit, const Extents& file) {
  for (ExtentCursor cursor(file); !cursor.done(); cursor.advance(cursor.current().length)) {
    const Extent piece = cursor.current();
    if (piece.end().value <= limit) continue;
    const uint64_t fit = limit > piece.offset.value ? limit - piece.offset.value : 0;
    return cursor.position().value + fit;
  }
  return file.total().value;
}

Result<Reply> write(Store& store, Request request, uint64_t limit) {
  const Length some(bytes_before(limit, request.file));
  if (!some) return too_large();
  request.file = request.file.slice(Length(), some);
  request.memory.shape = request.memory.shape.slice(Length(), some);
  auto reply = store.call(std::move(request));
  if (!reply) return reply;
  return too_large().with_done(some.value);
}

// What is there may be longer already.
Result<Reply> lengthen(Store& store, Request request, uint64_t end) {
  auto now = store.call({.op = Op::getattr, .caller = request.caller, .handle = request.handle});
  if (!now) return now;
  if (end > now->attr.size) return too_large();
  return store.call(std::move(request));
}

}  // namespace

Result<Reply> call_within_limit(Store& store, Request request) {
  const bool writes = request.op == Op::write;
  if (!writes && request.op != Op::resize && request.op != Op::fallocate)
    return store.call(std::move(request));
  const uint64_t end = writes                     ? request.file.bounds().end().value
                       : request.op == Op::resize ? request.length.value
                                                  : (request.offset + request.length).value;
  const auto limit = size_limit();
  if (!limit || end <= *limit) return store.call(std::move(request));
  return writes ? write(store, std::move(request), *limit)
                : lengthen(store, std::move(request), end);
}

}  // namespace forebay::mpiio
