// Attributes that are there only while somebody has their file open (kTemporary).
//
// Who has it open is known for certain only by what this life of the server has seen: a client that
// computes for hours does not come back after a restart before it has something to ask, and neither
// do those of another server that was restarted. Then its attributes are kept for kDoubt after
// their last use, whoever else opens and closes the file meanwhile.
#include <fmt/format.h>

#include "server/holders.h"
#include "server/shared_state.h"

namespace forebay::server {

namespace {

std::vector<std::string> temporaries_of(const attr::Values* values) {
  std::vector<std::string> names;
  if (!values) return names;
  values->each([&](std::string_view name, uint64_t) {
    if (is_temporary(name)) names.emplace_back(name);
  });
  return names;
}

}  // namespace

// All of it or nothing: with the old list everything must still be there.
Result<void> SharedState::forget_others(const std::function<bool(const Handle&)>& lives_here) {
  std::lock_guard lock(mutex_);
  std::vector<uint32_t> theirs;
  size_t kept = 0;
  for (const auto& [number, handle] : state_.files()) {
    if (lives_here(handle)) continue;
    const attr::Values* const values = state_.values(number);
    const bool lasting = values && values->size() > temporaries_of(values).size();
    kept += lasting || state_.has_open(number);
    theirs.push_back(number);
  }
  if (kept != 0) {
    return Error(
        EXDEV, fmt::format("{} files whose attributes, or appends that are not finished, are kept "
                           "in its journal live at other servers by the new list: start with the "
                           "old one, or remove the attributes and end the clients first",
                           kept));
  }
  for (const uint32_t number : theirs) forget_file(number);
  return {};
}

void SharedState::inherit_temporaries() {
  for (const auto& [number, handle] : state_.files()) {
    if (!temporaries_of(state_.values(number)).empty()) doubtful_[number] = 0;
  }
}

void SharedState::unused(const Handle& handle, bool certain) {
  std::lock_guard lock(mutex_);
  if (closed_) return;
  const std::string_view key = key_of(handle);
  const uint32_t file = state_.find(key);
  // Whoever opens it from here on finds them gone.
  if (file == 0 || around_->holders.open(key)) return;
  if (!certain && !temporaries_of(state_.values(file)).empty()) doubtful_.try_emplace(file, 0);
  if (!doubtful_.contains(file)) drop_temporaries(file);
}

void SharedState::forget_file(uint32_t file) {
  (void)apply({.kind = Kind::forget_file, .file = file});
  doubtful_.erase(file);
  missing_.erase(file);
}

void SharedState::drop_temporaries(uint32_t file) {
  for (const std::string& name : temporaries_of(state_.values(file))) {
    (void)apply({.kind = Kind::remove, .file = file, .name = name});
  }
}

// One of the file's was used, or removed.
void SharedState::note_temporary(uint32_t file) {
  const auto found = doubtful_.find(file);
  if (found == doubtful_.end()) return;
  found->second = 0;
  if (temporaries_of(state_.values(file)).empty()) doubtful_.erase(found);
}

void SharedState::forget_doubtful(Time now) {
  for (auto it = doubtful_.begin(); it != doubtful_.end();) {
    auto& [file, since] = *it;
    if (since == 0) since = tick_of(now);
    const bool old = tick_of(now) - since > static_cast<uint64_t>(kDoubt / std::chrono::seconds(1));
    const auto handle = old ? state_.handle(file) : Handle{};
    if (!old || (!handle.bytes.empty() && around_->holders.open(key_of(handle)))) {
      ++it;
      continue;
    }
    drop_temporaries(file);
    it = doubtful_.erase(it);
  }
}

}  // namespace forebay::server
