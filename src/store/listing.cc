#include "store/listing.h"

namespace forebay {

namespace {

constexpr uint64_t kUnknown = UINT32_MAX;  // as libfuse has it; 0 would hide the entry

Entry dots(const char* name, uint64_t cookie, uint64_t file_id) {
  Entry entry;
  entry.file_id = file_id;
  entry.name = name;
  entry.cookie = cookie;
  entry.type = FileType::directory;
  return entry;
}

}  // namespace

Result<void> Listing::read(uint64_t cookie, const Fetch& fetch, const Take& take) {
  bool given = false;
  if (cookie == 0) {
    *this = Listing(file_id_);  // from the start again: what is there now
    Entry dot = dots(".", kAfterDot, file_id_);
    if (!take(dot)) return {};
    cookie = kAfterDot;
    given = true;
  }
  if (cookie == kAfterDot) {
    Entry dot_dot = dots("..", kAfterDotDot, kUnknown);
    if (!take(dot_dot)) return {};
    cookie = kAfterDotDot;
    given = true;
  }
  if (cookie == kAfterDotDot) cookie = 0;
  for (;;) {
    if (!has(cookie)) {
      if (end_ && cookie == at_) return {};
      Result<Reply> reply = fetch(cookie);
      if (!reply) return given ? Result<void>() : std::move(reply).error();
      entries_ = std::move(reply->entries);
      next_ = 0;
      at_ = cookie;
      end_ = reply->end || entries_.empty();
    }
    for (; next_ < entries_.size(); ++next_) {
      const uint64_t following = entries_[next_].cookie;
      if (!take(entries_[next_])) return {};
      given = true;
      cookie = at_ = following;
    }
    if (end_) return {};
  }
}

}  // namespace forebay
