#include "server/relayed_leases.h"

#include <utility>

namespace forebay::server {

RelayedLeases::RelayedLeases(Store& store, Loop& loop, std::shared_ptr<LeaseTable> table)
    : store_(&store), loop_(loop), table_(std::move(table)) {}

void RelayedLeases::take(Request&& ask, std::string identity, Taken then) {
  if (!store_) return then(Error(ESHUTDOWN, "the server is stopping"));
  ++asks_;
  Handle handle = ask.handle;
  store_->submit(std::move(ask), [self = shared_from_this(), handle = std::move(handle),
                                  identity = std::move(identity), then = std::move(then),
                                  asked = since_boot()](Result<Reply>&& reply) mutable {
    const bool late = since_boot() - asked > self->table_->term() / 16;
    if (reply && late) {
      self->give_back(reply->value);
      reply = Error(EAGAIN, "the file's home took long to answer");
    }
    self->taken(handle, std::move(identity), std::move(reply), std::move(then));
  });
}

void RelayedLeases::taken(const Handle& handle, std::string identity, Result<Reply>&& reply,
                          Taken then) {
  const bool early = reply && early_.contains(reply->value);
  if (--asks_ == 0) early_.clear();
  if (!reply) return then(std::move(reply).error());
  // Our clients may have been promised as much as that already.
  const auto term = static_cast<uint64_t>(table_->term() / std::chrono::milliseconds(1));
  if (reply->count < term) {
    give_back(reply->value);
    return then(Error(EOPNOTSUPP, "the file lives at another server, with a shorter lease_time"));
  }
  // It takes the place of the one before, for those who have that too.
  File& file = files_[handle.bytes];
  by_number_.erase(file.number);
  file = {std::move(identity), reply->value};
  by_number_[file.number] = handle.bytes;
  sweep_later();
  if (!early) return then({});
  recalled(reply->value);
  then(Error(EAGAIN, "the file is being changed"));
}

void RelayedLeases::recalled(Number lease) {
  const auto known = by_number_.find(lease);
  if (known == by_number_.end()) {
    if (asks_ != 0) early_.insert(lease);
    return;
  }
  const Handle handle{known->second};
  by_number_.erase(known);
  const auto file = files_.extract(handle.bytes);
  drop(handle, file.mapped());
}

void RelayedLeases::lost() {
  by_number_.clear();
  for (const auto& [handle, file] : std::exchange(files_, {})) drop(Handle{handle}, file);
}

// Once nobody here has copies. (The home may still count with a lease that was lost.)
void RelayedLeases::drop(const Handle& handle, const File& file) {
  if (!store_) return;
  const bool nobody =
      table_->changed({file.identity, handle}, 0, loop_,
                      [self = shared_from_this(), lease = file.number] { self->give_back(lease); });
  if (nobody) give_back(file.number);
}

void RelayedLeases::give_back(Number lease) {
  if (store_) store_->give_back(lease);
}

std::optional<Duration> RelayedLeases::left() const {
  if (files_.empty() || !store_) return std::nullopt;
  return store_->leases_until() - since_boot();
}

// Those that nobody needs any more.
void RelayedLeases::sweep_later() {
  if (std::exchange(sweeping_, true)) return;
  loop_.after(table_->term(), [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->sweep();
  });
}

void RelayedLeases::sweep() {
  sweeping_ = false;
  for (auto file = files_.begin(); file != files_.end();) {
    if (table_->held_of(file->second.identity)) {
      ++file;
      continue;
    }
    by_number_.erase(file->second.number);
    give_back(file->second.number);
    file = files_.erase(file);
  }
  if (!files_.empty()) sweep_later();
}

}  // namespace forebay::server
