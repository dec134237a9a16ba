#include "store/posix.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>

#include "core/log.h"
#include "store/posix_io.h"
#include "store/posix_ops.h"
#include "store/posix_pool.h"
#include "store/posix_ring.h"
#include "store/sealed.h"

namespace forebay {

namespace {

using posix::Identity;
using posix::Operations;
using posix::Pool;
using posix::Ring;
using posix::RingTransfer;

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
      : identity_(identity),
        fs_(posix::fs_kind(top.get())),
        inline_(!options.force_pool && fs_.local),
        threads_(std::max(options.threads, 1u)),
        options_(options),
        ops_(std::move(top), std::move(key), options, identity,
             descriptor_budget(options.descriptors), fs_, staging_, counters),
        on_caller_(counters.get("posix.requests_inline")),
        on_pool_(counters.get("posix.requests_pool")),
        on_ring_(counters.get("posix.requests_ring")),
        refused_(counters.get("posix.requests_refused")),
        pool_(threads_, options.queue) {}
  // What the ring has in hand it may hand over to the pool, which then finishes it.
  ~Local() override {
    if (ring_) ring_->stop();
  }

  Result<void> start() {
    if (options_.direct && !options_.in_application) start_ring();
    return ops_.start();
  }

  void submit(Request&& request, Completion&& done) override;
  Result<Reply> call(Request request) override;
  Result<Handle> root() override { return ops_.top(); }
  Result<void> admits(const Request& request) override { return ops_.admits(request); }
  std::string_view identity(const Handle& handle) const override {
    return posix::Handles::identity(handle);
  }
  Result<LocalFile> local_file(const Request& request) override { return ops_.local_file(request); }
  std::weak_ptr<const Fd> at_hand(const Request& request) const override {
    return ops_.at_hand(request);
  }
  bool writes_whole(const Handle& file) const override {
    return fs_.local && !ops_.is_direct(file);
  }
  bool local() const override { return fs_.local; }
  bool kernel_handles() const override { return ops_.kernel_handles(); }
  bool uses_ring() const override { return ring() != nullptr; }
  unsigned concurrency() const override {
    if (options_.direct && ring()) return options_.direct_depth;
    return inline_ && !options_.direct ? 0 : threads_;
  }
  std::shared_ptr<const void> prepare(std::span<std::byte> memory, uint64_t piece) override {
    return ring() ? ring()->prepare(memory, piece) : nullptr;
  }

 private:
  struct Job {
    Request request;
    Completion done;
  };

  bool inline_op(const Request& request) const;
  void submit_to_pool(Request&& request, Completion&& done);
  Pool::Taken give_to_pool(Job&& job, bool begun);
  Task task_for(std::unique_ptr<Job> job);

  void start_ring();
  Ring* ring() const { return ring_now_.load(std::memory_order_acquire); }
  void submit_direct(Request&& request, Completion&& done);
  void ended(std::unique_ptr<RingTransfer> transfer, int result);

  // Direct data that is not aligned; what is out of buffers here is staged by the pool's threads in
  // memory of their own.
  static constexpr uint64_t kStages = 32;

  const Identity identity_;
  const posix::FsKind fs_;
  const bool inline_;
  const unsigned threads_;
  const PosixOptions options_;
  BufferPool staging_{kStages * posix::kStage, posix::kStage};
  Operations ops_;
  Counter& on_caller_;
  Counter& on_pool_;
  Counter& on_ring_;
  Counter& refused_;
  std::once_flag ring_started_;
  std::shared_ptr<Ring> ring_;
  std::atomic<Ring*> ring_now_{nullptr};
  std::shared_ptr<const void> staging_prepared_;
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
      // A read may find near its end that it has to wait, and is then done anew.
      const uint64_t most = posix::kMostBytes * (request.op == Op::write ? 4 : 1);
      return request.file.total().value <= most && request.file.pieces() <= kMostRuns &&
             request.memory.shape.pieces() <= kMostPieces;
    }
    default:
      return true;
  }
}

void Local::submit(Request&& request, Completion&& done) {
  if (auto good = check_at_back_end(request); !good) return done(std::move(good).error());
  if (request.stop.stop_requested()) return done(Error(ECANCELED));
  if ((request.op == Op::read || request.op == Op::write) && ops_.is_direct(request.handle))
    return submit_direct(std::move(request), std::move(done));
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
  const Pool::Taken taken = give_to_pool({std::move(request), std::move(done)}, false);
  taken == Pool::Taken::yes ? on_pool_.add() : refused_.add();
}

