// For tests of a BehindStore: one over a store whose faults the test commands, on a simulated loop,
// with a file that has proved its right.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "loop/sim_loop.h"
#include "server/behind_store.h"
#include "store/fault.h"
#include "store/memory.h"

namespace forebay::server::behind_store_tests {

using namespace std::chrono_literals;
using Action = FaultRule::Action;

inline Extents at(uint64_t offset, uint64_t length) {
  return Extents(Extent{Offset(offset), Length(length)});
}

// One request with memory of its own, and what became of it.
struct Call {
  std::string bytes;
  std::optional<Result<Reply>> result;
  bool done() const { return result.has_value(); }
  int error() const { return result && !*result ? result->error().code() : 0; }
  const Reply& reply() const { return result->value(); }
};
using CallPtr = std::shared_ptr<Call>;

struct File {
  Handle handle;
  Right right;
};

class Behind : public ::testing::Test {
 protected:
  void make(WriteBehindOptions options = {.when = When::always, .memory = 1_MiB, .age = 1s}) {
    auto fault = std::make_unique<FaultStore>(std::make_unique<MemoryStore>());
    faults_ = fault.get();
    auto scheduled = std::make_unique<ScheduledStore>(
        std::move(fault), SchedulerOptions{.policy = SchedulerOptions::Policy::fifo}, pool_);
    store_ = std::make_unique<BehindStore>(std::move(scheduled), options, ++boots_);
    root_ = store_->root().value();
    file_ = create("f");
    prove(file_);
  }
  // The right proves good for both directions: reads of dirty bytes from memory need that too.
  void prove(const File& file) {
    ok(write(file, 0, "....", 1));
    ok(write(file, 0, "....", 1));
    ok(submit(data(Op::read, file, at(0, 4)), std::string(4, '?'), 1));
    ok(submit(data(Op::commit, file), {}, 1));
    faults_->clear();
  }

  Request request(Op op, Handle handle, std::string name = {}) const {
    Request r;
    r.op = op;
    r.caller = caller_;
    r.handle = std::move(handle);
    r.name = std::move(name);
    return r;
  }
  Request data(Op op, const File& file, Extents where = {}) const {
    Request r = request(op, file.handle);
    r.right = file.right;
    r.file = std::move(where);
    return r;
  }
  CallPtr submit(Request r, std::string bytes, uint64_t client = 1) {
    auto call = std::make_shared<Call>();
    call->bytes = std::move(bytes);
    r.memory = Memory::of(std::as_writable_bytes(std::span(call->bytes)));
    store_->submit(std::move(r),
                   [call](Result<Reply>&& result) { call->result.emplace(std::move(result)); },
                   {&loop_, client});
    return call;
  }
  Reply ok(const CallPtr& call) {
    loop_.run_until([&] { return call->done(); }, 1s);
    FOREBAY_ASSERT(call->done(), "it was not answered");
    return call->result->value();
  }
  Reply ok(Request r) { return ok(submit(std::move(r), {})); }
  File create(const std::string& name, uint32_t flags = 0) {
    Request r = request(Op::create, root_, name);
    r.mode = 0600;
    r.flags = flags;
    r.access = Access::both;
    const Reply made = ok(std::move(r));
    return {made.handle, made.right};
  }
  CallPtr write(const File& file, uint64_t offset, std::string bytes, uint64_t client = 1) {
    Request r = data(Op::write, file, at(offset, bytes.size()));
    return submit(std::move(r), std::move(bytes), client);
  }
  CallPtr write(uint64_t offset, std::string bytes, uint64_t client = 1) {
    return write(file_, offset, std::move(bytes), client);
  }
  CallPtr read(uint64_t offset, uint64_t length) {
    return submit(data(Op::read, file_, at(offset, length)), std::string(length, '?'));
  }
  std::string content(uint64_t length) {
    const CallPtr call = read(0, length);
    const uint64_t count = ok(call).count;
    return call->bytes.substr(0, count);
  }
  uint64_t writes() const { return faults_->calls(Op::write); }
  void hold_writes() { faults_->add({.op = Op::write, .action = Action::hold}); }
  void fail_writes(int error) { faults_->add({.op = Op::write, .error = error}); }

  CallerRef caller_ = this_process_caller();
  SimLoop loop_{1};
  BufferPool pool_{1_MiB, 64_KiB};
  uint64_t boots_ = 0;
  FaultStore* faults_ = nullptr;
  std::unique_ptr<BehindStore> store_;
  Handle root_;
  File file_;
};

}  // namespace forebay::server::behind_store_tests
