// The C API's errors: from Result and exceptions to return values, errno and this thread's last
// message. Nothing may leave the library as an exception.
//
// The last error is thread-local, as errno is: it belongs to the thread that called. Any thread.
#pragma once

#include <cstdint>
#include <new>
#include <stdexcept>
#include <system_error>

#include "core/result.h"

namespace forebay::capi {

// What the message begins with: "fb_open: /a/b: ".
struct Where {
  const char* function;
  const char* about = nullptr;
};

// Sets errno and what fb_error() and its likes tell; returns -1.
int fail(const Where& where, const Error& error);

// Runs fn, which returns a Result, and makes errors of what it throws.
template <class Fn>
auto caught(Fn&& fn) -> decltype(fn()) {
  try {
    return fn();
  } catch (const std::bad_alloc&) {
    return Error(ENOMEM);
  } catch (const std::length_error&) {  // of a vector for a list that no memory would hold
    return Error(ENOMEM);
  } catch (const std::system_error& error) {  // no thread, no descriptor left
    return Error(error.code().value() ? error.code().value() : EIO, error.what());
  }
}

template <class T>
Result<void> without_value(const Result<T>& result) {
  return result ? Result<void>() : Result<void>(result.error());
}

// A function that returns 0 or -1; fn returns Result<void>.
template <class Fn>
int status(const Where& where, Fn&& fn) {
  const Result<void> result = caught(std::forward<Fn>(fn));
  return result ? 0 : fail(where, result.error());
}

// A function that returns a count or -1; fn returns Result<uint64_t>.
template <class Fn>
int64_t count(const Where& where, Fn&& fn) {
  const Result<uint64_t> result = caught(std::forward<Fn>(fn));
  return result ? static_cast<int64_t>(*result) : fail(where, result.error());
}

}  // namespace forebay::capi
