#include "transport/shared_region.h"

#include <sys/mman.h>

#include <bit>

namespace forebay {

namespace {

constexpr uint64_t kPage = SharedPages::kPage;
constexpr uint64_t kHeads = kBoxes * sizeof(BoxHead);
static_assert(kHeads % kPage == 0 && kBoxBytes % kPage == 0);

bool sane(const SharedRegion::Layout& l) {
  return std::has_single_bit(l.ring) && l.ring >= SharedRegion::kMinRing &&
         l.ring <= SharedRegion::kMaxRing && l.area % kPage == 0 &&
         l.area <= SharedRegion::kMaxArea;
}

// Where the area begins.
uint64_t before_area(const SharedRegion::Layout& layout) {
  return kPage + 2 * uint64_t(layout.ring) + kHeads + kBoxes * kBoxBytes;
}

// All of a ring is used soon, however little is in it at a time, and so are boxes: a fault for each
// of their pages costs more than all of them at once. Not of larger rings, which another process
// may have asked for. If the kernel cannot, they come one by one.
void populate(const SharedPages& pages, const SharedRegion::Layout& layout) {
  if (layout.ring > SharedRegion::Layout().ring) return;
  ::madvise(pages.bytes().data(), before_area(layout), MADV_POPULATE_WRITE);
}

}  // namespace

uint64_t SharedRegion::Layout::bytes() const {
  return before_area(*this) + area;
}

Result<std::shared_ptr<SharedRegion>> SharedRegion::create(const Layout& layout, Lent lent) {
  FOREBAY_ASSERT(sane(layout));
  auto pages = SharedPages::create(layout.bytes());
  if (!pages) return std::move(pages).error();
  // A forked child has a connection of its own, or none.
  ::madvise((*pages)->bytes().data(), layout.bytes(), MADV_DONTFORK);
  populate(**pages, layout);
  return std::shared_ptr<SharedRegion>(
      new SharedRegion(std::move(*pages), layout, std::move(lent)));
}

Result<std::shared_ptr<SharedRegion>> SharedRegion::adopt(Fd memory, const Layout& layout,
                                                          Lent lent) {
  const bool good = sane(layout);
  auto pages = SharedPages::adopt(std::move(memory), good ? layout.bytes() : 0);
  if (!good) return Error(EINVAL, "shared memory: sizes that cannot be");
  if (!pages) return std::move(pages).error();
  populate(**pages, layout);
  return std::shared_ptr<SharedRegion>(
      new SharedRegion(std::move(*pages), layout, std::move(lent)));
}

std::span<std::byte> SharedRegion::ring_to_server() const {
  return {base() + kPage, layout_.ring};
}

std::span<std::byte> SharedRegion::ring_to_client() const {
  return {base() + kPage + layout_.ring, layout_.ring};
}

std::byte* SharedRegion::boxes() const {
  return base() + kPage + 2 * uint64_t(layout_.ring);
}

std::span<std::byte> SharedRegion::box_data(size_t i) const {
  return {boxes() + kHeads + i * kBoxBytes, kBoxBytes};
}

std::span<std::byte> SharedRegion::area() const {
  return {base() + before_area(layout_), layout_.area};
}

}  // namespace forebay
