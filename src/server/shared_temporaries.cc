// When what is kept about a file ends: attributes that are there only while somebody has it open
// (kTemporary), files that live elsewhere now, and files that were removed.
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
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    const std::string_view key = key_of(handle);
    // Whoever opens it from here on finds them gone.
    if (around_->holders.open(key)) return;
    const auto removed = removed_.find(key);
    const bool gone = removed != removed_.end();
    if (gone) removed_.erase(removed);
    const uint32_t file = state_.find(key);
    if (file == 0) return;
    if (!certain && !temporaries_of(state_.values(file)).empty()) doubtful_.try_emplace(file, 0);
    if (!doubtful_.contains(file)) drop_temporaries(file);
    if (!gone || !certain) return;
  }
  look_for_removed(handle);
}

// ---- Files that were removed ----

void SharedState::removed(const Handle& handle) {
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    const std::string_view key = key_of(handle);
    if (around_->holders.open(key)) return void(removed_.emplace(key));
    if (state_.find(key) == 0) return;
  }
  look_for_removed(handle);
}

// It may have other names.
void SharedState::look_for_removed(const Handle& handle) {
  Request r;
  r.op = Op::getattr;
  r.caller = this_process_caller();
  r.handle = handle;
  around_->store.submit(std::move(r), [self = shared_from_this(), handle](Result<Reply>&& there) {
    const bool gone = there ? there->attr.links == 0 : there.error().code() == ESTALE;
    if (gone) self->gone(handle, there.has_value());
  });
}

// A handle that is more than its file's identity is stale also if the file was moved: then what is
// kept about it goes when there is no room for others (as look_for_files()).
void SharedState::gone(const Handle& handle, bool certain) {
  std::lock_guard lock(mutex_);
  if (closed_) return;
  const std::string_view key = key_of(handle);
  if (around_->holders.open(key)) return void(removed_.emplace(key));
  const uint32_t file = state_.find(key);
  if (file == 0) return;
  if (!certain && key != handle.bytes) return void(missing_.insert(file));
  forget_file(file);
  if (const LiveRef live = live_of(handle, false)) unlearn(live);
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
