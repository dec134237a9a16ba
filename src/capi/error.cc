#include "capi/error.h"

#include <fmt/format.h>

#include "assembly/version.h"
#include "forebay/forebay.h"

namespace forebay::capi {
namespace {

// The text has a fixed place, so that telling of ENOMEM needs no memory and nothing is left behind
// by a thread that ends.
struct Last {
  char text[1024] = "";
  uint64_t done = 0;
  bool unknown = false;
};
thread_local Last last;

void write_text(const Where& where, const Error& error) {
  std::string text = fmt::format("{}: ", where.function);
  // A store's error often is about a name that stands in the path already: once is enough.
  const std::string_view about = where.about ? where.about : "";
  const bool twice = !error.what().empty() && about.find(error.what()) != about.npos;
  if (!about.empty()) text += fmt::format("{}: ", about);
  text += twice ? Error(error.code()).message() : error.message();
  text += fmt::format(" ({})", errno_name(error.code()));
  last.text[text.copy(last.text, sizeof last.text - 1)] = '\0';
}

}  // namespace

int fail(const Where& where, const Error& error) {
  last.done = error.done();
  last.unknown = error.is_outcome_unknown();
  try {
    write_text(where, error);
  } catch (const std::bad_alloc&) {
    constexpr std::string_view kText = "no memory is left";
    last.text[kText.copy(last.text, kText.size())] = '\0';
  }
  errno = error.code();
  return -1;
}

}  // namespace forebay::capi

using namespace forebay::capi;

const char* fb_error(void) {
  return last.text;
}

uint64_t fb_error_done(void) {
  return last.done;
}

int fb_error_outcome_unknown(void) {
  return last.unknown;
}

const char* fb_version(void) {
  return forebay::kVersionText;
}
