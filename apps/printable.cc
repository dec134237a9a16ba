#include "printable.h"

#include <fmt/format.h>
#include <pwd.h>

#include "assembly/json.h"

namespace forebay {
namespace {

// U+0080 to U+009F are control characters as well; some terminals obey them.
bool is_control(std::string_view character) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 1) return byte(0) < 0x20 || byte(0) == 0x7f;
  return character.size() == 2 && byte(0) == 0xc2 && byte(1) < 0xa0;
}

std::string escape(std::string_view bytes) {
  if (bytes == "\n") return "\\n";
  if (bytes == "\t") return "\\t";
  if (bytes == "\r") return "\\r";
  std::string out;
  for (const char c : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return out;
}

std::string escape_all(std::string_view text, std::string_view as_they_are) {
  std::string out;
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const std::string_view one = text.substr(0, std::max<size_t>(length, 1));
    text.remove_prefix(one.size());
    if (as_they_are.find(one) != std::string_view::npos) {
      out += one;
    } else if (one == "\\") {
      out += "\\\\";
    } else {
      out += length == 0 || is_control(one) ? escape(one) : std::string(one);
    }
  }
  return out;
}

}  // namespace

std::string printable(std::string_view name) {
  return escape_all(name, "");
}

std::string printable_text(std::string_view text) {
  return escape_all(text, "\n\\");
}

std::string user_name(uint32_t uid) {
  const struct passwd* user = ::getpwuid(uid);
  return user ? user->pw_name : std::to_string(uid);
}

}  // namespace forebay
