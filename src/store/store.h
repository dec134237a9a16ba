// Store: the seam of the system. Everything that holds bytes is one: a directory, a server across
// the network, a striped partition, a cache, a fault injector. Front doors consume one, the server
// serves one, decorators wrap one.
//
// The contract, which tests/conformance runs over every store:
//  1. submit() takes a request and completes it exactly once, with a Reply or an Error. It may
//     complete before it returns (inline), on the submitting thread, or later on a thread of its
//     own; never under a lock of its own that submit() takes. Callers must stand both, and hand
//     over to their own thread themselves.
//  2. Any thread may submit, also from within a completion.
//  3. Memory of a read or write belongs to the Store until the completion; the rest of the request
//  is
//     moved in.
//  4. A completed write is in the Store: every later read sees it. Within one request bytes move in
//     the order of the stream. A read is short only at the end of file: it stops at the first byte
//     of its stream that lies there or beyond. A short write is an error whose done() says how much
//     landed.
//  5. Requests under way at the same time have no order among them, and overlapping writes may be
//     torn: ordering is the server's business (server/), not the Store's.
//  6. The destructor waits until every request has completed.
//  7. A request that check() refuses fails with check()'s error. A forged or damaged handle or
//  right,
//     a right for another file, and a right without the access that the operation needs are EBADF;
//     a right granted to another uid is EACCES; a handle of a file that is gone is ESTALE. An
//     unlinked file is gone when its last right is closed. A right that the Store does not know as
//     open (it restarted, or the right was closed) is opened again by its first use while the file
//     exists: close frees what the Store holds and revokes nothing. Closing what is not open
//     succeeds.
//  8. Only regular files are opened: a directory is EISDIR, a symbolic link ELOOP. Access::none is
//     EINVAL for open; for create it means no right. Symbolic links are never followed: a path that
//     leads through one is ELOOP, a last name that is one names the link itself. Names "." and ".."
//     are EINVAL, and readdir leaves them out.
#pragma once

#include <memory>
#include <span>

#include "core/clock.h"
#include "core/op.h"

namespace forebay {

// Who holds leases of a Store's files (Op::lease). Told on a thread of the Store's, which must not
// be kept waiting; not after Store::hold_leases(nullptr) has returned.
//
// What was written to memory under a write lease is for the holder to write to the Store, naming
// the lease (Op::write's cookie): before it gives the lease back, and as soon as it is recalled or
// lost. If that fails with ESTALE the time was over, and others have gone on without it: the holder
// tells whoever wrote it.
class LeaseHolder {
 public:
  virtual ~LeaseHolder() = default;
  // From now on nothing that is kept under the lease may be used; when it is dropped the lease is
  // to be given back. It may come before the lease's own request has returned.
  virtual void recalled(uint64_t lease) = 0;
  // The same, of all leases. Perhaps there is nobody to give them back to.
  virtual void lost() = 0;
};

class Store {
 public:
  virtual ~Store() = default;

  virtual void submit(Request&& request, Completion&& done) = 0;

  // Submits and waits, on the caller's thread. A Store that can do the work on this very thread
  // overrides it.
  virtual Result<Reply> call(Request request);

  // A thread that waits for completions may do the Store's work meanwhile, if the Store has use for
  // that: until enough() says so, which is asked on this thread; without `wait`, until there is
  // nothing to do just now. Returns at once if the Store has other threads at work.
  virtual void help(Callback<bool()> /*enough*/, bool /*wait*/) {}

  // Is the right of this read or write good for it? Looks in memory only, so that a server can ask
  // before it reserves and moves anything for the request. A Store that cannot tell says yes.
  virtual Result<void> admits(const Request&) { return {}; }

  // The part of a handle that is the same in every handle of one file, for those who keep things by
  // file. Any bytes will do as a handle here; nothing is verified.
  virtual std::string_view identity(const Handle& handle) const { return handle.bytes; }

  // How many requests at the same time it can make use of; 0: it does them on the thread that
  // submits.
  virtual unsigned concurrency() const { return 0; }

  // Does it gather requests such as this one by itself? Then who orders requests for it should let
  // it have all of them.
  virtual bool gathers(const Request&) const { return false; }

  // Memory that it reaches more cheaply than any other: page-aligned, zeroed; null if it has none.
  // Given back by deallocate() when no request uses it; false for what is not from here.
  virtual std::byte* allocate(size_t) { return nullptr; }
  virtual bool deallocate(std::byte*) { return false; }

  // Memory in which the data of many requests will lie, so that the Store may ready its device for
  // it; no request's memory crosses two of its pieces. Lasts until what is returned (or null) goes,
  // which must be before the memory does, and before any of its pages is replaced.
  virtual std::shared_ptr<const void> prepare(std::span<std::byte>, uint64_t /*piece*/) {
    return nullptr;
  }

  // Where this machine's kernel has the file of a right, for a program here that may open it itself
  // (server/shortcuts.h). The request is a read or a write without bytes. Quick. EOPNOTSUPP: its
  // bytes are no file's, or are reached another way.
  struct LocalFile {
    std::string path;
    uint64_t device = 0, inode = 0;
    uint32_t direct = 0;  // the block in which it is read and written around the page cache; 0: not
  };
  virtual Result<LocalFile> local_file(const Request&) {
    return Error(EOPNOTSUPP, "the store keeps no files of this machine");
  }

  // Is a write to the file, in one piece, of a few KiB and not acknowledged early, one call of a
  // file system that does it as a whole, whoever else writes?
  virtual bool writes_whole(const Handle&) const { return false; }

  // Leases. Beside what a holder is told, a lease is good only before leases_until(), on the clock
  // of CLOCK_BOOTTIME; that moves on while any is held.
  virtual void hold_leases(LeaseHolder*) {}
  virtual void give_back(uint64_t /*lease*/) {}
  virtual Duration leases_until() const { return Duration::zero(); }

  // The handle of the top directory. Blocking; cheap after the first time.
  virtual Result<Handle> root() = 0;
};

}  // namespace forebay
