// A realm cache between processes: each maps it, and each may find it dirty or under way.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <random>

#include "mpiio/realm_cache_testing.h"

namespace forebay::mpiio {
namespace {

constexpr uint64_t kProcesses = 4, kFile = 20000;
constexpr CacheShape kShape{.parts = 3, .page_size = 128, .part_bytes = 8 * 128, .realm_size = 384};

// Values of a rank's bytes, told apart by rank and round.
std::byte value(uint64_t rank, uint64_t round) {
  return std::byte(1 + rank * 60 + round % 60);
}

// Every fourth group of `grain` bytes is a rank's own: it reads there what it wrote last, whoever
// has flushed or evicted it since.
int use(SharedSpace& space, TestFile& file, uint64_t rank, uint64_t seed) {
  std::mt19937_64 random(seed + rank);
  RealmCache cache(space.at());
  const uint64_t grain = 5, groups = kFile / (grain * kProcesses);
  const Extents mine =
      Extents::make({ext(rank * grain, grain)}, {{groups, grain * kProcesses}}).value();
  for (uint64_t round = 0; round < 60; ++round) {
    const Bytes data(grain * groups, value(rank, round));
    Bytes got(data.size());
    const Allocate how = random() % 3 ? Allocate::yes : Allocate::no;
    if (!cache.write(file, mine, at(data.data(), data.size()), how)) return 1;
    if (random() % 4 == 0 && !cache.flush(file, random() % kShape.parts)) return 2;
    const auto count = cache.read(file, mine, at(got.data(), got.size()), how);
    if (!count || *count != got.size()) return 3;
    if (got != data) return 4;
  }
  return 0;
}

TEST(RealmCacheProcesses, EachSeesWhatItWroteAndAllOfItIsInTheFile) {
  const uint64_t seed = test_seed();
  SharedSpace space(RealmCache::space(kShape));
  RealmCache::create(space.at(), kShape);
  TestFile file;
  std::vector<pid_t> children;
  for (uint64_t rank = 0; rank < kProcesses; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(use(space, file, rank, seed));
    children.push_back(pid);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  ASSERT_TRUE(RealmCache(space.at()).flush(file));
  const Bytes contents = file.contents();
  ASSERT_EQ(contents.size(), kFile);
  for (uint64_t i = 0; i < kFile; ++i)
    ASSERT_EQ(contents[i], value(i / 5 % kProcesses, 59)) << "at " << i;
}

}  // namespace
}  // namespace forebay::mpiio
