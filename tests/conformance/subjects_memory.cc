#include "conformance.h"
#include "store/memory.h"
#include "store/null.h"

namespace forebay::conformance {

namespace {

class MemoryFixture final : public Fixture {
 public:
  explicit MemoryFixture(const Wrap& wrap) {
    auto memory = std::make_unique<MemoryStore>();
    memory_ = memory.get();
    store_ = wrap(std::move(memory));
  }
  Store& store() override { return *store_; }
  std::optional<size_t> open_rights() override { return memory_->open_rights(); }

 private:
  MemoryStore* memory_;
  std::unique_ptr<Store> store_;
};

class NullFixture final : public Fixture {
 public:
  explicit NullFixture(const Wrap& wrap) : store_(wrap(std::make_unique<NullStore>())) {}
  Store& store() override { return *store_; }

 private:
  std::unique_ptr<Store> store_;
};

}  // namespace

std::vector<Subject> memory_subjects() {
  const Subject memory{"memory", [](const Wrap& w) { return std::make_unique<MemoryFixture>(w); }};
  const Subject null{"null",
                     [](const Wrap& w) { return std::make_unique<NullFixture>(w); },
                     {{Feature::folders, "null has one directory and plain files"},
                      {Feature::content, "null forgets what is written"},
                      {Feature::seals, "null protects nothing, so its handles are plain names"},
                      {Feature::unlinked, "null keeps no open files"},
                      {Feature::attributes, "null keeps names and sizes only"},
                      {Feature::others, "null lets everybody do everything"},
                      {Feature::xattr, "null keeps names and sizes only"},
                      {Feature::fallocate, "null keeps names and sizes only"}}};
  return {memory, under_trace(memory), under_idle_faults(memory), under_scheduler(memory),
          null,   under_trace(null),   under_idle_faults(null)};
}

}  // namespace forebay::conformance
