// The lock keeper (lock_keeper.h), as a program: forebay-lock-keeper NAME meets|alone. Its standard
// input is the socket that it is asked by; its standard output the one where others meet it.
//
// One thread does everything; the Store's answers come on another, which leaves them in a list.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <stop_token>

#include "assembly/config.h"
#include "core/fd.h"
#include "preload/lock_keeper.h"

namespace forebay::preload {
namespace {

constexpr int kLinger = 1000;  // milliseconds that it stays with nothing to keep
constexpr size_t kMostStrangers = 8;

// An open file description that has locks.
struct Kept {
  uint64_t id = 0;
  Handle handle;
  Right right;
  CallerRef caller;
  bool whole = false, ranges = false;  // what it may have
  bool gone = false;

  Request request(Op op, uint32_t flags) const {
    return {.op = op,
            .flags = flags,
            .caller = caller,
            .handle = handle,
            .right = op == Op::lock ? right : Right(),
            .cookie = id};
  }
};
using KeptRef = std::shared_ptr<Kept>;

// A connection, and what was asked.
struct Asking {
  Fd socket;
  std::optional<LockAsk> ask;
  KeptRef file;
  std::stop_source stop;
  bool hung_up = false;
  bool stranger = false;  // of another user: refused, and not waited for
};
using AskingRef = std::shared_ptr<Asking>;

std::string proc_name(int fd) {
  return fmt::format("/proc/self/fd/{}", fd);
}

KeptRef read_placeholder(int fd) {
  const Fd memory(::open(proc_name(fd).c_str(), O_RDONLY | O_CLOEXEC));
  if (!memory) return nullptr;
  void* const at = ::mmap(nullptr, kPlaceholderSize, PROT_READ, MAP_SHARED, memory.get(), 0);
  if (at == MAP_FAILED) return nullptr;
  const auto& shared = *static_cast<const Placeholder*>(at);
  KeptRef kept;
  if (shared.magic == kPlaceholderMagic && shared.handle_size <= sizeof shared.handle &&
      shared.right_size <= sizeof shared.right) {
    kept = std::make_shared<Kept>();
    kept->id = shared.id;
    kept->handle.bytes.assign(shared.handle, shared.handle_size);
    kept->right.bytes.assign(shared.right, shared.right_size);
    Caller caller = *this_process_caller();
    if (caller.uid != shared.uid) {
      caller.uid = shared.uid;
      caller.gid = shared.gid;
    }
    kept->caller = std::make_shared<const Caller>(std::move(caller));
  }
  ::munmap(at, kPlaceholderSize);
  return kept;
}

bool is_placeholder(int fd) {
  char link[64];
  const ssize_t size = ::readlink(proc_name(fd).c_str(), link, sizeof link);
  return size > 0 &&
         std::string_view(link, static_cast<size_t>(size)).starts_with(kPlaceholderLink);
}

bool same_user(int socket) {
  ucred peer = {};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == ::geteuid() || peer.uid == 0;
}

// A question, and the descriptor that came with it.
std::optional<LockAsk> receive(int socket, Fd& fd) {
  LockAsk ask;
  iovec data = {&ask, sizeof ask};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))];
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof room;
  const ssize_t size = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  const cmsghdr* const part = size >= 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (part && part->cmsg_type == SCM_RIGHTS && part->cmsg_len == CMSG_LEN(sizeof(int))) {
    int got = -1;
    std::memcpy(&got, CMSG_DATA(part), sizeof got);
    fd = Fd(got);
  }
  if (size != sizeof ask) return std::nullopt;
  return ask;
}

