// Windows: in which order an aggregator moves the bytes of its realm, a buffer-full at a time.
//
// By offset: rising through the realm. By target (IBCS; paper 3): the storage targets that the
// bytes lie on decide, so that in every iteration each target serves one aggregator at most
// (plan/order.h); all aggregators go through the iterations together, and one that has nothing to
// do in an iteration has an empty window.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "plan/coverage.h"

namespace forebay::plan {

struct Striping {
  uint64_t stripe = 0;  // bytes; 0: not known
  uint32_t targets = 1;
  uint32_t first = 0;  // stripe k is on target (first + k) % targets
  // And such that stripes of every target fit in a file (cyclic_realms()).
  bool known() const {
    return stripe > 0 && targets > 1 && stripe <= kMaxOffset / (uint64_t{targets} + 1);
  }
};

class Windows {
 public:
  virtual ~Windows() = default;
  // The runs of the next window, rising and apart.
  virtual std::vector<Extent> next() = 0;
  virtual bool done() const = 0;       // there is no next one
  virtual uint64_t steps() const = 0;  // as Coverage's
};

// Is it worth moving windows of so many bytes in the order of targets? If each reaches only some of
// them, aggregators that work by offset may all wait for the same ones, and others idle. If each
// reaches all, the order is worth little, and costs one request for each stripe instead of one for
// all of them. That is all it costs, however many targets there are: it cuts no stripes that fit in
// a window (plan/order.h, rule 1). Who is alone waits for nobody.
inline bool order_pays(const Striping& striping, uint64_t window, size_t aggregators) {
  return striping.known() && aggregators > 1 && window / striping.stripe < striping.targets;
}

struct WindowLimits {
  uint64_t bytes = 0;
  size_t runs = 0;
};

// May windows hold bytes that no part has? Of a read, where the Store gives bytes as fast as those
// between them can be found out.
enum class Gaps : bool { never, where_dense };

// The parts must outlive the windows. At least one window, which may be empty.
std::unique_ptr<Windows> windows_by_offset(std::span<const ViewPart> parts, const TiledMap& realm,
                                           WindowLimits limits, Gaps gaps = Gaps::never);

// What the realm is for its aggregator, by target: its bytes, but a run of fewer than a window's
// limits have for each of its runs counts as that many. So a window's share of the load never has
// too many runs, and what an order of these loads plans is what is moved, however small the pieces
// are. Walks all of them.
std::vector<uint64_t> loads_by_target(std::span<const ViewPart> parts, const TiledMap& realm,
                                      const Striping& striping, const WindowLimits& limits);

// `loads`: of all aggregators, [aggregator * targets + target], each with these limits (four runs
// at least). Windows hold up to (1 + kThreshold) * limits.bytes. In the i-th window of all
// aggregators together each target has one of them at most, whoever is done earlier.
constexpr double kThreshold = 0.25;
std::unique_ptr<Windows> windows_by_target(std::span<const ViewPart> parts, const TiledMap& realm,
                                           const Striping& striping, WindowLimits limits,
                                           size_t aggregator, std::vector<uint64_t> loads);

}  // namespace forebay::plan
