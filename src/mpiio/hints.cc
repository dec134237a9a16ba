#include "mpiio/hints.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "plan/collective.h"

namespace forebay::mpiio {
namespace {

enum class Kind { number, positive, octal, choice, per_node, realm_size, realm_list };

struct Row {
  Hints::About about;
  Kind kind;
  std::string_view choices = {};  // "a|b|c"
};

constexpr std::string_view kSwitch = "enable|disable|automatic";
constexpr std::string_view kBool = "true|false";

// A fallback of "" means: not set, and not shown.
const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
      {{"cb_nodes", "", "aggregators of a collective call"}, Kind::positive},
      {{"cb_buffer_size", "16777216", "bytes of an aggregator's buffer"}, Kind::positive},
      {{"cb_config_list", "", "how many processes of a node may be aggregators"}, Kind::per_node},
      {{"romio_cb_read", "automatic", "collective buffering of reads"}, Kind::choice, kSwitch},
      {{"romio_cb_write", "automatic", "collective buffering of writes"}, Kind::choice, kSwitch},
      {{"romio_cb_alltoall", "automatic", "how data goes between nodes"}, Kind::choice, kSwitch},
      {{"romio_no_indep_rw", "false", "all calls are collective"}, Kind::choice, kBool},
      {{"romio_ds_read", "automatic", "sieving of reads"}, Kind::choice, kSwitch},
      {{"ind_rd_buffer_size", "4194304", "bytes of a sieved read"}, Kind::positive},
      {{"romio_ds_write", "automatic", "sieving of writes, by servers"}, Kind::choice, kSwitch},
      {{"ind_wr_buffer_size", "", "bytes of a sieved write"}, Kind::positive},
      {{"romio_cb_ds_threshold", "", "holes up to which reads are sieved"}, Kind::number},
      {{"romio_cb_pfr", "", "file realms that stay"}, Kind::choice, kSwitch},
      {{"romio_cb_fr_type", "aar", "the size of file realms that stay"}, Kind::realm_size},
      {{"romio_cb_fr_alignment", "", "to which offsets file realms are aligned"}, Kind::positive},
      {{"striping_factor", "", "storage targets of the file"}, Kind::number},
      {{"striping_unit", "", "bytes of a stripe of the file"}, Kind::number},
      {{"start_iodevice", "", "the storage target of the file's first stripe"}, Kind::number},
      {{"file_perm", "", "permission bits of a new file, octal"}, Kind::octal},
      {{"forebay_realms", "automatic", "how file realms are made"},
       Kind::choice,
       "automatic|even|balanced|striped|given"},
      {{"forebay_order", "automatic", "what decides in which order a realm is moved"},
       Kind::choice,
       "automatic|offset|target"},
      {{"forebay_realm_list", "", "file realms as the user gives them"}, Kind::realm_list},
      {{"forebay_realm_cache", "67108864", "bytes that an aggregator keeps of its realm"},
       Kind::number},
      {{"forebay_joint_writes", "automatic", "ranks that write at the same time do it together"},
       Kind::choice,
       kSwitch},
      {{"forebay_direct", "false", "data goes around the page cache"}, Kind::choice, kBool},
      {{"forebay_write_behind", "server", "a server may acknowledge writes early"},
       Kind::choice,
       "server|on|off"},
  };
  return table;
}

bool one_of(std::string_view value, std::string_view choices) {
  while (!choices.empty()) {
    const size_t bar = choices.find('|');
    if (choices.substr(0, bar) == value) return true;
    choices = bar == choices.npos ? std::string_view() : choices.substr(bar + 1);
  }
  return false;
}

bool numeric(std::string_view value, int base, uint64_t least) {
  uint64_t number = 0;
  const auto end = value.data() + value.size();
  const auto read = std::from_chars(value.data(), end, number, base);
  return read.ec == std::errc() && read.ptr == end && number >= least && number <= INT64_MAX;
}

bool sensible(const Row& row, std::string_view value) {
  switch (row.kind) {
    case Kind::number:
      return numeric(value, 10, 0);
    case Kind::positive:
      return numeric(value, 10, 1);
    case Kind::octal:
      return numeric(value, 8, 0) && value.size() <= 5;
    case Kind::choice:
      return one_of(value, row.choices);
    case Kind::per_node:
      return plan::per_node_of(value).has_value();
    case Kind::realm_size:
      return one_of(value, "aar|fsize|dynamic") || numeric(value, 10, 1);
    case Kind::realm_list:
      return !value.empty() && plan::given_realms(value).has_value();
  }
  return false;
}

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

std::string_view fallback_of(std::string_view key) {
  for (const Row& row : rows())
    if (row.about.name == key) return row.about.fallback;
  return {};
}

template <class Fn>
void for_each_part(std::string_view text, char end, Fn&& fn) {
  while (!text.empty()) {
    const size_t at = text.find(end);
    fn(trimmed(text.substr(0, at)));
    text = at == text.npos ? std::string_view() : text.substr(at + 1);
  }
}

