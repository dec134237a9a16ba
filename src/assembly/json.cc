#include "assembly/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace forebay {
namespace {

constexpr int kMaxDepth = 64;  // deeper texts are not ours

void write_text(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const auto c = static_cast<unsigned char>(text[0]);
    if (length == 0) {
      out += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += text[0];
    } else if (c == '\n') {
      out += "\\n";
    } else if (c < 0x20 || c == 0x7f) {
      out += fmt::format("\\u{:04x}", c);
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  out += '"';
}

void append_utf8(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xc0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xe0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else {
    out += static_cast<char>(0xf0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3f));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  }
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Json> whole() {
    auto value = parse_value(0);
    blanks();
    if (value && at_ != text_.size()) return wrong("something follows the value");
    return value;
  }

 private:
  Error wrong(std::string_view why) const {
    return Error(EPROTO, fmt::format("not JSON: {} at byte {}", why, at_));
  }
  void blanks() {
    while (at_ < text_.size() &&
           std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos)
      ++at_;
  }
  bool take(std::string_view token) {
    blanks();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  Result<Json> parse_value(int depth) {
    if (depth > kMaxDepth) return wrong("nested too deeply");
    if (take("{")) return parse_object(depth);
    if (take("[")) return parse_array(depth);
    if (take("\"")) return parse_string();
    if (take("true")) return Json(true);
    if (take("false")) return Json(false);
    if (take("null")) return Json();
    return parse_number();
  }

  Result<Json> parse_object(int depth) {
    Json::Object members;
    if (take("}")) return Json(std::move(members));
    do {
      if (!take("\"")) return wrong("a member's name is missing");
      auto name = parse_string();
      if (!name) return name;
      if (!take(":")) return wrong("':' is missing");
      auto value = parse_value(depth + 1);
      if (!value) return value;
      members.emplace_back(name->text(), std::move(*value));
    } while (take(","));
    if (!take("}")) return wrong("'}' is missing");
    return Json(std::move(members));
  }

  Result<Json> parse_array(int depth) {
    Json::Array items;
    if (take("]")) return Json(std::move(items));
    do {
      auto value = parse_value(depth + 1);
      if (!value) return value;
      items.push_back(std::move(*value));
    } while (take(","));
    if (!take("]")) return wrong("']' is missing");
    return Json(std::move(items));
  }

  Result<Json> parse_string() {
    std::string out;
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == '"') return Json(std::move(out));
      if (c != '\\') {
        out += c;
      } else if (!escape(out)) {
        return wrong("an unknown escape");
      }
    }
    return wrong("a text has no end");
  }

  bool escape(std::string& out) {
    if (at_ >= text_.size()) return false;
    const char c = text_[at_++];
    constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
    if (const size_t i = kFrom.find(c); i != std::string_view::npos) return out += kTo[i], true;
    if (c != 'u') return false;
    auto unit = hex4();
    if (!unit) return false;
    if (*unit >= 0xd800 && *unit < 0xdc00 && text_.substr(at_).starts_with("\\u")) {
      at_ += 2;
      const auto low = hex4();
      if (!low || *low < 0xdc00 || *low >= 0xe000) return false;
      unit = 0x10000 + ((*unit - 0xd800) << 10) + (*low - 0xdc00);
    }
    append_utf8(out, *unit);
    return true;
  }

  std::optional<uint32_t> hex4() {
    uint32_t value = 0;
    const std::string_view digits = text_.substr(at_, 4);
    const auto [end, failed] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (failed != std::errc() || end != digits.data() + 4) return std::nullopt;
    at_ += 4;
    return value;
  }

