// Shared state across restarts: over one Store that stays, a server's export that comes and goes.
#include "server/shared_state.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "core/testing.h"
#include "loop/sim_loop.h"
#include "server/export.h"
#include "store/memory.h"

namespace forebay::server {
namespace {

class Borrowed final : public Store {
 public:
  explicit Borrowed(Store& store) : store_(store) {}
  void submit(Request&& request, Completion&& done) override {
    store_.submit(std::move(request), std::move(done));
  }
  Result<Handle> root() override { return store_.root(); }
  Result<void> admits(const Request& request) override { return store_.admits(request); }
  std::string_view identity(const Handle& handle) const override { return store_.identity(handle); }

 private:
  Store& store_;
};

class SharedStateTest : public ::testing::Test {
 protected:
  void SetUp() override { start(dir_.path()); }
  void TearDown() override { stop(); }

  Result<std::shared_ptr<Export>> made(const std::string& folder) {
    ExportOptions options;
    options.name = "main";
    options.pool = 64_KiB;
    options.chunk = 16_KiB;
    options.state = {folder, false, 4096};
    return Export::make(options, std::make_unique<Borrowed>(memory_), counters_, 1, false);
  }
  void start(const std::string& folder) {
    auto export_made = made(folder);
    ASSERT_TRUE(export_made) << export_made.error().message();
    export_ = *export_made;
  }
  void stop() {
    if (export_) export_->drop_store();
    export_.reset();
  }
  void restart() {
    stop();
    start(dir_.path());
  }

  Handle file(const std::string& name) {
    Request r;
    r.op = Op::create;
    r.caller = caller_;
    r.handle = memory_.root().value();
    r.name = name;
    r.mode = 0600;
    return memory_.call(std::move(r)).value().handle;
  }
  Result<uint64_t> attr(Op op, const Handle& handle, std::string name, uint64_t value = 0,
                        Once once = {}, uint64_t expected = 0) {
    Request r;
    r.op = op;
    r.caller = caller_;
    r.handle = handle;
    r.name = std::move(name);
    r.value = value;
    r.expected = expected;
    r.once = once;
    std::optional<Result<Reply>> out;
    export_->state().submit(
        std::move(r), [&](Result<Reply>&& reply) { out = std::move(reply); }, nullptr);
    if (!*out) return std::move(*out).error();
    return (*out)->value;
  }
  Result<SharedState::Place> place(const Handle& handle, uint64_t length, Once once = {}) {
    Request r;
    r.op = Op::write;
    r.flags = kFlagAppend;
    r.caller = caller_;
    r.handle = handle;
    r.once = once;
    std::optional<Result<SharedState::Place>> out;
    export_->state().place(r, length, loop_, [&](auto got) { out = std::move(got); });
    for (int i = 0; i < 100 && !out; ++i) loop_.run_one(std::chrono::seconds(1));
    return std::move(*out);
  }
  void flushed(uint64_t record) {
    bool done = false;
    export_->state().when_written(record, loop_, [&](Result<void> ok) { done = ok.has_value(); });
    for (int i = 0; i < 100 && !done; ++i) loop_.run_one(std::chrono::seconds(1));
    EXPECT_TRUE(done);
  }