bool answer(int socket, int code, const Reply& reply = {}) {
  const LockAnswer text = {code,
                           static_cast<uint32_t>(reply.count),
                           reply.locked.shared,
                           reply.locked.pid,
                           reply.locked.offset.value,
                           reply.locked.length.value};
  return ::send(socket, &text, sizeof text, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof text;
}

class Keeper {
 public:
  Keeper(Store& store, uint64_t name, Fd listener, Fd meeting, Fd deletions, Fd wake)
      : store_(store),
        name_(name),
        listener_(std::move(listener)),
        meeting_(std::move(meeting)),
        deletions_(std::move(deletions)),
        wake_(std::move(wake)) {}

  void run() {
    while (turn()) {
    }
  }

 private:
  // False: there was nothing to do for a while, and nothing is kept; or it cannot go on.
  bool turn() {
    std::vector<pollfd> watched = {{crowded_ ? -1 : listener_.get(), POLLIN, 0},
                                   {crowded_ ? -1 : meeting_.get(), POLLIN, 0},
                                   {deletions_.get(), POLLIN, 0},
                                   {wake_.get(), POLLIN, 0}};
    const size_t first = watched.size();
    for (const AskingRef& one : asking_)
      watched.push_back({one->hung_up ? -1 : one->socket.get(), POLLIN | POLLRDHUP, 0});
    const bool busy = asking_.size() > strangers() || !kept_.empty() || freeing_ != 0;
    const int ready = ::poll(watched.data(), watched.size(), busy ? -1 : kLinger);
    if (ready == 0) return busy;
    if (ready < 0) return true;  // EINTR
    const std::vector<AskingRef> now = asking_;
    if (watched[0].revents) accept(listener_);
    if (watched[1].revents) accept(meeting_);
    if (watched[2].revents) look_for_deletions();
    if (watched[3].revents) take_answers();
    for (size_t i = 0; i < now.size(); ++i)
      if (watched[first + i].revents) hear(now[i]);
    settle();
    return !lost_track_;
  }

  void accept(const Fd& from) {
    auto one = std::make_shared<Asking>();
    one->socket = Fd(::accept4(from.get(), nullptr, nullptr, SOCK_CLOEXEC));
    crowded_ = !one->socket && (errno == EMFILE || errno == ENFILE) && !asking_.empty();
    if (!one->socket) return;
    one->stranger = !same_user(one->socket.get());
    if (!one->stranger || strangers() < kMostStrangers) asking_.push_back(std::move(one));
  }

  size_t strangers() const {
    return static_cast<size_t>(
        std::ranges::count_if(asking_, [](const AskingRef& one) { return one->stranger; }));
  }

  void hear(const AskingRef& one) {
    if (one->ask) {  // it waits no more
      one->hung_up = true;
      one->stop.request_stop();
      return;
    }
    Fd fd;
    one->ask = receive(one->socket.get(), fd);
    if (!one->ask) return drop(one);
    if (one->stranger) return end(one, EPERM);
    if (one->ask->what == LockAsk::What::settle) return look_for_deletions();  // settle() answers
    if (one->ask->what == LockAsk::What::meet) {
      Reply me;
      me.locked.offset = Offset(name_);
      (void)answer(one->socket.get(), 0, me);
      return drop(one);
    }
    if (!fd || !is_placeholder(fd.get())) return end(one, EBADF);
    one->file = find(fd);
    if (!one->file) return end(one, ENOLCK);
    begin(one);
  }

  // The description of a descriptor, which is watched from now on. Null: it cannot be.
  KeptRef find(const Fd& fd) {
    const int watch =
        ::inotify_add_watch(deletions_.get(), proc_name(fd.get()).c_str(), IN_DELETE_SELF);
    if (watch < 0) return nullptr;
    const auto known = kept_.find(watch);
    if (known != kept_.end()) return known->second;
    KeptRef kept = read_placeholder(fd.get());
    if (kept) {
      kept_.emplace(watch, kept);
    } else {
      ::inotify_rm_watch(deletions_.get(), watch);
    }
    return kept;
  }

  void begin(const AskingRef& one) {
    const LockAsk& ask = *one->ask;
    constexpr uint32_t kMay = kFlagShared | kFlagWhole | kFlagWait;
    constexpr Op kOps[] = {Op::lock, Op::unlock, Op::lock_test};
    const auto which = static_cast<size_t>(ask.what);
    if (which >= std::size(kOps) || (ask.flags & ~kMay)) return end(one, EINVAL);
    Request request = one->file->request(kOps[which], ask.flags);
    request.offset = Offset(ask.offset);
    request.length = Length(ask.length);
    request.stop = one->stop.get_token();
    if (ask.what == LockAsk::What::lock)
      (ask.flags & kFlagWhole ? one->file->whole : one->file->ranges) = true;
    submit(std::move(request), one);
  }

  void submit(Request&& request, AskingRef one) {
    store_.submit(std::move(request), [this, one = std::move(one)](Result<Reply>&& result) mutable {
      {
        std::lock_guard lock(mutex_);
        answers_.emplace_back(std::move(one), std::move(result));
      }
      const uint64_t once = 1;
      (void)!::write(wake_.get(), &once, sizeof once);
    });
  }

  void take_answers() {
    uint64_t count = 0;
    (void)!::read(wake_.get(), &count, sizeof count);
    std::vector<std::pair<AskingRef, Result<Reply>>> all;
    {
      std::lock_guard lock(mutex_);
      all.swap(answers_);
    }
    for (auto& [one, result] : all) {
      if (!one) {
        --freeing_;
        continue;
      }
      // Who asked may have been killed meanwhile; the lock is the description's, if others have it.
      result ? answer(one->socket.get(), 0, *result)
             : answer(one->socket.get(), result.error().code());
      if (result && one->ask->what == LockAsk::What::lock && one->file->gone)
        free(*one->file, *one->ask);
      drop(one);
    }
  }

  void look_for_deletions() {
    alignas(inotify_event) char buffer[4096];
    for (;;) {
      const ssize_t size = ::read(deletions_.get(), buffer, sizeof buffer);
      if (size <= 0) return;
      for (ssize_t at = 0; at < size;) {
        const auto& event = *reinterpret_cast<const inotify_event*>(buffer + at);
        at += static_cast<ssize_t>(sizeof event + event.len);
        // Who asks next hears that the locks are lost.
        lost_track_ = lost_track_ || (event.mask & IN_Q_OVERFLOW) != 0;
        if (const auto gone = kept_.extract(event.wd); gone) forget(*gone.mapped());
      }
    }
  }

  void forget(Kept& file) {
    file.gone = true;
    if (file.whole) free(file, {.flags = kFlagWhole});
    if (file.ranges) free(file, {});
  }

  void free(const Kept& file, const LockAsk& what) {
    ++freeing_;
    Request request = file.request(Op::unlock, what.flags & kFlagWhole);
    request.offset = Offset(what.offset);
    request.length = Length(what.length);
    submit(std::move(request), nullptr);
  }

  void settle() {
    if (freeing_ != 0) return;
    for (const AskingRef& one : std::vector(asking_))
      if (one->ask && one->ask->what == LockAsk::What::settle) end(one, 0);
  }

  void end(const AskingRef& one, int code) {
    (void)answer(one->socket.get(), code);
    drop(one);
  }

  void drop(const AskingRef& one) {
    std::erase(asking_, one);
    crowded_ = false;
  }

  Store& store_;
  const uint64_t name_;
  const Fd listener_, meeting_, deletions_, wake_;
  bool crowded_ = false;         // no descriptors for more
  bool lost_track_ = false;      // of deletions
  std::map<int, KeptRef> kept_;  // by inotify's number
  std::vector<AskingRef> asking_;
  int freeing_ = 0;  // unlocks under way, of nobody's asking
  std::mutex mutex_;
  std::vector<std::pair<AskingRef, Result<Reply>>> answers_;
};

// Without a server, or without what it takes: those who have asked hear of it, and others do not
// meet it.
int refuse_all(const Fd& listener, Fd& meeting, int code) {
  meeting.reset();
  pollfd ready = {listener.get(), POLLIN, 0};
  while (::poll(&ready, 1, kLinger) > 0) {
    const Fd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    LockAsk ask;
    if (socket && ::recv(socket.get(), &ask, sizeof ask, 0) > 0) (void)answer(socket.get(), code);
  }
  return 1;
}

int keep(uint64_t name, bool meets) {
  Fd listener(::dup3(0, 3, O_CLOEXEC));
  Fd meeting(meets ? ::dup3(1, 4, O_CLOEXEC) : -1);
  ::closefrom(meets ? 5 : 4);
  const int null = ::open("/dev/null", O_RDWR);
  for (int fd = 0; fd <= 2 && null >= 0; ++fd) ::dup2(null, fd);
  if (null > 2) ::close(null);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  rlimit files = {};  // each that waits for a lock has one
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);

  const auto config = load_config(ConfigSources::of_process());
  if (!config) return refuse_all(listener, meeting, EHOSTDOWN);
  (void)!::chdir("/");
  auto store = connect(*config, kKeeperProgram);
  if (!store) return refuse_all(listener, meeting, EHOSTDOWN);
  Fd deletions(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  Fd wake(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!deletions || !wake) return refuse_all(listener, meeting, ENOLCK);
  Keeper(**store, name, std::move(listener), std::move(meeting), std::move(deletions),
         std::move(wake))
      .run();
  return 0;
}

}  // namespace
}  // namespace forebay::preload

int main(int words, char** word) {
  if (words != 3) return 2;  // not for people
  return forebay::preload::keep(std::strtoull(word[1], nullptr, 16),
                                std::string_view(word[2]) == "meets");
}
