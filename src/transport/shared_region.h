// SharedRegion: the memory that a client on the server's node shares with it: two rings for frames
// (shared_ring.h), boxes for small writes (shared_box.h) and an area for bulk data, in one memfd.
//
//   [ring states and shortcuts (shared_shortcut.h), one page] [ring to the server] [ring to the
//   client] [heads of the boxes] [their data] [area]
//
// The client makes it, so it is the client's memory; sealed (shared_pages.h). The server uses bytes
// of the area and of boxes as data only, and its own places in the rings only.
//
// Beside it a client may lend memory of its own, from which requests are served without a copy: the
// same for all its connections, while a region is that of one.
//
// Threads: any may hold it and touch the area; the rings belong to the two ends of the connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/result.h"
#include "transport/shared_box.h"
#include "transport/shared_pages.h"
#include "transport/shared_ring.h"
#include "transport/shared_shortcut.h"

namespace forebay {

class SharedRegion {
 public:
  struct Layout {
    uint32_t ring = 128 << 10;  // bytes of one ring: a power of two
    uint64_t area = 0;          // bytes, whole pages
    uint64_t bytes() const;
    bool operator==(const Layout&) const = default;
  };
  static constexpr uint32_t kMinRing = 4 << 10, kMaxRing = 4 << 20;
  static constexpr uint64_t kMaxArea = uint64_t(1) << 40;

  using Lent = std::shared_ptr<SharedPages>;  // null: none
  static Result<std::shared_ptr<SharedRegion>> create(const Layout& layout, Lent lent = {});
  // What another process made. EINVAL if it is not of that layout or could shrink.
  static Result<std::shared_ptr<SharedRegion>> adopt(Fd memory, const Layout& layout,
                                                     Lent lent = {});

  int descriptor() const { return pages_->descriptor(); }
  void drop_descriptor() { pages_->drop_descriptor(); }  // the mapping stays
  const Layout& layout() const { return layout_; }
  const Lent& lent() const { return lent_; }

  RingState& to_server() const { return *reinterpret_cast<RingState*>(base()); }
  RingState& to_client() const { return *reinterpret_cast<RingState*>(base() + sizeof(RingState)); }
  ShortcutTotals& shortcut_totals() const {
    return *reinterpret_cast<ShortcutTotals*>(base() + 2 * sizeof(RingState));
  }
  ShortcutWord& shortcut(size_t i) const {
    return reinterpret_cast<ShortcutWord*>(base() + kBeforeShortcuts)[i];
  }
  std::span<std::byte> ring_to_server() const;
  std::span<std::byte> ring_to_client() const;
  BoxHead& box(size_t i) const { return reinterpret_cast<BoxHead*>(boxes())[i]; }
  std::span<std::byte> box_data(size_t i) const;
  std::span<std::byte> area() const;

 private:
  SharedRegion(std::shared_ptr<SharedPages> pages, const Layout& layout, Lent lent)
      : pages_(std::move(pages)), layout_(layout), lent_(std::move(lent)) {}
  static constexpr size_t kBeforeShortcuts = 2 * sizeof(RingState) + sizeof(ShortcutTotals);
  static_assert(kBeforeShortcuts + kShortcuts * sizeof(ShortcutWord) <= SharedPages::kPage);
  std::byte* base() const { return pages_->bytes().data(); }
  std::byte* boxes() const;

  const std::shared_ptr<SharedPages> pages_;
  const Layout layout_;
  const Lent lent_;
};

}  // namespace forebay
