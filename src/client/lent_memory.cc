#include "client/lent_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "core/log.h"

namespace forebay {

namespace {

constexpr uint64_t kPage = SharedPages::kPage;

constexpr uint64_t down(uint64_t n) {
  return n / kPage * kPage;
}
constexpr uint64_t up(uint64_t n) {
  return down(n + kPage - 1);
}

void complain() {
  log::warn("memory from fb_alloc that a failed request used may still change: {}",
            Error(errno).message());
}

ExtentSet one(uint64_t offset, uint64_t length) {
  return {{Offset(offset), Length(length)}};
}

}  // namespace

Result<std::shared_ptr<LentMemory>> LentMemory::create(uint64_t bytes) {
  auto pages = SharedPages::create(std::max(up(bytes), 2 * kPage));
  if (!pages) return std::move(pages).error();
  return std::shared_ptr<LentMemory>(new LentMemory(std::move(*pages)));
}

LentMemory::LentMemory(std::shared_ptr<SharedPages> pages)
    // The first page is nobody's: whoever looks in front of what was given finds memory there.
    : pages_(std::move(pages)), free_(one(kPage, pages_->bytes().size() - kPage)) {}

std::byte* LentMemory::allocate(size_t size) {
  if (size == 0 || size > pages_->bytes().size()) return nullptr;
  const Length need(up(size));
  std::lock_guard lock(mutex_);
  const auto fits = std::ranges::find_if(free_, [&](const Extent& e) { return e.length >= need; });
  if (fits == free_.end()) return nullptr;
  const uint64_t offset = fits->offset.value;
  free_ = subtract(free_, one(offset, need.value));
  given_[offset] = need.value;
  return pages_->bytes().data() + offset;
}

bool LentMemory::release(std::byte* memory) {
  if (!holds(memory, 1)) return false;
  const auto offset = static_cast<uint64_t>(memory - pages_->bytes().data());
  std::lock_guard lock(mutex_);
  const auto found = given_.find(offset);
  if (found == given_.end()) return false;
  // What was detached is not lent again. Pages that go back are zeroes when they are given anew.
  for (const Extent& e : subtract(one(offset, found->second), detached_)) {
    std::byte* const at = pages_->bytes().data() + e.offset.value;
    if (::madvise(at, e.length.value, MADV_REMOVE) != 0) std::memset(at, 0, e.length.value);
    free_ = unite(free_, ExtentSet{e});
  }
  for (const Extent& e : intersect(one(offset, found->second), detached_)) {
    ::madvise(pages_->bytes().data() + e.offset.value, e.length.value, MADV_DONTNEED);
  }
  given_.erase(found);
  return true;
}

bool LentMemory::holds(const std::byte* at, uint64_t length) const {
  const auto begin = reinterpret_cast<uintptr_t>(pages_->bytes().data());
  const auto place = reinterpret_cast<uintptr_t>(at) - begin;  // huge if it lies before
  return place <= pages_->bytes().size() && length <= pages_->bytes().size() - place;
}

std::optional<uint64_t> LentMemory::place_of(const Request& r) const {
  if ((r.op != Op::read && r.op != Op::write) || !r.memory.shape.contiguous() ||
      r.memory.shape.empty()) {
    return std::nullopt;
  }
  const std::byte* const at = r.memory.at(r.memory.shape.bounds().offset);
  const uint64_t length = r.memory.shape.total().value;
  if (!holds(at, length)) return std::nullopt;
  const auto place = static_cast<uint64_t>(at - pages_->bytes().data());
  if (r.op == Op::read && (place % kPage != 0 || length % kPage != 0)) return std::nullopt;
  std::lock_guard lock(mutex_);
  if (!detached_.empty() && !intersect(one(place, length), detached_).empty()) return std::nullopt;
  return place;
}

void LentMemory::detach(const Memory& memory) {
  std::byte* const base = pages_->bytes().data();
  const auto place = static_cast<uint64_t>(memory.at(memory.shape.bounds().offset) - base);
  const uint64_t begin = down(place), length = up(place + memory.shape.total().value) - begin;
  std::lock_guard lock(mutex_);
  void* const fresh =
      ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) return complain();
  std::memcpy(fresh, base + begin, length);
  // At once, so that a thread that reads it meanwhile sees no other bytes.
  const int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
  if (::mremap(fresh, length, length, flags, base + begin) == MAP_FAILED) {
    complain();
    ::munmap(fresh, length);
    return;
  }
  detached_ = unite(detached_, one(begin, length));
}

}  // namespace forebay
