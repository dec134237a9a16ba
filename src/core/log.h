// Logging for people who run servers: one line, what and where. spdlog does the work behind it.
// Any thread. Libraries inside applications stay silent below `warn` unless told otherwise.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "core/result.h"

namespace forebay::log {

enum class Level { debug, info, warn, error, off };

// Where lines go: standard error (an empty path) or a file, which is appended to. Call once, before
// threads start. On an error (a path that cannot be written) lines go where they went before.
Result<void> init(Level level, const std::string& path = {});
bool enabled(Level level);
void write(Level level, std::string_view line);

template <class... Args>
void debug(fmt::format_string<Args...> f, Args&&... args) {
  if (enabled(Level::debug)) write(Level::debug, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> f, Args&&... args) {
  if (enabled(Level::info)) write(Level::info, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void warn(fmt::format_string<Args...> f, Args&&... args) {
  if (enabled(Level::warn)) write(Level::warn, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> f, Args&&... args) {
  if (enabled(Level::error)) write(Level::error, fmt::format(f, std::forward<Args>(args)...));
}

}  // namespace forebay::log
