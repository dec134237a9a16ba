#include "server/merged_request.h"

#include <gtest/gtest.h>

#include <random>

#include "core/testing.h"
#include "store/memory.h"

namespace forebay::server {
namespace {

TEST(MergeablePieces, AreThoseOfTheLongerSide) {
  std::string bytes(100, '\0');
  Request r;
  r.op = Op::write;
  r.file = Extents(ext(0, 100));
  r.memory = Memory::of(std::as_writable_bytes(std::span(bytes)));
  EXPECT_EQ(mergeable_pieces(r), 1u);
  r.file = Extents::make({ext(50, 60), ext(0, 40)}).value();
  EXPECT_EQ(mergeable_pieces(r), 0u) << "a write that goes back";
  r.op = Op::read;
  EXPECT_EQ(mergeable_pieces(r), 2u);
  r.file = Extents::make({ext(0, 1)}, {{100, 10}}).value();
  EXPECT_EQ(mergeable_pieces(r), 100u);
  r.file = Extents::make({ext(0, 1)}, {{100000, 10}}).value();
  EXPECT_EQ(mergeable_pieces(r), 0u) << "too many";
}

// A file of a memory store, and requests on it with memory of their own.
class Merging : public ::testing::Test {
 protected:
  Merging() {
    Request create;
    create.op = Op::create;
    create.caller = caller_;
    create.handle = store_.root().value();
    create.name = "f";
    create.mode = 0600;
    create.access = Access::both;
    const Reply made = store_.call(std::move(create)).value();
    handle_ = made.handle;
    right_ = made.right;
  }

  Request request(Op op, Extents file, std::string& bytes) const {
    Request r;
    r.op = op;
    r.caller = caller_;
    r.handle = handle_;
    r.right = right_;
    // The memory side in two pieces, in the wrong order.
    const uint64_t total = file.total().value, half = total / 2;
    r.file = std::move(file);
    r.memory = {reinterpret_cast<std::byte*>(bytes.data()),
                Extents::make({ext(half, total - half), ext(0, half)}).value()};
    return r;
  }

  Extents random_list(uint64_t span, bool rising) {
    std::vector<Extent> blocks;
    uint64_t at = random_() % span;
    for (uint64_t n = 1 + random_() % 4; n > 0; --n) {
      blocks.push_back(ext(at, 1 + random_() % 50));
      at = rising ? blocks.back().end().value + random_() % 60 : random_() % span;
    }
    return Extents::make(std::move(blocks)).value();
  }

