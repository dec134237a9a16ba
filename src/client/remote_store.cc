// The Store over a Driver, made anew in a forked child.
#include "client/remote_store.h"

#include <unistd.h>

#include <atomic>
#include <system_error>

#include "client/driver.h"
#include "client/fork_guard.h"

namespace forebay {

namespace {

class RemoteStoreImpl final : public RemoteStore {
 public:
  RemoteStoreImpl(RemoteOptions options, RemoteRuntime runtime)
      : options_(std::move(options)), runtime_(std::move(runtime)) {
    // Whoever waits for the first connection wants to hear at once that there is no server; in a
    // simulation nobody waits.
    process_ = new Process(options_, runtime_, runtime_.loop != nullptr);
  }

  ~RemoteStoreImpl() override {
    Process* p = process_.load();
    if (p->guard.forked()) {
      abandon(*p);
    } else {
      delete p;
    }
  }

  // Learns the root, which stays good in children.
  Result<void> open() {
    Result<Handle> root = process().driver.root();
    if (!root) return std::move(root).error();
    root_ = std::move(root).value();
    return {};
  }

  void submit(Request&& request, Completion&& done) override {
    process().driver.submit(std::move(request), std::move(done));
  }
  void help(Callback<bool()> enough, bool wait) override {
    process().driver.help(std::move(enough), wait);
  }
  Result<Reply> call(Request request) override { return process().driver.call(std::move(request)); }
  Result<Handle> root() override {
    if (!root_.empty()) return root_;
    return process().driver.root();
  }
  std::byte* allocate(size_t size) override {
    LentMemory* const lent = process().driver.lent();
    return lent ? lent->allocate(size) : nullptr;
  }
  bool deallocate(std::byte* memory) override {
    const Process& own = process();
    if (own.driver.lent() && own.driver.lent()->release(memory)) return true;
    // What a parent lent stays as it is in its children: the allocator is the parent's.
    for (const Process* p = own.parent; p; p = p->parent) {
      if (p->driver.lent() && p->driver.lent()->holds(memory, 1)) return true;
    }
    return false;
  }
  void hold_leases(LeaseHolder* holder) override { process().driver.hold_leases(holder); }
  void give_back(uint64_t lease) override { process().driver.give_back(lease); }
  Duration leases_until() const override { return process().driver.leases_until(); }
  Stats stats() const override { return process().driver.stats(); }

 private:
  struct Process {
    Process(const RemoteOptions& options, const RemoteRuntime& runtime, bool patient)
        : driver(options, runtime, patient) {}
    Driver driver;
    ForkGuard guard;
    const Process* parent = nullptr;  // of a forked child: what it must not touch
  };

  Process& process() const {
    Process* p = process_.load(std::memory_order_acquire);
    return p->guard.forked() ? renew(p) : *p;
  }

  // In a forked child. The parent's threads stopped anywhere, so nothing of theirs may be touched,
  // not even a lock: it is left as it is, for good.
  Process& renew(Process* parents) const {
    auto mine = std::make_unique<Process>(options_, runtime_, true);
    mine->parent = parents;
    if (process_.compare_exchange_strong(parents, mine.get())) {
      abandon(*parents);
      return *mine.release();
    }
    return *parents;  // another thread of this child was faster
  }

  // Closes the child's copy of the parent's socket, so that the server sees when the parent ends.
  static void abandon(Process& parents) {
    if (const int socket = parents.driver.descriptor(); socket >= 0) ::close(socket);
    parents.driver.abandon_shortcuts();
  }

  const RemoteOptions options_;
  const RemoteRuntime runtime_;
  Handle root_;
  mutable std::atomic<Process*> process_;
};

}  // namespace

Result<std::unique_ptr<RemoteStore>> RemoteStore::connect(RemoteOptions options,
                                                          RemoteRuntime runtime) {
  const bool wait = runtime.loop == nullptr;
  try {
    auto store = std::make_unique<RemoteStoreImpl>(std::move(options), std::move(runtime));
    if (wait) {
      if (Result<void> ok = store->open(); !ok) return std::move(ok).error();
    }
    return std::unique_ptr<RemoteStore>(std::move(store));
  } catch (const std::system_error& error) {  // of the loop: no descriptors left
    return Error(error.code().value(), "cannot make an event loop");
  }
}

}  // namespace forebay
