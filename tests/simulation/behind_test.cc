// Write-behind while servers are killed and disks are full: what was committed is never lost, and
// what was lost is always told.
//
// Each client has a file of its own. It writes in bursts, reads, commits, closes and opens again.
// As long as no call has failed, every read gives exactly what was written, and after a commit it
// is on the disk. When a call fails, the client assumes that anything it has not committed may be
// lost: then each byte of the file is one that it held at the last commit or that was written
// since.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bitset>
#include <cstdlib>

#include "core/testing.h"
#include "world.h"

namespace forebay::sim::behind_tests {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kSize = 24_KiB;

struct Totals {
  uint64_t errors = 0, commits = 0, reads = 0;
  int kills = 0, stops = 0;
};

class Committer {
 public:
  Committer(World& world, unsigned number, Totals& totals)
      : world_(world), totals_(totals), store_(world.connect(fmt::format("client{}", number))) {
    Request r;
    r.op = Op::create;
    r.handle = store_->root().value();
    r.name = fmt::format("file{}", number);
    r.mode = 0600;
    r.access = Access::both;
    r.caller = caller_;
    // Connections are cut from the start, and a server may then forget us.
    Result<Reply> made = store_->call(Request(r));
    for (int i = 0; !made && i < 20; ++i) made = store_->call(Request(r));
    handle_ = made.value().handle;
    right_ = made.value().right;
    begin();
    for (int i = 0; failed_ && i < 20; ++i) begin();
    EXPECT_FALSE(failed_);
  }
  ~Committer() { store_.reset(); }

  // Begins something. Nothing else is begun before it is done().
  void step() {
    if (failed_) return recover();
    switch (world_.random(8)) {
      case 0:
        return read();
      case 1:
      case 2:
        return commit(Op::commit);
      case 3:
        if (world_.random(4) == 0) return commit(Op::close);
        return;  // time for the age of what is dirty
      default:
        for (uint64_t n = 1 + world_.random(5); n > 0; --n) write();
        // A commit while writes are under way promises nothing about them.
        if (world_.random(4) == 0) submit(request(Op::commit), [this](auto&& r) { note(r); });
    }
  }
  bool done() const { return under_way_ == 0; }
  void settle() {
    EXPECT_TRUE(world_.loop.run_until([this] { return done(); }, 10min)) << "never answered";
  }
  // In a calm world: everything is as it was said to be.
  void verify() {
    for (int i = 0; failed_ && i < 20; ++i) recover(), settle();
    commit(Op::commit);
    settle();
    for (int i = 0; failed_ && i < 20; ++i) recover(), settle();
    EXPECT_FALSE(failed_);
  }

 private:
  void begin() {
    failed_ = false;
    write(std::string(kSize, '\0'), 0);
    settle();
    if (failed_) return;
    commit(Op::commit);
    settle();
  }
  Request request(Op op) const {
    Request r;
    r.op = op;
    r.caller = caller_;
    r.handle = handle_;
    r.right = right_;
    return r;
  }
  Completion counted(Completion&& done) {
    ++under_way_;
    return [this, done = std::move(done)](Result<Reply>&& result) mutable {
      --under_way_;
      done(std::move(result));
    };
  }
  void submit(Request&& r, Completion&& done) {
    store_->submit(std::move(r), counted(std::move(done)));
  }
  void transfer(Op op, uint64_t at, std::string& bytes, Completion&& done) {
    Request r = request(op);
    r.file = Extents(Extent{Offset(at), Length(bytes.size())});
    world_.transfer(*store_, std::move(r), bytes, counted(std::move(done)));
  }
  bool note(const Result<Reply>& result) {
    if (!result) failed_ = true, ++totals_.errors;
    return result.has_value();
  }

  void write() {
    const uint64_t at = world_.random(kSize);
    std::string bytes(
        1 + world_.random(std::min<uint64_t>(kSize - at, world_.random(4) ? 600 : 9000)), '\0');
    for (char& c : bytes) c = static_cast<char>(world_.random(256));
    write(std::move(bytes), at);
  }
  void write(std::string bytes, uint64_t at) {
    current_.replace(at, bytes.size(), bytes);
    for (size_t i = 0; i < bytes.size(); ++i) {
      possible_[at + i].set(static_cast<unsigned char>(bytes[i]));
    }
    auto held = std::make_shared<std::string>(std::move(bytes));
    transfer(Op::write, at, *held, [this, held](Result<Reply>&& r) { note(r); });
  }
  void read() {
    auto held = std::make_shared<std::string>(kSize, '?');
    transfer(Op::read, 0, *held, [this, held](Result<Reply>&& r) {
      if (!note(r)) return;
      ++totals_.reads;
      // A client that was forgotten is told by the next commit.
      const bool may_be_late = world_.climate.full > 0 && world_.climate.grace < 30s;
      EXPECT_TRUE(*held == current_ || may_be_late) << "a loss was passed over by a read";
    });
  }
  void commit_byte(uint64_t i) {
    possible_[i].reset();
    possible_[i].set(static_cast<unsigned char>(current_[i]));
  }
  void commit(Op op) {
    submit(request(op), [this](Result<Reply>&& r) {
      if (!note(r)) return;
      ++totals_.commits;
      EXPECT_TRUE(world_.disk.content(handle_, right_, kSize) == current_)
          << "a loss was passed over by a commit";
      for (uint64_t i = 0; i < kSize; ++i) commit_byte(i);
    });
  }
  // Finds out what is left.
  void recover() {
    failed_ = false;
    submit(request(Op::commit), [this](Result<Reply>&& r) {
      if (!note(r)) return;
      auto held = std::make_shared<std::string>(kSize, '?');
      transfer(Op::read, 0, *held, [this, held](Result<Reply>&& result) {
        if (!note(result)) return;
        current_ = *held;
        for (uint64_t i = 0; i < kSize; ++i) {
          ASSERT_TRUE(possible_[i].test(static_cast<unsigned char>(current_[i])))
              << "byte " << i << " is neither what was committed nor what was written since";
          commit_byte(i);
        }
      });
    });
  }

