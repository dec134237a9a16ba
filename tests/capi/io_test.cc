// Random lists and strides against a file that is a string.
#include <numeric>
#include <random>

#include "rig.h"

namespace forebay {
namespace {

class CapiIo : public Capi {};

constexpr size_t kFile = 40'000;    // bytes of the file that requests touch
constexpr size_t kMemory = 40'000;  // of the buffer

using Places = std::vector<size_t>;  // one for each byte of a stream

// Lists of pieces that do not overlap each other, in any order, and cover `total` bytes.
std::vector<fb_extent> random_list(std::mt19937_64& random, size_t space, size_t total) {
  std::vector<fb_extent> list;
  size_t at = 0;
  for (size_t left = total; left > 0;) {
    const size_t n = std::min<size_t>(left, 1 + random() % 700);
    const size_t slack = space - at - left;
    at += slack ? random() % (slack + 1) / 4 : 0;
    list.push_back({at, n});
    at += n;
    left -= n;
    if (random() % 8 == 0) list.push_back({random() % space, 0});
  }
  if (random() % 2) std::shuffle(list.begin(), list.end(), random);
  return list;
}

Places places(const std::vector<fb_extent>& list) {
  Places out;
  for (const fb_extent& e : list)
    for (uint64_t i = 0; i < e.length; ++i) out.push_back(e.offset + i);
  return out;
}

// Loops that do not overlap themselves: each dimension steps over the one inside of it.
struct Loops {
  std::vector<uint64_t> counts;
  std::vector<int64_t> strides;
  uint64_t offset = 0, length = 1;

  fb_strided c() const {
    return {offset, length, static_cast<unsigned>(counts.size()), counts.data(), strides.data()};
  }
  Places places() const {
    Places out;
    walk(0, static_cast<int64_t>(offset), out);
    return out;
  }

 private:
  void walk(size_t dimension, int64_t at, Places& out) const {
    if (dimension == counts.size()) {
      for (uint64_t i = 0; i < length; ++i) out.push_back(static_cast<size_t>(at) + i);
      return;
    }
    for (uint64_t i = 0; i < counts[dimension]; ++i)
      walk(dimension + 1, at + static_cast<int64_t>(i) * strides[dimension], out);
  }
};

Loops random_loops(std::mt19937_64& random, const std::vector<uint64_t>& counts, uint64_t length) {
  Loops loops{counts, std::vector<int64_t>(counts.size()), 0, length};
  uint64_t reach = length;
  for (size_t d = counts.size(); d-- > 0;) {
    const uint64_t step = reach + random() % 20;
    const bool back = random() % 3 == 0;
    loops.strides[d] = back ? -static_cast<int64_t>(step) : static_cast<int64_t>(step);
    if (back) loops.offset += step * (counts[d] - 1);
    reach = step * (counts[d] - 1) + reach;
  }
  loops.offset += random() % 100;
  return loops;
}

// A buffer, a file and what both should hold.
class Oracle {
 public:
  Oracle(fb_file* file, uint64_t seed) : file_(file), random_(seed) {
    for (char& c : memory_) c = static_cast<char>(random_());
  }

  void list_round() {
    const size_t total = 1 + random_() % 20'000;
    auto extents = random_list(random_, kFile, total);
    auto in_memory = random_list(random_, kMemory, total);
    std::vector<fb_piece> pieces;
    for (const fb_extent& e : in_memory) pieces.push_back({memory_.data() + e.offset, e.length});
    const bool writes = random_() % 2, waits = random_() % 2;
    const auto blocking = writes ? fb_writev_list : fb_readv_list;
    const auto not_blocking = writes ? fb_iwritev_list : fb_ireadv_list;
    const size_t n = extents.size(), m = pieces.size();
    run(writes, places(extents), places(in_memory), [&] {
      if (!waits) return blocking(file_, extents.data(), n, pieces.data(), m);
      fb_request* request = nullptr;
      EXPECT_OK(not_blocking(file_, extents.data(), n, pieces.data(), m, &request));
      extents.clear();  // copied
      pieces.clear();
      return fb_wait(&request);
    });
  }

  void strided_round() {
    std::vector<uint64_t> counts(random_() % 4);
    for (uint64_t& count : counts) count = 1 + random_() % 9;
    const uint64_t length = 1 + random_() % 30;
    const Loops view = random_loops(random_, counts, length);
    const Loops shape = random_() % 3 ? random_loops(random_, counts, length)
                                      : random_loops(random_, {}, view.places().size());
    const bool writes = random_() % 2, waits = random_() % 2, flat = shape.counts.empty();
    const fb_strided v = view.c(), s = shape.c();
    // Contiguous memory may be left out.
    char* base = memory_.data() + (flat ? shape.offset : 0);
    const fb_strided* memory = flat ? nullptr : &s;
    run(writes, view.places(), shape.places(), [&] {
      if (!waits)
        return writes ? fb_write_strided(file_, &v, base, memory)
                      : fb_read_strided(file_, &v, base, memory);
      fb_request* request = nullptr;
      EXPECT_OK(writes ? fb_iwrite_strided(file_, &v, base, memory, &request)
                       : fb_iread_strided(file_, &v, base, memory, &request));
      return fb_wait(&request);
    });
  }

  void check() {
    std::string all(kFile + 1, '?');
    const int64_t got = fb_pread(file_, all.data(), all.size(), 0);
    ASSERT_EQ(got, static_cast<int64_t>(content_.size())) << fb_error();
    all.resize(content_.size());
    EXPECT_TRUE(all == content_);
  }

