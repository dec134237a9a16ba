#include "fuse/worker.h"

#include <sys/mman.h>

#include <new>

#include "core/assert.h"

namespace forebay::fuse {

namespace {

// The C callbacks of libfuse carry no thread's own state.
thread_local Worker* current = nullptr;

}  // namespace

Worker::Worker(Store& store)
    : store_(store), request_(get(2 * kPage + kMostData + kPage)), reply_(get(kMostData)) {
  current = this;
}

Worker::~Worker() {
  current = nullptr;
  put(request_);
  put(reply_);
}

Worker& Worker::here() {
  FOREBAY_ASSERT(current != nullptr);
  return *current;
}

std::span<std::byte> Worker::get(size_t size) {
  if (std::byte* const lent = store_.allocate(size)) return {lent, size};
  void* const own =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (own == MAP_FAILED) throw std::bad_alloc();
  return {static_cast<std::byte*>(own), size};
}

void Worker::put(std::span<std::byte> memory) {
  if (!store_.deallocate(memory.data())) ::munmap(memory.data(), memory.size());
}

}  // namespace forebay::fuse
