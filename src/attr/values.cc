#include "attr/values.h"

#include <fmt/format.h>

namespace forebay::attr {

namespace {

// A name may come from anywhere, and need not be text.
std::string shown(std::string_view name) {
  std::string out(name.substr(0, 64));
  for (char& c : out) {
    if (c < ' ' || c > '~') c = '?';
  }
  return out.size() < name.size() ? out + "..." : out;
}

Error none(std::string_view name) {
  return Error(ENODATA, fmt::format("no attribute is named '{}'", shown(name)));
}

}  // namespace

uint64_t* Values::find(std::string_view name) {
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : &found->second;
}

Result<void> Values::create(std::string_view name, uint64_t value) {
  if (name.empty()) return Error(EINVAL, "the name of an attribute is empty");
  if (name.size() > kMaxName) {
    return Error(ENAMETOOLONG, fmt::format("attribute '{}': {} bytes of name, {} are the most",
                                           shown(name), name.size(), kMaxName));
  }
  if (find(name)) return Error(EEXIST, fmt::format("attribute '{}'", shown(name)));
  if (values_.size() >= most_) {
    return Error(ENOSPC, fmt::format("attribute '{}': the file has {}, and may have no more",
                                     shown(name), values_.size()));
  }
  values_.emplace(name, value);
  return {};
}

Result<void> Values::remove(std::string_view name) {
  const auto found = values_.find(name);
  if (found == values_.end()) return none(name);
  values_.erase(found);
  return {};
}

Result<uint64_t> Values::get(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) return none(name);
  return found->second;
}

Result<void> Values::set(std::string_view name, uint64_t value) {
  uint64_t* const number = find(name);
  if (!number) return none(name);
  *number = value;
  return {};
}

Result<uint64_t> Values::fetch_and_add(std::string_view name, uint64_t step) {
  uint64_t* const number = find(name);
  if (!number) return none(name);
  return std::exchange(*number, *number + step);
}

Result<uint64_t> Values::compare_and_swap(std::string_view name, uint64_t expected,
                                          uint64_t desired) {
  uint64_t* const number = find(name);
  if (!number) return none(name);
  const uint64_t before = *number;
  if (before == expected) *number = desired;
  return before;
}

}  // namespace forebay::attr
