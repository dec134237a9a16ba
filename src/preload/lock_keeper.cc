#include "preload/lock_keeper.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>

#include "core/fd.h"

namespace forebay::preload {

KeeperAddress::KeeperAddress(uint64_t keeper) {
  name.sun_family = AF_UNIX;
  const auto end = fmt::format_to(name.sun_path + 1, "forebay-lock-keeper-{:016x}", keeper);
  size = static_cast<socklen_t>(end - reinterpret_cast<char*>(&name));
}

namespace {

std::atomic<uint64_t> g_keeper{0};  // this process's, also if a parent has started it

// ---- Starting one ----

struct Start {
  std::string program;
  std::vector<char*> words, environment;
  int socket, meeting;  // -1: no meeting place
};

// In a child that has our memory: nothing but the kernel's calls. A child of its own becomes the
// keeper: after an exec it would be one that wait(2) finds.
int become_keeper(void* given) {
  const Start& start = *static_cast<const Start*>(given);
  ::syscall(SYS_setsid);
  if (::syscall(SYS_clone, 0, 0, 0, 0, 0) == 0) {
    ::syscall(SYS_dup3, start.socket, 0, 0);
    if (start.meeting >= 0) ::syscall(SYS_dup3, start.meeting, 1, 0);
    ::syscall(SYS_execve, start.program.c_str(), start.words.data(), start.environment.data());
  }
  ::syscall(SYS_exit_group, 0);
  return 0;
}

std::string keeper_program() {
  Dl_info self;
  if (::dladdr(reinterpret_cast<void*>(&become_keeper), &self) == 0) return kKeeperProgram;
  const std::string library = self.dli_fname;
  const size_t slash = library.rfind('/');
  return (slash == std::string::npos ? "./" : library.substr(0, slash + 1)) + kKeeperProgram;
}

// As a process that the program does not hear of: no SIGCHLD, and none that wait(2) finds.
Result<void> start_keeper(uint64_t keeper, int socket, int meeting) {
  Start start = {keeper_program(), {}, {}, socket, meeting};
  if (::access(start.program.c_str(), X_OK) != 0) return Error(errno, start.program);
  std::string name = fmt::format("{:x}", keeper), met = meeting >= 0 ? "meets" : "alone";
  start.words = {start.program.data(), name.data(), met.data(), nullptr};
  for (char** entry = environ; entry && *entry; ++entry)
    if (!std::string_view(*entry).starts_with("LD_PRELOAD=")) start.environment.push_back(*entry);
  start.environment.push_back(nullptr);
  std::vector<char> stack(64 << 10);
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);
  char* const top = stack.data() + stack.size() / 16 * 16;
  const int child = ::clone(become_keeper, top, CLONE_VM | CLONE_VFORK, &start);
  const int code = errno;
  if (child > 0) ::waitpid(child, nullptr, __WCLONE);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (child < 0) return Error(code, "no process for it");
  return {};
}

// Not 0, 1 or 2, which the keeper has for its own.
Fd new_socket() {
  const Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  return Fd(socket ? ::fcntl(socket.get(), F_DUPFD_CLOEXEC, 3) : -1);
}

// Null, and errno: it cannot be had.
Fd listen_at(uint64_t name) {
  Fd socket = new_socket();
  const KeeperAddress address(name);
  if (socket && (::bind(socket.get(), address.get(), address.size) != 0 ||
                 ::listen(socket.get(), SOMAXCONN) != 0))
    socket.reset();
  return socket;
}

// Null, and errno: nobody of ours listens there.
Fd connect_to(uint64_t name) {
  Fd socket = new_socket();
  const KeeperAddress address(name);
  while (socket && ::connect(socket.get(), address.get(), address.size) != 0)
    if (errno != EINTR) return Fd();
  ucred who = {};
  socklen_t size = sizeof who;
  if (socket && (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) != 0 ||
                 (who.uid != ::geteuid() && who.uid != 0))) {
    socket.reset();
    errno = EPERM;
  }
  return socket;
}

bool send(int socket, const LockAsk& ask, int fd) {
  iovec data = {const_cast<LockAsk*>(&ask), sizeof ask};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof fd)] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = room;
    message.msg_controllen = sizeof room;
    cmsghdr* const part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(part), &fd, sizeof fd);
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) == sizeof ask;
}

// ---- Finding one ----

// Where those meet who would start the same keeper: the same user, program and configuration, in
// the same tree of files.
uint64_t meeting_place() {
  std::vector<std::string> parts;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view one(*entry);
    if (one.starts_with("FOREBAY_") || one.starts_with("HOME=") || one.starts_with("XDG_"))
      parts.emplace_back(one);
  }
  std::ranges::sort(parts);
  struct stat root = {}, here = {};
  ::stat("/", &root);
  // A configuration may be named from here.
  const char* const config = ::getenv("FOREBAY_CONFIG");
  if (config && *config != '/') ::stat(".", &here);
  std::string all = fmt::format("{} {} {}:{} {}:{}", ::geteuid(), keeper_program(), root.st_dev,
                                root.st_ino, here.st_dev, here.st_ino);
  for (const std::string& part : parts) all += "\n" + part;
  return std::hash<std::string>()(all) | 1;
}

