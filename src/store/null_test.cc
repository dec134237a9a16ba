#include "store/null.h"

#include <gtest/gtest.h>

#include <vector>

#include "store/testing.h"

namespace forebay {
namespace {

TEST(Null, KeepsSizesAndReadsZeros) {
  NullStore store;
  Request create = request(Op::create, *store.root());
  create.name = "f";
  create.access = Access::both;
  const Reply file = *store.call(std::move(create));

  std::vector<std::byte> bytes(100, std::byte{1});
  Request write = request(Op::write, file.handle);
  write.right = file.right;
  write.file = Extents(Extent{Offset(50), Length(100)});
  write.memory = Memory::of(std::span(bytes));
  EXPECT_EQ(store.call(std::move(write))->count, 100u);
  EXPECT_EQ(store.call(request(Op::getattr, file.handle))->attr.size, 150u);

  Request read = request(Op::read, file.handle);
  read.right = file.right;
  read.file = Extents(Extent{Offset(100), Length(100)});
  read.memory = Memory::of(std::span(bytes));
  EXPECT_EQ(store.call(std::move(read))->count, 50u);
  EXPECT_EQ(bytes[0], std::byte{0});
  EXPECT_EQ(bytes[49], std::byte{0});
  EXPECT_EQ(bytes[50], std::byte{1});
}

// Every row of the operation table is answered, on the directory and on a file: nothing asserts.
TEST(Null, AnswersEveryOperation) {
  NullStore store;
  for (int i = 0; i < kOpCount; ++i) {
    for (const bool on_file : {false, true}) {
      Request create = request(Op::create, *store.root());
      create.name = "f";
      create.access = Access::both;
      const Reply file = *store.call(std::move(create));
      Request r = request(static_cast<Op>(i), on_file ? file.handle : *store.root());
      const uint32_t needs = op_info(r.op).needs;
      if (needs & kName) r.name = "g";
      if (needs & kName2) r.name2 = "h";
      if (needs & kHandle2) r.handle2 = *store.root();
      if (needs & kRight) r.right = file.right;
      if (needs & kAccess) r.access = Access::read;
      if (needs & kSet) r.set.what = SetAttr::kMtimeNow;
      if (needs & kLength) r.length = Length(1);
      if (needs & kData) r.data = "d";
      const auto result = store.call(std::move(r));
      EXPECT_TRUE(result || result.error().code() != EINVAL) << op_info(static_cast<Op>(i)).name;
    }
  }
}

}  // namespace
}  // namespace forebay
