// A Command (state.h) as a record of a journal, and a journal's records as Commands
// (docs/state-journal.md has the format, byte by byte).
//
// A record says how long it is, has a checksum, and has a number, one more than the record before.
// So the end of a journal that was cut off while it was written is told apart from damage in its
// middle: behind a cut there is no good record with a later number.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "attr/state.h"

namespace forebay::attr {

inline constexpr size_t kRecordFrame = 8;  // size and checksum
inline constexpr size_t kMaxRecord = 128 + 3 * (kMaxName + 2) + 4 * (kMaxHandle + 2);

// What is about to be done to names, as the name of a Command `intend`.
struct Intent {
  Op op = Op::create;
  Handle dir = {}, dir2 = {};  // as the request has them: of a link `dir` is the file
  std::string name = {}, name2 = {};
  std::string identity = {};  // of the file that has the name, or is to get it; empty: a new one
  std::string home = {};      // the server that does it; empty: the one whose journal this is
  bool operator==(const Intent&) const = default;
};
std::string pack(const Intent& intent);
std::optional<Intent> unpack(std::string_view bytes);

void append_record(std::string& to, uint64_t number, const Command& command);

struct Replayed {
  uint64_t next = 0;  // number of the record that would come next
  size_t good = 0;    // bytes of whole records, from the start
  size_t torn = 0;    // bytes behind them that are no record: a write that was cut off
};
// Gives the commands of every record to `take`, the first of which must have the number `first`.
// EBADMSG, with the place, if there is damage and good records behind it, or `take` fails.
Result<Replayed> replay(std::string_view records, uint64_t first,
                        const std::function<Result<void>(const Command&)>& take);

}  // namespace forebay::attr
