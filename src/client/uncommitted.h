// Uncommitted: the files to which a server has acknowledged writes that it had not written yet
// (Reply.verifier), since their last commit or close. If the server that acknowledged them dies, or
// has lost some and could not say so, they are reported once: at the next call on the file, or at
// the latest at its commit or close, whose verifier is then another one (as NFS has it).
//
// A file is known by its handle. It costs an entry for each file between its first such write and
// its next commit or close. On one loop.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "core/op.h"

namespace forebay {

class Uncommitted {
 public:
  bool empty() const { return files_.empty(); }
  bool knows(const Handle& file) const { return files_.contains(file.bytes); }

  void acknowledged(const Handle& file, uint64_t verifier);

  // The server has another life, and has not said that it had written everything.
  void server_restarted();
  // The server, as it stops, says that it has written everything. It speaks for its own life: what
  // one before it lost is still to be reported.
  void all_written();

  // What is to be reported before anything else is done to the file.
  std::optional<Error> take_loss(const Handle& file);

  // A commit or close that was sent when now() was `sent` has succeeded, with this verifier.
  uint64_t now() const { return acknowledged_; }
  std::optional<Error> settled(const Handle& file, uint64_t sent, uint64_t verifier);

 private:
  struct File {
    uint64_t verifier = 0;         // of its first write
    uint64_t first = 0, last = 0;  // writes, as now() counts
    bool lost = false;
  };
  std::unordered_map<std::string, File> files_;
  uint64_t acknowledged_ = 0;
};

}  // namespace forebay
