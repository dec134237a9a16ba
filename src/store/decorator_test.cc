#include "store/decorator.h"

#include <gtest/gtest.h>

#include "store/fault.h"
#include "store/trace.h"

namespace forebay {
namespace {

std::byte memory[16];

// Answers everything as no other Store does.
class Odd final : public Store {
 public:
  void submit(Request&&, Completion&& done) override { done(Error(EXDEV, "odd")); }
  void help(Callback<bool()> enough, bool wait) override { helped = enough() && wait; }
  Result<void> admits(const Request&) override { return Error(EDOM); }
  std::string_view identity(const Handle& handle) const override {
    return std::string_view(handle.bytes).substr(1);
  }
  unsigned concurrency() const override { return 77; }
  std::byte* allocate(size_t size) override { return memory + size; }
  bool deallocate(std::byte* at) override { return at == memory + 3; }
  std::shared_ptr<const void> prepare(std::span<std::byte>, uint64_t piece) override {
    return std::make_shared<uint64_t>(piece);
  }
  Result<Handle> root() override { return Handle{"odd root"}; }

  bool helped = false;
};

void expect_odd(Store& store, const Odd& inner) {
  EXPECT_EQ(store.call({}).error().code(), EXDEV);
  store.help([] { return true; }, true);
  EXPECT_TRUE(inner.helped);
  EXPECT_EQ(store.admits({}).error().code(), EDOM);
  const Handle handle{"abc"};
  EXPECT_EQ(store.identity(handle), "bc");
  EXPECT_EQ(store.concurrency(), 77u);
  EXPECT_EQ(store.allocate(3), memory + 3);
  EXPECT_TRUE(store.deallocate(memory + 3));
  EXPECT_FALSE(store.deallocate(memory));
  EXPECT_EQ(*std::static_pointer_cast<const uint64_t>(store.prepare(memory, 4711)), 4711u);
  EXPECT_EQ(store.root()->bytes, "odd root");
}

TEST(Decorator, AnswersAsTheStoreWithin) {
  auto inner = std::make_unique<Odd>();
  const Odd& odd = *inner;
  FaultStore store(std::move(inner));
  expect_odd(store, odd);
}

TEST(Decorator, SoDoesOneInAnother) {
  auto inner = std::make_unique<Odd>();
  const Odd& odd = *inner;
  const SteadyClock clock;
  FaultStore store(std::make_unique<TraceStore>(std::move(inner), clock, [](std::string_view) {}));
  expect_odd(store, odd);
}

}  // namespace
}  // namespace forebay
