// Advisory locks, which the server keeps. Those of fcntl(2) are the process's, in its own session,
// and go with any descriptor of the file that it closes; those of flock(2) and F_OFD_SETLK are the
// open file's, and held for it by the lock keeper (lock_keeper.h).
#include <sys/file.h>
#include <unistd.h>

#include <set>

#include "preload/lock_keeper.h"
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

// `fd` is -1: of the process.
Result<Reply> ask(OpenFile& file, int fd, Request&& request) {
  if (fd >= 0) return ask_keeper(file, fd, request);
  request.cookie = kThisProcess;
  return Connection::get().call(std::move(request));
}

Result<int64_t> test_lock(OpenFile& file, int fd, flock64* lock) {
  Request request = file.request(Op::lock_test, lock->l_type == F_RDLCK ? kFlagShared : 0u);
  if (auto ok = set_range(request, file, *lock); !ok) return std::move(ok).error();
  auto reply = ask(file, fd, std::move(request));
  if (!reply) return std::move(reply).error();
  if (reply->count == 0) return lock->l_type = F_UNLCK, 0;
  lock->l_type = reply->locked.shared ? F_RDLCK : F_WRLCK;
  lock->l_whence = SEEK_SET;
  lock->l_start = static_cast<off64_t>(reply->locked.offset.value);
  lock->l_len = static_cast<off64_t>(reply->locked.length.value);
  lock->l_pid = static_cast<pid_t>(reply->locked.pid);
  return 0;
}

Result<int64_t> set_lock(OpenFile& file, int fd, const flock64& lock, bool wait) {
  const bool frees = lock.l_type == F_UNLCK;
  if ((lock.l_type == F_RDLCK && !file.reads()) || (lock.l_type == F_WRLCK && !file.writes()))
    return Error(EBADF);
  Request request = file.request(frees ? Op::unlock : Op::lock);
  if (lock.l_type == F_RDLCK) request.flags |= kFlagShared;
  if (wait && !frees) request.flags |= kFlagWait;
  if (auto ok = set_range(request, file, lock); !ok) return std::move(ok).error();
  if (!frees && fd < 0) {
    std::lock_guard guard(locked_files().mutex);
    locked_files().files.insert(file.handle.bytes);
  }
  const bool all = frees && request.offset.value == 0 && request.length.value == 0;
  auto freed = done(ask(file, fd, std::move(request)));
  if (freed && all && fd < 0) {
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
    const int by = of_file ? fd : -1;
    if (command == F_GETLK || command == F_OFD_GETLK) return test_lock(*file, by, lock);
    return set_lock(*file, by, *lock, command == F_SETLKW || command == F_OFD_SETLKW);
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
    const bool frees = how & LOCK_UN;
    Request request = file->request(frees ? Op::unlock : Op::lock, kFlagWhole);
    if (how & LOCK_SH) request.flags |= kFlagShared;
    if (!frees && !(how & LOCK_NB)) request.flags |= kFlagWait;
    return done(ask(*file, fd, std::move(request)));
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
  return !locked_files().files.empty();
}

std::mutex& locks_held_for_fork() {
  return locked_files().mutex;
}
void forget_locks() {
  locked_files().files.clear();
}

}  // namespace forebay::preload
