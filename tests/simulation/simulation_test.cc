// Many short lives of a small world, each from a seed. A failing seed is printed and replays.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "actor.h"
#include "core/testing.h"

namespace forebay::sim {
namespace {

using namespace std::chrono_literals;

constexpr unsigned kClients = 3;
constexpr unsigned kOperations = 60;  // of each client

struct Totals {
  uint64_t unknown = 0, resent = 0, lent = 0, in_area = 0, boxed = 0;
  int kills = 0, stops = 0;
  Duration time{0};  // virtual
  bool operator==(const Totals&) const = default;
};

void prepare(World& world, SharedFile& file) {
  const auto store = world.connect("maker");
  Request create;
  create.op = Op::create;
  create.caller = this_process_caller();
  create.handle = store->root().value();
  create.name = "shared";
  create.mode = 0600;
  create.access = Access::both;
  const Reply made = store->call(std::move(create)).value();
  file.handle = made.handle;
  file.register_at = kClients * kRegion;
  file.history.write_begins(0, 0);
  file.history.write_ends(0, 0);
  Request resize;
  resize.op = Op::resize;
  resize.caller = this_process_caller();
  resize.handle = made.handle;
  resize.right = made.right;
  resize.length = Length(file.register_at + kRegister);
  store->call(std::move(resize)).value();
}

void live(uint64_t seed, const Climate& climate, Totals& totals) {
  World world(seed, climate);
  SharedFile file;
  prepare(world, file);
  std::vector<std::unique_ptr<Actor>> actors;
  for (unsigned i = 0; i < kClients; ++i) {
    actors.push_back(std::make_unique<Actor>(world, file, i, kOperations));
    actors.back()->prepare();
  }
  world.begin_faults();
  for (auto& actor : actors) actor->begin();
  const auto all_done = [&] {
    return std::all_of(actors.begin(), actors.end(), [](const auto& a) { return a->done(); });
  };
  if (!world.loop.run_until(all_done, 2s)) {
    world.end_faults();
    ASSERT_TRUE(world.loop.run_until(all_done, 5min)) << "a request was never answered";
  }
  world.end_faults();
  world.loop.run_for(1s);
  for (auto& actor : actors) {
    actor->verify();
    totals.unknown += actor->unknown();
    const RemoteStore::Stats stats = actor->stats();
    totals.resent += stats.resent;
    totals.lent += stats.lent;
    totals.in_area += stats.in_area;
    totals.boxed += stats.boxed;
  }
  totals.time += world.loop.now().since_start;
  totals.kills += world.kills;
  totals.stops += world.stops;
}

unsigned seeds() {
  const char* given = std::getenv("FOREBAY_SEEDS");
  return given ? static_cast<unsigned>(std::strtoul(given, nullptr, 10)) : 60;
}

Totals live_many(const Climate& climate) {
  Totals totals;
  const uint64_t first = test_seed();
  const unsigned count = std::getenv("FOREBAY_SEED") ? 1 : seeds();
  unsigned ran = 0;
  while (ran < count && !::testing::Test::HasFailure()) {
    const uint64_t seed = first + ran++;
    SCOPED_TRACE(fmt::format("FOREBAY_SEED={} replays it", seed));
    live(seed, climate, totals);
  }
  fmt::print(
      "{}: {} seeds, {} kills, {} stops, {} sent again, {} outcomes unknown, {} requests on lent "
      "memory, {} chunks in shared areas, {} writes in boxes\n",
      climate.name, ran, totals.kills, totals.stops, totals.resent, totals.unknown, totals.lent,
      totals.in_area, totals.boxed);
  if (ran >= 20) {
    EXPECT_GT(totals.lent, 0u) << "no client shared memory";
    EXPECT_GT(totals.in_area, 0u);
    EXPECT_GT(totals.boxed, 0u);
  }
  return totals;
}

TEST(Simulation, TheSameSeedIsTheSameWorld) {
  const Climate climate{.name = "all", .cut = 0.1, .silence = 0.02, .stop = 0.02, .kill = 0.02};
  const uint64_t seed = test_seed();
  Totals one, two;
  live(seed, climate, one);
  live(seed, climate, two);
  EXPECT_EQ(one, two);
}

TEST(Simulation, Calm) {
  Climate climate{.name = "calm"};
  const Totals t = live_many(climate);
  EXPECT_EQ(t.resent, 0u);
  EXPECT_EQ(t.unknown, 0u);
}

TEST(Simulation, LostConnections) {
  Climate climate{.name = "lost connections", .cut = 0.2, .silence = 0.01, .cut_frames = 0.002};
  EXPECT_EQ(live_many(climate).unknown, 0u);
}

TEST(Simulation, OrderlyRestarts) {
  Climate climate{.name = "orderly restarts", .stop = 0.1};
  EXPECT_EQ(live_many(climate).unknown, 0u) << "a goodbye leaves nothing in doubt";
}

// Without crashes nothing shows that writes are acknowledged before they are on the disk.
TEST(Simulation, WriteBehindInCalm) {
  Climate climate{.name = "calm, write-behind", .behind = true};
  EXPECT_EQ(live_many(climate).unknown, 0u);
}

TEST(Simulation, WriteBehindAndLostConnections) {
  Climate climate{.name = "lost connections, write-behind",
                  .cut = 0.2,
                  .silence = 0.01,
                  .cut_frames = 0.002,
                  .behind = true};
  EXPECT_EQ(live_many(climate).unknown, 0u);
}

TEST(Simulation, WriteBehindAndOrderlyRestarts) {
  Climate climate{.name = "orderly restarts, write-behind", .stop = 0.1, .behind = true};
  EXPECT_EQ(live_many(climate).unknown, 0u);
}

TEST(Simulation, WriteBehindAndForgottenSessions) {
  Climate climate{.name = "forgotten sessions, write-behind",
                  .cut = 0.1,
                  .silence = 0.1,
                  .grace = std::chrono::milliseconds(5),
                  .behind = true};
  live_many(climate);
}

TEST(Simulation, Crashes) {
  Climate climate{.name = "crashes", .cut = 0.05, .stop = 0.02, .kill = 0.05, .cut_frames = 0.001};
  live_many(climate);
}

TEST(Simulation, ForgottenSessions) {
  Climate climate{.name = "forgotten sessions",
                  .cut = 0.1,
                  .silence = 0.1,
                  .grace = std::chrono::milliseconds(5)};
  live_many(climate);
}

}  // namespace
}  // namespace forebay::sim
