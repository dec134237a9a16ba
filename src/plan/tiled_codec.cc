#include <unordered_map>

#include "plan/tiled_map.h"
#include "plan/type_node.h"

namespace forebay::plan {
namespace {

using Kind = TypeNode::Kind;

// What begins a node. A node that was written before is only named, or types that use each other
// twice at every level would double with every level.
enum Tag : int64_t { kNoBytes, kOneRun, kOneLoop, kOneList, kAgain };

constexpr int kMostLevels = 2000;  // deeper than any program nests; the decoder recurses

class Writer {
 public:
  // Ends as soon as there are more numbers than `most`.
  Writer(std::vector<int64_t>& numbers, size_t most) : numbers_(numbers), most_(most) {}

  bool too_many() const { return numbers_.size() > most_; }

  void node(const TypeNode* node) {
    if (!node) return numbers_.push_back(kNoBytes);
    if (node->kind == Kind::kRun) return put(kOneRun, node->size);
    const auto [known, is_new] = known_.try_emplace(node, static_cast<int64_t>(known_.size()));
    if (!is_new) return put(kAgain, static_cast<uint64_t>(known->second));
    if (node->kind == Kind::kLoop) {
      put(kOneLoop, node->count);
      numbers_.push_back(node->stride);
      return this->node(node->child.get());
    }
    put(kOneList, node->entries.size());
    for (size_t i = 0; i < node->entries.size() && !too_many(); ++i) {
      const TypeNode::Entry& entry = node->entries[i];
      numbers_.push_back(entry.at);
      if (entry.child)
        numbers_.push_back(-1), this->node(entry.child);
      else
        numbers_.push_back(static_cast<int64_t>(node->entry_size(i)));
    }
  }

 private:
  void put(Tag tag, uint64_t value) {
    numbers_.push_back(tag);
    numbers_.push_back(static_cast<int64_t>(value));
  }

  std::vector<int64_t>& numbers_;
  const size_t most_;
  std::unordered_map<const TypeNode*, int64_t> known_;
};

Error garbled() {
  return Error(EPROTO, "the description of a view is garbled");
}

class Reader {
 public:
  explicit Reader(std::span<const int64_t>& numbers) : numbers_(numbers) {}

  Result<int64_t> number() {
    if (numbers_.empty()) return garbled();
    const int64_t value = numbers_.front();
    numbers_ = numbers_.subspan(1);
    return value;
  }

  Result<TypeTree> node(int level) {
    auto tag = number();
    if (!tag || level > kMostLevels) return garbled();
    if (*tag == kNoBytes) return TypeTree();
    auto value = number();
    if (!value || *value < 0) return garbled();
    const auto n = static_cast<uint64_t>(*value);
    if (*tag == kOneRun) return n > 0 ? Result<TypeTree>(make_run(n)) : Result<TypeTree>(garbled());
    if (*tag == kAgain)
      return n < known_.size() && known_[n] ? Result<TypeTree>(known_[n])
                                            : Result<TypeTree>(garbled());
    const size_t mine = known_.size();
    known_.emplace_back();
    auto made = *tag == kOneLoop   ? loop(n, level)
                : *tag == kOneList ? list(n, level)
                                   : Result<TypeTree>(garbled());
    if (made) known_[mine] = *made;
    return made;
  }

 private:
  Result<TypeTree> loop(uint64_t count, int level) {
    auto stride = number();
    if (!stride) return garbled();
    auto child = node(level + 1);
    if (!child) return child;
    return make_loop(std::move(*child), count, *stride);
  }

  Result<TypeTree> list(uint64_t entries, int level) {
    if (entries > numbers_.size() / 2) return garbled();
    ListBuilder builder;
    builder.reserve(entries);
    for (uint64_t i = 0; i < entries; ++i) {
      auto at = number(), length = number();
      if (!at || !length) return garbled();
      if (*length >= 0) {
        if (auto ok = builder.add_run(*at, *length); !ok) return ok.error();
        continue;
      }
      auto child = node(level + 1);
      if (!child) return child;
      if (auto ok = builder.add(*at, *child); !ok) return ok.error();
    }
    auto made = std::move(builder).finish();
    if (!made) return made.error();
    if (made->at != 0) return garbled();
    return std::move(made->tree);
  }

  std::span<const int64_t>& numbers_;
  std::vector<TypeTree> known_;
};

}  // namespace

bool TiledMap::encode(std::vector<int64_t>& numbers, size_t most) const {
  const size_t before = numbers.size();
  Writer writer(numbers, most > SIZE_MAX - before ? SIZE_MAX : before + most);
  numbers.push_back(at_);
  writer.node(root_.get());
  if (!writer.too_many()) return true;
  numbers.resize(before);
  return false;
}

void TiledMap::encode_list(std::span<const Extent> pieces, std::vector<int64_t>& numbers) {
  const Offset at = pieces.front().offset;
  numbers.reserve(numbers.size() + 3 + 2 * pieces.size());
  numbers.push_back(static_cast<int64_t>(at.value));
  numbers.push_back(pieces.size() == 1 ? kOneRun : kOneList);
  numbers.push_back(
      static_cast<int64_t>(pieces.size() == 1 ? pieces.front().length.value : pieces.size()));
  if (pieces.size() == 1) return;
  for (const Extent& piece : pieces) {
    numbers.push_back(static_cast<int64_t>(piece.offset.value) - static_cast<int64_t>(at.value));
    numbers.push_back(static_cast<int64_t>(piece.length.value));
  }
}

Result<TiledMap> TiledMap::decode(std::span<const int64_t>& numbers) {
  Reader reader(numbers);
  auto at = reader.number();
  if (!at) return garbled();
  auto root = reader.node(0);
  if (!root) return root.error();
  if (!*root) return TiledMap();
  if (Wide(*at) + (*root)->low < 0 || Wide(*at) + (*root)->high > Wide(kMaxOffset))
    return garbled();
  return TiledMap(std::move(*root), *at);
}

}  // namespace forebay::plan
