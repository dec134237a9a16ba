// Homes: which of several servers a file lives at, by rendezvous hashing (D. Thaler, C.
// Ravishankar, "Using name-based mappings to increase hit rates", IEEE/ACM Trans. Networking 6(1),
// 1998): of all servers, the one whose name gives the highest score together with the file's
// identity. So every server that has the same names finds the same home, whatever their order; a
// server that is added takes its share of the files and moves no other, and one that goes gives up
// its own only.
//
// Values only. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace forebay::plan {

class Homes {
 public:
  // At least one name, none of them twice.
  explicit Homes(std::vector<std::string> names);

  // The place in `names` of the server where the file lives.
  size_t of(std::string_view identity) const;

  const std::vector<std::string>& names() const { return names_; }
  // The names in order, separated by commas: the same text for the same servers.
  std::string text() const;

 private:
  std::vector<std::string> names_;
  std::vector<uint64_t> hashes_;
};

}  // namespace forebay::plan
