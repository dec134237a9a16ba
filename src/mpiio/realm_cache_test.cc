#include "mpiio/realm_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <thread>

#include "mpiio/realm_cache_testing.h"

namespace forebay::mpiio {
namespace {

constexpr CacheShape kSmall{.parts = 2, .page_size = 64, .part_bytes = 16 * 64, .realm_size = 256};

struct World {
  explicit World(const CacheShape& s = kSmall) : shape(s), space(RealmCache::space(s)) {
    RealmCache::create(space.at(), shape);
  }
  Result<void> write(uint64_t offset, const Bytes& bytes, Allocate allocate = Allocate::yes) {
    return cache().write(store, Extents(ext(offset, bytes.size())), at(bytes.data(), bytes.size()),
                         allocate);
  }
  Result<Bytes> read(uint64_t offset, uint64_t length, Allocate allocate = Allocate::yes) {
    Bytes bytes(length);
    auto count =
        cache().read(store, Extents(ext(offset, length)), at(bytes.data(), length), allocate);
    if (!count) return count.error();
    bytes.resize(*count);
    return bytes;
  }
  // As another rank that has just attached.
  RealmCache cache() const { return RealmCache(space.at()); }

  CacheShape shape;
  SharedSpace space;
  TestFile file;
  Watched store{file};
};

Bytes filled(uint64_t length, int value) {
  return Bytes(length, std::byte(value));
}

// Random calls against a plain list of bytes. Calls that fail are repeated until they succeed.
class Fuzz {
 public:
  explicit Fuzz(uint64_t seed) : random_(seed), world_(random_shape()) {}

  void run(int steps) {
    for (int i = 0; i < steps && !testing::Test::HasFatalFailure(); ++i) step();
    sync();
    EXPECT_EQ(world_.file.contents(), oracle_);
  }
  void inject(uint64_t every) {
    world_.store.fails = [this, every](uint64_t) { return !mute_ && random_() % every == 0; };
  }

 private:
  CacheShape random_shape() {
    CacheShape shape;
    shape.parts = 1 + below(3);
    shape.page_size = uint64_t{64} << below(3);
    shape.part_bytes = shape.page_size * (4 + below(12));
    shape.realm_size = shape.page_size * (1 + below(4));
    shape.patient = below(2) == 1;
    return shape;
  }
  uint32_t below(uint64_t n) { return static_cast<uint32_t>(random_() % n); }
  Allocate allocate() { return below(3) ? Allocate::yes : Allocate::no; }

  // Disjoint pieces, mostly rising, now and then in any order.
  std::vector<Extent> random_pieces() {
    std::vector<Extent> pieces;
    const uint64_t longest = below(4) ? 40 : 2000, gap = below(3) ? 60 : 1;
    uint64_t offset = below(kFile);
    for (uint32_t n = 1 + below(20); n > 0 && offset < kFile; --n) {
      pieces.push_back(ext(offset, 1 + below(longest)));
      offset = pieces.back().end().value + below(gap);
    }
    if (below(4) == 0) std::shuffle(pieces.begin(), pieces.end(), random_);
    return pieces;
  }

  // Memory with holes, in as many pieces as the other side has, or one.
  struct Buffer {
    Bytes bytes;
    Extents memory;
  };
  Buffer random_buffer(const Extents& file) {
    Buffer buffer;
    const uint64_t total = file.total().value, cut = below(total + 1), hole = below(9);
    buffer.bytes.resize(total + hole);
    const uint64_t base = reinterpret_cast<uintptr_t>(buffer.bytes.data());
    buffer.memory = Extents::make({ext(base, cut), ext(base + cut + hole, total - cut)}).value();
    return buffer;
  }

  void step() {
    const uint32_t what = below(100);
    if (what < 45) return write();
    if (what < 85) return read();
    if (what < 90) return flush_part();
    if (what < 93) return world_.cache().drop();
    if (what < 96) return truncate();
    sync();
    somebody_else();
  }

  void write() {
    const Extents file = Extents::make(random_pieces()).value();
    Buffer buffer = random_buffer(file);
    for (std::byte& b : buffer.bytes) b = std::byte(random_());
    const Allocate how = allocate();
    repeat([&] { return world_.cache().write(world_.store, file, buffer.memory, how); });
    oracle_.resize(std::max<uint64_t>(oracle_.size(), file.bounds().end().value));
    walk_pairs(file, buffer.memory, [&](Extent f, Extent m) {
      std::memcpy(oracle_.data() + f.offset.value, reinterpret_cast<void*>(m.offset.value),
                  m.length.value);
      return true;
    });
  }

