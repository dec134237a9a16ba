#include "store/posix.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/vfs.h>

#include <algorithm>

#include "store/posix_io.h"
#include "store/posix_ops.h"
#include "store/posix_pool.h"
#include "store/sealed.h"

namespace forebay {

namespace {

using posix::Fd;
using posix::Identity;
using posix::Operations;
using posix::Pool;

constexpr unsigned long kXfsMagic = 0x58465342;  // "XFSB"; <linux/magic.h> lacks it

// File systems of this machine, whose calls end in microseconds or at least in a disk's time.
bool is_local(int fd) {
  struct statfs fs;
  if (::fstatfs(fd, &fs)) return false;
  switch (static_cast<unsigned long>(fs.f_type)) {
    case EXT4_SUPER_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case TMPFS_MAGIC:
    case kXfsMagic:
      return true;
  }
  return false;
}

// Half of what the process may open is for us; the rest is for sockets and for calls under way.
size_t descriptor_budget(size_t wanted) {
  rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    wanted = std::min<size_t>(wanted, limit.rlim_cur / 2);
  return std::max<size_t>(wanted, 4);
}

class Local final : public PosixStore {
 public:
  Local(Fd top, SealKey key, const PosixOptions& options, Identity identity, CounterSet& counters)
      : inline_(!options.force_pool && is_local(top.get())),
        threads_(std::max(options.threads, 1u)),
        ops_(std::move(top), std::move(key), options, identity,
             descriptor_budget(options.descriptors), counters),
        on_caller_(counters.get("posix.requests_inline")),
        on_pool_(counters.get("posix.requests_pool")),
        refused_(counters.get("posix.requests_refused")),
        pool_(threads_, options.queue) {}

  Result<void> start() { return ops_.start(); }

  void submit(Request&& request, Completion&& done) override;
  Result<Reply> call(Request request) override;
  Result<Handle> root() override { return ops_.top(); }
  Result<void> admits(const Request& request) override { return ops_.admits(request); }
  std::string_view identity(const Handle& handle) const override {
    return posix::Handles::identity(handle);
  }
  bool kernel_handles() const override { return ops_.kernel_handles(); }
  unsigned concurrency() const override { return inline_ ? 0 : threads_; }

 private:
  struct Job {
    Request request;
    Completion done;
  };

  bool inline_op(const Request& request) const;
  void submit_to_pool(Request&& request, Completion&& done);

  const bool inline_;
  const unsigned threads_;
  Operations ops_;
  Counter& on_caller_;
  Counter& on_pool_;
  Counter& refused_;
  Pool pool_;  // last: it finishes what is under way before the rest goes
};

// Measured to be fast: all that touches one inode or one name. A hand-off costs more than these.
// What frees or flushes blocks (remove, rename, resize, fallocate, commit) or goes through a
// directory may take as long as the file is large.
bool Local::inline_op(const Request& request) const {
  if (!inline_) return false;
  switch (request.op) {
    case Op::remove:
    case Op::rename:
    case Op::resize:
    case Op::fallocate:
    case Op::commit:
    case Op::readdir:
      return false;
    case Op::create:
      return (request.flags & kFlagTruncate) == 0;
    case Op::read:
    case Op::write: {
      constexpr uint64_t kMostRuns = 32;  // a system call each
      constexpr uint64_t kMostPieces = 4096;
      return request.file.total().value <= posix::kMostBytes &&
             request.file.pieces() <= kMostRuns && request.memory.shape.pieces() <= kMostPieces;
    }
    default:
      return true;
  }
}

void Local::submit(Request&& request, Completion&& done) {
  if (auto good = check(request); !good) return done(std::move(good).error());
  if (request.stop.stop_requested()) return done(Error(ECANCELED));
  if (!inline_op(request)) return submit_to_pool(std::move(request), std::move(done));
  Result<Reply> result =
      request.op == Op::read ? ops_.read_without_waiting(request) : ops_.perform(request);
  // What is not in memory is read by the pool, from its start: the part that was there is small.
  if (!result && request.op == Op::read && result.error().code() == EAGAIN)
    return submit_to_pool(std::move(request), std::move(done));
  on_caller_.add();
  done(std::move(result));
}

void Local::submit_to_pool(Request&& request, Completion&& done) {
  auto job = std::make_unique<Job>(Job{std::move(request), std::move(done)});
  Job* const same = job.get();
  Task task([this, own = std::move(job)] {
    Job& j = *own;
    if (j.request.stop.stop_requested()) return j.done(Error(ECANCELED));
    j.done(ops_.perform(j.request));
  });
  if (pool_.try_submit(task)) return on_pool_.add();
  refused_.add();
  same->done(Error(EBUSY, "too many requests wait for the file system"));
}

Result<Reply> Local::call(Request request) {
  if (auto good = check(request); !good) return std::move(good).error();
  if (request.stop.stop_requested()) return Error(ECANCELED);
  posix::BorrowedThread borrowed;
  return ops_.perform(request);
}

Result<Fd> open_top(const std::string& directory) {
  Fd top(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!top) return posix::failed(fmt::format("export directory {}", directory));
  Result<Fd> probe = posix::open_path(top.get(), ".");
  if (!probe && probe.error().code() == ENOSYS)
    return Error(ENOSYS, "openat2 is missing: this needs Linux 5.6 or later");
  if (!probe) return std::move(probe).error().at(directory);
  return top;
}

}  // namespace

Result<std::unique_ptr<PosixStore>> PosixStore::open(PosixOptions options, CounterSet& counters) {
  // First, because it leaves this thread as the process's own user.
  const Identity identity = Identity::probe();
  Result<Fd> top = open_top(options.directory);
  if (!top) return std::move(top).error();
  Result<SealKey> key = options.key_file.empty() ? Result<SealKey>(SealKey::random())
                                                 : SealKey::load_or_create(options.key_file);
  if (!key) return std::move(key).error();
  auto store =
      std::make_unique<Local>(std::move(*top), std::move(*key), options, identity, counters);
  if (auto started = store->start(); !started)
    return std::move(started).error().at(options.directory);
  return Result<std::unique_ptr<PosixStore>>(std::move(store));
}

}  // namespace forebay
