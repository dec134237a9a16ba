// Nodes: the files that the kernel has looked up and not forgotten yet.
//
// The kernel names a file by the number that a lookup gave it. Ours is the address of a Node, which
// lives as long as the kernel's count of lookups says, so the table is bounded by what the kernel
// remembers. Two handles of one file (by Store::identity) are one Node: hard links, and path
// handles before and after a rename. A Node keeps the newest handle. Addresses are used again,
// generations never are: the pair is unique in the life of a mount.
//
// Any thread. The kernel does not forget what a request under way uses.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "store/path.h"
#include "store/store.h"

namespace forebay::fuse {

// What the kernel may have of a file, and what vouches for it: FileLeases' to use.
struct KernelView {
  std::mutex taking;                 // a lease: one at a time
  std::atomic<uint64_t> lease{0};    // 0: none
  std::atomic<bool> refused{false};  // the Store gives none
  // Under FileLeases' lock.
  unsigned opens = 0;
  uint64_t told = 0;         // the size that the kernel was told last,
  bool known = false;        // and that it has
  uint64_t edition = 0;      // of its pages: another one, and it drops them
  uint64_t changes = 0;      // through this mount
  std::optional<Attr> attr;  // under the lease
};

// Writes of a file that are not in the Store yet: WriteBack's to use.
struct KeptWrites {
  std::mutex mutex;
  uint64_t lease = 0;                 // under which they are kept
  std::atomic<bool> recalled{false};  // it was
  std::atomic<bool> any{false};
  std::map<uint64_t, std::vector<std::byte>> runs;  // by offset: apart from each other
  uint64_t bytes = 0;
  Right right;  // with which they are to be written
  CallerRef caller;
  Duration since{0};  // the first of them
  Duration asked{0};  // for a lease
  unsigned small = 0;
  bool refused = false;  // the Store gives none
  unsigned writers = 0, readers = 0;
  uint64_t errors = 0;
  std::optional<Error> error;  // the last
};

class Node {
 public:
  Node(std::string identity, const Found& file, uint64_t generation)
      : identity_(std::move(identity)),
        generation_(generation),
        file_id_(file.attr.file_id),
        handle_(file.handle) {}

  uint64_t generation() const { return generation_; }
  uint64_t file_id() const { return file_id_; }  // st_ino
  Handle handle() const;
  // Held by whoever appends, from the look at the size until the bytes are there.
  std::mutex& appending() { return appending_; }
  // May processes of this mount hold locks of its bytes?
  std::atomic<bool>& locked() { return locked_; }
  KeptWrites& kept() { return kept_; }
  KernelView& view() { return view_; }
  const KernelView& view() const { return view_; }

 private:
  friend class Nodes;
  const std::string identity_;
  const uint64_t generation_, file_id_;
  mutable std::mutex mutex_;
  Handle handle_;
  uint64_t lookups_ = 0;  // under the table's lock
  std::mutex appending_;
  std::atomic<bool> locked_{false};
  KernelView view_;
  KeptWrites kept_;
};

class Nodes {
 public:
  Nodes(const Store& store, const Found& root);
  ~Nodes();

  Node& root() { return *root_; }
  // The node of a file, new or known; one more lookup of it.
  Node& remember(const Handle& handle, const Attr& attr);
  // One more lookup of a node that is at hand.
  void remember(Node& node);
  // So many lookups fewer; the node goes with the last. The root stays.
  void forget(Node& node, uint64_t lookups);

  size_t size() const { return size_.load(std::memory_order_relaxed); }  // without the root

 private:
  static constexpr size_t kShards = 16;
  struct Shard {
    std::mutex mutex;
    std::unordered_map<std::string_view, std::unique_ptr<Node>> nodes;  // keys: their identities
  };
  Shard& shard(std::string_view identity);

  const Store& store_;
  const std::unique_ptr<Node> root_;
  std::array<Shard, kShards> shards_;
  std::atomic<uint64_t> generations_{1};
  std::atomic<size_t> size_{0};
};

}  // namespace forebay::fuse
