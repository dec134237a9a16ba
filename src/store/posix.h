// PosixStore: a directory of a mounted file system as a Store.
//
// Confined: nothing outside the directory can be named or reached. Names are resolved by openat2
// with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS, or are single components of *at calls; symbolic
// links are never followed here (clients do, with readlink); what something else is mounted on
// is EXDEV, but for applications, which may mount single files; the store's own folder (kOwnFolder)
// at the top cannot be named. Fifos, sockets and devices are shown and never opened.
//
// Identity: run by root, path operations and the access check of open are done as the caller (raw
// per-thread system calls, skipped while the caller is unchanged), data operations with the granted
// descriptor and without a change of identity, without CAP_FSETID and CAP_SYS_RESOURCE. Run by a
// user, it serves that user only: another caller gets EPERM. A thread that submits may be left with
// another file system identity (fsuid, fsgid, groups); call() gives its thread back as who it was.
// Both may leave it without those two capabilities in effect. The process's umask applies to what
// is created, so a server sets it to 0.
//
// Handles: kernel file handles where the process is privileged and the file system keeps them
// (probed at open); otherwise path, inode and birth time, checked again on use, ESTALE if it moved.
// Sealed with the export's key (sealed.h), which lives in a file that servers of the export share.
//
// A file that is removed or replaced while it has open rights keeps a link in the own folder until
// the last of them is closed, and `hidden_grace` beyond a restart. Rights that were granted by
// other servers of the export are not known here.
//
// Direct I/O: by export (`direct`) or, by kFlagDirect, for a file as long as it is open, data goes
// around the page cache (posix_direct.h says how, and what it does with unaligned data). On local
// file systems what is aligned, or small, goes through an io_uring (posix_ring.h); all else, and
// whatever the ring cannot do whole, goes to the pool. A kernel that refuses io_uring, and a file
// system that refuses O_DIRECT, are met with the pool and the page cache, and one line in the log.
//
// In an application (`in_application`) the store is that process and nobody else: it changes
// neither identity nor capabilities of any thread, serves the process's own user, and costs an open
// and a close of a file little more than those: no thread before a request needs one, no own
// folder, and a file that is removed while open lives on in its descriptors only. Its handles are
// good for this store alone.
//
// Mapped I/O (`mapped`): lists of many small pieces go through a shared mapping of the file
// (posix_mapped.h), on local file systems and where data is not direct. Descriptors of rights to
// write are then opened for reading too, where the file's mode allows that: a mapping needs both.
// Writes may leave set-id bits, so it is for stores in an application.
//
// Threads: calls measured to be fast run on the submitting thread on local file systems; all else,
// and everything on other file systems, on the store's own bounded pool of threads, where
// callers (by the CallerRef that their requests share) have their turns. A file system that never
// answers holds its requests and the destructor.
#pragma once

#include <memory>
#include <string>

#include "core/clock.h"
#include "core/counters.h"
#include "core/fd.h"
#include "store/store.h"

namespace forebay {

struct PosixOptions {
  std::string directory;   // the export
  std::string key_file;    // 32 random bytes, made (0600) if absent; empty: a key of this life only
  uint64_t export_id = 0;  // in every handle; the same on every server of the export
  unsigned threads = 8;    // of the pool
  size_t queue = 4096;     // requests of one caller waiting for the pool; EBUSY beyond
  size_t descriptors = 1024;    // cached; lowered to half of RLIMIT_NOFILE
  bool direct = false;          // data goes around the page cache, where the file system can
  unsigned direct_depth = 32;   // direct reads and writes under way in the kernel at once
  bool in_application = false;  // in the process of whoever uses it, as that process
  // A file that is closed is let go at once, and with it its space if others remove it. By a handle
  // of before, it may then not be found after it has got another name.
  bool forgets_closed = false;
  bool mapped = false;  // small pieces through a shared mapping
  // Written pieces larger than this on average go by system calls after all. A process that is
  // alone with its file has no use for more; where several write one file at the same time, 4096
  // gains.
  uint64_t mapped_piece = 1024;
  bool force_path_handles = false;  // tests: as if without privilege for kernel handles
  bool force_pool = false;          // tests and slow file systems: never on the submitting thread
  bool force_no_ring = false;       // tests: as if the kernel had no io_uring
  Duration hidden_grace =
      std::chrono::seconds(60);  // unlinked files found at start are kept so long
};

inline constexpr const char* kOwnFolder = ".forebay";

class PosixStore : public Store {
 public:
  // Says what is wrong with the directory or the key (missing, not a directory, not readable).
  static Result<std::unique_ptr<PosixStore>> open(PosixOptions options, CounterSet& counters);

  // In an application, on a local file system: the descriptor by which the store would do this read
  // or write (without bytes, by a right that is open), for whoever does one run of bytes at a time,
  // which needs nothing else of it. Null if data goes another way (direct). The store may close it,
  // as any that it keeps; whoever has it in use keeps the file's space.
  virtual std::weak_ptr<const Fd> at_hand(const Request& request) const = 0;

  // Is it a local file system, on which pieces are cheap (mapped)?
  virtual bool local() const = 0;
  virtual bool kernel_handles() const = 0;  // for people and tests
  virtual bool uses_ring() const = 0;
};

}  // namespace forebay
