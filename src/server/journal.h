// Journal: the file in which the changes of an export's shared state (attr/state.h) are kept, so
// that they outlive the server: records appended one after the other (attr/record.h;
// docs/state-journal.md), and now and then a new file with nothing but what is left of them.
//
// What was written survives the end of the process, however it comes; with `sync`, also that of
// the machine: then every write waits for the disk.
//
// Owns its file, and a lock on it: of two servers the second is refused. Damage is refused as well;
// only the end of a write that was cut off is cut off.
//
// Threads: add() and take() under the lock of whoever owns it; write() and replace() without, one
// at a time.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "attr/record.h"
#include "core/result.h"

namespace forebay::server {

class Journal {
 public:
  struct Options {
    std::string path;
    std::string owner;  // what it is the journal of: it is refused for anything else
    bool sync = false;
    uint64_t compact_at = 8 << 20;  // bytes; the least
  };
  using Take = std::function<Result<void>(const attr::Command&)>;
  // Opens it, or makes an empty one, and gives its commands to `take`.
  static Result<std::unique_ptr<Journal>> open(Options options, const Take& take);
  ~Journal();
  Journal(const Journal&) = delete;

  uint64_t id() const { return id_; }      // random, as old as the journal
  bool made() const { return made_; }      // it was not there
  uint64_t torn() const { return torn_; }  // bytes that were cut off its end
  uint64_t size() const { return size_; }
  bool sync() const { return options_.sync; }

  uint64_t add(const attr::Command& command);  // returns its number
  uint64_t last() const { return next_ - 1; }
  bool empty() const { return buffer_.empty(); }
  // What was added since the last take().
  std::string take();
  Result<void> write(std::string_view records);

  // Time for a new file? After a write that failed it always is.
  bool wants_compaction() const { return failed_ || size_ >= compact_at_; }
  // As take(), but of all that `state` is, numbered from `last() + 1` on; what was added is in it.
  struct Snapshot {
    uint64_t first = 0;
    std::string records;
  };
  Snapshot take_snapshot(const attr::State& state);
  Result<void> replace(const Snapshot& snapshot);

 private:
  Journal(Options options, int lock) : options_(std::move(options)), lock_(lock) {}
  Result<void> load(const Take& take);
  Result<uint64_t> read_head(std::string_view bytes);
  std::string head(uint64_t first) const;
  Result<void> put(int fd, std::string_view bytes, const std::string& path) const;
  Error failed(const char* what, const std::string& path) const;

  const Options options_;
  const int lock_;
  int fd_ = -1;
  uint64_t id_ = 0;
  bool made_ = false;
  uint64_t torn_ = 0;
  std::atomic<uint64_t> size_{0};  // read by anybody
  uint64_t compact_at_ = 0;
  bool failed_ = false;
  uint64_t next_ = 1;
  std::string buffer_;
};

}  // namespace forebay::server
