#include "store/posix_unlinked.h"

#include <dirent.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "store/posix_handles.h"

namespace forebay::posix {

namespace {

std::string own_folder() {
  const std::string both = kUnlinkedFolder;
  return both.substr(0, both.find('/'));
}

std::string name_of(const InodeId& id) {
  return unlinked_name(id.inode, id.birth);
}

}  // namespace

UnlinkedFiles::UnlinkedFiles(int top, const Identity& identity, std::optional<Duration> grace,
                             Callback<bool(const InodeId&)> in_use)
    : top_(top), identity_(identity), in_use_(std::move(in_use)) {
  if (!grace) return;
  identity_.become_server();
  if (!open_folder(false)) return;
  find_leftovers();
  if (!leftovers_.empty()) cleaner_ = std::thread([this, grace] { wait_and_clean(*grace); });
}

UnlinkedFiles::~UnlinkedFiles() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopping_.notify_all();
  if (cleaner_.joinable()) cleaner_.join();
  if (!folder_) return;
  identity_.become_server();
  // Both fail if anything is in there, which is what we want.
  if (::unlinkat(top_, kUnlinkedFolder, AT_REMOVEDIR) == 0)
    ::unlinkat(top_, own_folder().c_str(), AT_REMOVEDIR);
}

Result<void> UnlinkedFiles::open_folder(bool make) {
  if (make) {
    for (const std::string& folder : {own_folder(), std::string(kUnlinkedFolder)})
      if (::mkdirat(top_, folder.c_str(), 0700) && errno != EEXIST) return failed(folder);
  }
  Result<Fd> fd = open_beneath(top_, kUnlinkedFolder, O_RDONLY | O_DIRECTORY);
  if (!fd) return std::move(fd).error();
  struct stat st;
  if (::fstat(fd->get(), &st)) return failed(kUnlinkedFolder);
  if (st.st_uid != ::geteuid() || (st.st_mode & 077) != 0)
    return Error(EPERM, std::string(kUnlinkedFolder) + " is another user's, or open to others");
  // Fails where the file system has no flock; then we are not told of other servers.
  if (::flock(fd->get(), LOCK_SH | LOCK_NB))
    log::debug("{}: not locked: {}", kUnlinkedFolder, errno_name(errno));
  folder_ = std::move(*fd);
  return {};
}

Result<void> UnlinkedFiles::link_once(int path_fd, const std::string& name) {
  if (::linkat(AT_FDCWD, ProcPath(path_fd).c_str(), folder_.get(), name.c_str(),
               AT_SYMLINK_FOLLOW) == 0 ||
      errno == EEXIST)
    return {};
  return failed("link into the folder of unlinked files");
}

Result<void> UnlinkedFiles::keep(int path_fd, const InodeId& id) {
  std::lock_guard lock(mutex_);
  if (!folder_) {
    if (auto made = open_folder(true); !made) return made;
  }
  auto linked = link_once(path_fd, name_of(id));
  if (!linked && linked.error().code() == ENOENT) {
    // Another server may have removed the folder when it was empty.
    if (auto made = open_folder(true); !made) return made;
    linked = link_once(path_fd, name_of(id));
  }
  if (linked) kept_.insert(id);
  return linked;
}

void UnlinkedFiles::erase(const InodeId& id) {
  std::lock_guard lock(mutex_);
  if (kept_.erase(id) == 0) return;
  if (::unlinkat(folder_.get(), name_of(id).c_str(), 0) && errno != ENOENT)
    log::warn("{}/{}: cannot be removed: {}", kUnlinkedFolder, name_of(id), errno_name(errno));
}

bool UnlinkedFiles::contains(const InodeId& id) const {
  std::lock_guard lock(mutex_);
  return !kept_.empty() && kept_.count(id) != 0;
}

void UnlinkedFiles::find_leftovers() {
  const int again = ::openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* directory = again < 0 ? nullptr : ::fdopendir(again);
  if (!directory) return;
  while (const dirent* entry = ::readdir(directory)) {
    const std::string name = entry->d_name;
    Result<Fd> fd = open_path(folder_.get(), name);
    if (name == "." || name == ".." || !fd) continue;
    const Result<FileStat> stat = stat_of(fd->get());
    // A name that does not fit its inode was not made here (a restored backup): leave it alone.
    if (!stat || name != name_of(stat->id)) continue;
    kept_.insert(stat->id);
    leftovers_.push_back(stat->id);
  }
  ::closedir(directory);
}

void UnlinkedFiles::wait_and_clean(Duration grace) {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (stopping_.wait_for(lock, grace, [this] { return stop_; })) return;
    lock.unlock();
    const bool done = clean();
    lock.lock();
    if (done) return;
  }
}

// True when there is nothing left to do: the rest is in use and goes when it is closed.
bool UnlinkedFiles::clean() {
  identity_.become_server();
  if (::flock(folder_.get(), LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) return false;
  for (const InodeId& id : leftovers_)
    if (!in_use_(id)) erase(id);
  ::flock(folder_.get(), LOCK_SH | LOCK_NB);
  return true;
}

}  // namespace forebay::posix
