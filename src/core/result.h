// One error type for the whole system, in process and on the wire, and Result, which holds a value
// or such an error. Result has the names of C++23's std::expected, which g++ 12 lacks.
//
// Errors of the world (a full disk, a dead server) are returned as Result; errors of our own are
// asserts (assert.h).
#pragma once

#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "core/assert.h"

namespace forebay {

class Error {
 public:
  // `code` is an errno and never 0. `what` says what failed, where, and what to do; it may be
  // empty.
  explicit Error(int code, std::string what = {}) : code_(code), what_(std::move(what)) {
    FOREBAY_ASSERT(code != 0);
  }

  // The server died or was lost with the operation under way: it may or may not have happened.
  static Error outcome_unknown(std::string what);

  // A write that stopped early: `done` bytes of its stream, from the start, are in the Store.
  Error with_done(uint64_t done) && { return done_ = done, std::move(*this); }
  Error with_unknown_outcome() && { return unknown_ = true, std::move(*this); }
  // Puts `where` in front of the text: "put: /a/b: No space left on device".
  Error at(std::string_view where) &&;

  int code() const { return code_; }
  uint64_t done() const { return done_; }
  bool is_outcome_unknown() const { return unknown_; }
  const std::string& what() const { return what_; }

  // The text for a person: what(), then the errno's own description.
  std::string message() const;

  bool operator==(const Error&) const = default;

 private:
  int code_;
  bool unknown_ = false;
  uint64_t done_ = 0;
  std::string what_;
};

// The symbolic name of an errno ("ENOSPC"), or "errno 4711".
std::string errno_name(int code);

template <class T>
class [[nodiscard]] Result {
 public:
  using value_type = T;

  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}
  // A default value, to be filled in place: saves the moves of a large one.
  explicit Result(std::in_place_t) : state_(std::in_place_index<0>) {}

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  T& value() & { return checked(), *std::get_if<0>(&state_); }
  const T& value() const& { return checked(), *std::get_if<0>(&state_); }
  T&& value() && { return checked(), std::move(*std::get_if<0>(&state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T value_or(T other) && { return has_value() ? std::move(*this).value() : std::move(other); }

  Error& error() & { return failed(), *std::get_if<1>(&state_); }
  const Error& error() const& { return failed(), *std::get_if<1>(&state_); }
  Error&& error() && { return failed(), std::move(*std::get_if<1>(&state_)); }

 private:
  void checked() const { FOREBAY_ASSERT(has_value(), error_text()); }
  void failed() const { FOREBAY_ASSERT(!has_value()); }
  std::string error_text() const {
    return has_value() ? std::string() : std::get_if<1>(&state_)->message();
  }

  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;

  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  bool has_value() const { return !error_; }
  explicit operator bool() const { return has_value(); }
  void value() const { FOREBAY_ASSERT(has_value(), error_->message()); }
  const Error& error() const& { return FOREBAY_ASSERT(error_.has_value()), *error_; }
  Error&& error() && { return FOREBAY_ASSERT(error_.has_value()), std::move(*error_); }

 private:
  std::optional<Error> error_;
};

}  // namespace forebay