  World& world_;
  Totals& totals_;
  std::unique_ptr<RemoteStore> store_;
  CallerRef caller_ = this_process_caller();
  Handle handle_;
  Right right_;
  unsigned under_way_ = 0;
  bool failed_ = false;
  std::string current_ = std::string(kSize, '\0');
  std::vector<std::bitset<256>> possible_ = std::vector<std::bitset<256>>(kSize);
};

void live(uint64_t seed, const Climate& climate, Totals& totals) {
  World world(seed, climate);
  std::vector<std::unique_ptr<Committer>> clients;
  for (unsigned i = 0; i < 2; ++i) {
    clients.push_back(std::make_unique<Committer>(world, i, totals));
  }
  world.begin_faults();
  for (int step = 0; step < 80 && !::testing::Test::HasFailure(); ++step) {
    for (auto& client : clients) client->step();
    for (auto& client : clients) client->settle();
    world.loop.run_for(std::chrono::microseconds(world.random(3000)));
  }
  world.end_faults();
  world.loop.run_for(1s);
  for (auto& client : clients) client->verify();
  totals.kills += world.kills;
  totals.stops += world.stops;
}

Totals live_many(const Climate& climate) {
  Totals totals;
  const uint64_t first = test_seed();
  const char* given = std::getenv("FOREBAY_SEEDS");
  const uint64_t count = std::getenv("FOREBAY_SEED") ? 1
                         : given                     ? std::strtoull(given, nullptr, 10)
                                                     : 40;
  for (uint64_t i = 0; i < count && !::testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(fmt::format("FOREBAY_SEED={} replays it", first + i));
    live(first + i, climate, totals);
  }
  fmt::print("{}: {} kills, {} stops, {} commits, {} reads, {} errors\n", climate.name,
             totals.kills, totals.stops, totals.commits, totals.reads, totals.errors);
  return totals;
}

TEST(WriteBehind, NothingFailsWithoutCrashes) {
  Climate climate{.name = "cuts", .cut = 0.1, .cut_frames = 0.001, .behind = true};
  EXPECT_EQ(live_many(climate).errors, 0u);
}

TEST(WriteBehind, AnOrderlyRestartLosesNothing) {
  Climate climate{.name = "stops", .stop = 0.1, .behind = true};
  EXPECT_EQ(live_many(climate).errors, 0u);
}

constexpr Climate kKills{
    .name = "kills", .cut = 0.03, .stop = 0.01, .kill = 0.03, .cut_frames = 0.001, .behind = true};

TEST(WriteBehind, ACrashIsReported) {
  const Totals totals = live_many(kKills);
  if (std::getenv("FOREBAY_SEED")) return;
  EXPECT_GT(totals.errors, 0u) << "nothing was lost: the test is too tame";
}

TEST(WriteBehind, ACrashIsReportedAmongOrderlyStops) {
  Climate climate{.name = "stops and kills",
                  .cut = 0.1,
                  .stop = 0.03,
                  .kill = 0.03,
                  .cut_frames = 0.003,
                  .behind = true};
  live_many(climate);
}

// A server is killed, and the next one stops orderly with a close under way.
TEST(WriteBehind, ACrashIsReportedAfterAnOrderlyStopOfTheNextLife) {
  Totals totals;
  live(2637636409527550264u, kKills, totals);
}

TEST(WriteBehind, AFullDiskIsReported) {
  Climate climate{.name = "full disk", .cut = 0.05, .behind = true, .full = 0.1};
  const Totals totals = live_many(climate);
  if (std::getenv("FOREBAY_SEED")) return;
  EXPECT_GT(totals.errors, 0u);
}

TEST(WriteBehind, AFullDiskIsReportedToThoseWhoWereForgotten) {
  Climate climate{.name = "full disk, forgotten sessions",
                  .cut = 0.1,
                  .silence = 0.05,
                  .grace = std::chrono::milliseconds(5),
                  .behind = true,
                  .full = 0.2};
  live_many(climate);
}

TEST(WriteBehind, Everything) {
  Climate climate{.name = "everything",
                  .cut = 0.05,
                  .silence = 0.02,
                  .stop = 0.02,
                  .kill = 0.02,
                  .cut_frames = 0.001,
                  .grace = std::chrono::milliseconds(20),
                  .behind = true,
                  .full = 0.1};
  live_many(climate);
}

}  // namespace
}  // namespace forebay::sim::behind_tests
