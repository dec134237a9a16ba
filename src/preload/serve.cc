#include "preload/serve.h"

#include <limits.h>
#include <pthread.h>

#include <array>
#include <cstring>

#include "core/log.h"
#include "store/open_path.h"

// libc's, which its headers do not tell of.
extern "C" {
__attribute__((weak)) void _IO_list_lock();
__attribute__((weak)) void _IO_list_unlock();
__attribute__((weak)) void _IO_list_resetlock();
}

namespace forebay::preload {

int64_t failed_with(int code) {
  Connection::get().counts().failed.fetch_add(1, std::memory_order_relaxed);
  errno = code;
  return -1;
}

int64_t answer(Result<int64_t>&& result) {
  if (result) return *result;
  const int code = result.error().code();
  return failed_with(code == ECANCELED ? EIO : code);
}

Result<int64_t> done(Result<Reply>&& reply) {
  if (!reply) return std::move(reply).error();
  return 0;
}

Result<Reply> LinkedStore::call(Request request) {
  const Op op = request.op;
  auto reply = store_.call(std::move(request));
  if (op != Op::readlink || !reply || !reply->data.starts_with('/')) return reply;
  std::string inside(PATH_MAX, '\0');
  if (!Connection::get().shim().inside(reply->data.c_str(), inside.data())) return Error(kLeadsOut);
  inside.resize(std::strlen(inside.c_str()));
  if (reply->data.ends_with('/')) inside += '/';
  reply->data = std::move(inside);
  return reply;
}

Result<Subject> find(const Target& target) {
  if (target.fd >= 0) {
    const FileUse use(target.fd);
    if (!use) return Error(EBADF);
    return Subject{use->handle, Connection::get().caller(), {}};
  }
  const Connection::Use store;
  if (!store) return store.error();
  const CallerRef caller = Connection::get().caller();
  LinkedStore linked(*store);
  auto found = find_path(linked, caller, target.inside, target.follow ? Follow::yes : Follow::no);
  if (!found) return std::move(found).error();
  return Subject{std::move(found->handle), caller, found->attr};
}

Result<Place> name_of(const Target& target, int root) {
  const Connection::Use store;
  if (!store) return store.error();
  LinkedStore linked(*store);
  return name_in(linked, Connection::get().caller(), target.inside, root);
}

Result<Reply> about(const Target& target, Request&& request) {
  auto subject = find(target);
  if (!subject) return std::move(subject).error();
  request.handle = std::move(subject->handle);
  request.caller = std::move(subject->caller);
  return Connection::get().call(std::move(request));
}

namespace {

void duplicated(int fd, int copy) {
  OpenFiles::get().duplicated(fd, copy);
}

void closed(void* file) {
  if (file == kInherited) return;
  auto& open = *static_cast<OpenFile*>(file);
  run([&]() -> Result<int64_t> {
    free_locks(open);
    OpenFiles::get().drop(open);
    return 0;
  });
}

void leave() {
  run([&]() -> Result<int64_t> {
    OpenFiles::get().close_locked();
    Connection::get().leave();
    return 0;
  });
}

// The next program presents the rights that it inherits in a session of its own. Only a file that
// has no name any more would be gone with ours: then the server keeps it for its grace time.
void before_exec() {
  run([&]() -> Result<int64_t> {
    Connection& connection = Connection::get();
    connection.report_so_far();
    if (!connection.connected_here()) return 0;
    // If there is no such program they must still be held, so there is no goodbye: the server waits
    // for us to come back.
    if (holds_locks()) {
      connection.complain("",
                          "exec: fcntl locks of served files are not the next program's; the "
                          "server frees them when that ends, or after its grace time");
      return 0;
    }
    for (Request& question : OpenFiles::get().questions(Op::getattr)) {
      const auto now = connection.call(std::move(question));
      if (!now || now->attr.links == 0) return 0;
    }
    connection.leave();
    return 0;
  });
}

// What nobody may have while the process is copied.
std::array<std::mutex*, 3> all_held_for_fork() {
  return {&Connection::get().held_for_fork(), &OpenFiles::get().held_for_fork(),
          &locks_held_for_fork()};
}

bool try_to_hold_all() {
  const auto all = all_held_for_fork();
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i]->try_lock()) continue;
    while (i > 0) all[--i]->unlock();
    return false;
  }
  return true;
}

void release_all() {
  for (std::mutex* const one : all_held_for_fork()) one->unlock();
}

// fork() itself takes the lock of libc's list of streams, after us. Whoever flushes all streams has
// it, and may need what we hold; whoever has that (and connects, by name) may need the list. So we
// wait for each with nothing in our hands.
void before_fork() {
  for (;;) {
    if (_IO_list_lock) _IO_list_lock();
    if (try_to_hold_all()) break;
    if (_IO_list_unlock) _IO_list_unlock();
    for (std::mutex* const one : all_held_for_fork()) std::lock_guard wait(*one);
  }
  OpenFiles::get().before_fork();
}
void after_fork_in_parent() {
  release_all();
  if (_IO_list_unlock) _IO_list_unlock();
}
void after_fork_in_child() {
  forget_locks();
  Connection::get().after_fork_in_child();
  release_all();
  if (_IO_list_resetlock) _IO_list_resetlock();
}

// A child that is forked while another thread makes what the first use makes would wait for that
// thread for good: all of it is made now, and no fork begins before.
bool begin(const Shim* shim) {
  Connection::get().begin(*shim);
  (void)OpenFiles::get();
  (void)holds_locks();
  (void)log::enabled(log::Level::error);
  ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  return true;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const Served* forebay_served(const Shim* shim) {
  static const Served kServed = {
      .open = open_file,
      .duplicated = duplicated,
      .closed = closed,
      .move = move_bytes,
      .seek = seek,
      .truncate = truncate,
      .sync = sync,
      .allocate = allocate,
      .get_flags = get_flags,
      .set_flags = set_flags,
      .lock = lock,
      .lock_whole = lock_whole,
      .shown = shown,
      .status = status,
      .access = access,
      .change = change,
      .rename = rename,
      .link = link,
      .symlink = symlink,
      .readlink = readlink,
      .remove = remove,
      .mkdir = mkdir,
      .make_file = make_file,
      .file_system = file_system,
      .get_xattr = get_xattr,
      .set_xattr = set_xattr,
      .list_xattr = list_xattr,
      .remove_xattr = remove_xattr,
      .list = list,
      .next_entry = next_entry,
      .seek_entry = seek_entry,
      .end_list = end_list,
      .map = map,
      .copy = copy,
      .before_exec = before_exec,
      .leave = leave,
  };
  static const bool begun = begin(shim);
  (void)begun;
  return &kServed;
}

}  // namespace forebay::preload
