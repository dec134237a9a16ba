#include "disk.h"

namespace forebay::sim {

class Disk::Mount final : public Store {
 public:
  explicit Mount(Disk& disk) : disk_(disk) {}

  // The server died: what was not done is never done. Its completions only give back what they
  // hold.
  ~Mount() override {
    for (auto& [id, call] : std::exchange(calls_, {})) {
      disk_.loop_.cancel(call.timer);
      call.done(Error(EIO, "the server is dead"));
    }
  }

  void submit(Request&& request, Completion&& done) override {
    const uint64_t id = ++last_;
    Call& call = calls_[id];
    call.done = std::move(done);
    if (disk_.loop_.random() % 2) {
      call.result = disk_.apply(std::move(request));
    } else {
      call.request = std::move(request);
    }
    const Duration time = std::chrono::microseconds(disk_.loop_.random() % 300);
    call.timer = disk_.loop_.after(time, [this, id] { finish(id); });
  }

  Result<Handle> root() override { return disk_.store_.root(); }

 private:
  struct Call {
    Request request;
    Completion done;
    std::optional<Result<Reply>> result;
    Loop::TimerId timer = 0;
  };

  void finish(uint64_t id) {
    auto node = calls_.extract(id);
    Call& call = node.mapped();
    if (!call.result) call.result = disk_.apply(std::move(call.request));
    call.done(std::move(*call.result));
  }

  Disk& disk_;
  uint64_t last_ = 0;
  std::map<uint64_t, Call> calls_;
};

std::unique_ptr<Store> Disk::mount() {
  return std::make_unique<Mount>(*this);
}

Result<Reply> Disk::apply(Request request) {
  if (full_ > 0 && request.op == Op::write &&
      static_cast<double>(loop_.random() % 1000) < full_ * 1000) {
    return Error(ENOSPC);
  }
  if (repeatable(request)) return store_.call(std::move(request));
  const Op op = request.op;
  const std::string name = request.name2.empty() ? request.name : request.name2;
  Result<Reply> result = store_.call(std::move(request));
  Seen& seen = seen_[{op, name}];
  ++seen.attempts;
  seen.successes += result.has_value();
  return result;
}

std::string Disk::content(const Handle& file, const Right& right, uint64_t length) {
  std::string bytes(length, '\0');
  Request r;
  r.op = Op::read;
  r.caller = this_process_caller();
  r.handle = file;
  r.right = right;
  r.file = Extents(Extent{Offset(0), Length(length)});
  r.memory = Memory::of(std::as_writable_bytes(std::span(bytes)));
  (void)store_.call(std::move(r)).value();
  return bytes;
}

Disk::Seen Disk::seen(Op op, const std::string& name) const {
  const auto found = seen_.find({op, name});
  return found == seen_.end() ? Seen{} : found->second;
}

}  // namespace forebay::sim
