#include "capi/shared_memory.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdint>
#include <optional>

#include "capi/error.h"
#include "capi/store.h"

namespace forebay::capi {
namespace {

// Of memory that is not the Store's: in a page of its own before it, so that no table is needed.
struct Header {
  static constexpr uint64_t kMark = 0x666f'7265'6261'7921;
  uint64_t mark;
  uint64_t mapped;  // bytes, with this page
};

size_t page() {
  return static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

// There may be anything, or nothing that can be read.
std::optional<Header> header_at(void* start) {
  Header header{};
  const iovec to{&header, sizeof header}, from{start, sizeof header};
  const ssize_t n = ::process_vm_readv(::getpid(), &to, 1, &from, 1, 0);
  if (n < 0 && errno != EFAULT) return *static_cast<const Header*>(start);  // a sandbox forbids it
  if (n != static_cast<ssize_t>(sizeof header)) return std::nullopt;
  return header;
}

}  // namespace

Result<void*> allocate(Store& store, size_t size) {
  if (size == 0) return Error(EINVAL, "the size is 0");
  if (std::byte* const cheap = store.allocate(size)) return static_cast<void*>(cheap);
  if (size > SIZE_MAX - 2 * page()) return Error(ENOMEM);
  const size_t mapped = page() + (size + page() - 1) / page() * page();
  void* start = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) return Error(errno);
  new (start) Header{Header::kMark, mapped};
  return static_cast<void*>(static_cast<char*>(start) + page());
}

Result<void> release(Store& store, void* memory) {
  if (store.deallocate(static_cast<std::byte*>(memory))) return {};
  Error foreign(EINVAL, "this memory is not from fb_alloc");
  if (reinterpret_cast<uintptr_t>(memory) % page() != 0) return foreign;
  void* start = static_cast<char*>(memory) - page();
  const std::optional<Header> header = header_at(start);
  if (!header || header->mark != Header::kMark) return foreign;
  if (::munmap(start, header->mapped) != 0) return Error(errno);
  return {};
}

}  // namespace forebay::capi

using namespace forebay;
using namespace forebay::capi;

void* fb_alloc(fb_store* store, size_t size) {
  const Result<void*> memory = caught([&]() -> Result<void*> {
    if (auto ok = given({store}); !ok) return ok.error();
    return allocate(*store->store, size);
  });
  if (memory) return *memory;
  fail({"fb_alloc"}, memory.error());
  return nullptr;
}

int fb_free(fb_store* store, void* memory) {
  return status({"fb_free"}, [&]() -> Result<void> {
    if (!memory) return {};
    if (auto ok = given({store}); !ok) return ok;
    return release(*store->store, memory);
  });
}