  Result<Json> parse_number() {
    const char *begin = text_.data() + at_, *end = text_.data() + text_.size();
    int64_t whole_number = 0;
    double number = 0;
    const auto as_whole = std::from_chars(begin, end, whole_number);
    const auto as_double = std::from_chars(begin, end, number);
    if (as_double.ec != std::errc() || !std::isfinite(number)) return wrong("no value");
    at_ += static_cast<size_t>(as_double.ptr - begin);
    if (as_whole.ec == std::errc() && as_whole.ptr == as_double.ptr) return Json(whole_number);
    return Json(number);
  }

  std::string_view text_;
  size_t at_ = 0;
};

// What a lenient reader finds where nothing is.
const Json kNull;
const std::string kNoText;
const Json::Array kNoArray;
const Json::Object kNoObject;

}  // namespace

Json::Json(uint64_t v) {
  if (v <= INT64_MAX)
    value_ = static_cast<int64_t>(v);
  else
    value_ = static_cast<double>(v);
}

const Json& Json::operator[](std::string_view member) const {
  for (const auto& [name, value] : object())
    if (name == member) return value;
  return kNull;
}

bool Json::boolean() const {
  const bool* v = std::get_if<bool>(&value_);
  return v && *v;
}

int64_t Json::integer() const {
  if (const auto* v = std::get_if<int64_t>(&value_)) return *v;
  return static_cast<int64_t>(number());
}

double Json::number() const {
  if (const auto* v = std::get_if<int64_t>(&value_)) return static_cast<double>(*v);
  const auto* v = std::get_if<double>(&value_);
  return v ? *v : 0;
}

const std::string& Json::text() const {
  const auto* v = std::get_if<std::string>(&value_);
  return v ? *v : kNoText;
}

const Json::Array& Json::array() const {
  const auto* v = std::get_if<Array>(&value_);
  return v ? *v : kNoArray;
}

const Json::Object& Json::object() const {
  const auto* v = std::get_if<Object>(&value_);
  return v ? *v : kNoObject;
}

void Json::write(std::string& out, int indent, int depth) const {
  auto line = [&](int at) {
    if (indent > 0) out += '\n' + std::string(static_cast<size_t>(at * indent), ' ');
  };
  auto list = [&](char open, char close, const auto& items, auto&& write_one) {
    out += open;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += indent > 0 ? "," : ", ";
      line(depth + 1);
      write_one(items[i]);
    }
    if (!items.empty()) line(depth);
    out += close;
  };
  if (is_null()) {
    out += "null";
  } else if (const bool* b = std::get_if<bool>(&value_)) {
    out += *b ? "true" : "false";
  } else if (const auto* i = std::get_if<int64_t>(&value_)) {
    out += std::to_string(*i);
  } else if (const auto* d = std::get_if<double>(&value_)) {
    out += std::isfinite(*d) ? fmt::format("{}", *d) : "null";
  } else if (const auto* s = std::get_if<std::string>(&value_)) {
    write_text(out, *s);
  } else if (const auto* a = std::get_if<Array>(&value_)) {
    list('[', ']', *a, [&](const Json& item) { item.write(out, indent, depth + 1); });
  } else {
    list('{', '}', object(), [&](const auto& member) {
      write_text(out, member.first);
      out += ": ";
      member.second.write(out, indent, depth + 1);
    });
  }
}

std::string Json::dump(int indent) const {
  std::string out;
  write(out, indent, 0);
  return out;
}

Result<Json> Json::parse(std::string_view text) {
  return Parser(text).whole();
}

size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const size_t length = first < 0x80                     ? 1
                        : first >= 0xc2 && first < 0xe0  ? 2
                        : first >= 0xe0 && first < 0xf0  ? 3
                        : first >= 0xf0 && first <= 0xf4 ? 4
                                                         : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  if (first == 0xe0 && byte(1) < 0xa0) return 0;   // overlong
  if (first == 0xed && byte(1) >= 0xa0) return 0;  // surrogates
  if (first == 0xf0 && byte(1) < 0x90) return 0;
  if (first == 0xf4 && byte(1) >= 0x90) return 0;
  return length;
}

}  // namespace forebay
