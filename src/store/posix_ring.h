// The direct transfers of one posix store that the kernel has in hand, through an io_uring. The
// thread that submits a request gives it to the kernel itself; one thread, of this object, waits
// for what has ended and hands it over, in batches.
//
// A transfer is a request over one range of the file, whole blocks: from and to the request's own
// memory if that is aligned, otherwise by a staging buffer. Memory that was announced (prepare) is
// registered with the kernel piece by piece, when a transfer first lies in a piece; so only what is
// used is kept in memory. Where RLIMIT_MEMLOCK ends that, transfers go on from memory that is not
// registered.
//
// Bounded: `depth` transfers, and no more staging than its pool has. What has no place is refused,
// not queued. Any thread may submit, also from within the handler.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "core/buffer_pool.h"
#include "core/op.h"
#include "store/posix_files.h"
#include "store/uring.h"

namespace forebay::posix {

struct RingTransfer {
  Request request;
  Completion done;
  DescriptorPtr file;
  Extent range;  // of whole blocks, around the request's
  Buffer stage;  // empty: the request's own memory is used
  std::vector<iovec> pieces;

  // For a request of one range, if it can be one transfer: otherwise null, with nothing taken.
  static std::unique_ptr<RingTransfer> make(Request& request, Completion& done, DescriptorPtr file,
                                            uint64_t block, BufferPool& staging);
  // What became of it, if that is sure: a request that moved all its bytes, or a read that met the
  // end of file. Anything else is for somebody else to find out.
  bool succeeded(int result, uint64_t block, Reply& reply) const;
};

class Ring : public std::enable_shared_from_this<Ring> {
 public:
  // Called on the ring's thread, once for each transfer, with its bytes or -errno.
  using Handler = Callback<void(std::unique_ptr<RingTransfer>, int result)>;
  static Result<std::shared_ptr<Ring>> start(unsigned depth, Handler handler);
  ~Ring();  // after stop(), on another thread than its own

  // False, and the transfer stays the caller's, if `depth` are under way or the kernel refuses.
  bool try_submit(std::unique_ptr<RingTransfer>& transfer);
  // Refuses all further ones, and waits until every one has been handled.
  void stop();

  // Memory in which requests often lie, in pieces that transfers do not cross. Until what is
  // returned goes, and that must be before the memory does.
  std::shared_ptr<const void> prepare(std::span<std::byte> memory, uint64_t piece);

 private:
  struct Prepared {
    std::span<std::byte> memory;
    uint64_t piece;
    std::vector<int> numbers;  // of the pieces
  };
  static constexpr int kNotYet = -2;

  Ring(std::unique_ptr<Uring> ring, unsigned depth, Handler handler);
  int registered(const std::vector<iovec>& pieces);
  int register_piece(Prepared& prepared, size_t index);
  void forget(const Prepared* prepared);
  void work();

  const std::unique_ptr<Uring> ring_;
  const unsigned depth_;
  Handler handler_;
  std::mutex mutex_;  // submission, and what is prepared
  bool stopped_ = false;
  bool memory_refused_ = false;
  std::vector<std::unique_ptr<Prepared>> prepared_;
  std::atomic<unsigned> under_way_{0};  // in the kernel
  std::atomic<unsigned> unhandled_{0};  // not yet with the handler, or it has not returned
  std::atomic<bool> leave_{false};
  std::thread thread_;
};

}  // namespace forebay::posix
