#include "fuse/door.h"

#include <unistd.h>

#include <stop_token>

#include "fuse/worker.h"

namespace forebay::fuse {

namespace {

// libfuse's function for one of ours.
template <auto Method>
struct Call;
template <class... Args, void (Door::*Method)(fuse_req_t, Args...)>
struct Call<Method> {
  static void run(fuse_req_t req, Args... args) {
    (static_cast<Door*>(fuse_req_userdata(req))->*Method)(req, args...);
  }
};

// While it lives, an interrupt of the request by the kernel is a stop.
class Interruptible {
 public:
  explicit Interruptible(fuse_req_t req) : req_(req) {
    fuse_req_interrupt_func(
        req_,
        [](fuse_req_t, void* self) { static_cast<Interruptible*>(self)->source_.request_stop(); },
        this);
  }
  ~Interruptible() { fuse_req_interrupt_func(req_, nullptr, nullptr); }
  Interruptible(const Interruptible&) = delete;
  std::stop_token token() const { return source_.get_token(); }

 private:
  const fuse_req_t req_;
  std::stop_source source_;
};

mode_t type_bits(FileType type) {
  switch (type) {
    case FileType::directory:
      return S_IFDIR;
    case FileType::symlink:
      return S_IFLNK;
    case FileType::fifo:
      return S_IFIFO;
    case FileType::socket:
      return S_IFSOCK;
    case FileType::block:
      return S_IFBLK;
    case FileType::character:
      return S_IFCHR;
    default:
      return S_IFREG;
  }
}

timespec time_of(const FileTime& t) {
  return {t.seconds, static_cast<long>(t.nanoseconds)};
}

}  // namespace

namespace {

// Does it keep, for all its clients, what they share about files?
// Any other failure is a server's, which may be back when somebody asks for a lock.
bool keeps_locks(Store& store, const Found& root) {
  const auto answer =
      store.call({.op = Op::lock_test, .caller = this_process_caller(), .handle = root.handle});
  return answer || answer.error().code() != EOPNOTSUPP;
}

}  // namespace

Door::Door(Store& store, const Found& root, const MountOptions& options)
    : store_(store),
      options_(options),
      self_(this_process_caller()),
      speaks_for_others_(::geteuid() == 0),
      nodes_(store, root),
      coherence_(options.cache, keeps_locks(store, root)),
      leases_(store, coherence_.leases()),
      write_back_(store, coherence_.leases() && options.cache == Cache::writeback) {}

void Door::start(fuse_session* session) {
  leases_.start(
      [session](uint64_t number) { fuse_lowlevel_notify_inval_inode(session, number, 0, 0); },
      &write_back_);
  write_back_.start();
}

const fuse_lowlevel_ops& Door::operations() {
  static const fuse_lowlevel_ops kOperations = [] {
    fuse_lowlevel_ops ops = {};
    ops.init = &Door::init;
    ops.lookup = Call<&Door::lookup>::run;
    ops.forget = Call<&Door::forget>::run;
    ops.forget_multi = Call<&Door::forget_multi>::run;
    ops.getattr = Call<&Door::getattr>::run;
    ops.setattr = Call<&Door::setattr>::run;
    ops.readlink = Call<&Door::readlink>::run;
    ops.mknod = Call<&Door::mknod>::run;
    ops.mkdir = Call<&Door::mkdir>::run;
    ops.unlink = Call<&Door::unlink>::run;
    ops.rmdir = Call<&Door::rmdir>::run;
    ops.symlink = Call<&Door::symlink>::run;
    ops.rename = Call<&Door::rename>::run;
    ops.link = Call<&Door::link>::run;
    ops.open = Call<&Door::open>::run;
    ops.create = Call<&Door::create>::run;
    ops.read = Call<&Door::read>::run;
    ops.write = Call<&Door::write>::run;
    ops.release = Call<&Door::release>::run;
    ops.fsync = Call<&Door::fsync>::run;
    ops.fallocate = Call<&Door::fallocate>::run;
    ops.opendir = Call<&Door::opendir>::run;
    ops.readdir = Call<&Door::readdir>::run;
    ops.readdirplus = Call<&Door::readdirplus>::run;
    ops.releasedir = Call<&Door::releasedir>::run;
    ops.fsyncdir = Call<&Door::fsyncdir>::run;
    ops.statfs = Call<&Door::statfs>::run;
    ops.setxattr = Call<&Door::setxattr>::run;
    ops.getxattr = Call<&Door::getxattr>::run;
    ops.listxattr = Call<&Door::listxattr>::run;
    ops.removexattr = Call<&Door::removexattr>::run;
    ops.access = Call<&Door::access>::run;
    ops.getlk = Call<&Door::getlk>::run;
    ops.setlk = Call<&Door::setlk>::run;
    ops.flock = Call<&Door::flock>::run;
    ops.flush = Call<&Door::flush>::run;
    return ops;
  }();
  return kOperations;
}

void Door::init(void* door, fuse_conn_info* kernel) {
  const MountOptions& options = static_cast<Door*>(door)->options_;
  const bool shared = static_cast<Door*>(door)->coherence_.shared();
  constexpr unsigned kLocks = FUSE_CAP_POSIX_LOCKS | FUSE_CAP_FLOCK_LOCKS;
  kernel->want = shared ? kernel->want | (kernel->capable & kLocks) : kernel->want & ~kLocks;
  kernel->max_write = kMostData;
  kernel->max_background = 64;
  // Data is in our memory when we have it, so there is nothing to splice.
  kernel->want &= ~unsigned{FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE};
  // Attributes that the kernel may not believe are not worth fetching with the names.
  if (options.attr_timeout == 0 || options.entry_timeout == 0)
    kernel->want &= ~unsigned{FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO};
  // Stores drop set-id bits themselves, and truncate when they open.
  kernel->want |= kernel->capable & (FUSE_CAP_HANDLE_KILLPRIV | FUSE_CAP_ATOMIC_O_TRUNC |
                                     FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_AUTO_INVAL_DATA);
}

// ---- Who and what ----

Node& Door::at(fuse_ino_t number) {
  return number == FUSE_ROOT_ID ? nodes_.root() : *reinterpret_cast<Node*>(number);
}

fuse_ino_t Door::number_of(const Node& node) {
  return &node == &nodes_.root() ? fuse_ino_t{FUSE_ROOT_ID} : reinterpret_cast<fuse_ino_t>(&node);
}

CallerRef Door::caller(fuse_req_t req) const {
  const fuse_ctx* const who = fuse_req_ctx(req);
  // Root needs no groups, and a user's mount has one user, whose server knows him as this process.
  if (who->uid == self_->uid && (!speaks_for_others_ || who->gid == self_->gid)) return self_;
  Caller caller;
  caller.uid = who->uid;
  caller.gid = who->gid;
  if (speaks_for_others_ && caller.uid != 0) {
    caller.groups.resize(64);
    int n = fuse_req_getgroups(req, static_cast<int>(caller.groups.size()), caller.groups.data());
    if (n > static_cast<int>(caller.groups.size())) {
      caller.groups.resize(static_cast<size_t>(n));
      n = std::min(n, fuse_req_getgroups(req, n, caller.groups.data()));
    }
    caller.groups.resize(n > 0 ? static_cast<size_t>(n) : 0);
  }
  return std::make_shared<const Caller>(std::move(caller));
}

CallerRef Door::caller(fuse_req_t req, const fuse_file_info* info) const {
  return info ? file_of(info).caller : caller(req);
}

Result<Reply> Door::ask(fuse_req_t req, Request&& request) {
  const Interruptible interruptible(req);
  request.stop = interruptible.token();
  return store_.call(std::move(request));
}

// ---- Answers ----

// ENOSYS would tell the kernel never to ask again.
void Door::fail(fuse_req_t req, const Error& error) {
  // A program that is told EINTR does it again.
  const int code = error.code() == ECANCELED ? (error.is_outcome_unknown() ? EIO : EINTR)
                   : error.code() == ENOSYS  ? EOPNOTSUPP
                                             : error.code();
  fuse_reply_err(req, code);
}

void Door::answer(fuse_req_t req, const Result<Reply>& reply) {
  if (!reply) return fail(req, reply.error());
  fuse_reply_err(req, 0);
}

struct stat Door::stat_of(const Attr& attr) const {
  struct stat st = {};
  st.st_ino = attr.file_id;
  st.st_mode = type_bits(attr.type) | attr.mode;
  st.st_nlink = attr.links;
  st.st_uid = attr.uid;
  st.st_gid = attr.gid;
  st.st_rdev = attr.rdev;
  st.st_size = static_cast<off_t>(attr.size);
  st.st_blksize = attr.block_size;
  st.st_blocks = static_cast<blkcnt_t>(attr.allocated / 512);
  st.st_atim = time_of(attr.atime);
  st.st_mtim = time_of(attr.mtime);
  st.st_ctim = time_of(attr.ctime);
  return st;
}

fuse_entry_param Door::entry_of(Node& node, const Attr& attr) {
  leases_.tell(node, number_of(node), attr.size);
  fuse_entry_param entry = {};
  entry.ino = number_of(node);
  entry.generation = node.generation();
  entry.attr = stat_of(attr);
  entry.attr_timeout = options_.attr_timeout;
  entry.entry_timeout = options_.entry_timeout;
  return entry;
}

Attr Door::settled(fuse_req_t req, Node& node, const Attr& attr) {
  if (!write_back_.settle(node)) return attr;
  const Result<Reply> now =
      ask(req, {.op = Op::getattr, .caller = caller(req), .handle = node.handle()});
  return now ? now->attr : attr;
}

void Door::answer_entry(fuse_req_t req, const Result<Reply>& reply) {
  if (!reply) return fail(req, reply.error());
  Node& node = nodes_.remember(reply->handle, reply->attr);
  const fuse_entry_param entry = entry_of(node, settled(req, node, reply->attr));
  // A kernel that did not take the answer has not looked it up.
  if (fuse_reply_entry(req, &entry) != 0) nodes_.forget(node, 1);
}

}  // namespace forebay::fuse