// What it does not take fails.
Pool::Taken Local::give_to_pool(Job&& made, bool begun) {
  auto job = std::make_unique<Job>(std::move(made));
  Job* const same = job.get();
  const Pool::Whose whose = same->request.caller.get();
  Task task = task_for(std::move(job));
  const Pool::Taken taken = pool_.submit(task, whose, begun);
  if (taken == Pool::Taken::yes) return taken;
  Error why = taken == Pool::Taken::line_is_full
                  ? Error(EBUSY, "too many requests of this client wait for the file system")
                  : Error(EAGAIN, "no thread can be started for the file system's requests");
  if (begun && op_info(same->request.op).changes) why = std::move(why).with_unknown_outcome();
  same->done(std::move(why));
  return taken;
}

Task Local::task_for(std::unique_ptr<Job> job) {
  return [this, own = std::move(job)] {
    Job& j = *own;
    if (j.request.stop.stop_requested()) return j.done(Error(ECANCELED));
    j.done(ops_.perform(j.request));
  };
}

// ---- Direct data ----

// On local file systems only: on others the kernel would do the same with threads of its own.
void Local::start_ring() {
  std::call_once(ring_started_, [this] {
    if (!inline_ || options_.force_no_ring) return;
    Result<std::shared_ptr<Ring>> ring = Ring::start(
        options_.direct_depth, [this](std::unique_ptr<RingTransfer> transfer, int result) {
          ended(std::move(transfer), result);
        });
    if (!ring) {
      log::warn("{}: no io_uring ({}): direct I/O uses {} threads instead", options_.directory,
                ring.error().message(), threads_);
      return;
    }
    ring_ = std::move(*ring);
    staging_prepared_ = ring_->prepare(staging_.memory(), staging_.buffer_size());
    ring_now_.store(ring_.get(), std::memory_order_release);
  });
}

void Local::submit_direct(Request&& request, Completion&& done) {
  start_ring();
  Ring* const way = ring();
  posix::DescriptorPtr file = way ? ops_.ready_direct(request) : nullptr;
  if (!file) return submit_to_pool(std::move(request), std::move(done));
  const bool write = request.op == Op::write;
  auto transfer = RingTransfer::make(request, done, std::move(file), ops_.block(), staging_);
  if (!transfer) return submit_to_pool(std::move(request), std::move(done));
  if (write) ops_.become_writer(transfer->request);
  if (way->try_submit(transfer)) return on_ring_.add();
  transfer->stage.release();
  submit_to_pool(std::move(transfer->request), std::move(transfer->done));
}

// Whatever the ring could not do whole is done again from its start, which is harmless, by a thread
// that can tell why: an error, a full disk and how far it was filled, the end of file.
void Local::ended(std::unique_ptr<RingTransfer> transfer, int result) {
  Reply reply;
  if (transfer->succeeded(result, ops_.block(), reply)) {
    transfer->stage.release();
    transfer->file.reset();
    return transfer->done(std::move(reply));
  }
  Job job{std::move(transfer->request), std::move(transfer->done)};
  transfer.reset();
  give_to_pool(std::move(job), true);
}

Result<Reply> Local::call(Request request) {
  if (auto good = check_at_back_end(request); !good) return std::move(good).error();
  if (request.stop.stop_requested()) return Error(ECANCELED);
  posix::BorrowedThread borrowed(identity_);
  return ops_.perform(request);
}

// An application may use a directory that it can search and not read.
Result<Fd> open_top(const PosixOptions& options) {
  const int how = options.in_application ? O_PATH : O_RDONLY;
  Fd top(::open(options.directory.c_str(), how | O_DIRECTORY | O_CLOEXEC));
  const char* what = options.in_application ? "directory" : "export directory";
  if (!top) return posix::failed(fmt::format("{} {}", what, options.directory));
  return top;
}

Result<SealKey> seal_key(const PosixOptions& options) {
  if (options.in_application) return SealKey::checksum();
  if (options.key_file.empty()) return SealKey::random();
  return SealKey::load_or_create(options.key_file);
}

}  // namespace

Result<std::unique_ptr<PosixStore>> PosixStore::open(PosixOptions options, CounterSet& counters) {
  // First, because it leaves this thread as the process's own user.
  const Identity identity = options.in_application ? Identity::of_application() : Identity::probe();
  Result<Fd> top = open_top(options);
  if (!top) return std::move(top).error();
  Result<SealKey> key = seal_key(options);
  if (!key) return std::move(key).error();
  auto store =
      std::make_unique<Local>(std::move(*top), std::move(*key), options, identity, counters);
  if (auto started = store->start(); !started)
    return std::move(started).error().at(options.directory);
  return Result<std::unique_ptr<PosixStore>>(std::move(store));
}

}  // namespace forebay