  TempDir dir_;
  SimLoop loop_{1};
  MemoryStore memory_;
  CounterSet counters_;
  std::shared_ptr<Export> export_;
  const CallerRef caller_ = this_process_caller();
};

TEST_F(SharedStateTest, ValuesAndAnswersSurviveARestart) {
  const Handle f = file("f");
  ASSERT_TRUE(attr(Op::attr_create, f, "n", 5));
  EXPECT_EQ(attr(Op::attr_fetch_add, f, "n", 2, {1, 2, 1, 0}).value(), 5u);
  EXPECT_EQ(attr(Op::attr_cas, f, "n", 100, {1, 2, 1, 1}, 7).value(), 7u);
  const uint64_t id = export_->state().id();
  restart();
  EXPECT_EQ(export_->state().id(), id);
  EXPECT_EQ(attr(Op::attr_fetch_add, f, "n", 2, {1, 2, 1, 0}).value(), 5u) << "done before";
  EXPECT_EQ(attr(Op::attr_cas, f, "n", 100, {1, 2, 1, 1}, 7).value(), 7u);
  EXPECT_EQ(attr(Op::attr_get, f, "n").value(), 100u);
  EXPECT_EQ(export_->state().status().repeated, 2u);
  EXPECT_EQ(export_->state().status().life, 2u);
}

// The room that there is has 2^20 lanes; a client that uses its last lane takes all of them.
TEST_F(SharedStateTest, AUserWhoHasTakenItsShareKeepsNobodyOut) {
  const Handle f = file("f");
  ASSERT_TRUE(attr(Op::attr_create, f, "n"));
  const auto add = [&](uint32_t user, uint64_t client, uint64_t sequence = 1) {
    Request r;
    r.op = Op::attr_fetch_add;
    auto caller = std::make_shared<Caller>(*caller_);
    caller->uid = user;
    r.caller = std::move(caller);
    r.handle = f;
    r.name = "n";
    r.value = 1;
    r.once = {client, user, sequence, kMaxLanes - 1};
    std::optional<Result<Reply>> out;
    export_->state().submit(
        std::move(r), [&](Result<Reply>&& reply) { out = std::move(reply); }, nullptr);
    return *out ? 0 : out->error().code();
  };
  constexpr uint64_t kHalf = (1 << 19) / kMaxLanes;
  for (uint64_t client = 1; client <= kHalf; ++client) ASSERT_EQ(add(7, client), 0) << client;
  for (int life = 0; life < 2; ++life) {
    EXPECT_EQ(add(7, kHalf + 1), ENOBUFS);
    EXPECT_EQ(add(7, 1, 2), 0) << "what it has is its own";
    EXPECT_EQ(add(8, 1), 0);
    EXPECT_EQ(attr(Op::attr_get, f, "n").value(), kHalf + 2);
    restart();
  }
}

// ---- Temporary attributes ----

TEST_F(SharedStateTest, TemporaryAttributesGoWithTheLastWhoHasTheFileOpen) {
  const Handle f = file("f");
  ASSERT_TRUE(attr(Op::attr_create, f, "tmp:a", 5));
  ASSERT_TRUE(attr(Op::attr_create, f, "kept", 6));
  export_->holders.hold("one", memory_.identity(f));
  export_->holders.hold("two", memory_.identity(f));
  EXPECT_FALSE(export_->holders.let_go("one"));
  export_->state().unused(f, true);
  EXPECT_EQ(attr(Op::attr_get, f, "tmp:a").value(), 5u) << "another has it open";
  EXPECT_TRUE(export_->holders.let_go("two"));
  export_->state().unused(f, true);
  EXPECT_EQ(attr(Op::attr_get, f, "tmp:a").error().code(), ENODATA);
  EXPECT_EQ(attr(Op::attr_get, f, "kept").value(), 6u);
  restart();
  EXPECT_EQ(attr(Op::attr_get, f, "tmp:a").error().code(), ENODATA);
}

TEST_F(SharedStateTest, TemporaryAttributesOfAnEarlierLifeAreKeptForADay) {
  const Handle f = file("f"), g = file("g");
  ASSERT_TRUE(attr(Op::attr_create, f, "tmp:a", 5));
  ASSERT_TRUE(attr(Op::attr_create, g, "n"));
  restart();
  export_->state().unused(f, true);
  EXPECT_EQ(attr(Op::attr_get, f, "tmp:a").value(), 5u) << "its owner may be computing";
  uint64_t sequence = 0;
  const auto look = [&] {
    Request r;
    r.op = Op::attr_fetch_add;
    r.caller = caller_;
    r.handle = g;
    r.name = "n";
    r.once = {1, 2, ++sequence, 0};
    bool done = false;
    export_->state().submit(
        std::move(r), [&](Result<Reply>&&) { done = true; }, &loop_);
    for (int i = 0; i < 100 && !done; ++i) loop_.run_one(std::chrono::seconds(1));
  };
  const auto pass = [&](Duration d) {
    bool over = false;
    loop_.after(d, [&] { over = true; });
    while (!over) loop_.run_one(std::chrono::hours(48));
    look();
  };
  pass(std::chrono::minutes(2));
  pass(SharedState::kDoubt - std::chrono::hours(1));
  EXPECT_EQ(attr(Op::attr_fetch_add, f, "tmp:a", 1).value(), 5u) << "used, so a day from now";
  pass(std::chrono::hours(2));
  EXPECT_EQ(attr(Op::attr_get, f, "tmp:a").value(), 6u);
  export_->holders.hold("one", memory_.identity(f));
  pass(SharedState::kDoubt + std::chrono::hours(1));
  EXPECT_EQ(attr(Op::attr_get, f, "tmp:a").value(), 6u) << "somebody has it open";
  (void)export_->holders.let_go("one");
  pass(std::chrono::hours(1));
  EXPECT_EQ(attr(Op::attr_get, f, "tmp:a").error().code(), ENODATA);
}

TEST_F(SharedStateTest, FilesThatLiveElsewhereByANewListAreNotSilentlyForgotten) {
  const Handle ours = file("ours"), theirs = file("theirs");
  const auto lives_here = [&](const Handle& handle) { return handle == ours; };
  const Handle other = file("other");
  attr(Op::attr_create, ours, "n").value();
  place(theirs, 10).value();
  attr(Op::attr_create, theirs, "tmp:n").value();
  attr(Op::attr_create, theirs, "n").value();
  attr(Op::attr_create, other, "tmp:n").value();
  EXPECT_EQ(export_->state().forget_others(lives_here).error().code(), EXDEV);
  EXPECT_TRUE(attr(Op::attr_get, theirs, "n")) << "it is still there";
  EXPECT_TRUE(attr(Op::attr_get, other, "tmp:n")) << "nothing is forgotten if not all may be";
  attr(Op::attr_remove, theirs, "n").value();
  EXPECT_EQ(export_->state().forget_others(lives_here).error().code(), EXDEV) << "an open place";
  export_->state().settle(theirs, {}, 0, SharedState::Settled::written, loop_);
  EXPECT_TRUE(export_->state().forget_others(lives_here));
  EXPECT_FALSE(attr(Op::attr_get, theirs, "tmp:n"));
  EXPECT_TRUE(attr(Op::attr_get, ours, "n"));
  restart();
  EXPECT_EQ(export_->state().status().counts.files, 1u);
}

TEST_F(SharedStateTest, AttributesAreBoundedInBytes) {
  stop();
  start("");  // in memory only: many
  const std::string name(250, 'x');
  size_t made = 0;
  Result<uint64_t> last = uint64_t{0};
  for (int f = 0; last && f < 2000; ++f) {
    const Handle one = file(fmt::format("f{}", f));
    for (int i = 0; i < 200 && last; ++i, ++made) {
      last = attr(Op::attr_create, one, fmt::format("{}{}", name, i));
    }
  }
  ASSERT_FALSE(last);
  EXPECT_EQ(last.error().code(), ENOSPC);
  EXPECT_LT(made * name.size(), SharedState::kMostAttributeBytes);
  EXPECT_GT(made * name.size(), SharedState::kMostAttributeBytes / 2);
  EXPECT_TRUE(attr(Op::attr_remove, file("f0"), name + "0"));
  EXPECT_TRUE(attr(Op::attr_create, file("f0"), name));
}

TEST_F(SharedStateTest, AnotherServersEndIsNotItsClients) {
  const Handle f = file("f");
  ASSERT_TRUE(attr(Op::attr_create, f, "tmp:a", 5));
  export_->state().unused(f, false);
  export_->state().unused(f, true);
  EXPECT_EQ(attr(Op::attr_get, f, "tmp:a").value(), 5u);
  ASSERT_TRUE(attr(Op::attr_remove, f, "tmp:a"));  // nothing is in doubt any more
  ASSERT_TRUE(attr(Op::attr_create, f, "tmp:b", 5));
  export_->state().unused(f, true);
  EXPECT_EQ(attr(Op::attr_get, f, "tmp:b").error().code(), ENODATA);
}

TEST_F(SharedStateTest, AnotherFolderIsAnotherState) {
  const uint64_t id = export_->state().id();
  TempDir other;
  stop();
  start(other.path());
  EXPECT_NE(export_->state().id(), id);
}

TEST_F(SharedStateTest, DamageIsRefusedAtTheStart) {
  const Handle f = file("f");
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(attr(Op::attr_create, f, std::to_string(i)));
  stop();
  for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
    if (entry.path().extension() != ".journal") continue;
    std::FILE* const journal = std::fopen(entry.path().c_str(), "r+");
    std::fseek(journal, 200, SEEK_SET);
    std::fputc('#', journal);
    std::fclose(journal);
  }
  const auto refused = made(dir_.path());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), EBADMSG);
}

