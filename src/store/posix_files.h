// The files that the posix store has in hand: a bounded cache of descriptors, found by handle, and
// the rights that are open on each file.
//
// A File is one inode. Several handles may name it (path handles of hard links), and it holds an
// O_PATH descriptor for getattr and path operations, and descriptors for reading and writing that
// open granted. Descriptors are shared: one that is closed here while a call uses it is really
// closed when that call ends. The least recently used go first (a clock with one bit).
//
// Invariants:
//  1. At most `budget` descriptors stay cached, pinned ones included; pinned ones take at most
//  half.
//  2. A File with open rights stays in the table, with or without descriptors; others leave with
//     their last descriptor and are then `dropped`: no right is added to them any more.
//  3. A descriptor is pinned only if it could not be opened again: a file without a name left, or
//     whose mode forbids it to the user that runs the server.
//  4. Locks: the table's, then a shard's or a File's. Descriptors are closed outside all of them.
// Any thread.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/counters.h"
#include "store/posix_sys.h"

namespace forebay::posix {

// A cached descriptor, and perhaps its twin: the same file opened around the page cache. They count
// themselves in their table.
class Descriptor {
 public:
  Descriptor(Fd fd, std::atomic<size_t>& count) : fd_(std::move(fd)), count_(count) { ++count_; }
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  int get() const { return fd_.get(); }
  const Fd& fd() const { return fd_; }

  static constexpr int kNotTried = -2, kNone = -1;  // none: it could not be had
  int direct() const { return direct_.load(std::memory_order_acquire); }
  // Keeps the twin, or (empty) that there is none; of several the first. Returns the one to use.
  int keep_direct(Fd twin) const;

 private:
  Fd fd_;
  mutable std::atomic<int> direct_{kNotTried};
  std::atomic<size_t>& count_;
};
using DescriptorPtr = std::shared_ptr<const Descriptor>;

// What a right allows, and to whom.
struct Grant {
  uint32_t uid = 0;
  Access access = Access::none;
};

class File {
 public:
  File(const InodeId& inode, FileType file_type) : id(inode), type(file_type) {}

  const InodeId id;
  const FileType type;
  // Has lost its name while open: it lives under the own folder until its last right is closed.
  std::atomic<bool> hidden{false};
  // The same, but its descriptors are all that keeps it.
  std::atomic<bool> orphan{false};
  // Somebody who has it open asked for direct access: from then on all access to it is, until its
  // last right is closed.
  std::atomic<bool> direct{false};

  DescriptorPtr path() const;
  // The grant of an open right, and the descriptor for `access` (read or write) if there is one.
  struct Use {
    bool known = false;
    Grant grant;
    DescriptorPtr io;
  };
  Use use(const std::string& right, Access access) const;
  bool has_rights() const;

 private:
  friend class FileTable;
  mutable std::mutex mutex_;
  DescriptorPtr path_, read_, write_;
  std::unordered_map<std::string, Grant> rights_;
  std::vector<std::string> handles_;
  bool pinned_ = false;
  bool dropped_ = false;
  mutable std::atomic<bool> used_{true};
  static constexpr size_t kNowhere = SIZE_MAX;
  size_t place_ = kNowhere;  // in the table's ring, while it has descriptors
};
using FilePtr = std::shared_ptr<File>;

class FileTable {
 public:
  // `can_override`: the server may open any file again, whatever its mode (it is root).
  FileTable(size_t budget, bool can_override, CounterSet& counters);
  ~FileTable();

  // The hot path: one shard's lock, no system call.
  FilePtr find(const std::string& handle) const;
  FilePtr find(const InodeId& id) const;

  // Puts a resolved handle in the table, with its O_PATH descriptor. Returns the one to use.
  struct Adopted {
    FilePtr file;
    DescriptorPtr path;
  };
  Adopted adopt(const Handle& handle, Fd path, const FileStat& stat);

  // Adds an open right; false if the file was dropped meanwhile: find or adopt it again.
  bool add_right(File& file, const std::string& right, Grant grant);
  // Returns whether the file has lost its name and this was its last right.
  bool remove_right(File& file, const std::string& right);

  // Keeps a descriptor opened for `access` while the file has rights, unless there is one already,
  // and returns the one for `needed` (read or write), which `access` allows.
  DescriptorPtr keep(const FilePtr& file, Access access, Fd fd, Access needed);
  // Keeps what is open open, and `path` if that is not, for a file that could not be opened again.
  // False if too many are.
  bool pin(const FilePtr& file, Fd&& path = {});

  // Forgets a file that is gone, unless it has rights.
  void drop(const FilePtr& file);

  // Closes up to about `count` cached descriptors that nobody used lately.
  void make_room(size_t count);
  size_t descriptors() const { return count_.load(std::memory_order_relaxed); }
  size_t budget() const { return budget_; }

 private:
  static constexpr size_t kNowhere = File::kNowhere;
  static constexpr size_t kShards = 16;
  static constexpr size_t kMaxAliases = 8;  // handles of one file
  struct Shard {
    mutable std::mutex mutex;
    std::unordered_map<std::string, FilePtr> files;
  };
  using Doomed = std::vector<DescriptorPtr>;  // closed when it goes out of scope, outside the locks

  Shard& shard(const std::string& handle);
  const Shard& shard(const std::string& handle) const;
  void add_alias(const FilePtr& file, const std::string& handle);
  void shrink();
  void sweep(size_t target, Doomed& doomed);
  bool release(File& file, Doomed& doomed);
  bool must_pin(File& file) const;
  bool pin_locked(File& file);
  void unpin_locked(File& file);
  void forget(File& file);
  void enter_ring(const FilePtr& file);
  void leave_ring(File& file);

  const size_t budget_;
  const bool can_override_;
  Counter& evictions_;
  std::atomic<size_t> count_{0};
  std::atomic<size_t> pinned_{0};
  std::array<Shard, kShards> shards_;
  mutable std::mutex mutex_;
  std::unordered_map<InodeId, FilePtr, InodeIdHash> by_inode_;
  std::vector<FilePtr> ring_;
  size_t hand_ = 0;
};

}  // namespace forebay::posix
