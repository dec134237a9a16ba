// Names that are changed once (name_flight.h): intents, their outcomes, and what a new life makes
// of those that have none.
#include <fmt/format.h>

#include "attr/record.h"
#include "core/log.h"
#include "server/shared_state.h"

namespace forebay::server {

namespace {

using attr::Intent;
using attr::Named;

// What has the name now; ENOENT: nothing.
Result<Reply> look_up(Store& store, const Handle& dir, const std::string& name) {
  Request r;
  r.op = Op::lookup;
  r.caller = this_process_caller();
  r.handle = dir;
  r.name = name;
  return store.call(std::move(r));
}

// Nobody has asked this server for anything since the crash, and before it nobody else here had
// these names. So whoever has them now was there before, or it was done. But where there are
// `others` clients of theirs may have made or removed the same name meanwhile, and were told so:
// only the file that was to get the name, or to lose it, shows what came of it; and what is not
// there was not made, or is made anew.
Named found(Store& store, const Intent& intent, bool others) {
  const bool second = intent.op == Op::rename || intent.op == Op::link;
  const Result<Reply> there =
      second ? look_up(store, intent.dir2, intent.name2) : look_up(store, intent.dir, intent.name);
  if (!there && there.error().code() != ENOENT) return Named::unknown;
  const bool same = there && store.identity(there->handle) == intent.identity;
  switch (intent.op) {
    case Op::remove:
      return same ? Named::undone : others ? Named::unknown : Named::done;
    case Op::rename: {
      if (same) return Named::done;
      const Result<Reply> still = look_up(store, intent.dir, intent.name);
      return still && store.identity(still->handle) == intent.identity ? Named::undone
                                                                       : Named::unknown;
    }
    case Op::link:
      if (same) return Named::done;
      return there ? Named::unknown : Named::undone;
    default:
      if (!there) return Named::undone;
      return others ? Named::unknown : Named::done;
  }
}

}  // namespace

Result<std::optional<SharedState::Before>> SharedState::named_before(const Once& once) {
  std::lock_guard lock(mutex_);
  auto done = state_.recall(once);
  if (!done) return std::move(done).error();
  if (!*done) return std::optional<Before>();
  if ((*done)->kind != Kind::intend) {
    return Error(EINVAL, "once: was another operation");
  }
  ++seen_.repeated;
  if ((*done)->open) {
    const auto intent = (*done)->intent ? attr::unpack(*(*done)->intent) : std::nullopt;
    return std::optional(Before{Named::unknown, intent ? intent->home : std::string()});
  }
  const auto outcome = static_cast<Named>((*done)->value);
  if (outcome == Named::undone) return std::optional<Before>();
  return std::optional(Before{outcome, {}});
}

Result<uint64_t> SharedState::intend(const Once& once, const CallerRef& caller,
                                     const Intent& intent, Loop& loop) {
  const std::string packed = attr::pack(intent);
  const Command command{.kind = Kind::intend, .once = once, .name = packed};
  uint64_t record = 0;
  bool post = false;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return Error(ESHUTDOWN);
    auto applied = apply_for(*caller, command);
    if (!applied) return std::move(applied).error();
    state_.touch(once, tick_of(loop.now()));
    forget_old(loop.now());
    if (failure_) {
      post = put_off({}, loop);
    } else if (journal_) {
      record = journal_->last();
    }
  }
  if (post) post_flush(loop);
  return record;
}

// Nobody waits for this record: without it the next life looks for itself.
void SharedState::named(const Once& once, Named outcome) {
  std::lock_guard lock(mutex_);
  if (closed_) return;
  const Command command{.kind = Kind::named, .value = static_cast<uint64_t>(outcome), .once = once};
  (void)(failure_ ? state_.apply(command) : apply(command));
}

void SharedState::resolve_names(Store& store, const std::string& name, bool others) {
  size_t unknown = 0;
  for (const auto& [once, packed] : state_.intents()) {
    const std::optional<Intent> intent = attr::unpack(*packed);
    if (intent && !intent->home.empty()) continue;  // it may be doing it right now
    const Named outcome = intent ? found(store, *intent, others) : Named::unknown;
    unknown += outcome == Named::unknown;
    (void)apply({.kind = Kind::named, .value = static_cast<uint64_t>(outcome), .once = once});
  }
  if (unknown == 0) return;
  log::warn(
      "export '{}': whether {} changes of names were done before the server ended cannot be told; "
      "their clients will hear so",
      name, unknown);
}

}  // namespace forebay::server