TEST_F(SharedStateTest, FilesThatAreGoneAreForgotten) {
  const Handle f = file("f");
  ASSERT_TRUE(attr(Op::attr_create, f, "n", 5));
  Request r;
  r.op = Op::remove;
  r.caller = caller_;
  r.handle = memory_.root().value();
  r.name = "f";
  ASSERT_TRUE(memory_.call(std::move(r)));
  restart();
  EXPECT_EQ(export_->state().status().counts.files, 0u);
}

// The process is killed at every write: what was answered before is there, and what comes again is
// not done again.
TEST_F(SharedStateTest, EveryAnswerIsInTheJournal) {
  const Handle f = file("f");
  ASSERT_TRUE(attr(Op::attr_create, f, "n", 0));
  for (uint64_t i = 1; i <= 200; ++i) {  // more than one file of the journal
    const Once once{7, 7, i, static_cast<uint16_t>(i % 3)};
    ASSERT_EQ(attr(Op::attr_fetch_add, f, "n", 1, once).value(), i - 1);
    if (i % 10 != 0) continue;
    TempDir copy;
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
      std::filesystem::copy(entry.path(), copy.path());
    }
    auto other = made(copy.path());
    ASSERT_TRUE(other) << other.error().message();
    std::swap(export_, *other);
    EXPECT_EQ(attr(Op::attr_fetch_add, f, "n", 1, once).value(), i - 1) << "again";
    EXPECT_EQ(attr(Op::attr_get, f, "n").value(), i);
    std::swap(export_, *other);
    (*other)->drop_store();
  }
  EXPECT_GT(export_->state().status().compactions, 0u);
}

