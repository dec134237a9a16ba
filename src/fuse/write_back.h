// WriteBack: small writes that the mount keeps, to write them together (cache=writeback).
//
// Only under a write lease of the file: whoever else comes to the file waits until what is kept is
// written. It is written when the lease is recalled or lost, after kAge, when there is much of it,
// and before anything else of this mount that has to do with the file's bytes, size or times; so
// everybody sees a file as if each write had been done at once. What cannot be written, or came too
// late, is lost, and told once to each who has the file open, by its fsync or close. If the mount's
// process is killed, what it kept is lost too.
//
// A file that is also open for reading alone has its pages under a read lease (file_leases.h), and
// no writes are kept of it.
//
// Threads: any. A file's lock is held while its writes are on their way, so whoever comes then
// waits for them; recalls are done by a thread of its own.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <thread>

#include "fuse/nodes.h"
#include "store/store.h"

namespace forebay::fuse {

class WriteBack final : public LeaseHolder {
 public:
  // With what they are written: an open file's.
  struct Writer {
    Right right;
    CallerRef caller;
  };
  static constexpr size_t kMostOfWrite = 64 * 1024;
  static constexpr uint64_t kMostOfFile = 1 << 20;
  static constexpr uint64_t kMostInAll = 64 << 20;
  static constexpr Duration kAge = std::chrono::seconds(1);

  WriteBack(Store& store, bool wanted) : store_(store), wanted_(wanted) {}
  ~WriteBack() override { stop(); }

  void start();
  void stop();  // writes everything

  // True: it is kept. False: it is to be written at once, after settle().
  bool keep(Node& node, const Writer& writer, uint64_t at, std::span<const std::byte> data);
  // Nothing is kept when it returns. True: something was.
  bool settle(Node& node);
  // What was lost since `seen`, which is moved on. Where a file is opened it is errors().
  std::optional<Error> take_error(Node& node, uint64_t& seen);
  uint64_t errors(Node& node);

  void opened_to_write(Node& node);
  void closed_to_write(Node& node);
  // Somebody reads it through pages.
  void opened_to_read(Node& node);
  void closed_to_read(Node& node);

  // LeaseHolder, of all leases: those of others are left alone.
  void recalled(uint64_t lease) override;
  void lost() override;

 private:
  bool good(const KeptWrites& kept) const;
  bool take(Node& node, const Writer& writer);
  void add(KeptWrites& kept, uint64_t at, std::span<const std::byte> data);
  void write_out(Node& node);
  void give_up(Node& node);
  void work();
  void visit(std::unique_lock<std::mutex>& lock, Node& node, bool leave);

  Store& store_;
  const bool wanted_;
  std::atomic<uint64_t> kept_{0};  // bytes, of all files

  // Taken after a file's lock, or alone.
  std::mutex mutex_;
  std::map<uint64_t, Node*> held_;  // by lease
  std::set<uint64_t> early_;        // recalled before they were known
  unsigned takes_ = 0;              // under way
  uint64_t losses_ = 0;
  std::deque<uint64_t> recalls_;
  Node* at_work_ = nullptr;  // the thread's
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace forebay::fuse
