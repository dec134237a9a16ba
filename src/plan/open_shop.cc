#include "plan/open_shop.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "core/assert.h"

namespace forebay::plan {

namespace {

constexpr size_t kWord = 64;

void set(std::vector<uint64_t>& bits, size_t line, size_t i) {
  bits[line + i / kWord] |= uint64_t{1} << (i % kWord);
}

void clear(std::vector<uint64_t>& bits, size_t line, size_t i) {
  bits[line + i / kWord] &= ~(uint64_t{1} << (i % kWord));
}

uint32_t lowest(size_t word, uint64_t bits) {
  return static_cast<uint32_t>(word * kWord) + static_cast<uint32_t>(std::countr_zero(bits));
}

size_t words_of(size_t n) {
  return (n + kWord - 1) / kWord;
}

}  // namespace

OpenShop::Side::Side(size_t count, size_t others)
    : size(count),
      words(words_of(others)),
      load(count),
      partner(count, kIdle),
      works_with(count * words),
      idle(words_of(count)) {
  for (size_t i = 0; i < count; ++i) set(idle, 0, i);
}

OpenShop::OpenShop(size_t rows, size_t columns, std::vector<uint32_t> work)
    : work_(std::move(work)), rows_(rows, columns), columns_(columns, rows), by_load_(rows) {
  FOREBAY_ASSERT(work_.size() == rows * columns);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) {
      const uint32_t units = work_[r * columns + c];
      if (units == 0) continue;
      rows_.load[r] += units, columns_.load[c] += units;
      set(rows_.works_with, r * rows_.words, c);
      set(columns_.works_with, c * columns_.words, r);
    }
  }
  for (const Side* side : {&rows_, &columns_}) {
    for (const uint64_t load : side->load) left_ = std::max(left_, load);
  }
  std::iota(by_load_.begin(), by_load_.end(), uint32_t{0});
  std::ranges::stable_sort(by_load_, std::ranges::greater{},
                           [&](uint32_t r) { return rows_.load[r]; });
}

uint64_t OpenShop::next() {
  if (last_ > 0) work(last_);
  if (left_ == 0) return last_ = 0;
  pair_idle();
  cover_critical(columns_, rows_);
  cover_critical(rows_, columns_);
  pair_idle();  // those who had to make place
  return last_ = length();
}

// Everybody works for the length of a shift; pairs that are done part.
void OpenShop::work(uint64_t length) {
  left_ -= length;
  for (uint32_t r = 0; r < rows_.size; ++r) {
    const uint32_t c = rows_.partner[r];
    if (c == kIdle) continue;
    rows_.load[r] -= length, columns_.load[c] -= length;
    uint32_t& units = work_[r * columns_.size + c];
    units -= static_cast<uint32_t>(length);
  }
  sort_by_load();
  for (uint32_t r = 0; r < rows_.size; ++r) {
    const uint32_t c = rows_.partner[r];
    if (c == kIdle || work_[r * columns_.size + c] > 0) continue;
    clear(rows_.works_with, r * rows_.words, c);
    clear(columns_.works_with, c * columns_.words, r);
    release(rows_, r);
    release(columns_, c);
  }
}

// Those who worked have all lost as much, those who rested nothing: two lists that are in order.
void OpenShop::sort_by_load() {
  resting_.clear(), working_.clear();
  for (const uint32_t r : by_load_) (rows_.partner[r] == kIdle ? resting_ : working_).push_back(r);
  std::ranges::merge(
      resting_, working_, by_load_.begin(), std::ranges::greater{},
      [&](uint32_t r) { return rows_.load[r]; }, [&](uint32_t r) { return rows_.load[r]; });
}

void OpenShop::pair_idle() {
  size_t idle = 0;
  for (const uint64_t bits : columns_.idle) idle += static_cast<size_t>(std::popcount(bits));
  for (const uint32_t r : by_load_) {
    if (idle == 0 || rows_.load[r] == 0) return;
    if (rows_.partner[r] != kIdle) continue;
    const uint32_t c = shortest(r);
    if (c == kIdle) continue;
    pair(rows_, columns_, r, c);
    --idle;
  }
}

