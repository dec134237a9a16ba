#include "mpiio/plain_call.h"

#include <unistd.h>

#include <algorithm>
#include <shared_mutex>

#include "mpiio/process.h"

namespace forebay::mpiio {
namespace {

bool may_be_plain(const File& file, const DataCall& call) {
  return !call.collective && call.pointer <= Pointer::individual && !file.sequential() &&
         file.view.whole_from && file.joint_writes != File::JointWanted::always;
}

// 0: not plain, or nothing.
uint64_t plain_bytes(const File& file, const Buffer& buffer) {
  if (buffer.count <= 0 || buffer.address == nullptr) return 0;
  const auto each = Process::get().decoder().dense(buffer.type);
  uint64_t bytes = 0;
  if (!each || __builtin_mul_overflow(*each, static_cast<uint64_t>(buffer.count), &bytes)) return 0;
  return bytes % file.view.etype_size == 0 ? bytes : 0;
}

// In the file.
std::optional<uint64_t> place(const File& file, MPI_Offset position, uint64_t bytes) {
  uint64_t at = 0, end = 0;
  if (position < 0 ||
      __builtin_mul_overflow(static_cast<uint64_t>(position), file.view.etype_size, &at) ||
      __builtin_add_overflow(at, *file.view.whole_from, &at) ||
      __builtin_add_overflow(at, bytes, &end) || end > kMaxOffset)
    return std::nullopt;
  return at;
}

// In calls of a length that is never dear (store/posix_io.h). What ends early is done again.
bool move(int fd, Direction direction, std::byte* memory, uint64_t at, uint64_t bytes) {
  constexpr uint64_t kMost = 1_MiB;
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t now = std::min(kMost, bytes - done);
    const auto offset = static_cast<off_t>(at + done);
    const ssize_t n = direction == Direction::read ? ::pread(fd, memory + done, now, offset)
                                                   : ::pwrite(fd, memory + done, now, offset);
    if (n != static_cast<ssize_t>(now)) return false;
    done += now;
  }
  return true;
}

bool move(File& file, Direction direction, std::byte* memory, uint64_t at, uint64_t bytes) {
  const bool reads = direction == Direction::read;
  const auto fd = (reads ? file.read_by : file.written_by).lock();
  if (!fd || file.atomic) return false;
  std::shared_lock lock(file.kept_lock);
  return !file.kept() && move(fd->get(), direction, memory, at, bytes);
}

}  // namespace

std::optional<uint64_t> move_plainly(File& file, DataCall& call, MPI_Offset& offset,
                                     const Buffer& buffer) {
  if (!may_be_plain(file, call)) return std::nullopt;
  const uint64_t bytes = plain_bytes(file, buffer);
  if (bytes == 0) return std::nullopt;
  std::optional<uint64_t> at;
  if (call.pointer == Pointer::individual) {
    std::lock_guard lock(file.mutex);
    offset = file.position;
    at = place(file, offset, bytes);
    if (!at) return std::nullopt;
    file.position += static_cast<MPI_Offset>(bytes / file.view.etype_size);
    call.pointer = Pointer::explicit_offset;
  } else {
    at = place(file, offset, bytes);
    if (!at) return std::nullopt;
  }
  file.begin_operation();
  const bool done = move(file, call.direction, static_cast<std::byte*>(buffer.address), *at, bytes);
  file.end_operation();
  return done ? std::optional(bytes) : std::nullopt;
}

}  // namespace forebay::mpiio
