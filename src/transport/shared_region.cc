#include "transport/shared_region.h"

#include <sys/mman.h>

#include <bit>

namespace forebay {

namespace {

constexpr uint64_t kPage = SharedPages::kPage;

bool sane(const SharedRegion::Layout& l) {
  return std::has_single_bit(l.ring) && l.ring >= SharedRegion::kMinRing &&
         l.ring <= SharedRegion::kMaxRing && l.area % kPage == 0 &&
         l.area <= SharedRegion::kMaxArea;
}

// All of a ring is used soon, however little is in it at a time: a fault for each of its pages
// costs more than all of them at once. Not of larger ones, which another process may have asked
// for. If the kernel cannot, they come one by one.
void populate(const SharedPages& pages, const SharedRegion::Layout& layout) {
  if (layout.ring > SharedRegion::Layout().ring) return;
  ::madvise(pages.bytes().data(), kPage + 2 * uint64_t(layout.ring), MADV_POPULATE_WRITE);
}

}  // namespace

uint64_t SharedRegion::Layout::bytes() const {
  return kPage + 2 * uint64_t(ring) + area;
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

std::span<std::byte> SharedRegion::area() const {
  return {base() + kPage + 2 * uint64_t(layout_.ring), layout_.area};
}

}  // namespace forebay
