#include "preload/open_files.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "core/fd.h"
#include "preload/lock_keeper.h"
#include "preload/serve.h"

namespace forebay::preload {
namespace {

Slot& slot(int fd) {
  return Connection::get().shim().slots[fd];
}

void put_slot(int fd, OpenFile* file) {
  const Shim& shim = Connection::get().shim();
  set_slot(shim.slots, *shim.slots_end, fd, file);
}

std::string proc_name(int fd) {
  return fmt::format("/proc/self/fd/{}", fd);
}

Placeholder* mapped(int fd) {
  void* const at = ::mmap(nullptr, kPlaceholderSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? nullptr : static_cast<Placeholder*>(at);
}

void put(char* to, uint32_t& size, size_t room, std::string_view text) {
  size = static_cast<uint32_t>(std::min(text.size(), room - 1));
  std::memcpy(to, text.data(), size);
}

void fill(Placeholder& to, const OpenFiles::New& made) {
  (void)!::getrandom(&to.id, sizeof to.id, 0);
  to.flags =
      static_cast<uint32_t>(made.flags & ~(O_CREAT | O_EXCL | O_TRUNC | O_CLOEXEC | O_NOCTTY));
  to.users = 1;
  to.uid = made.caller->uid;
  to.gid = made.caller->gid;
  to.directory = made.directory;
  put(to.handle, to.handle_size, sizeof to.handle, made.handle.bytes);
  put(to.right, to.right_size, sizeof to.right, made.right.bytes);
  put(to.shown, to.shown_size, sizeof to.shown, made.shown);
  put(to.inside, to.inside_size, sizeof to.inside, made.inside);
  to.magic = kPlaceholderMagic;
}

struct Made {
  Placeholder* shared = nullptr;
  int fd = -1;
};

Result<Made> make_placeholder(const OpenFiles::New& from) {
  const Fd memory(::memfd_create(kPlaceholderName, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) return Error(errno, "memfd_create");
  if (::ftruncate(memory.get(), kPlaceholderSize) != 0) return Error(errno);
  // Nobody may cut it off under us.
  (void)::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  Made made;
  made.shared = mapped(memory.get());
  if (!made.shared) return Error(errno);
  fill(*made.shared, from);
  made.fd = ::open(proc_name(memory.get()).c_str(), O_PATH | (from.flags & O_CLOEXEC));
  if (made.fd >= 0 && made.fd < kMostDescriptors) return made;
  const int code = made.fd >= 0 ? EMFILE : errno;
  if (made.fd >= 0) ::close(made.fd);
  ::munmap(made.shared, kPlaceholderSize);
  return Error(code, "no placeholder");
}

long futex(std::atomic<uint32_t>& word, int op, uint32_t value, const timespec* timeout) {
  return ::syscall(SYS_futex, &word, op, value, timeout, nullptr, 0);
}

// Has the thread ended? One that nobody has waited for yet is still there by its number; and its
// parent may be the very one that asks.
bool has_ended(uint32_t thread) {
  if (::kill(static_cast<pid_t>(thread), 0) != 0) return errno == ESRCH;
  char text[512];
  const Fd file(::open(fmt::format("/proc/{}/stat", thread).c_str(), O_RDONLY | O_CLOEXEC));
  const ssize_t size = file ? ::read(file.get(), text, sizeof text - 1) : -1;
  if (size <= 0) return false;
  text[size] = '\0';
  const char* const name_end = std::strrchr(text, ')');
  return name_end &&
         (std::strncmp(name_end, ") Z", 3) == 0 || std::strncmp(name_end, ") X", 3) == 0);
}

// False: it is being closed.
bool begin_use(OpenFile& file) {
  uint32_t uses = file.uses.load();
  while (uses != 0 && !file.uses.compare_exchange_weak(uses, uses + 1)) {
  }
  return uses != 0;
}

}  // namespace

// ---- One use ----

FileUse::FileUse(int fd) {
  for (;;) {
    void* const what = slot(fd).load(std::memory_order_acquire);
    if (what <= kOwn || (what == kInherited && !OpenFiles::get().adopt(fd))) return;
    if (what == kInherited) continue;
    auto* const file = static_cast<OpenFile*>(what);
    if (!begin_use(*file)) continue;
    if (slot(fd).load() == file) {
      file_ = file;
      return;
    }
    OpenFiles::get().drop(*file);
  }
}

FileUse::~FileUse() {
  if (file_) OpenFiles::get().drop(*file_);
}

// A process that is killed in the middle leaves it locked: whoever waits takes it from a thread
// that has ended.
OffsetLock::OffsetLock(Placeholder& shared) : shared_(shared) {
  const auto self = static_cast<uint32_t>(::syscall(SYS_gettid));
  uint32_t owner = 0;
  if (shared_.owner.compare_exchange_strong(owner, self)) return;
  shared_.waiters.fetch_add(1);
  for (;;) {
    owner = 0;
    if (shared_.owner.compare_exchange_strong(owner, self)) break;
    const timespec soon = {0, 50'000'000};
    futex(shared_.owner, FUTEX_WAIT, owner, &soon);
    if (owner != 0 && shared_.owner.load() == owner && has_ended(owner) &&
        shared_.owner.compare_exchange_strong(owner, self))
      break;
  }
  shared_.waiters.fetch_sub(1);
}

OffsetLock::~OffsetLock() {
  shared_.owner.store(0);
  if (shared_.waiters.load() != 0) futex(shared_.owner, FUTEX_WAKE, 1, nullptr);
}

// ---- All of them ----

OpenFiles& OpenFiles::get() {
  static OpenFiles* const all = new OpenFiles;
  return *all;
}

OpenFile* OpenFiles::take() {
  OpenFile* file = nullptr;
  if (free_.empty()) {
    file = new OpenFile;
  } else {
    file = free_.back();
    free_.pop_back();
  }
  open_.push_back(file);
  return file;
}

Result<int> OpenFiles::add(New&& made) {
  Result<Made> placeholder = make_placeholder(made);
  if (!placeholder) return std::move(placeholder).error();
  {
    std::lock_guard lock(mutex_);
    OpenFile* const file = take();
    file->shared = placeholder->shared;
    file->handle = std::move(made.handle);
    file->right = std::move(made.right);
    file->caller = std::move(made.caller);
    file->uses.store(1);
    put_slot(placeholder->fd, file);
  }
  Connection::get().counts().opened.fetch_add(1, std::memory_order_relaxed);
  return placeholder->fd;
}

bool OpenFiles::adopt(int fd) {
  if (fd >= kMostDescriptors) return false;
  const Fd memory(::open(proc_name(fd).c_str(), O_RDWR | O_CLOEXEC));
  if (!memory) return false;
  Placeholder* const shared = mapped(memory.get());
  if (!shared) return false;
  std::lock_guard lock(mutex_);
  if (slot(fd).load() != kInherited) return ::munmap(shared, kPlaceholderSize), true;
  for (OpenFile* const file : open_) {
    if (file->shared->id != shared->id || !begin_use(*file)) continue;
    ::munmap(shared, kPlaceholderSize);  // another descriptor of the same description
    put_slot(fd, file);
    return true;
  }
  if (shared->magic != kPlaceholderMagic || shared->handle_size > sizeof shared->handle ||
      shared->right_size > sizeof shared->right) {
    ::munmap(shared, kPlaceholderSize);
    return false;
  }
  // Another thread of this process became this program while its first one had the offset.
  uint32_t self = static_cast<uint32_t>(::getpid());
  shared->owner.compare_exchange_strong(self, 0);
  shared->users.fetch_add(1);
  OpenFile* const file = take();
  file->shared = shared;
  file->handle.bytes.assign(shared->handle, shared->handle_size);
  file->right.bytes.assign(shared->right, shared->right_size);
  file->caller = Connection::get().caller();
  if (file->caller->uid != shared->uid) {
    Caller opener = *file->caller;
    opener.uid = shared->uid;
    opener.gid = shared->gid;
    file->caller = std::make_shared<const Caller>(std::move(opener));
  }
  file->uses.store(1);
  put_slot(fd, file);
  return true;
}

void OpenFiles::duplicated(int fd, int copy) {
  if (copy >= kMostDescriptors) return;
  const FileUse use(fd);
  if (!use) return;
  use->uses.fetch_add(1);
  put_slot(copy, &*use);
}

void OpenFiles::drop(OpenFile& file) {
  if (file.uses.fetch_sub(1) == 1) close(file);
}

// Other processes may have it still: then it is theirs to close at the server, whose session or
// ours ends some day.
void OpenFiles::close(OpenFile& file) {
  Connection& connection = Connection::get();
  if (file.shared->users.fetch_sub(1) == 1 && !file.right.empty())
    (void)connection.call(file.request(Op::close));
  const uint64_t keeper = file.shared->keeper.load();
  {
    std::lock_guard lock(mutex_);
    ::munmap(std::exchange(file.shared, nullptr), kPlaceholderSize);
    std::erase(open_, &file);
    free_.push_back(&file);
  }
  if (keeper != 0) settle_locks(keeper);
}

std::vector<Request> OpenFiles::questions(Op op) {
  std::lock_guard lock(mutex_);
  std::vector<Request> all;
  for (const OpenFile* const file : open_) all.push_back(file->request(op));
  return all;
}

void OpenFiles::close_locked() {
  {
    std::lock_guard lock(mutex_);
    if (std::ranges::none_of(open_, [](const OpenFile* f) { return f->shared->keeper != 0; }))
      return;
  }
  const Shim& shim = Connection::get().shim();
  for (int fd = 0; fd < shim.slots_end->load(); ++fd) {
    if (slot(fd).load() <= kOwn) continue;
    {
      const FileUse file(fd);
      if (!file || file->shared->keeper == 0) continue;
    }
    void* const what = slot(fd).exchange(nullptr);
    ::close(fd);
    if (what > kInherited) drop(*static_cast<OpenFile*>(what));
  }
}

void OpenFiles::before_fork() {
  for (OpenFile* const file : open_)
    if (file->shared) file->shared->users.fetch_add(1);
}

}  // namespace forebay::preload
