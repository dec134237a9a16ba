#include "mpiio/rank_bytes.h"

#include <gtest/gtest.h>

#include "core/testing.h"
#include "plan/typemap_oracle.h"

namespace forebay::mpiio {
namespace {

// Random memory and file types; windows are random runs, rising from one to the next. The oracle
// goes byte by byte.
class RankBytesCase {
 public:
  explicit RankBytesCase(uint64_t seed) : oracle_(seed) {}

  void run() {
    make_view();
    make_memory();
    const uint64_t length = std::min(places_.size(), addresses_.size());
    const auto from = static_cast<uint64_t>(oracle_.pick(0, static_cast<int64_t>(length)));
    RankBytes bytes({view_, Length(from), Length(length - from)}, memory_);
    part_ = {places_.begin() + static_cast<ptrdiff_t>(from),
             places_.begin() + static_cast<ptrdiff_t>(length)};
    const RowTo to = oracle_.pick(0, 1) ? RowTo::row : RowTo::memory;
    for (uint64_t at = 0; at < places_.back() + 2;) ASSERT_NO_FATAL_FAILURE(window(bytes, at, to));
  }

 private:
  void make_view() {
    const plan::OracleType type = oracle_.make(static_cast<int>(oracle_.pick(1, 4)), true);
    const auto displacement = static_cast<uint64_t>(oracle_.pick(0, 9));
    view_ = plan::TiledMap::view(Offset(displacement), type.map).value();
    for (int64_t tile = 0; tile < 4; ++tile)
      for (const int64_t b : type.bytes)
        places_.push_back(displacement + static_cast<uint64_t>(b + tile * type.extent()));
  }

  void make_memory() {
    const plan::OracleType type = oracle_.make(static_cast<int>(oracle_.pick(0, 4)), true);
    const int64_t count = 1 + static_cast<int64_t>(places_.size() / type.bytes.size());
    user_.resize(static_cast<size_t>(count * type.extent() + type.ub));
    for (std::byte& b : user_) b = static_cast<std::byte>(oracle_.pick(0, 255));
    memory_ = plan::TiledMap::buffer(user_.data(), static_cast<uint64_t>(count), type.map).value();
    for (int64_t i = 0; i < count; ++i)
      for (const int64_t b : type.bytes)
        addresses_.push_back(static_cast<size_t>(b + i * type.extent()));
  }

  void window(RankBytes& bytes, uint64_t& at, RowTo to) {
    std::vector<Extent> runs;
    uint64_t total = 0;
    for (int64_t k = oracle_.pick(0, 5); k-- > 0;) {
      at += static_cast<uint64_t>(oracle_.pick(1, 60));
      const auto n = static_cast<uint64_t>(oracle_.pick(1, oracle_.pick(0, 3) ? 40 : 2000));
      runs.push_back(ext(at, n));
      at += n, total += n;
    }
    at += static_cast<uint64_t>(oracle_.pick(1, 9));
    const uint64_t there =
        oracle_.pick(0, 3) ? total
                           : static_cast<uint64_t>(oracle_.pick(0, static_cast<int64_t>(total)));
    std::vector<std::byte> buffer(total);
    for (std::byte& b : buffer) b = static_cast<std::byte>(oracle_.pick(0, 255));
    std::vector<std::byte> user = user_, wanted = buffer;
    uint64_t moved = 0, place = 0;
    for (const Extent& run : runs) {
      for (uint64_t i = 0; i < run.length.value; ++i, ++place) {
        const auto found = std::lower_bound(part_.begin(), part_.end(), run.offset.value + i);
        if (place >= there || found == part_.end() || *found != run.offset.value + i) continue;
        std::byte& in_memory = user[addresses_[static_cast<size_t>(found - part_.begin())]];
        (to == RowTo::row ? wanted[place] : in_memory) =
            to == RowTo::row ? in_memory : wanted[place];
        ++moved;
      }
    }
    ASSERT_EQ(bytes.copy(runs, buffer.data(), there, to), moved);
    ASSERT_EQ(buffer, wanted);
    ASSERT_EQ(user_, user);
  }

  plan::TypeOracle oracle_;
  plan::TiledMap view_, memory_;
  std::vector<uint64_t> places_, part_;  // in the file, of the stream
  std::vector<size_t> addresses_;        // in `user_`, of the stream
  std::vector<std::byte> user_;
};

TEST(RankBytes, AreCopiedAsTheOracleDoes) {
  const uint64_t seed = test_seed();
  for (uint64_t i = 0; i < 3000; ++i)
    ASSERT_NO_FATAL_FAILURE(RankBytesCase(seed + i).run()) << "seed " << seed + i;
}

}  // namespace
}  // namespace forebay::mpiio
