#include "bench/ibcs_load.h"

#include <algorithm>
#include <cmath>

#include "core/assert.h"
#include "core/types.h"
#include "plan/order.h"

namespace forebay::bench {

uint64_t Striping::on_target(uint32_t target, uint64_t end) const {
  const uint64_t round = stripe * targets, rest = end % round, before = target * stripe;
  return end / round * stripe + (rest <= before ? 0 : std::min(rest - before, stripe));
}

std::vector<Piece> Striping::pieces(uint64_t begin, uint64_t end) const {
  std::vector<Piece> result;
  for (uint32_t i = 0; i < targets; ++i) {
    // In the order in which the file meets them.
    const auto t = static_cast<uint32_t>((begin / stripe + i) % targets);
    const uint64_t from = on_target(t, begin), to = on_target(t, end);
    if (to > from) result.push_back({t, from, to - from});
  }
  return result;
}

uint64_t Striping::file_offset(uint32_t target, uint64_t offset) const {
  return (offset / stripe * targets + target) * stripe + offset % stripe;
}

uint32_t IbcsLoad::process_of(uint32_t aggregator) const {
  return (aggregator * processes + aggregators - 1) / aggregators;
}

IbcsLoad ior(uint32_t processes) {
  constexpr uint64_t kTransfer = 48_MiB, kAll = 576_MiB;
  return {.processes = processes,
          .aggregators = processes,
          .targets = processes,
          .calls = kAll / kTransfer,
          .bytes = kTransfer * processes,
          .owners = [processes](uint64_t begin, uint64_t end, std::vector<uint64_t>& by_process) {
            while (begin < end) {
              const uint64_t next = std::min(end, (begin / kTransfer + 1) * kTransfer);
              by_process[begin / kTransfer % processes] += next - begin;
              begin = next;
            }
          }};
}

namespace {

// The field of BTIO. A process has a cell in every layer of cells along z, one further along x and
// one back along y from layer to layer (make_set of NPB 3.3).
class Field {
 public:
  static constexpr uint64_t kPoints = 162, kPoint = 5 * sizeof(double), kLine = kPoints * kPoint;
  static constexpr uint64_t kBytes = kPoints * kPoints * kLine;

  explicit Field(uint32_t processes)
      : cells_(static_cast<uint32_t>(std::lround(std::sqrt(processes)))) {
    FOREBAY_ASSERT(cells_ * cells_ == processes);
    for (uint64_t i = 0; i <= cells_; ++i) {
      begins_.push_back(i * (kPoints / cells_) + std::min<uint64_t>(i, kPoints % cells_));
    }
  }

  void owners(uint64_t begin, uint64_t end, std::vector<uint64_t>& by_process) const {
    while (begin < end) {
      const uint64_t in_field = begin % kBytes, in_line = in_field % kLine;
      const uint64_t line = in_field / kLine, y = cell(line % kPoints), z = cell(line / kPoints);
      const uint64_t x = cell(in_line / kPoint);
      const uint64_t n = std::min(end - begin, begins_[x + 1] * kPoint - in_line);
      by_process[(y + z) % cells_ * cells_ + (x + cells_ - z) % cells_] += n;
      begin += n;
    }
  }

 private:
  uint64_t cell(uint64_t point) const {
    return static_cast<uint64_t>(std::ranges::upper_bound(begins_, point) - begins_.begin()) - 1;
  }

