// FileLeases: the read leases under which the kernel keeps pages of open files (cache=lease).
//
// read(2). Before each one the kernel asks for the file's attributes, because it may believe none,
// and drops its pages if the time of the last change is not the one that it had (FUSE's "auto
// inval"). That question is the gate: while a lease is good it is answered from memory, always with
// the same time; otherwise pages are dropped first, and it is answered with a time that was never
// said before. Each would do alone, but the kernel ignores the answers of all but one of several
// threads, and all that are under way when pages are dropped: so that is done only if it has the
// right size already. The lowest digits of the nanoseconds are enough, and stat(2), which is
// another question, shows the true ones. Who cannot answer (stopped, cut off) lets nobody read.
//
// Mappings and splice ask nobody. Their pages are dropped when a lease is recalled, before it is
// given back (fuse_lowlevel_notify_inval_inode), and once when it is taken. What was read while no
// lease could be had is looked after by a thread of its own, which tries again.
//
// Only files that are opened for reading alone have pages here. Who also writes goes around them,
// as with cache=none: the kernel keeps pages locked while it writes them, and could not drop them
// then, for somebody who waits for that with pages of his own.
//
// The size. While pages are dropped, answers about attributes that are under way are ignored by the
// kernel, and it goes on with the size that it had. So a lease is kept only of a file whose size
// the kernel is known to have: `told`, in an answer that nothing of ours can have made it ignore.
// Then whatever is ignored later was asked while the other's change was under way, and the size
// before that change is a right answer.
//
// Threads: any. A lease that is recalled is not good from that moment on; dropping pages waits for
// reads under way, so that is done by the thread of its own.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <unordered_map>

#include "fuse/nodes.h"
#include "store/store.h"

namespace forebay::fuse {

class FileLeases final : private LeaseHolder {
 public:
  // With what leases are asked for: an open file's.
  struct Asker {
    Right right;
    CallerRef caller;
  };
  // Makes the kernel drop all that it has of a file; waits for reads of it.
  using Drop = std::function<void(uint64_t number)>;

  FileLeases(Store& store, bool wanted) : store_(store), wanted_(wanted) {}
  ~FileLeases() override { stop(); }

  // `also`: is told of all leases too.
  void start(Drop drop, LeaseHolder* also = nullptr);
  void stop();

  // May the pages of this file be kept at all?
  bool keeps(const Node& node) const { return wanted_ && !node.view().refused.load(); }
  // A file was opened, with pages: may those of earlier opens be used?
  bool opened(Node& node);
  void closed(Node& node);

  // The attributes for the gate. `ask` gets them from the Store.
  using Ask = std::function<Result<Reply>()>;
  Result<Attr> gate(Node& node, uint64_t number, const Asker& asker, const Ask& ask);
  // Pages are about to be read, outside of any gate, perhaps.
  void reads(Node& node, uint64_t number, const Asker& asker);

  // The kernel is about to be told the file's size.
  void tell(Node& node, uint64_t number, uint64_t size);
  // The file was changed through this mount, around the kernel's pages, up to `end`.
  void changed(Node& node, uint64_t end);

  size_t held() const;

 private:
  void recalled(uint64_t lease) override;
  void lost() override;

  bool good(const Node& node) const;
  bool may_take(Node& node, uint64_t number);
  std::optional<Attr> take(Node& node, uint64_t number, const Asker& asker);
  void work();
  void drop_now(std::unique_lock<std::mutex>& lock, uint64_t number, uint64_t lease);
  void try_again(std::unique_lock<std::mutex>& lock);
  Attr shown(Node& node, Attr attr) const;

  struct Job {
    uint64_t number;  // the kernel's, of the file
    uint64_t lease;   // to be given back then; 0: none
  };
  struct Loose {
    uint64_t number;
    Asker asker;
  };

  Store& store_;
  const bool wanted_;
  Drop drop_;
  LeaseHolder* also_ = nullptr;

  mutable std::mutex mutex_;
  std::map<uint64_t, std::pair<Node*, uint64_t>> held_;  // by lease: the file, and its number
  std::set<uint64_t> early_;                             // recalled before they were known
  unsigned takes_ = 0;                                   // under way
  uint64_t losses_ = 0;
  std::deque<Job> jobs_;
  std::map<Node*, Loose> loose_;                    // pages were read without a lease
  Node* at_work_ = nullptr;                         // of those: the thread's
  std::unordered_map<uint64_t, Duration> dropped_;  // by number: when, of late
  std::map<uint64_t, unsigned> dropping_;
  unsigned droppers_ = 0;  // gates that wait for it
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace forebay::fuse
