// Advisory locks, which the server keeps. Those of fcntl(2) are the process's, and go with any
// descriptor of the file that it closes; those of flock(2) are the open file's, and live in the
// session of the process that opened it: another one that has the descriptor is refused, because
// the lock would end with the wrong process.
#include <sys/file.h>
#include <unistd.h>

#include <set>

#include "preload/serve.h"

namespace forebay::preload {
namespace {

constexpr uint64_t kThisProcess = 1;  // the owner of its locks, in its own session

struct LockedFiles {
  std::mutex mutex;
  std::set<std::string> files;
};
LockedFiles& locked_files() {
  static LockedFiles* const all = new LockedFiles;
  return *all;
}

Result<void> set_range(Request& request, OpenFile& file, const flock64& lock) {
  int64_t start = lock.l_start;
  if (lock.l_whence == SEEK_CUR) start += static_cast<int64_t>(file.shared->offset.load());
  if (lock.l_whence == SEEK_END) {
    auto now = Connection::get().call(file.request(Op::getattr));
    if (!now) return std::move(now).error();
    start += static_cast<int64_t>(now->attr.size);
  }
  int64_t length = lock.l_len;
  if (length < 0) {
    start += length;
    length = -length;
  }
  if (start < 0) return Error(EINVAL);
  request.offset = Offset(static_cast<uint64_t>(start));
  request.length = Length(static_cast<uint64_t>(length));
  return {};
}

Result<int64_t> test_lock(OpenFile& file, flock64* lock, uint64_t owner) {
  Request request = file.request(Op::lock_test, lock->l_type == F_RDLCK ? kFlagShared : 0u);
  request.cookie = owner;
  if (auto ok = set_range(request, file, *lock); !ok) return std::move(ok).error();
  auto reply = Connection::get().call(std::move(request));
  if (!reply) return std::move(reply).error();
  if (reply->count == 0) return lock->l_type = F_UNLCK, 0;
  lock->l_type = reply->locked.shared ? F_RDLCK : F_WRLCK;
  lock->l_whence = SEEK_SET;
  lock->l_start = static_cast<off64_t>(reply->locked.offset.value);
  lock->l_len = static_cast<off64_t>(reply->locked.length.value);
  lock->l_pid = static_cast<pid_t>(reply->locked.pid);
  return 0;
}

// Whoever has the descriptor from another process.
Result<void> check_opener(const OpenFile& file) {
  if (file.shared->opener == ::getpid()) return {};
  Connection::get().complain(
      "", "flock: only the process that opened a served file can lock it as a whole");
  return Error(ENOLCK);
}

Result<int64_t> set_lock(OpenFile& file, const flock64& lock, uint64_t owner, bool wait) {
  const bool frees = lock.l_type == F_UNLCK;
  if ((lock.l_type == F_RDLCK && !file.reads()) || (lock.l_type == F_WRLCK && !file.writes()))
    return Error(EBADF);
  Request request = file.request(frees ? Op::unlock : Op::lock);
  request.cookie = owner;
  if (lock.l_type == F_RDLCK) request.flags |= kFlagShared;
  if (wait && !frees) request.flags |= kFlagWait;
  if (auto ok = set_range(request, file, lock); !ok) return std::move(ok).error();
  if (!frees && owner == kThisProcess) {
    std::lock_guard guard(locked_files().mutex);
    locked_files().files.insert(file.handle.bytes);
  }
  const bool all = frees && request.offset.value == 0 && request.length.value == 0;
  auto freed = done(Connection::get().call(std::move(request)));
  if (freed && all && owner == kThisProcess) {
    std::lock_guard guard(locked_files().mutex);
    locked_files().files.erase(file.handle.bytes);
  }
  return freed;
}

}  // namespace

int lock(int fd, int command, flock64* lock) {
  return static_cast<int>(run([&]() -> Result<int64_t> {
    const FileUse file(fd);
    if (!file || (file->flags() & O_PATH)) return Error(EBADF);
    if (!lock) return Error(EFAULT);
    if (lock->l_type != F_RDLCK && lock->l_type != F_WRLCK && lock->l_type != F_UNLCK)
      return Error(EINVAL);
    if (file->shared->directory) return Error(EINVAL);
    const bool of_file =
        command == F_OFD_GETLK || command == F_OFD_SETLK || command == F_OFD_SETLKW;
    if (of_file)
      if (auto ok = check_opener(*file); !ok) return std::move(ok).error();
    const uint64_t owner = of_file ? file->shared->id : kThisProcess;
    if (command == F_GETLK || command == F_OFD_GETLK) return test_lock(*file, lock, owner);
    return set_lock(*file, *lock, owner, command == F_SETLKW || command == F_OFD_SETLKW);
  }));
}

int lock_whole(int fd, int how) {
  return static_cast<int>(run([&]() -> Result<int64_t> {
    const FileUse file(fd);
    if (!file || (file->flags() & O_PATH)) return Error(EBADF);
    if (file->shared->directory) {
      Connection::get().complain("", "flock: a served directory cannot be locked");
      return Error(ENOLCK);
    }
    if (auto ok = check_opener(*file); !ok) return std::move(ok).error();
    const bool frees = how & LOCK_UN;
    Request request = file->request(frees ? Op::unlock : Op::lock, kFlagWhole);
    request.cookie = file->shared->id;
    if (how & LOCK_SH) request.flags |= kFlagShared;
    if (!frees && !(how & LOCK_NB)) request.flags |= kFlagWait;
    if (!frees) file->locked = true;
    auto outcome = done(Connection::get().call(std::move(request)));
    if (frees && outcome) file->locked = false;
    return outcome;
  }));
}

void free_locks(const OpenFile& file) {
  {
    std::lock_guard guard(locked_files().mutex);
    if (locked_files().files.erase(file.handle.bytes) == 0) return;
  }
  Request request = file.request(Op::unlock);
  request.cookie = kThisProcess;
  (void)Connection::get().call(std::move(request));
}

bool holds_locks() {
  std::lock_guard guard(locked_files().mutex);
  return !locked_files().files.empty() || OpenFiles::get().any_locked();
}

void forget_locks() {
  new (&locked_files().mutex) std::mutex;
  locked_files().files.clear();
}

}  // namespace forebay::preload
