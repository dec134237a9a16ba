// Advisory locks, where the Store keeps them for all its clients (Coherence::shared()); otherwise
// the kernel keeps them itself, among the processes of this mount.
//
// A lock that waits must not hold a thread: those who would free it need one. So they are
// submitted, and answered by whoever completes them.
#include <fcntl.h>
#include <sys/file.h>

#include <stop_token>

#include "fuse/door.h"

namespace forebay::fuse {

// A request that is answered later. The kernel's interrupt of it is a stop.
class Door::Pending {
 public:
  Pending(Door& door, fuse_req_t req) : door_(door), req_(req) {
    fuse_req_interrupt_func(
        req_, [](fuse_req_t, void* self) { static_cast<Pending*>(self)->stop(); }, this);
  }
  Pending(const Pending&) = delete;
  std::stop_token token() const { return source_.get_token(); }
  void stop() { source_.request_stop(); }
  template <class Reply>
  void answer(Reply&& reply) {
    fuse_req_interrupt_func(req_, nullptr, nullptr);
    reply(req_);
    door_.ended(*this);
  }

 private:
  Door& door_;
  const fuse_req_t req_;
  std::stop_source source_;
};

std::shared_ptr<Door::Pending> Door::pend(fuse_req_t req) {
  auto pending = std::make_shared<Pending>(*this, req);
  std::lock_guard lock(pending_mutex_);
  pending_.insert(pending.get());
  return pending;
}

void Door::ended(Pending& pending) {
  std::lock_guard lock(pending_mutex_);
  pending_.erase(&pending);
  if (pending_.empty()) none_pending_.notify_all();
}

void Door::stop_pending() {
  write_back_.stop();
  leases_.stop();
  std::unique_lock lock(pending_mutex_);
  for (Pending* const one : pending_) one->stop();
  none_pending_.wait(lock, [this] { return pending_.empty(); });
}

namespace {

// The kernel's last byte of a file is the largest offset.
void set_range(Request& request, const struct flock& lock) {
  request.offset = Offset(static_cast<uint64_t>(lock.l_start));
  request.length = Length(static_cast<uint64_t>(lock.l_len));
}

struct flock lock_in_the_way(const Reply& reply) {
  struct flock found = {};
  found.l_type = F_UNLCK;
  if (reply.count == 0) return found;
  found.l_type = reply.locked.shared ? F_RDLCK : F_WRLCK;
  found.l_start = static_cast<off_t>(reply.locked.offset.value);
  found.l_len = static_cast<off_t>(reply.locked.length.value);
  found.l_pid = static_cast<pid_t>(reply.locked.pid);
  return found;
}

}  // namespace

Request Door::about_lock(Op op, const fuse_file_info* info) const {
  const OpenFile& file = file_of(info);
  Request request = {.op = op, .caller = file.caller, .handle = file.node.handle()};
  if (op == Op::lock) request.right = file.right;
  request.cookie = info->lock_owner;
  return request;
}

void Door::submit_lock(fuse_req_t req, Request&& request) {
  auto pending = pend(req);
  request.stop = pending->token();
  store_.submit(std::move(request), [pending](Result<Reply>&& reply) {
    pending->answer([&](fuse_req_t answered) {
      reply ? void(fuse_reply_err(answered, 0)) : fail(answered, reply.error());
    });
  });
}

void Door::getlk(fuse_req_t req, fuse_ino_t, fuse_file_info* info, struct flock* lock) {
  Request request = about_lock(Op::lock_test, info);
  set_range(request, *lock);
  if (lock->l_type == F_RDLCK) request.flags |= kFlagShared;
  auto pending = pend(req);
  request.stop = pending->token();
  store_.submit(std::move(request), [pending](Result<Reply>&& reply) {
    pending->answer([&](fuse_req_t answered) {
      if (!reply) return fail(answered, reply.error());
      const struct flock found = lock_in_the_way(*reply);
      fuse_reply_lock(answered, &found);
    });
  });
}

void Door::setlk(fuse_req_t req, fuse_ino_t, fuse_file_info* info, struct flock* lock, int sleep) {
  const bool frees = lock->l_type == F_UNLCK;
  Request request = about_lock(frees ? Op::unlock : Op::lock, info);
  set_range(request, *lock);
  if (lock->l_type == F_RDLCK) request.flags |= kFlagShared;
  if (sleep && !frees) request.flags |= kFlagWait;
  if (!frees) {
    file_of(info).node.locked() = true;
    file_of(info).owners.add(info->lock_owner);
  }
  submit_lock(req, std::move(request));
}

void Door::flock(fuse_req_t req, fuse_ino_t, fuse_file_info* info, int how) {
  const bool frees = how & LOCK_UN;
  Request request = about_lock(frees ? Op::unlock : Op::lock, info);
  request.flags |= kFlagWhole;
  if (how & LOCK_SH) request.flags |= kFlagShared;
  if (!frees && !(how & LOCK_NB)) request.flags |= kFlagWait;
  submit_lock(req, std::move(request));
}

// The last descriptor is closed. (Locks of the open file, F_OFD_SETLK, have no flush.)
void Door::free_locks(const fuse_file_info* info) {
  Request free = about_lock(Op::unlock, info);
  for (const uint64_t owner : file_of(info).owners.all()) {
    free.cookie = owner;
    (void)store_.call(free);
  }
  if (!info->flock_release) return;
  free.cookie = info->lock_owner;
  free.flags |= kFlagWhole;
  (void)store_.call(std::move(free));
}

// A process has closed one of its descriptors: its locks on the file are free, and it hears what
// could not be written.
void Door::flush(fuse_req_t req, fuse_ino_t, fuse_file_info* info) {
  const std::optional<Error> loss = written(file_of(info));
  const bool locked = file_of(info).node.locked();
  if (!locked && loss) return fail(req, *loss);
  if (!locked) return void(fuse_reply_err(req, 0));
  // The file's release, which comes at any time later, must not free what it locks then.
  file_of(info).owners.remove(info->lock_owner);
  if (loss) {
    (void)store_.call(about_lock(Op::unlock, info));
    return fail(req, *loss);
  }
  submit_lock(req, about_lock(Op::unlock, info));
}

}  // namespace forebay::fuse
