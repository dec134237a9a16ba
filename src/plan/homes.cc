#include "plan/homes.h"

#include <algorithm>

#include "core/assert.h"

namespace forebay::plan {
namespace {

uint64_t mixed(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t hash_of(std::string_view bytes) {  // FNV-1a, and a last mix so that every bit counts
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return mixed(hash);
}

}  // namespace

Homes::Homes(std::vector<std::string> names) : names_(std::move(names)) {
  FOREBAY_ASSERT(!names_.empty());
  for (const std::string& name : names_) hashes_.push_back(hash_of(name));
}

size_t Homes::of(std::string_view identity) const {
  const uint64_t file = hash_of(identity);
  size_t best = 0;
  uint64_t highest = 0;
  for (size_t i = 0; i < hashes_.size(); ++i) {
    const uint64_t score = mixed(file ^ hashes_[i]);
    // Two that are equal are told apart by their names, so that order does not matter.
    if (i == 0 || score > highest || (score == highest && names_[i] < names_[best])) {
      best = i;
      highest = score;
    }
  }
  return best;
}

std::string Homes::text() const {
  std::vector<std::string> sorted = names_;
  std::ranges::sort(sorted);
  std::string out;
  for (const std::string& name : sorted) out += (out.empty() ? "" : ",") + name;
  return out;
}

}  // namespace forebay::plan
