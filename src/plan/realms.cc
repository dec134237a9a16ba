#include "plan/realms.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <queue>

namespace forebay::plan {
namespace {

uint64_t round_up(uint64_t n, uint64_t to) {
  return (n + to - 1) / to * to;
}

uint64_t even_share(Extent region, size_t aggregators) {
  return (region.length.value + aggregators - 1) / aggregators;
}

TiledMap range(uint64_t from, uint64_t to) {
  if (from >= to) return {};
  return *TiledMap::once(Offset(from), *TypeMap::bytes(static_cast<int64_t>(to - from)));
}

// Every `stride` bytes, `length` of them, from `at` on.
Result<TiledMap> repeated(uint64_t at, uint64_t length, uint64_t stride) {
  auto bytes = TypeMap::bytes(static_cast<int64_t>(length));
  if (!bytes) return bytes.error();
  auto tile = TypeMap::resized(*bytes, 0, static_cast<int64_t>(stride));
  if (!tile) return tile.error();
  return TiledMap::view(Offset(at), *tile);
}

// Borders between the first and the last byte of the region, rounded up.
Realms cut(Extent region, std::vector<uint64_t> borders, uint64_t alignment) {
  Realms realms;
  uint64_t from = region.offset.value;
  borders.push_back(region.end().value);
  for (size_t i = 0; i < borders.size(); ++i) {
    uint64_t to = i + 1 < borders.size() ? round_up(borders[i], alignment) : borders[i];
    to = std::clamp(to, from, region.end().value);
    realms.push_back(range(from, to));
    from = to;
  }
  return realms;
}

// A stretch of the file over which one rank's data is spread.
struct Stretch {
  uint64_t from, to;
  double bytes;
};

std::vector<Stretch> stretches_of(std::span<const Samples> ranks) {
  std::vector<Stretch> all;
  for (const Samples& rank : ranks) {
    for (size_t i = 0; i + 1 < rank.offsets.size(); ++i) {
      const uint64_t from = rank.offsets[i], to = std::max(rank.offsets[i + 1], from + 1);
      all.push_back(
          {from, to,
           static_cast<double>(rank.bytes) / static_cast<double>(rank.offsets.size() - 1)});
    }
  }
  return all;
}

struct Step {
  uint64_t at;
  double change;  // of the bytes per byte of file
};

std::vector<Step> steps_of(const std::vector<Stretch>& stretches) {
  std::vector<Step> steps;
  steps.reserve(2 * stretches.size());
  for (const Stretch& s : stretches) {
    const double density = s.bytes / static_cast<double>(s.to - s.from);
    steps.push_back({s.from, density});
    steps.push_back({s.to, -density});
  }
  std::sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) { return a.at < b.at; });
  return steps;
}

std::optional<uint64_t> number(std::string_view text) {
  uint64_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size() || value > kMaxOffset)
    return std::nullopt;
  return value;
}

struct Given {
  uint64_t at = 0, length = 0, stride = 0;  // 0: once
};

std::optional<Given> given(std::string_view text) {
  const size_t colon = text.find(':'), slash = text.find('/');
  if (colon == text.npos) return std::nullopt;
  const auto at = number(text.substr(0, colon));
  const auto length =
      number(text.substr(colon + 1, slash == text.npos ? slash : slash - colon - 1));
  const auto stride = slash == text.npos ? 0 : number(text.substr(slash + 1));
  if (!at || !length || !stride || *length == 0 || (*stride != 0 && *stride < *length) ||
      *length > kMaxOffset - *at)
    return std::nullopt;
  return Given{*at, *length, *stride};
}

// How far every byte is in one of them, no more and no less. From where all have begun, and those
// that come once have ended, one period of the others tells all; a period without an end, as that
// of strides that have nothing in common, is followed so far that nobody waits for it.
uint64_t end_of(const std::vector<Given>& given) {
  constexpr int kMostBorders = 100'000;
  using Next = std::pair<uint64_t, size_t>;  // where it begins, and whose it is
  std::priority_queue<Next, std::vector<Next>, std::greater<>> queue;
  uint64_t regular = 0, period = 1;
  for (size_t i = 0; i < given.size(); ++i) {
    const auto& [at, length, stride] = given[i];
    queue.emplace(at, i);
    regular = std::max(regular, stride ? at : at + length);
    if (stride == 0) continue;
    const uint64_t times = stride / std::gcd(period, stride);
    period = period > kMaxOffset / times ? kMaxOffset : period * times;
  }
  uint64_t end = 0;
  for (int i = 0; i < kMostBorders && !queue.empty(); ++i) {
    const auto [begin, whose] = queue.top();
    if (begin > end || end == kMaxOffset) return end;
    const auto& [at, length, stride] = given[whose];
    queue.pop();
    end += length;
    if (stride > 0) queue.emplace(begin + stride, whose);
    if (!queue.empty() && queue.top().first < end) return queue.top().first;
    if (stride > 0 && end >= regular && end - regular >= period) return kMaxOffset;
  }
  return end;
}

}  // namespace

Realms even_realms(Extent region, size_t aggregators, uint64_t alignment) {
  std::vector<uint64_t> borders;
  const uint64_t share = even_share(region, aggregators);
  for (size_t i = 1; i < aggregators; ++i)
    borders.push_back(region.offset.value + std::min(region.length.value, i * share));
  return cut(region, std::move(borders), alignment);
}