  void read() {
    const Extents file = Extents::make(random_pieces()).value();
    Buffer buffer = random_buffer(file);
    const Allocate how = allocate();
    uint64_t count = 0;
    repeat([&]() -> Result<void> {
      auto result = world_.cache().read(world_.store, file, buffer.memory, how);
      if (!result) return result.error();
      count = *result;
      return {};
    });
    uint64_t there = 0;
    walk_pairs(file, buffer.memory, [&](Extent f, Extent m) {
      for (uint64_t i = 0; i < f.length.value; ++i, ++there) {
        const uint64_t place = f.offset.value + i;
        if (place >= oracle_.size() || there >= count) return false;
        const auto got = reinterpret_cast<const std::byte*>(m.offset.value)[i];
        if (got != oracle_[place]) ADD_FAILURE() << "at " << place;
      }
      return true;
    });
    ASSERT_EQ(count, there);
    ASSERT_FALSE(testing::Test::HasFailure());
  }

  void flush_part() {
    const uint32_t part = below(world_.shape.parts);
    repeat([&] { return world_.cache().flush(world_.store, part); });
  }

  void sync() {
    repeat([&] { return world_.cache().flush(world_.store); });
    EXPECT_EQ(world_.cache().dirty_end(), Offset(0));
    world_.cache().drop();
    ASSERT_EQ(world_.file.size().value(), oracle_.size());
  }

  void truncate() {
    const uint64_t size = below(kFile);
    world_.file.resize(size);
    world_.cache().truncate(Length(size));
    oracle_.resize(size);
  }

  void somebody_else() {
    Bytes bytes(1 + below(300));
    for (std::byte& b : bytes) b = std::byte(random_());
    const uint64_t offset = below(kFile);
    world_.file.put(offset, bytes);
    oracle_.resize(std::max<uint64_t>(oracle_.size(), offset + bytes.size()));
    std::copy(bytes.begin(), bytes.end(), oracle_.begin() + static_cast<ptrdiff_t>(offset));
  }

  template <class Fn>
  void repeat(Fn&& fn) {
    bool ok = false;
    for (int i = 0; i < 5 && !ok; ++i) {
      mute_ = i == 4;  // a call of many requests would fail for ever
      ok = fn().has_value() || (mute_ && fn().has_value());  // what was kept is returned once
    }
    mute_ = false;
    ASSERT_TRUE(ok);
  }

