#include "fuse/mount_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace forebay::fuse {

namespace {

constexpr std::string_view kOfKernel[] = {"ro",
                                          "rw",
                                          "suid",
                                          "nosuid",
                                          "dev",
                                          "nodev",
                                          "exec",
                                          "noexec",
                                          "sync",
                                          "async",
                                          "dirsync",
                                          "atime",
                                          "noatime",
                                          "diratime",
                                          "nodiratime",
                                          "allow_other",
                                          "allow_root",
                                          "auto_unmount",
                                          "default_permissions"};
constexpr std::string_view kOfMount[] = {"defaults", "auto",   "noauto",   "user",
                                         "users",    "nouser", "owner",    "group",
                                         "_netdev",  "nofail", "relatime", "noowner"};

template <size_t N>
bool among(const std::string_view (&words)[N], std::string_view word) {
  return std::find(words, words + N, word) != words + N;
}

Result<double> seconds(std::string_view key, std::string_view value) {
  double number = 0;
  const auto [end, failed] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (failed == std::errc() && end == value.data() + value.size() && number >= 0 && number <= 86400)
    return number;
  return Error(EINVAL, fmt::format("-o {}={}: must be seconds, 0 to 86400", key, value));
}

constexpr std::array kCaches = {
    std::pair(std::string_view("none"), Cache::none),
    std::pair(std::string_view("pages"), Cache::pages),
    std::pair(std::string_view("lease"), Cache::lease),
    std::pair(std::string_view("writeback"), Cache::writeback),
};

Result<void> take(MountWords& words, std::string_view word) {
  if (word.empty() || among(kOfMount, word) || word.starts_with("x-") ||
      word.starts_with("comment="))
    return {};
  if (among(kOfKernel, word)) return words.options.kernel.emplace_back(word), Result<void>();
  const size_t equals = word.find('=');
  if (equals == word.npos) return Error(EINVAL, fmt::format("-o {}: no such option", word));
  const std::string_view key = word.substr(0, equals), value = word.substr(equals + 1);
  if (key == "attr_timeout" || key == "entry_timeout") {
    const Result<double> given = seconds(key, value);
    if (!given) return given.error();
    (key == "attr_timeout" ? words.options.attr_timeout : words.options.entry_timeout) = *given;
  } else if (key == "cache") {
    const auto known =
        std::ranges::find(kCaches, value, &std::pair<std::string_view, Cache>::first);
    if (known == kCaches.end()) {
      return Error(EINVAL,
                   fmt::format("-o cache={}: must be none, pages, lease or writeback", value));
    }
    words.options.cache = known->second;
  } else {
    words.settings.emplace_back(key, value);
  }
  return {};
}

}  // namespace

Result<MountWords> parse_mount_words(const std::vector<std::string>& lists) {
  MountWords words;
  for (const std::string& list : lists) {
    for (std::string_view rest = list; !rest.empty();) {
      const std::string_view word = rest.substr(0, rest.find(','));
      if (auto taken = take(words, word); !taken) return taken.error();
      rest.remove_prefix(std::min(word.size() + 1, rest.size()));
    }
  }
  return words;
}

}  // namespace forebay::fuse
