#include "server/relayed_leases.h"

#include <algorithm>
#include <utility>

namespace forebay::server {

RelayedLeases::RelayedLeases(Store& store, Loop& loop, std::shared_ptr<LeaseTable> table,
                             size_t most)
    : store_(&store), loop_(loop), table_(std::move(table)), most_(most) {}

void RelayedLeases::take(Request&& ask, Asker asker, Taken then) {
  if (!store_) return then(Error(ESHUTDOWN, "the server is stopping"));
  ++asks_;
  Handle handle = ask.handle;
  store_->submit(std::move(ask),
                 [self = shared_from_this(), handle = std::move(handle), asker = std::move(asker),
                  then = std::move(then), asked = since_boot()](Result<Reply>&& reply) mutable {
                   then(self->taken(handle, std::move(asker), reply, since_boot() - asked));
                 });
}

Result<void> RelayedLeases::taken(const Handle& handle, Asker asker, const Result<Reply>& reply,
                                  Duration took) {
  const bool early = reply && early_.contains(reply->value);
  if (--asks_ == 0) early_.clear();
  if (reply) note(handle, std::move(asker), reply->value);
  Result<void> good = usable(reply, took);
  if (good && early) good = Error(EAGAIN, "the file is being changed");
  // Also if there was no lease: its home may have given one, and taken it back, in whose place the
  // one before was.
  if (!good) drop(handle);
  return good;
}

Result<void> RelayedLeases::usable(const Result<Reply>& reply, Duration took) const {
  if (!reply) return reply.error();
  // Our clients may have been promised as much as that already.
  const auto term = static_cast<uint64_t>(table_->term() / std::chrono::milliseconds(1));
  if (reply->count < term) {
    return Error(EOPNOTSUPP, "the file lives at another server, with a shorter lease_time");
  }
  if (took > table_->term() / 16) return Error(EAGAIN, "the file's home took long to answer");
  return {};
}

// It takes the place of the one before, for those who have that too.
void RelayedLeases::note(const Handle& handle, Asker asker, Number number) {
  if (const auto before = files_.find(handle.bytes); before != files_.end()) {
    forget(before);
  } else if (files_.size() >= most_) {
    make_room();
  }
  Line& line = lines_[asker.client];
  files_[handle.bytes] = {std::move(asker.identity), number, asker.client,
                          line.insert(line.end(), handle.bytes)};
  by_number_[number] = handle.bytes;
  sweep_later();
}

RelayedLeases::File RelayedLeases::forget(Files::iterator found) {
  File file = std::move(found->second);
  const auto line = lines_.find(file.client);
  line->second.erase(file.place);
  if (line->second.empty()) lines_.erase(line);
  by_number_.erase(file.number);
  files_.erase(found);
  return file;
}

void RelayedLeases::make_room() {
  const auto longest =
      std::ranges::max_element(lines_, {}, [](const auto& one) { return one.second.size(); });
  drop(Handle{longest->second.front()});
}

void RelayedLeases::recalled(Number lease) {
  const auto known = by_number_.find(lease);
  if (known != by_number_.end()) return drop(Handle{known->second});
  if (asks_ != 0) early_.insert(lease);
}

void RelayedLeases::lost() {
  by_number_.clear();
  lines_.clear();
  for (const auto& [handle, file] : std::exchange(files_, {})) drop(Handle{handle}, file);
}

void RelayedLeases::drop(const Handle& handle) {
  const auto found = files_.find(handle.bytes);
  if (found != files_.end()) drop(handle, forget(found));
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
    give_back(forget(file++).number);
  }
  if (!files_.empty()) sweep_later();
}

}  // namespace forebay::server
