// Asserts for our own invariants: a bug in us stops loudly, with the values, in every build.
// Errors of the world are never asserts; they are returned (result.h).
#pragma once

#include <string>

namespace forebay {

[[noreturn]] void assert_failed(const char* condition, const char* file, int line,
                                const std::string& detail = {});

}  // namespace forebay

// FOREBAY_ASSERT(condition) or FOREBAY_ASSERT(condition, text): the text is made only on failure.
#define FOREBAY_ASSERT(condition, ...) \
  (__builtin_expect(!!(condition), 1)  \
       ? static_cast<void>(0)          \
       : ::forebay::assert_failed(#condition, __FILE__, __LINE__ __VA_OPT__(, ) __VA_ARGS__))