  MemoryStore store_;
  CallerRef caller_ = this_process_caller();
  Handle handle_;
  Right right_;
  std::mt19937_64 random_{test_seed()};
  BufferPool pool_{64_KiB, 16_KiB};
};

const Staging kNever{};
const Staging kAlways{.piece = 4_KiB, .batch = 16_KiB};

TEST_F(Merging, ReadsGiveEachWhatItWouldGetAlone) {
  std::string content(700, '\0');
  for (char& c : content) c = static_cast<char>(random_());
  Request fill = request(Op::write, Extents(ext(0, content.size())), content);
  fill.memory = Memory::of(std::as_writable_bytes(std::span(content)));
  ASSERT_TRUE(store_.call(std::move(fill)).has_value());
  for (int round = 0; round < 3000; ++round) {
    const size_t n = 2 + random_() % 6;
    std::vector<Request> requests;
    std::vector<std::string> merged(n), alone(n);
    std::vector<const Request*> parts;
    for (size_t i = 0; i < n; ++i) {
      const Extents file = random_list(800, false);  // also beyond the end
      merged[i].assign(file.total().value, '?');
      alone[i] = merged[i];
      requests.push_back(request(Op::read, file, merged[i]));
    }
    for (const Request& r : requests) parts.push_back(&r);
    auto m = MergedRequest::make(parts, pool_, random_() % 2 ? kAlways : kNever);
    ASSERT_TRUE(m.has_value());
    const uint64_t count = store_.call(m->request()).value().count;
    m->share(count);
    for (size_t i = 0; i < n; ++i) {
      const uint64_t want =
          store_.call(request(Op::read, requests[i].file, alone[i])).value().count;
      ASSERT_EQ(m->count(i), want) << "round " << round;
      std::string a(want, '\0'), b(want, '\0');
      copy_out(request(Op::read, requests[i].file, merged[i]).memory,
               std::as_writable_bytes(std::span(a)));
      copy_out(request(Op::read, requests[i].file, alone[i]).memory,
               std::as_writable_bytes(std::span(b)));
      ASSERT_EQ(a, b) << "round " << round;
    }
  }
  EXPECT_EQ(pool_.in_use(), 0u);
}

TEST_F(Merging, WritesPutEachByteWhereItBelongs) {
  for (int round = 0; round < 2000; ++round) {
    std::vector<Request> requests;
    std::vector<std::string> bytes;
    std::vector<Extents> files;
    for (int tries = 0; tries < 20; ++tries) {
      const Extents file = random_list(800, true);
      if (std::ranges::any_of(files, [&](const auto& f) { return may_overlap(f, file); })) continue;
      files.push_back(file);
    }
    std::string expected(3000, '\0');
    bytes.resize(files.size());
    std::vector<const Request*> parts;
    for (size_t i = 0; i < files.size(); ++i) {
      bytes[i].resize(files[i].total().value);
      for (char& c : bytes[i]) c = static_cast<char>(random_());
      requests.push_back(request(Op::write, files[i], bytes[i]));
      walk_pairs(files[i], requests.back().memory.shape, [&](Extent f, Extent m) {
        expected.replace(f.offset.value, f.length.value, bytes[i], m.offset.value, m.length.value);
        return true;
      });
    }
    Request clear;
    clear.op = Op::resize;
    clear.caller = caller_;
    clear.handle = handle_;
    for (const uint64_t size : {0u, 3000u}) {
      clear.length = Length(size);
      ASSERT_TRUE(store_.call(clear).has_value());
    }
    for (const Request& r : requests) parts.push_back(&r);
    auto m = MergedRequest::make(parts, pool_, random_() % 2 ? kAlways : kNever);
    ASSERT_TRUE(m.has_value());
    m->share(store_.call(m->request()).value().count);
    for (size_t i = 0; i < files.size(); ++i) ASSERT_EQ(m->count(i), files[i].total().value);
    std::string got(3000, '?');
    Request whole = request(Op::read, Extents(ext(0, 3000)), got);
    whole.memory = Memory::of(std::as_writable_bytes(std::span(got)));
    ASSERT_EQ(store_.call(std::move(whole)).value().count, 3000u);
    ASSERT_EQ(got, expected) << "round " << round;
  }
}

TEST_F(Merging, NeighboursAreOneRun) {
  std::string a(100, 'a'), b(50, 'b');
  Request first = request(Op::write, Extents(ext(0, 100)), a);
  Request second = request(Op::write, Extents(ext(100, 50)), b);
  const auto m = MergedRequest::make({&first, &second}, pool_, kNever);
  EXPECT_EQ(m->request().file, Extents(ext(0, 150)));
}

TEST_F(Merging, OverlappingReadsNeedABuffer) {
  std::string a(100, 'a'), b(100, 'b');
  Request first = request(Op::read, Extents(ext(0, 100)), a);
  Request second = request(Op::read, Extents(ext(50, 100)), b);
  std::vector<Buffer> all;
  while (Buffer one = pool_.try_take()) all.push_back(std::move(one));
  EXPECT_FALSE(MergedRequest::make({&first, &second}, pool_, kNever).has_value());
  all.clear();
  EXPECT_EQ(MergedRequest::make({&first, &second}, pool_, kNever)->request().file,
            Extents(ext(0, 150)));
}

}  // namespace
}  // namespace forebay::server