// Among the idle columns that it has work for; of several the next from the row's own number on, so
// that rows with the same work do not all want the same. With very many columns a sample.
uint32_t OpenShop::shortest(uint32_t row) const {
  constexpr int kSample = 32;
  const size_t words = rows_.words, own = row % columns_.size, first = own / kWord;
  const uint64_t from_own = ~uint64_t{0} << (own % kWord);
  uint32_t best = kIdle, least = UINT32_MAX;
  int looked = 0;
  for (size_t i = 0; i <= words && looked < kSample && least > 1; ++i) {
    const size_t w = (first + i) % words;
    uint64_t bits = rows_.works_with[row * words + w] & columns_.idle[w];
    if (i == 0) bits &= from_own;
    if (i == words) bits &= ~from_own;
    for (; bits != 0 && least > 1; bits &= bits - 1, ++looked) {
      const uint32_t c = lowest(w, bits), units = work_[row * columns_.size + c];
      if (units < least) best = c, least = units;
    }
  }
  return best;
}

void OpenShop::cover_critical(Side& mine, Side& others) {
  for (uint32_t i = 0; i < mine.size; ++i) {
    if (mine.partner[i] == kIdle && critical(mine, i)) cover(mine, others, i);
  }
}

// Finds a partner for one that is critical, breadth first along alternating paths: at the end of
// one is either somebody idle on the other side, or a partner of our side that can rest.
void OpenShop::cover(Side& mine, Side& others, uint32_t from) {
  seen_.assign(mine.words, 0);
  came_from_.resize(others.size);
  queue_.assign(1, from);
  uint32_t end = kIdle;
  for (size_t q = 0; q < queue_.size() && end == kIdle; ++q) {
    const uint32_t at = queue_[q];
    for (size_t w = 0; w < mine.words && end == kIdle; ++w) {
      const uint64_t fresh = mine.works_with[at * mine.words + w] & ~seen_[w];
      seen_[w] |= fresh;
      // The idle first: then nobody has to make place.
      const uint64_t idle = fresh & others.idle[w];
      for (uint64_t bits = idle ? idle : fresh; bits != 0; bits &= bits - 1) {
        const uint32_t other = lowest(w, bits), rival = others.partner[other];
        came_from_[other] = at;
        if (rival == kIdle || !critical(mine, rival)) {
          end = other;
          break;
        }
        queue_.push_back(rival);
      }
    }
  }
  FOREBAY_ASSERT(end != kIdle, "no matching covers all that are critical");
  if (others.partner[end] != kIdle) release(mine, others.partner[end]);
  for (uint32_t at = kIdle; at != from;) {
    at = came_from_[end];
    const uint32_t before = mine.partner[at];
    pair(mine, others, at, end);
    end = before;
  }
}

// How long it can stay as it is: until a pair is done, or somebody idle becomes critical.
uint64_t OpenShop::length() const {
  uint64_t result = left_;
  for (uint32_t r = 0; r < rows_.size; ++r) {
    const uint32_t c = rows_.partner[r];
    result = std::min<uint64_t>(result,
                                c == kIdle ? left_ - rows_.load[r] : work_[r * columns_.size + c]);
  }
  for (uint32_t c = 0; c < columns_.size; ++c) {
    if (columns_.partner[c] == kIdle) result = std::min(result, left_ - columns_.load[c]);
  }
  return result;
}

void OpenShop::pair(Side& mine, Side& others, uint32_t i, uint32_t other) {
  mine.partner[i] = other, others.partner[other] = i;
  clear(mine.idle, 0, i);
  clear(others.idle, 0, other);
}

void OpenShop::release(Side& side, uint32_t i) {
  side.partner[i] = kIdle;
  set(side.idle, 0, i);
}

}  // namespace forebay::plan