// Against a map, with restarts; requests come again now and then.
TEST_F(SharedStateTest, AreThoseOfAMap) {
  std::mt19937_64 random(test_seed());
  const auto upto = [&](uint64_t n) { return random() % n; };
  std::map<std::pair<size_t, std::string>, uint64_t> oracle;
  const std::vector<Handle> files = {file("a"), file("b"), file("c")};
  struct Last {
    Op op;
    size_t file;
    std::string name;
    uint64_t value, expected, result;
  };
  std::map<uint16_t, std::pair<uint64_t, std::optional<Last>>> lanes;
  for (int i = 0; i < 3000; ++i) {
    if (upto(100) == 0) restart();
    const auto lane = static_cast<uint16_t>(upto(4));
    auto& [sequence, last] = lanes[lane];
    if (last && upto(5) == 0) {
      ASSERT_EQ(attr(last->op, files[last->file], last->name, last->value, {3, 4, sequence, lane},
                     last->expected)
                    .value(),
                last->result)
          << i;
      continue;
    }
    Last now{static_cast<Op>(static_cast<int>(Op::attr_create) + static_cast<int>(upto(6))),
             upto(3),
             std::string(1, static_cast<char>('x' + upto(3))),
             upto(4),
             upto(4),
             0};
    const auto key = std::pair(now.file, now.name);
    const auto found = oracle.find(key);
    const bool there = found != oracle.end();
    const Once once = op_info(now.op).changes ? Once{3, 4, ++sequence, lane} : Once{};
    if (now.op != Op::attr_cas) now.expected = 0;
    const auto got = attr(now.op, files[now.file], now.name, now.value, once, now.expected);
    if (there == (now.op == Op::attr_create)) {
      ASSERT_EQ(got.error().code(), there ? EEXIST : ENODATA) << i;
      if (op_info(now.op).changes) last.reset();
      continue;
    }
    ASSERT_TRUE(got) << i << ": " << got.error().message();
    const uint64_t before = there ? found->second : 0;
    const bool tells =
        now.op == Op::attr_get || now.op == Op::attr_fetch_add || now.op == Op::attr_cas;
    if (tells) {
      ASSERT_EQ(*got, before) << i;
    }
    bool changed = op_info(now.op).changes;
    if (now.op == Op::attr_create || now.op == Op::attr_set) oracle[key] = now.value;
    if (now.op == Op::attr_remove) oracle.erase(key);
    if (now.op == Op::attr_fetch_add) oracle[key] += now.value;
    if (now.op == Op::attr_cas) {
      changed = before == now.expected;
      if (changed) oracle[key] = now.value;
    }
    now.result = *got;
    if (op_info(now.op).changes) changed ? void(last = now) : last.reset();
  }
}

