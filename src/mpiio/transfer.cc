#include "mpiio/transfer.h"

#include <fmt/format.h>

#include "mpiio/partial.h"
#include "mpiio/process.h"

namespace forebay::mpiio {
namespace {

// Of one request: an irregular list costs 32 bytes for each of its blocks.
constexpr size_t kMostBlocks = 32768;
constexpr uint64_t kMostBytes = uint64_t{1} << 40;

}  // namespace

Fault Transfer::measure(const Buffer& buffer) {
  view_etype_ = file_.view.etype_size;
  representation_ = file_.view.representation;
  buffer_ = buffer;
  if (direction_ == Direction::read && !file_.reads())
    return {MPI_ERR_ACCESS, "the file is open for writing only"};
  if (direction_ == Direction::write && !file_.writes())
    return {MPI_ERR_READ_ONLY, "the file is open for reading only"};
  if (buffer.count < 0) return {MPI_ERR_COUNT, fmt::format("a count of {}", buffer.count)};
  if (buffer.type == MPI_DATATYPE_NULL) return {MPI_ERR_TYPE, "the type is MPI_DATATYPE_NULL"};
  Decoder& decoder = Process::get().decoder();
  if (auto ok = decoder.check_committed(buffer.type, file_.comm); !ok)
    return {MPI_ERR_TYPE, ok.error().message()};
  auto type = decoder.decode(buffer.type);
  if (!type) return {MPI_ERR_TYPE, type.error().message()};
  auto memory = plan::TiledMap::buffer(buffer.address, static_cast<uint64_t>(buffer.count), *type);
  if (!memory) return {MPI_ERR_BUFFER, memory.error().message()};
  memory_ = std::move(*memory);
  memory_type_ = type->outline();
  memory_length_ = length_ = memory_.total().value;
  if (length_ > 0 && buffer.address == nullptr && type->true_lb() == 0)
    return {MPI_ERR_BUFFER, "the buffer is NULL"};
  if (representation_->converts()) {
    auto in_file = map_in_file(decoder, buffer.type, *representation_);
    if (!in_file) return {MPI_ERR_CONVERSION, in_file.error().message()};
    length_ = static_cast<uint64_t>(in_file->size()) * static_cast<uint64_t>(buffer.count);
  }
  if (length_ % view_etype_ != 0)
    return {MPI_ERR_TYPE, fmt::format("{} bytes are no multiple of the view's etype, which has {}",
                                      length_, view_etype_)};
  return {};
}

Fault Transfer::prepare(MPI_Offset position) {
  if (position < 0) return {MPI_ERR_ARG, fmt::format("an offset of {}", position)};
  const auto from = file_.view.stream(position);
  if (!from || length_ > file_.view.map.total().value - from->value)
    return {MPI_ERR_ARG, fmt::format("offset {} lies beyond what a file can hold", position)};
  from_ = *from;
  view_ = file_.view.map;
  if (representation_->converts()) return convert_out();
  return {};
}

// From here on the memory side is a buffer of our own.
Fault Transfer::convert_out() {
  converted_.resize(length_);
  auto bytes = plan::TypeMap::bytes(static_cast<int64_t>(length_));
  if (!bytes) return fault_of(bytes.error());
  auto memory = plan::TiledMap::buffer(converted_.data(), 1, *bytes);
  if (!memory) return fault_of(memory.error());
  memory_ = std::move(*memory);
  type_ = OwnType(buffer_.type);
  buffer_.type = type_.get();
  if (direction_ == Direction::read || length_ == 0) return {};
  return representation_->encode(buffer_, converted_);
}

Result<SharedState::Held> Transfer::lock() {
  if (!file_.atomic || length_ == 0) return SharedState::Held();
  auto state = file_.meeting->state();
  if (!state) return state.error();
  auto exact = view_.slice(from_, Length(length_), kMostBlocks);
  const Extents ranges = exact ? *exact : Extents(view_.bounds(from_, Length(length_)));
  return (*state)->lock(ranges,
                        direction_ == Direction::read ? LockMode::shared : LockMode::exclusive);
}

Result<uint64_t> Transfer::move_part(plan::TransferCursor::Part part) {
  return file_.move(direction_ == Direction::read ? Op::read : Op::write, std::move(part.file),
                    std::move(part.memory));
}

void Transfer::run() {
  guarded([&] {
    if (!fault_ && length_ > 0) move_all();
  });
}

bool Transfer::write_record() {
  if (fault_ || direction_ != Direction::write || length_ == 0) return false;
  bool written = false;
  guarded([&] { written = file_.write_record(part(), memory_); });
  if (written) moved_ = length_;
  return written || fault_;
}

void Transfer::move_all() {
  auto held = lock();
  if (!held) return fail(fault_of(held.error()));
  if (direction_ == Direction::write && file_.write_jointly(part(), memory_)) {
    moved_ = length_;
    return;
  }
  plan::TransferCursor cursor(view_, from_, memory_, Length(), Length(length_));
  while (!cursor.done()) {
    auto part = cursor.next(Length(kMostBytes), kMostBlocks);
    const uint64_t wanted = part.file.total().value;
    auto moved = move_part(std::move(part));
    if (!moved) {
      moved_ += direction_ == Direction::write ? moved.error().done() : 0;
      return fail(fault_of(moved.error()));
    }
    moved_ += *moved;
    if (*moved < wanted) return;  // the end of the file
  }
}

void Transfer::finish() {
  guarded([&] {
    if (!converted_.empty()) convert_in();
  });
  type_ = OwnType();  // here, because the last owner may be a thread that may not call MPI
}

// From bytes in the file to bytes of the program's type: items, and what there is of one more.
void Transfer::convert_in() {
  const auto count = static_cast<uint64_t>(buffer_.count);
  const uint64_t items = moved_ / (length_ / count), rest = moved_ % (length_ / count);
  moved_ = 0;
  if (items > 0 && direction_ == Direction::read && !fault_) {
    Buffer whole = buffer_;
    whole.count = static_cast<MPI_Count>(items);
    if (auto fault = representation_->decode(converted_, whole)) return fail(std::move(fault));
  }
  moved_ = items * (memory_length_ / count);
  if (rest == 0) return;
  if (auto fault = convert_part(items, rest); fault && !fault_) fail(std::move(fault));
}

// Of one item, the first `rest` bytes in the file.
Fault Transfer::convert_part(uint64_t items, uint64_t rest) {
  Decoder& decoder = Process::get().decoder();
  auto length = whole_elements(decoder, buffer_.type, *representation_, rest);
  if (!length) return fault_of(length.error());
  if (direction_ == Direction::read && !fault_) {
    auto type = decoder.decode(buffer_.type);
    if (!type) return fault_of(type.error());
    const uint64_t each = length_ / static_cast<uint64_t>(buffer_.count);
    Buffer one = buffer_;
    one.address =
        static_cast<std::byte*>(buffer_.address) + static_cast<int64_t>(items) * type->extent();
    const std::span<const std::byte> item(converted_.data() + items * each, each);
    if (auto fault = decode_part(decoder, *representation_, item, one, *length)) return fault;
  }
  moved_ += *length;
  return {};
}

}  // namespace forebay::mpiio
