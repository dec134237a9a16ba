#include "fuse/nodes.h"

#include "core/assert.h"

namespace forebay::fuse {

Handle Node::handle() const {
  std::lock_guard lock(mutex_);
  return handle_;
}

Nodes::Nodes(const Store& store, const Found& root)
    : store_(store),
      root_(std::make_unique<Node>(std::string(store.identity(root.handle)), root, 0)) {}

Nodes::~Nodes() = default;

Nodes::Shard& Nodes::shard(std::string_view identity) {
  return shards_[std::hash<std::string_view>()(identity) % kShards];
}

Node& Nodes::remember(const Handle& handle, const Attr& attr) {
  const std::string_view identity = store_.identity(handle);
  if (identity == root_->identity_) return *root_;
  Shard& s = shard(identity);
  std::lock_guard lock(s.mutex);
  auto found = s.nodes.find(identity);
  if (found == s.nodes.end()) {
    const uint64_t generation = generations_.fetch_add(1, std::memory_order_relaxed);
    auto made = std::make_unique<Node>(std::string(identity), Found{handle, attr}, generation);
    const std::string_view key = made->identity_;
    found = s.nodes.emplace(key, std::move(made)).first;
    size_.fetch_add(1, std::memory_order_relaxed);
  }
  Node& node = *found->second;
  ++node.lookups_;
  std::lock_guard own(node.mutex_);
  if (node.handle_ != handle) node.handle_ = handle;
  return node;
}

void Nodes::remember(Node& node) {
  if (&node == root_.get()) return;
  std::lock_guard lock(shard(node.identity_).mutex);
  ++node.lookups_;
}

void Nodes::forget(Node& node, uint64_t lookups) {
  if (&node == root_.get()) return;
  Shard& s = shard(node.identity_);
  std::unique_ptr<Node> gone;
  std::lock_guard lock(s.mutex);
  FOREBAY_ASSERT(node.lookups_ >= lookups);
  node.lookups_ -= lookups;
  if (node.lookups_ > 0) return;
  const auto found = s.nodes.find(node.identity_);
  gone = std::move(found->second);
  s.nodes.erase(found);
  size_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace forebay::fuse
