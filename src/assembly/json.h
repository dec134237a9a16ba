// JSON, as far as our programs speak it: what `--json` prints, what a server publishes and reports.
// Numbers are integers or doubles; objects keep the order of their members. Values only; any
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/result.h"

namespace forebay {

class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;

  Json() = default;  // null
  Json(bool v) : value_(v) {}
  Json(int v) : value_(int64_t(v)) {}
  Json(unsigned v) : value_(int64_t(v)) {}
  Json(int64_t v) : value_(v) {}
  Json(uint64_t v);  // beyond INT64_MAX it becomes a double
  Json(double v) : value_(v) {}
  Json(const char* v) : value_(std::string(v)) {}
  Json(std::string v) : value_(std::move(v)) {}
  Json(std::string_view v) : value_(std::string(v)) {}
  Json(Array v) : value_(std::move(v)) {}
  Json(Object v) : value_(std::move(v)) {}

  // Reading is lenient: what is absent or of another type is null, 0, "" or empty.
  const Json& operator[](std::string_view member) const;
  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool boolean() const;
  int64_t integer() const;
  double number() const;
  const std::string& text() const;
  const Array& array() const;
  const Object& object() const;

  // Bytes of a text that are not UTF-8 become U+FFFD: file names may hold any byte, JSON may not.
  // With an indent, one member per line.
  std::string dump(int indent = 0) const;
  static Result<Json> parse(std::string_view text);

 private:
  void write(std::string& out, int indent, int depth) const;

  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value_;
};

// The length of the UTF-8 sequence that `text` (not empty) begins with; 0 if there is none.
size_t utf8_length(std::string_view text);

}  // namespace forebay
