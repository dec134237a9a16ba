#include "store/reserve.h"

#include <algorithm>
#include <cerrno>

namespace forebay {
namespace {

// Of what lies behind the end of the file. A Store that cannot tell has room.
Result<void> has_room(const CallStore& call, const Request& request) {
  const auto about = [&](Op op) {
    return call({.op = op, .caller = request.caller, .handle = request.handle});
  };
  auto file = about(Op::getattr);
  if (!file) return std::move(file).error();
  const uint64_t end = request.offset.value + request.length.value;
  const uint64_t from = std::max(file->attr.size, request.offset.value);
  if (from >= end) return {};
  const auto status = about(Op::statfs);
  if (!status) return {};
  const FsStatus& fs = status->statfs;
  if (fs.blocks == 0 || fs.block_size == 0) return {};
  if ((end - from) / fs.block_size > fs.blocks_free)
    return Error(ENOSPC, "the file system has not so much room");
  return {};
}

}  // namespace

Result<void> reserve(const CallStore& call, const Request& request) {
  auto reserved = call(Request(request));
  if (reserved) return {};
  const int code = reserved.error().code();
  if (code != EOPNOTSUPP && code != ENOSYS) return std::move(reserved).error();
  if (auto room = has_room(call, request); !room) return room;
  const uint64_t end = request.offset.value + request.length.value;
  for (uint64_t at = request.offset.value; at < end; at += kFillAtOnce) {
    Request piece = request;
    piece.flags = kFlagFill;
    piece.offset = Offset(at);
    piece.length = Length(std::min(kFillAtOnce, end - at));
    if (auto filled = call(std::move(piece)); !filled) return std::move(filled).error();
  }
  return {};
}

}  // namespace forebay