// "key<separator>value" into the list.
void add(std::string_view part, std::string_view separators, HintList& list) {
  const size_t at = part.find_first_of(separators);
  if (at == part.npos || at == 0) return;
  list.emplace_back(trimmed(part.substr(0, at)), trimmed(part.substr(at + 1)));
}

}  // namespace

Hints::Hints() {
  for (const Row& row : rows())
    if (!row.about.fallback.empty()) values_.emplace(row.about.name, row.about.fallback);
}

Hints::Taken Hints::set(std::string_view key, std::string_view value) {
  value = trimmed(value);
  const auto row = std::find_if(rows().begin(), rows().end(),
                                [&](const Row& one) { return one.about.name == key; });
  if (row == rows().end()) {
    const auto& others = known_and_ignored();
    if (std::find(others.begin(), others.end(), key) == others.end()) return Taken::unknown;
    ignored_.insert(fmt::format("{}={} (does nothing here)", key, value));
    return Taken::ignored;
  }
  if (!sensible(*row, value)) {
    ignored_.insert(fmt::format("{}={} (not a value it can have)", key, value));
    return Taken::bad_value;
  }
  values_.insert_or_assign(std::string(key), std::string(value));
  given_.emplace(key);
  return Taken::yes;
}

void Hints::assume(std::string_view key, std::string_view value) {
  if (!given(key)) values_.insert_or_assign(std::string(key), std::string(value));
}

void Hints::ignore(std::string_view key, std::string_view why) {
  const auto given = values_.find(key);
  if (given == values_.end()) return;
  if (given->second != fallback_of(key))
    ignored_.insert(fmt::format("{}={} ({})", key, given->second, why));
  values_.erase(given);
}

const std::string& Hints::operator[](std::string_view key) const {
  static const std::string none;
  const auto it = values_.find(key);
  return it == values_.end() ? none : it->second;
}

uint64_t Hints::number(std::string_view key) const {
  const std::string& text = (*this)[key];
  uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, key == "file_perm" ? 8 : 10);
  return value;
}

const std::vector<Hints::About>& Hints::honoured() {
  static const std::vector<About> list = [] {
    std::vector<About> all;
    for (const Row& row : rows()) all.push_back(row.about);
    return all;
  }();
  return list;
}

const std::vector<std::string_view>& Hints::known_and_ignored() {
  static const std::vector<std::string_view> list = {"access_style",
                                                     "collective_buffering",
                                                     "cb_block_size",
                                                     "chunked",
                                                     "chunked_item",
                                                     "chunked_size",
                                                     "filename",
                                                     "io_node_list",
                                                     "nb_proc",
                                                     "num_io_nodes",
                                                     "direct_read",
                                                     "direct_write",
                                                     "romio_aggregator_list",
                                                     "romio_filesystem_type",
                                                     "romio_synchronizing_flush",
                                                     "romio_synchronized_flush",
                                                     "romio_visibility_immediate",
                                                     "romio_min_fdomain_size",
                                                     "romio_lustre_co_ratio",
                                                     "romio_lustre_coll_threshold",
                                                     "romio_lustre_cb_ds_in",
                                                     "romio_lustre_start_iodevice",
                                                     "romio_pvfs2_debugflags",
                                                     "romio_pvfs2_listio_read",
                                                     "romio_pvfs2_listio_write",
                                                     "romio_pvfs2_posix_read",
                                                     "romio_pvfs2_posix_write",
                                                     "romio_pvfs2_dtype_read",
                                                     "romio_pvfs2_dtype_write",
                                                     "panfs_concurrent_write",
                                                     "panfs_layout_type",
                                                     "panfs_layout_stripe_unit",
                                                     "panfs_layout_total_num_comps",
                                                     "panfs_layout_parity_stripe_width",
                                                     "panfs_layout_parity_stripe_depth",
                                                     "panfs_layout_visit_policy",
                                                     "romio_gpfs_p2pcontig",
                                                     "romio_gpfs_aggmethod",
                                                     "ompio_num_aggregators",
                                                     "ompio_call_timing",
                                                     "fcoll_dynamic",
                                                     "sharedfp_lockedfile",
                                                     "sharedfp_sm",
                                                     "sharedfp_individual",
                                                     "sharedfp_lazy_open"};
  return list;
}

HintList parse_hint_file(std::string_view text) {
  HintList list;
  for_each_part(text, '\n', [&](std::string_view line) {
    if (!line.starts_with('#')) add(line, " \t", list);
  });
  // As ROMIO reads it, the first line about a key counts.
  std::reverse(list.begin(), list.end());
  return list;
}

HintList parse_hint_variable(std::string_view text) {
  HintList list;
  for_each_part(text, ';', [&](std::string_view part) { add(part, "=", list); });
  return list;
}

}  // namespace forebay::mpiio
