// Names and texts from elsewhere, for a person's eyes. File names may hold any byte but '/' and 0:
// shown as they are, they could break a line or steer the terminal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace forebay {

// Control characters, bytes that are not UTF-8 and the backslash as `ls -b` shows them: \n, \x1b,
// \\. No two names look the same.
std::string printable(std::string_view name);

// A text of ours that may quote such names: as it is, but for control characters other than
// newlines and bytes that are not UTF-8.
std::string printable_text(std::string_view text);

// Of the user's account, or the number if it has none here.
std::string user_name(uint32_t uid);

}  // namespace forebay
