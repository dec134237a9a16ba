// SharedRegion: the memory that a client on the server's node shares with it: two rings for frames
// (shared_ring.h) and an area for bulk data, in one memfd.
//
//   [ring states, one page] [ring to the server] [ring to the client] [area]
//
// The client makes it, so it is the client's memory; sealed, so that nobody can shrink it under the
// other's feet. Its pages become resident as they are touched. What lies in it may change at any
// time: the server uses bytes of the area as data only, and its own places in the rings only. (A
// client that punches holes into it on a machine without memory left can still fault whoever
// touches them.)
//
// Threads: any may hold it and touch the area; the rings belong to the two ends of the connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/result.h"
#include "transport/fd.h"
#include "transport/shared_ring.h"

namespace forebay {

class SharedRegion {
 public:
  struct Layout {
    uint32_t ring = 256 << 10;  // bytes of one ring: a power of two
    uint64_t area = 0;          // bytes, whole pages
    uint64_t bytes() const;
    bool operator==(const Layout&) const = default;
  };
  static constexpr uint32_t kMinRing = 4 << 10, kMaxRing = 4 << 20;
  static constexpr uint64_t kMaxArea = uint64_t(1) << 40;

  static Result<std::shared_ptr<SharedRegion>> create(const Layout& layout);
  // What another process made. EINVAL if it is not of that layout or could shrink.
  static Result<std::shared_ptr<SharedRegion>> adopt(Fd memory, const Layout& layout);
  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;

  int descriptor() const { return memory_.get(); }
  void drop_descriptor() { memory_ = Fd(); }  // the mapping stays
  const Layout& layout() const { return layout_; }

  RingState& to_server() const { return *reinterpret_cast<RingState*>(base_); }
  RingState& to_client() const { return *reinterpret_cast<RingState*>(base_ + sizeof(RingState)); }
  std::span<std::byte> ring_to_server() const;
  std::span<std::byte> ring_to_client() const;
  std::span<std::byte> area() const;

 private:
  SharedRegion(Fd memory, const Layout& layout, std::byte* base)
      : memory_(std::move(memory)), layout_(layout), base_(base) {}
  static Result<std::shared_ptr<SharedRegion>> map(Fd memory, const Layout& layout);

  Fd memory_;
  const Layout layout_;
  std::byte* const base_;
};

}  // namespace forebay
