// History of a register: which values a read may return, given when reads and writes began and
// ended.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace forebay::sim {

class History {
 public:
  void write_begins(uint64_t value, uint64_t now) { writes_[value] = {now, std::nullopt}; }
  void write_ends(uint64_t value, uint64_t now) { writes_[value].end = now; }

  // A value may be read if its write began before the read ended, and if no other write lies wholly
  // between the end of its own and the begin of the read.
  bool may_read(uint64_t value, uint64_t begin, uint64_t end) const {
    const auto mine = writes_.find(value);
    if (mine == writes_.end() || mine->second.begin > end) return false;
    if (!mine->second.end) return true;
    for (const auto& [other, w] : writes_) {
      if (w.begin > *mine->second.end && w.end && *w.end < begin) return false;
    }
    return true;
  }

 private:
  struct Write {
    uint64_t begin;
    std::optional<uint64_t> end;
  };
  std::map<uint64_t, Write> writes_;
};

}  // namespace forebay::sim
