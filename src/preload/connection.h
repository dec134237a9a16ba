// Connection: this process's Store, and what it counts. Connects when it is first needed, as the
// process's configuration has it; a forked child has a session of its own (client/remote_store.h).
//
// Any thread.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "assembly/build.h"
#include "preload/served.h"

namespace forebay::preload {

struct Counts {
  std::atomic<uint64_t> opened{0}, read{0}, written{0}, calls{0}, failed{0};
};

class Connection {
 public:
  static Connection& get();  // never destroyed: programs end in many ways
  void begin(const Shim& shim);

  // As Store::call(); EHOSTDOWN, and a line that says why, if there is no server.
  Result<Reply> call(Request&& request);
  // A use of the Store by more than one call; null as above.
  class Use;

  CallerRef caller();  // of the process, as it is now
  const Shim& shim() const { return *shim_; }
  Counts& counts() { return counts_; }

  // A line on standard error, once for each text of its kind.
  void complain(std::string_view what, const std::string& text);
  // Says goodbye if nobody is in the middle of a call, and reports.
  void leave();
  bool connected_here() const;  // a session of this very process, not of its parent
  void report_so_far();         // the process goes on as another program

  // Around fork().
  std::mutex& held_for_fork() { return mutex_; }
  void after_fork_in_child();

 private:
  Result<Store*> store();
  void report();

  const Shim* shim_ = nullptr;
  std::mutex mutex_;
  std::atomic<Store*> store_{nullptr};
  std::atomic<int> busy_{0};
  std::atomic<int> process_{0};  // whose session it is
  std::atomic<CallerRef*> caller_{nullptr};
  Counts counts_;
  int report_to_ = -1;  // a copy of standard error
  bool reported_ = false;
};

class Connection::Use {
 public:
  Use() : connection_(get()) {
    connection_.busy_.fetch_add(1);
    auto store = connection_.store();
    if (store) store_ = *store;
    if (!store) error_ = std::make_unique<Error>(std::move(store).error());
  }
  ~Use() { connection_.busy_.fetch_sub(1); }
  Use(const Use&) = delete;
  explicit operator bool() const { return store_ != nullptr; }
  const Error& error() const { return *error_; }
  Store& operator*() const { return *store_; }
  Store* operator->() const { return store_; }

 private:
  Connection& connection_;
  Store* store_ = nullptr;
  std::unique_ptr<Error> error_;
};

}  // namespace forebay::preload
