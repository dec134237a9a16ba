// What is the memory store's own: its limit, its content, what it forgets. What it shares with
// every store is tests/conformance.
#include "store/memory.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "core/testing.h"
#include "store/memory_content.h"
#include "store/testing.h"

namespace forebay {
namespace {

constexpr uint64_t kPage = SparseBytes::kPage;

TEST(SparseBytes, AgreesWithPlainBytes) {
  std::mt19937_64 random(test_seed());
  const auto below = [&](uint64_t n) { return random() % n; };
  Budget budget;
  SparseBytes sparse(budget);
  std::vector<std::byte> plain(5 * kPage);
  for (int i = 0; i < 300; ++i) {
    const uint64_t offset = below(plain.size());
    const uint64_t length = below(std::min<uint64_t>(plain.size() - offset, 2 * kPage) + 1);
    const auto where = plain.begin() + static_cast<std::ptrdiff_t>(offset);
    const auto end = where + static_cast<std::ptrdiff_t>(length);
    switch (below(4)) {
      case 0:
        sparse.zero(offset, length);
        std::fill(where, end, std::byte{0});
        break;
      case 1:
        if (below(5) != 0) continue;
        sparse.erase_from(offset);
        std::fill(where, plain.end(), std::byte{0});
        break;
      default:
        std::generate(where, end, [&] { return static_cast<std::byte>(random()); });
        ASSERT_EQ(sparse.write(offset, {&*where, length}), length);
    }
    std::vector<std::byte> got(plain.size());
    sparse.read(0, got);
    ASSERT_TRUE(got == plain) << "after step " << i;
  }
}

TEST(SparseBytes, PaysForItsPages) {
  Budget budget{2 * kPage};
  {
    SparseBytes bytes(budget);
    std::vector<std::byte> data(3 * kPage, std::byte{1});
    EXPECT_EQ(bytes.write(0, data), 2 * kPage);
    EXPECT_EQ(budget.free, 0u);
    bytes.zero(0, kPage);
    EXPECT_EQ(budget.free, kPage);
    EXPECT_EQ(bytes.write(5 * kPage - 1, std::span(data).first(2)), 1u);
  }
  EXPECT_EQ(budget.free, 2 * kPage);
}

TEST(Memory, FullStoreSaysHowMuchLandedAndRecovers) {
  MemoryStore store({.limit = 2 * kPage});
  Request create = request(Op::create, *store.root());
  create.name = "f";
  create.access = Access::both;
  const Reply file = *store.call(std::move(create));
  std::vector<std::byte> data(3 * kPage, std::byte{1});
  const auto write = [&] {
    Request r = request(Op::write, file.handle);
    r.right = file.right;
    r.file = Extents(Extent{Offset(10), Length(data.size())});
    r.memory = Memory::of(std::span(data));
    return store.call(std::move(r));
  };
  const auto result = write();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ENOSPC);
  EXPECT_EQ(result.error().done(), 2 * kPage - 10);
  EXPECT_EQ(store.call(request(Op::getattr, file.handle))->attr.size, 2 * kPage);
  EXPECT_EQ(store.call(request(Op::statfs, file.handle))->statfs.blocks_free, 0u);
  EXPECT_TRUE(store.call(request(Op::resize, file.handle)));
  data.resize(kPage);
  EXPECT_TRUE(write());
}

TEST(Memory, ForgetsAnUnlinkedFileWithItsLastRight) {
  MemoryStore store({.limit = kPage});
  Request create = request(Op::create, *store.root());
  create.name = "f";
  create.access = Access::both;
  const Reply file = *store.call(std::move(create));
  Request remove = request(Op::remove, *store.root());
  remove.name = "f";
  ASSERT_TRUE(store.call(std::move(remove)));
  EXPECT_EQ(store.call(request(Op::getattr, file.handle))->attr.links, 0u);
  EXPECT_EQ(store.open_rights(), 1u);
  Request close = request(Op::close, file.handle);
  close.right = file.right;
  ASSERT_TRUE(store.call(std::move(close)));
  EXPECT_EQ(store.open_rights(), 0u);
  EXPECT_EQ(store.call(request(Op::getattr, file.handle)).error().code(), ESTALE);
}

TEST(Memory, HandlesOfAnotherLifeAreRefused) {
  MemoryStore one, two;
  EXPECT_EQ(two.call(request(Op::getattr, *one.root())).error().code(), EBADF);
}

TEST(Memory, GivesUpWhatWasCancelled) {
  MemoryStore store;
  std::stop_source stop;
  stop.request_stop();
  Request r = request(Op::getattr, *store.root());
  r.stop = stop.get_token();
  EXPECT_EQ(store.call(std::move(r)).error().code(), ECANCELED);
}

}  // namespace
}  // namespace forebay