// The keeper that meets others there. 0, and errno: none (ECONNREFUSED), or one that is of no use.
uint64_t meet(uint64_t place) {
  constexpr int kLongest = 5000;  // milliseconds: it may have to connect to its server first
  const Fd socket = connect_to(place);
  if (!socket) return 0;
  pollfd answered = {socket.get(), POLLIN, 0};
  LockAnswer answer;
  errno = ETIMEDOUT;
  if (!send(socket.get(), {.what = LockAsk::What::meet}, -1) || ::poll(&answered, 1, kLongest) != 1)
    return 0;
  errno = ECONNREFUSED;  // it has ended
  const ssize_t size = ::recv(socket.get(), &answer, sizeof answer, MSG_DONTWAIT);
  return size == sizeof answer && answer.code == 0 ? answer.offset : 0;
}

// One that is there, or a new one. That may not be ready; who connects waits for it.
Result<uint64_t> find_keeper() {
  const uint64_t place = meeting_place();
  Fd meeting;
  constexpr int kTries = 20;
  for (int i = 0; i < kTries; ++i) {
    if (const uint64_t met = meet(place)) return met;
    if (errno != ECONNREFUSED) break;
    meeting = listen_at(place);
    if (meeting || errno != EADDRINUSE) break;
    ::poll(nullptr, 0, i);  // it is about to listen, or about to end
  }
  uint64_t keeper = 0;
  while (keeper == 0)
    if (::getrandom(&keeper, sizeof keeper, 0) < 0) return Error(errno);
  const Fd listener = listen_at(keeper);
  if (!listener) return Error(errno, "no socket for it");
  auto started = start_keeper(keeper, listener.get(), meeting.get());
  if (!started) return std::move(started).error();
  return keeper;
}

// ---- Asking one ----

// Nothing: it has ended.
std::optional<LockAnswer> ask(uint64_t keeper, const LockAsk& what, int fd) {
  const Fd socket = connect_to(keeper);
  if (!socket || !send(socket.get(), what, fd)) return std::nullopt;
  LockAnswer answer;
  for (;;) {
    const ssize_t size = ::recv(socket.get(), &answer, sizeof answer, 0);
    if (size == sizeof answer) return answer;
    if (size >= 0 || errno != EINTR) return std::nullopt;
    // We wait no more; what became of it is said all the same.
    if (what.flags & kFlagWait) ::shutdown(socket.get(), SHUT_WR);
  }
}

LockAsk::What kind_of(Op op) {
  if (op == Op::lock_test) return LockAsk::What::test;
  return op == Op::lock ? LockAsk::What::lock : LockAsk::What::unlock;
}

Result<Reply> reply_of(const LockAnswer& answer) {
  if (answer.code == ECANCELED) return Error(EINTR);
  if (answer.code != 0) return Error(answer.code);
  Reply reply;
  reply.count = answer.count;
  reply.locked = {Offset(answer.offset), Length(answer.length), answer.shared != 0, answer.pid};
  return reply;
}

// The keeper that is to have the description's locks, whoever names one first.
Result<uint64_t> keeper_of(Placeholder& shared) {
  uint64_t keeper = shared.keeper.load();
  if (keeper != 0) return keeper;
  uint64_t mine = g_keeper.load();
  if (mine == 0 || !connect_to(mine)) {
    auto made = find_keeper();
    if (!made) return std::move(made).error();
    g_keeper.store(mine = *made);
  }
  return shared.keeper.compare_exchange_strong(keeper, mine) ? mine : keeper;
}

}  // namespace

Result<Reply> ask_keeper(OpenFile& file, int fd, const Request& request) {
  Placeholder& shared = *file.shared;
  if (shared.keeper.load() == 0 && request.op == Op::unlock) return Reply{};
  const LockAsk what = {kind_of(request.op), request.flags, request.offset.value,
                        request.length.value};
  constexpr int kTries = 3;  // one that is about to end does not know the description yet
  for (int i = 0; i < kTries; ++i) {
    auto keeper = keeper_of(shared);
    if (!keeper) {
      Connection::get().complain("", "no lock keeper: " + keeper.error().message());
      return Error(ENOLCK);
    }
    const auto answer = ask(*keeper, what, fd);
    if (answer) {
      if (answer->code == 0 && request.op == Op::lock) shared.kept.store(1);
      return reply_of(*answer);
    }
    uint64_t ended = *keeper;
    g_keeper.compare_exchange_strong(ended, 0);
    ended = *keeper;
    if (!shared.keeper.compare_exchange_strong(ended, 0) || shared.kept.exchange(0) == 0) continue;
    Connection::get().complain(
        "", "the lock keeper has ended, and the lock is lost: what it protected may have changed");
    return Error(EIO);
  }
  Connection::get().complain("", "no lock keeper: it ends as soon as it is started");
  return Error(ENOLCK);
}

// Not for long: a server that is away is the keeper's to wait for.
void settle_locks(uint64_t keeper) {
  constexpr int kLongest = 1000;  // milliseconds
  const Fd socket = connect_to(keeper);
  if (!socket || !send(socket.get(), {.what = LockAsk::What::settle}, -1)) return;
  pollfd answered = {socket.get(), POLLIN, 0};
  ::poll(&answered, 1, kLongest);
}

}  // namespace forebay::preload