uint64_t even_alignment(Extent region, size_t aggregators, uint64_t stripe) {
  if (stripe == 0 || stripe > region.length.value) return 1;
  uint64_t largest = 0;
  for (const TiledMap& realm : even_realms(region, aggregators, stripe))
    largest = std::max(largest, realm.total().value);
  return still_even(even_share(region, aggregators), largest) ? stripe : 1;
}

Realms balanced_realms(Extent region, std::span<const Samples> ranks, size_t aggregators,
                       uint64_t alignment) {
  const auto stretches = stretches_of(ranks);
  const double all = std::accumulate(stretches.begin(), stretches.end(), 0.0,
                                     [](double sum, const Stretch& s) { return sum + s.bytes; });
  std::vector<uint64_t> borders;
  double density = 0, before = 0;  // of bytes, up to `at`
  uint64_t at = region.offset.value;
  for (const Step& step : steps_of(stretches)) {
    const double here = density * static_cast<double>(step.at - at);
    while (borders.size() + 1 < aggregators && density > 0) {
      const double wanted =
          all * static_cast<double>(borders.size() + 1) / static_cast<double>(aggregators);
      if (before + here < wanted) break;
      borders.push_back(at + static_cast<uint64_t>(std::max(0.0, (wanted - before) / density)));
    }
    before += here;
    density += step.change;
    at = step.at;
  }
  while (borders.size() + 1 < aggregators) borders.push_back(region.end().value);
  return cut(region, std::move(borders), alignment);
}

Realms cyclic_realms(uint64_t size, size_t aggregators) {
  Realms realms;
  for (size_t i = 0; i < aggregators; ++i) {
    auto realm = size > kMaxOffset / (aggregators + 1)
                     ? (i == 0 ? range(0, kMaxOffset) : TiledMap())
                     : repeated(i * size, size, aggregators * size);
    FOREBAY_ASSERT(realm.has_value(), "sizes were checked");
    realms.push_back(std::move(*realm));
  }
  return realms;
}

Realms striped_realms(uint64_t stripe, uint32_t targets, size_t aggregators) {
  size_t used = aggregators;
  while (used > 1 && used % targets != 0 && targets % used != 0) --used;
  Realms realms = cyclic_realms(stripe, used);
  realms.resize(aggregators);
  return realms;
}

Result<GivenRealms> given_realms(std::string_view text) {
  GivenRealms made;
  std::vector<Given> list;
  uint64_t last = 0;  // border that is named
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const auto one = given(text.substr(0, comma));
    if (!one)
      return Error(EINVAL, fmt::format("a realm is \"at:length\" or \"at:length/stride\", and not "
                                       "\"{}\"",
                                       text.substr(0, comma)));
    auto realm = one->stride ? repeated(one->at, one->length, one->stride)
                             : Result<TiledMap>(range(one->at, one->at + one->length));
    if (!realm) return realm.error();
    last = std::max({last, one->at + one->length, one->at + one->stride});
    made.realms.push_back(std::move(*realm));
    list.push_back(*one);
    text = comma == text.npos ? std::string_view() : text.substr(comma + 1);
  }
  made.end = end_of(list);
  if (made.end < last) return Error(EINVAL, "the realms given overlap, or leave bytes to nobody");
  // What comes again does so in whole, as far as offsets go.
  for (size_t i = 0; i < list.size(); ++i) {
    const uint64_t times = made.realms[i].total().value / list[i].length;
    if (list[i].stride > 0) made.end = std::min(made.end, list[i].at + times * list[i].stride);
  }
  return made;
}

bool complete(const Realms& realms, Extent region) {
  constexpr int kMostBorders = 1'000'000;
  std::vector<Ranges> ranges;
  for (const TiledMap& realm : realms) ranges.push_back(ranges_of(realm));
  uint64_t at = region.offset.value;
  for (int i = 0; at < region.end().value; ++i) {
    std::optional<Extent> mine;
    uint64_t next_other = kMaxOffset;
    for (const Ranges& of : ranges) {
      const auto found = of(Offset(at));
      if (!found) continue;
      if (found->offset.value > at) {
        next_other = std::min(next_other, found->offset.value);
      } else {
        if (mine) return false;
        mine = found;
      }
    }
    if (!mine || mine->end().value > next_other || i > kMostBorders) return false;
    at = mine->end().value;
  }
  return true;
}

uint64_t persistent_size(const PersistentFacts& facts) {
  uint64_t size = 0;
  switch (facts.form) {
    case Persistent::user:
      size = facts.user_size;
      break;
    case Persistent::file_size:
      size = (facts.file_size + facts.aggregators - 1) / facts.aggregators;
      break;
    case Persistent::off:
    case Persistent::region:
    case Persistent::dynamic:
      size = (facts.region.length.value + facts.aggregators - 1) / facts.aggregators;
      break;
  }
  size = round_up(std::max<uint64_t>(size, 1), facts.alignment);
  if (facts.form == Persistent::user || facts.stripe == 0) return size;
  // A multiple of both, if there is one that is not far larger.
  const uint64_t times = facts.alignment / std::gcd(facts.alignment, facts.stripe);
  if (times > (size + size / 8) / facts.stripe) return size;
  const uint64_t whole = round_up(size, times * facts.stripe);
  return still_even(size, whole) ? whole : size;
}

bool interleaved(std::span<const Extent> regions) {
  std::vector<Extent> sorted;
  for (const Extent& region : regions)
    if (!region.empty()) sorted.push_back(region);
  std::sort(sorted.begin(), sorted.end(),
            [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
  for (size_t i = 1; i < sorted.size(); ++i)
    if (sorted[i].offset < sorted[i - 1].end()) return true;
  return false;
}

}  // namespace forebay::plan