TEST_F(SharedStateTest, PlacesFollowEachOtherAndComeBack) {
  const Handle f = file("f");
  const auto first = place(f, 10, {1, 1, 1, 0});
  ASSERT_TRUE(first);
  EXPECT_EQ(first->offset, 0u);
  EXPECT_EQ(place(f, 5).value().offset, 10u);
  export_->state().writes_to(f, 100);
  const auto third = place(f, 7, {1, 1, 1, 1});
  EXPECT_EQ(third.value().offset, 100u);
  flushed(third->record);
  export_->state().settle(f, {1, 1, 1, 0}, 0, SharedState::Settled::written, loop_);
  flushed(place(f, 1).value().record);  // and what was settled with it
  restart();
  EXPECT_TRUE(place(f, 10, {1, 1, 1, 0}).value().done);
  const auto again = place(f, 7, {1, 1, 1, 1});
  EXPECT_FALSE(again.value().done) << "nobody knows";
  EXPECT_EQ(again->offset, 100u) << "but it is the same place";
  EXPECT_EQ(place(f, 1).value().offset, 108u) << "behind all that were given";
  EXPECT_EQ(export_->state().holes(f).size(), 2u) << "those nobody can come back for";
}

// The journal as a kill leaves it: nothing is written when the server ends.
TEST_F(SharedStateTest, WhatWasSettledIsNoHoleAfterAKill) {
  const Handle f = file("f");
  const auto kill = [&] {
    for (int i = 0; i < 10; ++i) loop_.run_one(std::chrono::milliseconds(1));
    TempDir copy;
    namespace fs = std::filesystem;
    fs::copy(dir_.path(), copy.path(), fs::copy_options::recursive);
    stop();
    fs::copy(copy.path(), dir_.path(),
             fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    start(dir_.path());
  };
  flushed(place(f, 10, {1, 1, 1, 0}).value().record);
  export_->state().settle(f, {1, 1, 1, 0}, 0, SharedState::Settled::written, loop_);
  kill();
  EXPECT_EQ(export_->state().status().counts.open, 0u);
  flushed(place(f, 10, {1, 1, 2, 0}).value().record);
  kill();
  kill();
  EXPECT_EQ(export_->state().status().counts.holes, 0u);
  export_->state().forget({1, 1, 0, 0}, loop_);
  kill();
  EXPECT_EQ(export_->state().status().counts.lanes, 0u);
}

TEST_F(SharedStateTest, ATruncationMovesTheEnd) {
  const Handle f = file("f");
  flushed(place(f, 10).value().record);
  bool begun = false;
  export_->state().resizes(f, loop_, [&] { begun = true; });
  EXPECT_TRUE(begun);
  flushed(export_->state().resized(f, 4));
  Request r;
  r.op = Op::resize;
  r.caller = caller_;
  r.handle = f;
  r.length = Length(4);
  ASSERT_TRUE(memory_.call(std::move(r)));
  EXPECT_EQ(place(f, 3).value().offset, 4u);
  export_->state().truncated(f);
  EXPECT_EQ(place(f, 3).value().offset, 4u) << "as the file says";
}

}  // namespace
}  // namespace forebay::server
