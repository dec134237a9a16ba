// A file whose numbers and appends clients share, and calls of it one at a time, timed.
#pragma once

#include <algorithm>
#include <functional>

#include "bench/bed.h"
#include "bench/measure.h"

namespace forebay::bench {

// Open in one of them.
class SharedFile {
 public:
  static constexpr const char* kName = "next";

  SharedFile(Store& store, const std::string& name) : store_(store) {
    Request r;
    r.op = Op::create;
    r.caller = caller_;
    r.handle = must(store.root());
    r.name = name;
    r.mode = 0600;
    r.access = Access::both;
    const Reply made = must(store.call(std::move(r)));
    handle_ = made.handle;
    right_ = made.right;
  }
  Request request(Op op) const {
    Request r;
    r.op = op;
    r.caller = caller_;
    r.handle = handle_;
    if (op != Op::getattr) r.right = right_;
    return r;
  }
  Request add() const {
    Request r = request(Op::attr_fetch_add);
    r.name = kName;
    r.value = 1;
    return r;
  }
  Request append(std::span<const std::byte> bytes) const {
    Request r = request(Op::write);
    r.flags = kFlagAppend;
    r.file = Extents({Offset(0), Length(bytes.size())});
    r.memory = Memory::of(bytes);
    return r;
  }
  void make_number() const {
    Request r = request(Op::attr_create);
    r.name = kName;
    const auto made = store_.call(std::move(r));
    if (!made && made.error().code() != EEXIST) throw std::runtime_error(made.error().message());
  }
  uint64_t number() const {
    Request r = request(Op::attr_get);
    r.name = kName;
    return must(store_.call(std::move(r))).value;
  }
  Store& store() const { return store_; }

 private:
  Store& store_;
  const CallerRef caller_ = this_process_caller();
  Handle handle_;
  Right right_;
};

inline void time_calls(double seconds, Shared& out, const std::function<bool()>& call) {
  out.verified = true;
  const auto begin = Clock::now();
  for (auto last = begin; since(begin) < seconds; ++out.operations) {
    out.verified = call() && out.verified;
    const auto now = Clock::now();
    out.latency[out.operations % Shared::kMostSamples] =
        static_cast<float>(std::chrono::duration<double>(now - last).count());
    last = now;
  }
  out.samples = static_cast<uint32_t>(std::min<uint64_t>(out.operations, Shared::kMostSamples));
}

}  // namespace forebay::bench
