// Listing: where a reader of a directory is. The kernel reads in pieces of its own size and goes on
// from the cookie of the last entry that it took; a Store gives pieces of another size, without "."
// and "..". What the Store gave and the kernel had no room for waits here.
//
// The cookies of "." and ".." are two that no file system gives (the largest ones; the very largest
// is ext4's for the end). One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/op.h"

namespace forebay {

class Listing {
 public:
  static constexpr uint64_t kAfterDot = INT64_MAX - 1, kAfterDotDot = INT64_MAX - 2;

  explicit Listing(uint64_t file_id = 0) : file_id_(file_id) {}  // of the directory: st_ino

  // Entries of the Store from a cookie on, and whether they are the last ones.
  using Fetch = std::function<Result<Reply>(uint64_t cookie)>;
  // Takes an entry; false: there is no room for it.
  using Take = std::function<bool(Entry&)>;

  // Gives entries from `cookie` on until there is no room or none is left. An error only if nothing
  // was given.
  Result<void> read(uint64_t cookie, const Fetch& fetch, const Take& take);

 private:
  bool has(uint64_t cookie) const { return next_ < entries_.size() && cookie == at_; }

  uint64_t file_id_;
  std::vector<Entry> entries_;  // of the Store, from next_ on not taken yet
  size_t next_ = 0;
  uint64_t at_ = 0;  // the cookie that leads to entries_[next_]
  bool end_ = false;
};

}  // namespace forebay
