#include "plan/collective.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

namespace forebay::plan {

Wish wish_of(std::string_view hint) {
  return hint == "enable" ? Wish::enable : hint == "disable" ? Wish::disable : Wish::automatic;
}

namespace {

// Realms that go round reach as far as they fit in whole, which is half of all offsets at least.
bool beyond_realms(const MethodFacts& facts) {
  return std::any_of(facts.regions.begin(), facts.regions.end(),
                     [](const Extent& e) { return e.end().value > kMaxOffset / 2; });
}

// Does each rank name a good part of its region? Then there are few pages without its data.
bool dense(const MethodFacts& facts) {
  constexpr uint64_t kDense = 32;
  uint64_t spans = 0;
  for (const Extent& region : facts.regions) spans += region.length.value / kDense;
  return facts.bytes >= spans;
}

// Small pieces, and less than one of a rank for each page: through a mapping most pages are mapped
// in vain, and by calls there are many.
bool scattered(const MethodFacts& facts) {
  constexpr uint64_t kSmall = 2_KiB, kPage = 4_KiB;
  if (facts.piece == 0 || facts.piece >= kSmall) return false;
  uint64_t spans = 0;
  for (const Extent& region : facts.regions) spans += region.length.value;
  return spans / kPage > facts.bytes / facts.piece;
}

}  // namespace

Method choose_method(const MethodFacts& facts) {
  if (facts.atomic) return {false, "atomic mode"};
  if (!facts.describable) return {false, "a rank reads bytes twice"};
  if (beyond_realms(facts)) return {false, "no file is so long"};
  if (facts.wish == Wish::disable) return {false, "collective buffering is disabled"};
  const bool any = std::any_of(facts.regions.begin(), facts.regions.end(),
                               [](const Extent& e) { return !e.empty(); });
  if (!any) return {false, "no rank has data"};
  if (facts.wish == Wish::enable) return {true, "collective buffering is enabled"};
  if (facts.kept) return {true, "aggregators keep their realms"};
  if (!interleaved(facts.regions)) return {false, "the ranks' regions do not interleave"};
  if (facts.piece >= facts.large_piece) return {false, "the pieces are large"};
  if (facts.cheap_if_dense && dense(facts) && !scattered(facts))
    return {false, "few bytes in dense small pieces"};
  return {true, "the ranks' regions interleave"};
}

std::vector<int> choose_aggregators(std::span<const uint32_t> node_of_rank, uint32_t limit,
                                    uint32_t per_node) {
  std::map<uint32_t, std::vector<int>> ranks_of;  // in the order of nodes
  for (size_t rank = 0; rank < node_of_rank.size(); ++rank)
    ranks_of[node_of_rank[rank]].push_back(static_cast<int>(rank));
  if (limit == 0) limit = UINT32_MAX;
  uint32_t left = limit;
  std::map<uint32_t, uint32_t> taken;
  for (uint32_t round = 0; left > 0 && round < per_node; ++round) {
    const uint32_t before = left;
    for (const auto& [node, ranks] : ranks_of)
      if (left > 0 && round < ranks.size()) ++taken[node], --left;
    if (left == before) break;
  }
  std::vector<int> aggregators;
  for (const auto& [node, count] : taken) {
    // Spread over the node: neighbours in rank often share a core's caches.
    const auto& ranks = ranks_of[node];
    for (uint32_t i = 0; i < count; ++i) aggregators.push_back(ranks[i * ranks.size() / count]);
  }
  return aggregators;
}

std::optional<uint32_t> per_node_of(std::string_view config_list) {
  if (config_list == "*" || config_list == "*:*") return UINT32_MAX;
  if (!config_list.starts_with("*:")) return std::nullopt;
  const std::string_view text = config_list.substr(2);
  uint32_t n = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), n);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size() || n == 0)
    return std::nullopt;
  return n;
}

namespace {

uint64_t bytes_of(const RealmFacts& facts) {
  uint64_t bytes = 0;
  for (const Samples& rank : facts.samples) bytes += rank.bytes;
  return bytes;
}

bool sparse(const RealmFacts& facts) {
  return bytes_of(facts) < facts.region.length.value / 2;
}

// A border that moves by less than a stripe takes no more data with it.
ChosenRealms balanced(const RealmFacts& facts) {
  const uint64_t share = bytes_of(facts) / facts.aggregators;
  const bool by_stripes = facts.alignment == 0 && facts.stripe > 0 && facts.stripe <= share / 8;
  const uint64_t alignment = by_stripes ? facts.stripe : std::max<uint64_t>(facts.alignment, 1);
  return {balanced_realms(facts.region, facts.samples, facts.aggregators, alignment),
          by_stripes ? "balanced by data, aligned to stripes" : "balanced by data"};
}

ChosenRealms even(const RealmFacts& facts) {
  const uint64_t alignment = facts.alignment > 0
                                 ? facts.alignment
                                 : even_alignment(facts.region, facts.aggregators, facts.stripe);
  return {even_realms(facts.region, facts.aggregators, alignment),
          facts.alignment == 0 && alignment > 1 ? "even parts of the region, aligned to stripes"
                                                : "even parts of the region"};
}

std::string why_not_given(const RealmFacts& facts) {
  if (!facts.given) return "there is no list of them";
  const size_t realms = facts.given->realms.size();
  if (realms > facts.aggregators)
    return fmt::format("they are {} for {} aggregators", realms, facts.aggregators);
  if (facts.region.end().value > facts.given->end)
    return fmt::format("they end at byte {}, and the call at {}", facts.given->end,
                       facts.region.end().value);
  return {};
}

ChosenRealms choose_others(const RealmFacts& facts) {
  const size_t n = facts.aggregators;
  if (facts.persistent_size > 0)
    return {cyclic_realms(facts.persistent_size, n), "persistent, from byte 0 on"};
  if (facts.kind == "striped" && facts.stripe > 0)
    return {striped_realms(facts.stripe, facts.targets, n), "cyclic by stripes"};
  if (facts.kind == "balanced" || (facts.kind != "even" && sparse(facts))) return balanced(facts);
  return even(facts);
}

}  // namespace

ChosenStriping choose_striping(const StripingFacts& facts) {
  const Layout& reported = facts.reported;
  ChosenStriping chosen;
  Striping& striping = chosen.striping;
  striping.stripe = facts.unit > 0 ? facts.unit : reported.stripe_size;
  if (striping.stripe == 0) return chosen;
  const bool fits = striping.stripe == reported.stripe_size && facts.factor == 0;
  const uint64_t targets = fits ? reported.stripe_count : std::max<uint64_t>(facts.factor, 1);
  if (targets > 0 && targets <= kMostTargets) striping.targets = static_cast<uint32_t>(targets);
  const uint64_t first = fits && facts.first == 0 ? reported.first_target : facts.first;
  striping.first = static_cast<uint32_t>(first % striping.targets);
  chosen.says = facts.unit > 0 ? "hints say" : "the file system says";
  return chosen;
}

ChosenRealms choose_realms(const RealmFacts& facts) {
  const size_t n = facts.aggregators;
  if (facts.kind != "given") return choose_others(facts);
  if (std::string why = why_not_given(facts); !why.empty()) {
    ChosenRealms chosen = choose_others(facts);
    chosen.unused = std::move(why);
    return chosen;
  }
  ChosenRealms chosen{facts.given->realms, "as given"};
  chosen.realms.resize(n);
  return chosen;
}

}  // namespace forebay::plan
