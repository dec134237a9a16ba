#include "core/result.h"

#include <fmt/format.h>

#include <cstring>

namespace forebay {

// ECONNABORTED: what a program sees is a connection that ended under its call. It is not one of the
// errnos that programs retry by themselves (EINTR, EAGAIN, and by some ETIMEDOUT), and no file
// system returns it, so that it cannot be taken for a definite answer of the store.
Error Error::outcome_unknown(std::string what) {
  return Error(ECONNABORTED, std::move(what)).with_unknown_outcome();
}

Error Error::at(std::string_view where) && {
  what_ = what_.empty() ? std::string(where) : fmt::format("{}: {}", where, what_);
  return std::move(*this);
}

std::string Error::message() const {
  const char* description = strerrordesc_np(code_);
  std::string text = what_.empty() ? "" : what_ + ": ";
  text += description ? description : errno_name(code_);
  if (done_ > 0) text += fmt::format(" ({} bytes were done)", done_);
  if (unknown_) text += " (outcome unknown: it may or may not have happened)";
  return text;
}

std::string errno_name(int code) {
  const char* name = strerrorname_np(code);
  return name ? name : fmt::format("errno {}", code);
}

}  // namespace forebay
