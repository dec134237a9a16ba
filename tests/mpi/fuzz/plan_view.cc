// Random views: one for all, one for each, or a tile of which every rank sees its own part.
#include "planner.h"
#include "random_type.h"

namespace fuzz {
namespace {

struct Basic {
  MPI_Datatype type;
  const char* name;
  int unit;
};

TypePtr random_basic(Rng& rng) {
  static const std::vector<Basic> basics = {{MPI_BYTE, "BYTE", 1},     {MPI_CHAR, "CHAR", 1},
                                            {MPI_SHORT, "SHORT", 2},   {MPI_INT, "INT", 4},
                                            {MPI_DOUBLE, "DOUBLE", 8}, {MPI_INT64_T, "INT64_T", 8}};
  const Basic& b = rng.pick(basics);
  return basic_type(b.type, b.name, b.unit);
}

// The predefined type at the bottom of an etype.
TypePtr bottom(TypePtr t) {
  while (!t->parts.empty()) t = t->parts[0];
  return t;
}

}  // namespace

TypePtr Planner::random_etype() {
  if (rng_.chance(40)) return basic_type(MPI_BYTE, "BYTE", 1);
  TypePtr basic = random_basic(rng_);
  if (rng_.chance(60)) return basic;
  int count = static_cast<int>(rng_.between(2, 4));
  if (options_.with("holey-etype") && rng_.chance(25)) {
    TypePtr block = contiguous(count, basic);
    if (rng_.chance(50)) return resized(0, block->size + basic->size * rng_.between(1, 2), block);
    return vector_of(count, 1, 2, false, basic);
  }
  return contiguous(count, basic);
}

TypePtr Planner::random_filetype(const TypePtr& etype) {
  TypeRules rules;
  rules.leaf = [&](Rng&) { return etype; };
  rules.gap = etype->extent();
  rules.file = true;
  rules.depth = options_.with("nested-view") ? 3 : 1;
  rules.max_extent = 3000;
  rules.any_lb = options_.with("lb");
  rules.empty_blocks = options_.with("zero-blocks");
  return random_type(rng_, rules);
}

// A tile whose slots are dealt to the ranks: what all of them write at once is disjoint.
std::vector<TypePtr> Planner::partition(const TypePtr& etype) {
  std::vector<TypePtr> out;
  if (rng_.chance(40)) {  // columns of an array
    int rows = static_cast<int>(rng_.between(1, 6)), columns = static_cast<int>(rng_.between(1, 4));
    for (int r = 0; r < ranks_; ++r)
      out.push_back(
          subarray({rows, columns * ranks_}, {rows, columns}, {0, r * columns}, false, etype));
    return out;
  }
  std::vector<int> owner;
  for (int r = 0; r < ranks_; ++r) owner.push_back(r);
  for (int64_t more = rng_.below(3 * ranks_ + 4); more > 0; --more)
    owner.push_back(static_cast<int>(rng_.between(-1, ranks_ - 1)));
  rng_.shuffle(owner);
  std::vector<std::vector<int>> lengths(static_cast<size_t>(ranks_));
  std::vector<std::vector<int64_t>> places(static_cast<size_t>(ranks_));
  int64_t cursor = 0;
  for (int r : owner) {
    int length = static_cast<int>(rng_.between(1, rng_.chance(10) ? 100 : 6));
    if (r >= 0) {
      lengths[static_cast<size_t>(r)].push_back(length);
      places[static_cast<size_t>(r)].push_back(cursor * etype->extent());
    }
    cursor += length;
  }
  for (size_t r = 0; r < lengths.size(); ++r)
    out.push_back(
        resized(0, cursor * etype->extent(), indexed(lengths[r], places[r], true, etype)));
  return out;
}

void Planner::plan_view(bool same) {
  settle();
  // Not asked of set_view itself: what a rank did through the old shared pointer is over first.
  barrier_for_shared();
  int64_t way = same ? rng_.below(2) : rng_.between(1, 4);
  TypePtr etype = random_etype();
  int64_t disp = rng_.chance(40) ? 0 : rng_.below(rng_.chance(80) ? 64 : 2000);
  std::vector<TypePtr> types(static_cast<size_t>(ranks_), etype);
  if (way == 1) types.assign(types.size(), random_filetype(etype));
  if (way == 2 || way == 3) types = partition(etype);
  Step& step = add(Verb::set_view);
  for (size_t r = 0; r < types.size(); ++r) {
    if (way == 4) types[r] = random_filetype(etype);
    int64_t mine = way == 4 ? rng_.below(3000) : disp;
    views_[r] = {mine, etype, types[r]};
    own_[r] = {};
    step.turns[r].view = views_[r];
  }
  shared_ = 0;
  same_view_ = way <= 1 || ranks_ == 1;
  shared_dirty_ = true;
}

void Planner::random_memory(Access& a, const View& view) {
  TypeRules rules;
  TypePtr basic = bottom(view.etype);
  bool any = view.etype->make == Type::Make::basic && view.etype->basic == MPI_BYTE;
  TypePtr whole = contiguous(static_cast<int>(view.etype->size / basic->size), basic);
  rules.leaf = [&, any](Rng& rng) {
    return any ? random_basic(rng) : whole->count == 1 ? basic : whole;
  };
  rules.gap = any ? 8 : basic->size;
  rules.depth = options_.with("nested-memory") ? 3 : 0;
  rules.any_lb = options_.with("lb");
  rules.empty_blocks = options_.with("zero-blocks");
  a.memory = random_type(rng_, rules);
  int64_t bytes = rng_.chance(10)   ? 0
                  : rng_.chance(70) ? rng_.between(1, 300)
                  : rng_.chance(90) ? rng_.between(300, 4000)
                                    : rng_.between(4000, 40000);
  a.count = bytes == 0 ? 0 : std::max<int64_t>(1, bytes / a.memory->size);
}

}  // namespace fuzz