 private:
  template <class Call>
  void run(bool writes, const Places& in_file, const Places& in_memory, Call&& call) {
    ASSERT_EQ(in_file.size(), in_memory.size());
    std::string expected = memory_;
    size_t moved = 0;
    for (; moved < in_file.size(); ++moved) {
      const size_t f = in_file[moved], m = in_memory[moved];
      if (writes) {
        if (f >= content_.size()) content_.resize(f + 1);
        content_[f] = memory_[m];
      } else {
        if (f >= content_.size()) break;
        expected[m] = content_[f];
      }
    }
    const int64_t got = call();
    EXPECT_EQ(got, static_cast<int64_t>(moved)) << fb_error();
    // Beyond the end of file a read may leave anything in the memory that it was given.
    for (size_t i = moved; i < in_memory.size(); ++i)
      if (!writes) expected[in_memory[i]] = memory_[in_memory[i]];
    EXPECT_TRUE(memory_ == expected);
  }

  fb_file* const file_;
  std::mt19937_64 random_;
  std::string content_;
  std::string memory_ = std::string(kMemory, '\0');
};

TEST_F(CapiIo, RandomListsAndStridesAgainstAnOracle) {
  const uint64_t seed = test_seed();
  fb_file* file = open("/f");
  Oracle oracle(file, seed);
  for (int i = 0; i < 400 && !HasFailure(); ++i) {
    if (i % 2) {
      oracle.list_round();
    } else {
      oracle.strided_round();
    }
    if (i % 20 == 19) oracle.check();
  }
  EXPECT_OK(fb_close(file));
}

TEST_F(CapiIo, EndOfFileAndNothing) {
  fb_file* file = open("/f");
  write(file, "0123456789");
  EXPECT_EQ(read(file, 100, 5), "56789");
  EXPECT_EQ(read(file, 100, 10), "");
  EXPECT_EQ(fb_pread(file, nullptr, 0, 0), 0);
  EXPECT_EQ(fb_pwrite(file, nullptr, 0, 0), 0);
  EXPECT_EQ(fb_readv_list(file, nullptr, 0, nullptr, 0), 0);
  fb_request* request = nullptr;
  EXPECT_OK(fb_iwritev_list(file, nullptr, 0, nullptr, 0, &request));
  EXPECT_EQ(fb_wait(&request), 0);
  const uint64_t none = 0;
  const int64_t step = 10;
  const fb_strided empty = {0, 10, 1, &none, &step};
  EXPECT_EQ(fb_write_strided(file, &empty, nullptr, nullptr), 0);
  EXPECT_OK(fb_close(file));
}

TEST_F(CapiIo, BadListsAreEINVAL) {
  fb_file* file = open("/f");
  char bytes[100] = {};
  const fb_piece piece = {bytes, 100}, null_piece = {nullptr, 100};
  const fb_extent short_one = {0, 99}, high = {uint64_t{1} << 63, 100}, good = {0, 100};
  const fb_extent huge[2] = {{0, INT64_MAX}, {0, INT64_MAX}};
  fb_request* request = nullptr;
  EXPECT_ERRNO(EINVAL, fb_writev_list(file, &short_one, 1, &piece, 1));
  EXPECT_STREQ(fb_error(),
               "fb_writev_list: the file side has 99 bytes, the memory side 100: Invalid argument "
               "(EINVAL)");
  EXPECT_ERRNO(EINVAL, fb_writev_list(file, &high, 1, &piece, 1));
  EXPECT_ERRNO(EINVAL, fb_writev_list(file, nullptr, 1, &piece, 1));
  EXPECT_ERRNO(EINVAL, fb_writev_list(file, &good, 1, nullptr, 1));
  EXPECT_ERRNO(EINVAL, fb_writev_list(file, &good, 1, &null_piece, 1));
  EXPECT_ERRNO(EOVERFLOW, fb_writev_list(file, huge, 2, &piece, 1));
  EXPECT_ERRNO(EINVAL, fb_ireadv_list(file, &short_one, 1, &piece, 1, &request));
  EXPECT_EQ(request, nullptr);
  EXPECT_ERRNO(EINVAL, fb_ireadv_list(file, &good, 1, &piece, 1, nullptr));
  EXPECT_ERRNO(EINVAL, fb_pwrite(file, bytes, 100, INT64_MAX));
  EXPECT_ERRNO(EINVAL, fb_pwrite(file, nullptr, 100, 0));

  const uint64_t counts[33] = {2};
  const int64_t back[33] = {-100};
  const fb_strided before = {50, 50, 1, counts, back}, deep = {0, 50, 33, counts, back};
  const fb_strided loose = {0, 50, 1, nullptr, back}, whole = {0, 100, 0, nullptr, nullptr};
  EXPECT_ERRNO(EINVAL, fb_write_strided(file, &before, bytes, nullptr));
  EXPECT_ERRNO(EINVAL, fb_write_strided(file, &whole, bytes, &before));
  EXPECT_ERRNO(EINVAL, fb_write_strided(file, &deep, bytes, nullptr));
  EXPECT_ERRNO(EINVAL, fb_write_strided(file, &loose, bytes, nullptr));
  EXPECT_ERRNO(EINVAL, fb_write_strided(file, nullptr, bytes, nullptr));
  EXPECT_ERRNO(EINVAL, fb_write_strided(file, &whole, nullptr, nullptr));
  EXPECT_ERRNO(EINVAL, fb_iread_strided(file, &whole, nullptr, nullptr, &request));
  EXPECT_EQ(read(file, 10), "") << "nothing was written";
  EXPECT_OK(fb_close(file));
}

}  // namespace
}  // namespace forebay