  uint32_t cells_;                // along each axis
  std::vector<uint64_t> begins_;  // of the cells, in points
};

}  // namespace

IbcsLoad btio(uint32_t processes) {
  return {.processes = processes,
          .aggregators = 4,
          .targets = 4,
          .calls = 40,
          .bytes = Field::kBytes,
          .owners = [field = Field(processes)](uint64_t begin, uint64_t end,
                                               std::vector<uint64_t>& by_process) {
            field.owners(begin, end, by_process);
          }};
}

std::string name_of(Strategy strategy) {
  constexpr const char* kNames[] = {"even realms", "IBCS", "stripe-cyclic",
                                    "stripe-cyclic, rotated"};
  return kNames[static_cast<int>(strategy)];
}

namespace {

// The realms of a call, equal and contiguous, as ROMIO has them: [a] to [a + 1].
std::vector<uint64_t> even_realms(const IbcsLoad& load, uint64_t call) {
  const uint64_t begin = call * load.bytes;
  const uint64_t each = (load.bytes + load.aggregators - 1) / load.aggregators;
  std::vector<uint64_t> ends;
  for (uint64_t a = 0; a <= load.aggregators; ++a) {
    ends.push_back(begin + std::min(a * each, load.bytes));
  }
  return ends;
}

class Maker {
 public:
  Maker(const IbcsModel& model, const IbcsLoad& load, uint64_t call)
      : load_(load),
        striping_{static_cast<uint64_t>(model.stripe), load.targets},
        buffer_(static_cast<uint64_t>(model.buffer)),
        realms_(even_realms(load, call)) {}

  Windows even() {
    for (uint32_t a = 0; a < load_.aggregators; ++a) {
      size_t i = 0;
      for (uint64_t at = realms_[a]; at < realms_[a + 1]; at += buffer_) {
        window(i++, a) = striping_.pieces(at, std::min(at + buffer_, realms_[a + 1]));
      }
    }
    return std::move(windows_);
  }

  Windows cyclic() {
    FOREBAY_ASSERT(load_.aggregators == load_.targets);
    for (uint32_t t = 0; t < load_.targets; ++t) {
      const uint64_t end = striping_.on_target(t, realms_.back());
      size_t i = 0;
      for (uint64_t at = striping_.on_target(t, realms_.front()); at < end; at += buffer_) {
        window(i++, t) = {{t, at, std::min(buffer_, end - at)}};
      }
    }
    return std::move(windows_);
  }

  Windows rotated() {
    const Windows straight = cyclic();
    const size_t n = straight.size();
    Windows result(n, std::vector<std::vector<Piece>>(load_.aggregators));
    for (size_t i = 0; i < n; ++i) {
      for (uint32_t a = 0; a < load_.aggregators; ++a) {
        result[i][a] = straight[(i + a * n / load_.aggregators) % n][a];
      }
    }
    return result;
  }

  Windows by_target() {
    plan::OrderInput in{.aggregators = load_.aggregators,
                        .targets = load_.targets,
                        .bytes = {},
                        .buffer = buffer_,
                        .stripe = striping_.stripe,
                        .threshold = kIbcsThreshold};
    std::vector<uint64_t> at;  // of each group, in its object
    for (uint32_t a = 0; a < load_.aggregators; ++a) {
      for (uint32_t t = 0; t < load_.targets; ++t) {
        at.push_back(striping_.on_target(t, realms_[a]));
        in.bytes.push_back(striping_.on_target(t, realms_[a + 1]) - at.back());
      }
    }
    const plan::Iterations order = plan::order_by_target(in);
    for (size_t i = 0; i < order.size(); ++i) {
      for (uint32_t a = 0; a < load_.aggregators; ++a) {
        for (const plan::OrderItem& item : order[i][a]) {
          uint64_t& next = at[a * load_.targets + item.target];
          window(i, a).push_back({item.target, next, item.bytes});
          next += item.bytes;
        }
      }
    }
    return std::move(windows_);
  }

 private:
  std::vector<Piece>& window(size_t iteration, uint32_t aggregator) {
    if (iteration >= windows_.size()) {
      windows_.resize(iteration + 1, std::vector<std::vector<Piece>>(load_.aggregators));
    }
    return windows_[iteration][aggregator];
  }

  const IbcsLoad& load_;
  const Striping striping_;
  const uint64_t buffer_;
  const std::vector<uint64_t> realms_;
  Windows windows_;
};

}  // namespace

Windows windows_of(const IbcsModel& model, const IbcsLoad& load, Strategy strategy, uint64_t call) {
  Maker maker(model, load, call);
  switch (strategy) {
    case Strategy::even:
      return maker.even();
    case Strategy::ibcs:
      return maker.by_target();
    case Strategy::cyclic:
      return maker.cyclic();
    case Strategy::rotated:
      return maker.rotated();
  }
  return {};
}

}  // namespace forebay::bench