  static constexpr uint64_t kFile = 12000;
  std::mt19937_64 random_;
  bool mute_ = false;
  World world_;
  Bytes oracle_;
};

TEST(RealmCache, RandomCallsAgainstAListOfBytes) {
  const uint64_t seed = test_seed();
  for (uint64_t i = 0; i < 200; ++i) {
    SCOPED_TRACE(i);
    Fuzz(seed + i).run(100);
    if (HasFailure()) return;
  }
}

TEST(RealmCache, RandomCallsOnAStoreThatFails) {
  const uint64_t seed = test_seed();
  for (uint64_t i = 0; i < 200; ++i) {
    SCOPED_TRACE(i);
    Fuzz fuzz(seed + i);
    fuzz.inject(2 + i % 9);
    fuzz.run(60);
    if (HasFailure()) return;
  }
}

TEST(RealmCache, WhatWasWrittenIsSeenBeforeItIsInTheStore) {
  World world;
  ASSERT_TRUE(world.write(100, filled(300, 1)));
  EXPECT_EQ(world.store.calls, 0u);
  EXPECT_EQ(world.read(100, 300, Allocate::no).value(), filled(300, 1));
  EXPECT_EQ(world.store.calls, 0u) << "what is dirty need not be read";
  EXPECT_EQ(world.cache().dirty_end(), Offset(400));
  ASSERT_TRUE(world.cache().flush(world.store));
  EXPECT_EQ(world.cache().dirty_end(), Offset(0));
  EXPECT_EQ(world.file.size().value(), 400u);
  EXPECT_EQ(world.read(128, 128).value(), filled(128, 1));
  EXPECT_EQ(world.store.reads, 0u) << "pages that were written throughout stay";
}

TEST(RealmCache, WhatNobodyWroteHereIsLeftAlone) {
  World world;
  world.file.put(0, filled(64, 1));
  ASSERT_TRUE(world.read(0, 64));  // the page is filled
  ASSERT_TRUE(world.write(10, filled(1, 2)));
  ASSERT_TRUE(world.write(20, filled(3, 2)));
  world.file.put(0, filled(64, 3));  // somebody else
  ASSERT_TRUE(world.cache().flush(world.store));
  Bytes expected = filled(64, 3);
  expected[10] = expected[20] = expected[21] = expected[22] = std::byte(2);
  EXPECT_EQ(world.file.contents(), expected);
  EXPECT_NE(world.read(0, 64).value(), expected) << "kept until it is dropped";
  world.cache().drop();
  EXPECT_EQ(world.read(0, 64).value(), expected);
}

TEST(RealmCache, AReadIsShortOnlyAtTheEndOfFile) {
  World world;
  world.file.put(0, filled(100, 1));
  EXPECT_EQ(world.read(50, 100).value(), filled(50, 1));
  EXPECT_EQ(world.read(200, 10).value().size(), 0u);
  ASSERT_TRUE(world.write(1000, filled(24, 2)));
  for (const Allocate how : {Allocate::no, Allocate::yes}) {
    Bytes expected = filled(1024, 0);
    std::fill_n(expected.begin(), 100, std::byte(1));
    std::fill_n(expected.begin() + 1000, 24, std::byte(2));
    EXPECT_EQ(world.read(0, 5000, how).value(), expected) << "the hole is zeros";
  }
}

TEST(RealmCache, AFileThatGrewWithoutUs) {
  World world;
  world.file.put(0, filled(100, 1));
  ASSERT_EQ(world.read(0, 128).value().size(), 100u);
  world.file.put(100, filled(100, 1));
  EXPECT_EQ(world.read(0, 300).value(), filled(200, 1));
}

TEST(RealmCache, ASmallerFileForgetsWhatWasBehindItsEnd) {
  World world;
  ASSERT_TRUE(world.write(0, filled(300, 1)));
  world.cache().truncate(Length(70));
  EXPECT_EQ(world.cache().dirty_end(), Offset(70));
  EXPECT_EQ(world.read(0, 300).value(), filled(70, 1));
  world.cache().truncate(Length(80));
  Bytes expected = filled(80, 1);
  std::fill_n(expected.begin() + 70, 10, std::byte(0));
  EXPECT_EQ(world.read(0, 300).value(), expected);
  ASSERT_TRUE(world.cache().flush(world.store));
  EXPECT_EQ(world.file.contents(), filled(70, 1));
}

TEST(RealmCache, AStreamGoesOutInFewRequestsAndIsNotKept) {
  World world({.parts = 1, .page_size = 64, .part_bytes = 64 * 64, .realm_size = 64});
  constexpr uint64_t kWrites = 100, kBytes = 16 * 64;
  for (uint64_t i = 0; i < kWrites; ++i)
    ASSERT_TRUE(world.write(i * kBytes, filled(kBytes, static_cast<int>(i))));
  ASSERT_TRUE(world.cache().flush(world.store));
  EXPECT_LE(world.store.writes, kWrites) << "never more than without a cache";
  EXPECT_EQ(world.store.written, kWrites * kBytes) << "nothing twice";
  EXPECT_EQ(world.store.reads, 0u);
  ASSERT_EQ(world.file.size().value(), kWrites * kBytes);
  for (uint64_t i = 0; i < kWrites; ++i) EXPECT_EQ(world.file.contents()[i * kBytes], std::byte(i));
}

TEST(RealmCache, NeighboursAreReadAndWrittenTogether) {
  World world({.parts = 1, .page_size = 64, .part_bytes = 64 * 64, .realm_size = 64});
  world.file.put(0, filled(1024, 1));
  EXPECT_EQ(world.read(1, 1000).value(), filled(1000, 1));
  EXPECT_EQ(world.store.reads, 1u);
  for (uint64_t page : {3, 1, 2, 0, 5, 4}) ASSERT_TRUE(world.write(page * 64, filled(64, 2)));
  ASSERT_TRUE(world.cache().flush(world.store));
  EXPECT_EQ(world.store.writes, 1u);
  EXPECT_EQ(world.store.written, 6u * 64);
}

TEST(RealmCache, AWriteLargerThanHalfAPartGoesAroundIt) {
  const Bytes large = filled(32 * 64, 2);
  World one({.parts = 1, .page_size = 64, .part_bytes = 16 * 64, .realm_size = 64});
  ASSERT_TRUE(one.write(100, filled(100, 1)));
  ASSERT_TRUE(one.write(0, large));
  EXPECT_EQ(one.store.writes, 1u);
  EXPECT_EQ(one.file.contents(), large);
  EXPECT_EQ(one.read(0, large.size()).value(), large);
  ASSERT_TRUE(one.cache().flush(one.store));
  EXPECT_EQ(one.store.writes, 1u) << "what was dirty under it is not any more";
}

TEST(RealmCache, AnErrorWhileMakingRoomIsReturnedByTheNextFlush) {
  World world({.parts = 1, .page_size = 64, .part_bytes = 4 * 64, .realm_size = 64});
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(world.write(i * 128, filled(64, 1)));
  world.store.fails = [](uint64_t call) { return call == 1; };
  ASSERT_TRUE(world.write(1000, filled(24, 2))) << "goes around the full part";
  EXPECT_EQ(world.store.writes, 2u);
  auto flushed = world.cache().flush(world.store);
  ASSERT_FALSE(flushed);
  EXPECT_EQ(flushed.error().code(), ENOSPC);
  EXPECT_EQ(flushed.error().what(), "write");
  EXPECT_TRUE(world.cache().flush(world.store)) << "once";
  EXPECT_EQ(world.cache().dirty_end(), Offset(0));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(world.file.contents()[i * 128], std::byte(1));
}

TEST(RealmCache, AFlushThatFailsKeepsItsDataForTheNext) {
  World world;
  ASSERT_TRUE(world.write(0, filled(500, 1)));
  world.store.fails = [](uint64_t) { return true; };
  EXPECT_FALSE(world.cache().flush(world.store));
  EXPECT_FALSE(world.cache().flush(world.store));
  EXPECT_EQ(world.cache().dirty_end(), Offset(500));
  world.cache().drop();
  EXPECT_EQ(world.read(0, 500).value(), filled(500, 1)) << "dropping keeps what is dirty";
  world.store.fails = [](uint64_t) { return false; };
  EXPECT_TRUE(world.cache().flush(world.store));
  EXPECT_EQ(world.file.contents(), filled(500, 1));
}

TEST(RealmCache, MemoryThatIsNotNeededIsNotTouched) {
  World world({.parts = 8, .page_size = 64_KiB, .part_bytes = 64_MiB, .realm_size = 1_MiB});
  ASSERT_TRUE(world.write(0, filled(100000, 1)));
  EXPECT_LT(world.space.resident(), 256_KiB);
  EXPECT_LT(world.space.size(), 8 * 64_MiB * 9 / 8 + 8 * 1_MiB);
}

TEST(RealmCache, ThreadsOfOneFile) {
  constexpr uint64_t kThreads = 4, kFile = 2400;
  World world({.parts = 3, .page_size = 64, .part_bytes = 8 * 64, .realm_size = 128});
  const uint64_t seed = test_seed();
  std::vector<std::thread> threads;
  for (uint64_t rank = 0; rank < kThreads; ++rank) {
    threads.emplace_back([&, rank] {
      std::mt19937_64 random(seed + rank);
      RealmCache cache = world.cache();
      for (int round = 1; round <= 30; ++round) {
        // Every fourth byte is this thread's.
        const Extents file = Extents::make({ext(rank, 1)}, {{kFile / kThreads, kThreads}}).value();
        const Allocate how = random() % 2 ? Allocate::yes : Allocate::no;
        const Bytes mine = filled(kFile / kThreads, round);
        Bytes got(mine.size());
        EXPECT_TRUE(cache.write(world.file, file, at(mine.data(), mine.size()), how));
        if (random() % 4 == 0) {
          EXPECT_TRUE(cache.flush(world.file, random() % 3));
        }
        EXPECT_TRUE(cache.read(world.file, file, at(got.data(), got.size()), how));
        EXPECT_EQ(got, mine);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(world.cache().flush(world.file));
  EXPECT_EQ(world.file.contents(), filled(kFile, 30));
}

// A file system whose clients keep what they read and never look again.
class Incoherent : public Backing {
 public:
  explicit Incoherent(TestFile& file) : file_(file) {}

  Result<uint64_t> read(Extents file, Extents memory) override {
    uint64_t count = 0;
    walk_pairs(file, memory, [&](Extent f, Extent m) {
      for (uint64_t i = 0; i < f.length.value; ++i, ++count)
        reinterpret_cast<std::byte*>(m.offset.value)[i] = block(f.offset.value + i);
      return true;
    });
    return count;
  }
  Result<void> write(Extents file, Extents memory) override {
    walk_pairs(file, memory, [&](Extent f, Extent m) {
      for (uint64_t i = 0; i < f.length.value; ++i)
        block(f.offset.value + i) = reinterpret_cast<const std::byte*>(m.offset.value)[i];
      return true;
    });
    return file_.write(std::move(file), std::move(memory));
  }
  Result<uint64_t> size() override { return file_.size(); }

 private:
  static constexpr uint64_t kBlock = 64;
  std::byte& block(uint64_t offset) {
    Bytes& bytes = blocks_[offset / kBlock];
    if (bytes.empty()) {
      bytes.resize(kBlock);
      file_.read(Extents(ext(offset / kBlock * kBlock, kBlock)), at(bytes.data(), kBlock)).value();
    }
    return bytes[offset % kBlock];
  }
  TestFile& file_;
  std::map<uint64_t, Bytes> blocks_;
};

// Paper 5, Figure 3.1: the whole file is read, its first half is written through another view, the
// whole file is read again; two processes, each the aggregator of half of what a call touches, or,
// with persistent realms, of half of the file throughout.
class Figure31 : public testing::Test {
 protected:
  static constexpr uint64_t kFile = 1024;
  void SetUp() override { file.put(0, filled(kFile, 1)); }

  TestFile file;
  Incoherent clients[2]{Incoherent(file), Incoherent(file)};
  Bytes expected() {
    Bytes bytes = filled(kFile, 1);
    std::fill_n(bytes.begin(), kFile / 2, std::byte(2));
    return bytes;
  }
};

TEST_F(Figure31, RealmsThatChangeReadStaleData) {
  Bytes buffer(kFile);
  const auto even = [&](uint64_t length, auto&& access) {
    for (uint64_t i = 0; i < 2; ++i)
      access(clients[i], Extents(ext(i * length / 2, length / 2)),
             at(buffer.data() + i * length / 2, length / 2));
  };
  const auto read = [](Backing& client, Extents f, Extents m) {
    EXPECT_TRUE(client.read(std::move(f), std::move(m)));
  };
  even(kFile, read);
  buffer = filled(kFile, 2);
  even(kFile / 2, [](Backing& client, Extents f, Extents m) {
    EXPECT_TRUE(client.write(std::move(f), std::move(m)));
  });
  even(kFile, read);
  EXPECT_NE(buffer, expected());
  EXPECT_EQ(file.contents(), expected());
}

TEST_F(Figure31, PersistentRealmsReadWhatWasWritten) {
  for (const uint64_t pages : {4, 16}) {
    const CacheShape shape{
        .parts = 2, .page_size = 64, .part_bytes = pages * 64, .realm_size = kFile / 2};
    SharedSpace space(RealmCache::space(shape));
    RealmCache::create(space.at(), shape);
    RealmCache cache(space.at());
    Bytes buffer(kFile);
    // Windows of an aggregator, each in its own realm.
    const auto persistent = [&](uint64_t length, auto&& access) {
      for (uint64_t offset = 0; offset < length; offset += 128)
        EXPECT_TRUE(access(clients[cache.part_of(Offset(offset))], Extents(ext(offset, 128)),
                           at(buffer.data() + offset, 128)));
    };
    const auto read = [&](Backing& client, const Extents& f, const Extents& m) {
      return cache.read(client, f, m, Allocate::yes);
    };
    persistent(kFile, read);
    buffer = filled(kFile, 2);
    persistent(kFile / 2, [&](Backing& client, const Extents& f, const Extents& m) {
      return cache.write(client, f, m, Allocate::yes);
    });
    persistent(kFile, read);
    EXPECT_EQ(buffer, expected());
    for (uint32_t part = 0; part < 2; ++part) EXPECT_TRUE(cache.flush(clients[part], part));
    EXPECT_EQ(file.contents(), expected());
  }
}

// What is written once and whole goes to the Store; what comes again stays.
TEST(RealmCache, PatientOnesKeepWholePagesThatComeAgain) {
  CacheShape shape = kSmall;
  shape.patient = true;
  World world(shape);
  ASSERT_TRUE(world.write(0, filled(128, 1)));
  EXPECT_EQ(world.file.contents(), filled(128, 1));
  EXPECT_EQ(world.cache().dirty_end(), Offset(0));
  ASSERT_TRUE(world.write(0, filled(64, 2)));
  EXPECT_EQ(world.file.contents(), filled(128, 1));  // kept now
  EXPECT_EQ(*world.read(0, 64), filled(64, 2));
  ASSERT_TRUE(world.write(130, filled(5, 3)));  // not whole: kept at once
  EXPECT_EQ(world.file.contents().size(), 128u);
  ASSERT_TRUE(world.cache().flush(world.store));
  EXPECT_EQ(*world.read(130, 5), filled(5, 3));
  EXPECT_EQ(world.file.contents().size(), 135u);
}

}  // namespace
}  // namespace forebay::mpiio
