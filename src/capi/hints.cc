#include "capi/hints.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "assembly/units.h"
#include "capi/error.h"

namespace forebay::capi {
namespace {

Result<void> set_write_behind(fb_file& file, std::string_view value) {
  if (value == "off") return file.write_flags = kFlagStable, Result<void>();
  if (value == "on") return file.write_flags = kFlagBehind, Result<void>();
  return Error(EINVAL, fmt::format("write_behind: '{}' is neither on nor off", value));
}

Result<void> set_direct(fb_file& file, std::string_view value) {
  if (value != "on" && value != "off")
    return Error(EINVAL, fmt::format("direct: '{}' is neither on nor off", value));
  file.open_flags = value == "on" ? uint32_t{kFlagDirect} : 0;
  return {};
}

struct Hint {
  std::string_view key;
  Result<void> (*set)(fb_file&, std::string_view value);
  bool only_at_open = false;
};
constexpr Hint kHints[] = {{"write_behind", set_write_behind}, {"direct", set_direct, true}};

Error unknown(std::string_view key) {
  std::vector<std::string> known;
  for (const Hint& hint : kHints) known.emplace_back(hint.key);
  const std::string near = nearest(key, known);
  return Error(EINVAL,
               fmt::format("unknown hint '{}'; {}", key,
                           near.empty() ? fmt::format("known are: {}", fmt::join(known, ", "))
                                        : fmt::format("did you mean '{}'?", near)));
}

}  // namespace

Result<void> set_hint(fb_file& file, std::string_view key, std::string_view value, bool opening) {
  const Hint* const hint = std::ranges::find(kHints, key, &Hint::key);
  if (hint == std::end(kHints)) return unknown(key);
  if (hint->only_at_open && !opening)
    return Error(ENOTSUP, fmt::format("{}: give this hint to fb_open", key));
  return hint->set(file, value);
}

Result<void> set_hints(fb_file& file, const char* const* hints) {
  for (; hints && *hints; ++hints) {
    const std::string_view text = *hints;
    const size_t equals = text.find('=');
    if (equals == text.npos)
      return Error(EINVAL, fmt::format("the hint '{}' is not of the form key=value", text));
    auto set = set_hint(file, text.substr(0, equals), text.substr(equals + 1), true);
    if (!set) return set;
  }
  return {};
}

}  // namespace forebay::capi

using namespace forebay;
using namespace forebay::capi;

int fb_set_hint(fb_file* file, const char* key, const char* value) {
  return status({"fb_set_hint", key}, [&]() -> Result<void> {
    if (auto ok = given({key, value}); !ok) return ok;
    auto use = Use::begin(file);
    if (!use) return use.error();
    return set_hint(use->file(), key, value, false);
  });
}
