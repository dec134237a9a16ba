#include "fuse/nodes.h"

#include <gtest/gtest.h>

#include <thread>

#include "store/store.h"

namespace forebay::fuse {
namespace {

// As a store with path handles: what stands before the colon is the same in all handles of a file.
class Named : public Store {
 public:
  void submit(Request&&, Completion&& done) override { done(Error(ENOSYS)); }
  Result<Handle> root() override { return Handle{"0:"}; }
  std::string_view identity(const Handle& handle) const override {
    return std::string_view(handle.bytes).substr(0, handle.bytes.find(':'));
  }
};

TEST(Nodes, OneFileIsOneNodeWithItsNewestHandle) {
  const Named store;
  Nodes nodes(store, {{"0:"}, {}});
  Node& a = nodes.remember({"1:a"}, {});
  Node& b = nodes.remember({"2:b"}, {});
  EXPECT_NE(&a, &b);
  EXPECT_EQ(&nodes.remember({"1:moved"}, {}), &a);
  EXPECT_EQ(a.handle(), Handle{"1:moved"});
  EXPECT_EQ(nodes.size(), 2u);
}

TEST(Nodes, LivesUntilTheLastLookupIsForgotten) {
  const Named store;
  Nodes nodes(store, {{"0:"}, {}});
  Node& a = nodes.remember({"1:a"}, {});
  nodes.remember({"1:a"}, {});
  nodes.remember(a);
  nodes.forget(a, 2);
  EXPECT_EQ(nodes.size(), 1u);
  nodes.forget(a, 1);
  EXPECT_EQ(nodes.size(), 0u);
}

TEST(Nodes, ANewNodeHasANewGeneration) {
  const Named store;
  Nodes nodes(store, {{"0:"}, {}});
  Node& a = nodes.remember({"1:a"}, {});
  const uint64_t before = a.generation();
  nodes.forget(a, 1);
  EXPECT_NE(nodes.remember({"1:a"}, {}).generation(), before);
}

TEST(Nodes, TheRootIsAlwaysThere) {
  const Named store;
  Nodes nodes(store, {{"0:"}, {}});
  EXPECT_EQ(&nodes.remember({"0:other"}, {}), &nodes.root());
  nodes.forget(nodes.root(), 1000);
  EXPECT_EQ(nodes.root().handle(), Handle{"0:"});
  EXPECT_EQ(nodes.size(), 0u);
}

TEST(Nodes, ManyThreads) {
  const Named store;
  Nodes nodes(store, {{"0:"}, {}});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&nodes] {
      for (int i = 0; i < 20000; ++i) {
        Node& node = nodes.remember({std::to_string(i % 37 + 1) + ":"}, {});
        if (i % 3 == 0) nodes.remember(node);
        nodes.forget(node, i % 3 == 0 ? 2 : 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(nodes.size(), 0u);
}

}  // namespace
}  // namespace forebay::fuse
