// Small writes that travel together: what is joined, what is not, and what becomes of a failure.
#include <fmt/format.h>

#include <random>

#include "client/testing.h"

namespace forebay {
namespace {

class JointTest : public ClientFixture {
 protected:
  // Submitted before the link is up, so that they wait at the same time.
  void write(uint64_t at, std::string bytes, const std::string& right = "right") {
    bytes_.push_back(std::make_unique<std::string>(std::move(bytes)));
    Request r = data(Op::write, at, *bytes_.back());
    r.right.bytes = right;
    submit(std::move(r));
  }
  std::vector<std::unique_ptr<std::string>> bytes_;
};

TEST_F(JointTest, WritesThatWaitTogetherAreOneRequest) {
  connect();
  write(0, "first");
  write(100, "second");
  write(50, "third");
  std::string payload;
  const auto joint = server.take_request(&payload);
  EXPECT_EQ(payload, "firstsecondthird");
  EXPECT_EQ(joint.request.file.blocks().size(), 3u);
  EXPECT_TRUE(server.frames.empty());
  server.reply(joint.id, counted(16));
  ASSERT_TRUE(order[0]->ok() && order[1]->ok() && order[2]->ok());
  EXPECT_EQ((*order[1]->result)->count, 6u);
}

TEST_F(JointTest, WhatCompletionsSubmitIsJoined) {
  connect();
  std::string x = pattern(10), y = pattern(20);
  std::vector<uint64_t> counts;
  const auto next = [&](uint64_t at) {
    Request r = data(Op::write, at, y);
    r.caller = this_process_caller();
    store->submit(std::move(r), [&](Result<Reply>&& result) { counts.push_back(result->count); });
  };
  for (const uint64_t at : {0, 1000}) {
    Request r = data(Op::write, at, x);
    r.caller = this_process_caller();
    store->submit(std::move(r), [&, at](Result<Reply>&&) { next(at + 100); });
  }
  server.reply(server.take_request().id, counted(20));
  const auto joint = server.take_request();
  EXPECT_EQ(joint.request.file.blocks().size(), 2u);
  server.reply(joint.id, counted(40));
  EXPECT_EQ(counts, (std::vector<uint64_t>{20, 20}));
}

TEST_F(JointTest, OverlapsRightsAndCreditSetItsEnd) {
  connect();
  write(0, pattern(10));
  write(5, pattern(10));  // overlaps the first
  write(100, pattern(10));
  write(200, pattern(10), "another right");
  write(300, pattern(591), "another right");  // beyond eager_max together
  std::vector<size_t> sizes;
  for (int i = 0; i < 4; ++i) {
    const auto r = server.take_request();
    sizes.push_back(r.request.file.blocks().size());
    server.reply(r.id, counted(r.total));
  }
  EXPECT_EQ(sizes, (std::vector<size_t>{1, 2, 1, 1}));
  for (const auto& answer : order) EXPECT_TRUE(answer->ok());
}

TEST_F(JointTest, WhatIsAskedOfThemIsTheSameForAll) {
  connect();
  std::string bytes = pattern(10);
  const auto ask = [&](uint64_t at, uint32_t flags, uint64_t window) {
    Request r = data(Op::write, at, bytes);
    r.flags = flags;
    r.length = Length(window);
    submit(std::move(r));
  };
  ask(0, kFlagSieve, 512);
  ask(100, kFlagSieve, 512);
  ask(200, kFlagSieve, 1024);
  ask(300, kFlagNoSieve, 0);
  std::vector<size_t> sizes;
  for (int i = 0; i < 3; ++i) {
    const auto r = server.take_request();
    sizes.push_back(r.request.file.blocks().size());
    if (i == 0) {
      EXPECT_EQ(r.request.flags, kFlagSieve);
      EXPECT_EQ(r.request.length, Length(512));
    }
    server.reply(r.id, counted(10 * sizes.back()));
  }
  EXPECT_EQ(sizes, (std::vector<size_t>{2, 1, 1}));
}

TEST_F(JointTest, AfterAFailureEachHasItsOwnResult) {
  connect();
  write(0, "good");
  write(100, "bad");
  write(200, "fine");
  server.reply(server.take_request().id, Error(EDQUOT, "too much"));
  for (int i = 0; i < 3; ++i) {
    const auto r = server.take_request();
    EXPECT_EQ(r.request.file.blocks().size(), 1u);
    if (r.request.file.bounds().offset == Offset(100)) {
      server.reply(r.id, Error(EDQUOT, "too much").with_done(1));
    } else {
      server.reply(r.id, counted(4));
    }
  }
  EXPECT_TRUE(order[0]->ok());
  EXPECT_EQ(order[1]->code(), EDQUOT);
  EXPECT_EQ(order[1]->result->error().done(), 1u);
  EXPECT_TRUE(order[2]->ok());
}

// What the server reports once about earlier writes must not be taken for the joint's own failure.
TEST_F(JointTest, ALossOfEarlierWritesIsPassedOn) {
  connect();
  write(1000, "behind");
  Reply acknowledged = counted(6);
  acknowledged.verifier = 5;
  server.reply(server.take_request().id, std::move(acknowledged));
  server.welcome.resumed = true;
  server.cut();  // so that the next two wait at the same time
  write(0, "first");
  write(100, "second");
  const auto joint = server.take_request();
  EXPECT_EQ(joint.request.file.blocks().size(), 2u);
  server.reply(joint.id, Error(EIO, "lost").with_done(7));
  server.settle();
  EXPECT_TRUE(server.frames.empty());
  EXPECT_EQ(order[1]->code(), EIO);
  EXPECT_EQ(order[1]->result->error().done(), 5u);
  EXPECT_EQ(order[2]->code(), EIO);
  EXPECT_EQ(order[2]->result->error().done(), 2u);
}

TEST_F(JointTest, ACancelledMemberIsGivenUpWhenItHasToGoAlone) {
  connect();
  std::stop_source stop;
  write(0, "first");
  std::string bytes = "second";
  Request cancelled = data(Op::write, 100, bytes);
  cancelled.stop = stop.get_token();
  submit(std::move(cancelled));
  const auto joint = server.take_request();
  stop.request_stop();
  server.settle();
  server.reply(joint.id, Error(ENOSPC));
  const auto first = server.take_request();
  server.take_request();
  EXPECT_EQ(server.take().header.type, wire::FrameType::cancel);
  server.reply(first.id, counted(5));
}

TEST_F(JointTest, AfterAResumeItIsTheSameRequest) {
  connect();
  write(0, "first");
  write(100, "second");
  std::string before, after;
  const auto sent = server.take_request(&before);
  server.welcome.resumed = true;
  server.cut();
  const auto again = server.take_request(&after);
  EXPECT_EQ(again.id, sent.id);
  EXPECT_EQ(again.request.file, sent.request.file);
  EXPECT_EQ(before, after);
  server.reply(again.id, counted(11));
  EXPECT_TRUE(order[0]->ok() && order[1]->ok());
}

TEST_F(JointTest, WhenTheServerIsLostForGoodEachIsTold) {
  connect(std::chrono::milliseconds(20));
  write(0, "first");
  write(100, "second");
  server.take_request();
  server.there = false;
  server.cut();
  loop.run_for(std::chrono::seconds(5));
  EXPECT_TRUE(order[0]->unknown() && order[1]->unknown());
}

// Against a serial oracle: whatever is joined, the file is what the writes make one after another.
TEST_F(JointTest, RandomWritesGiveWhatTheyGiveOneByOne) {
  const char* given = std::getenv("FOREBAY_SEED");
  const uint64_t seed = given ? std::strtoull(given, nullptr, 0) : std::random_device()();
  SCOPED_TRACE(fmt::format("FOREBAY_SEED={}", seed));
  std::mt19937_64 random(seed);
  connect();
  std::string oracle(400, '.'), file = oracle;
  for (int i = 0; i < 300; ++i) {
    const size_t at = random() % 350, n = 1 + random() % 40;
    std::string bytes(n, static_cast<char>('a' + random() % 26));
    oracle.replace(at, n, bytes);
    write(at, std::move(bytes));
  }
  server.settle();
  while (!server.frames.empty()) {
    std::string payload;
    const auto r = server.take_request(&payload);
    if (random() % 8 == 0 && r.request.file.blocks().size() > 1) {
      server.reply(r.id, Error(EIO));
      continue;
    }
    size_t from = 0;
    for (const Extent& e : r.request.file.blocks()) {
      file.replace(e.offset.value, e.length.value, payload, from, e.length.value);
      from += e.length.value;
    }
    server.reply(r.id, counted(r.total));
  }
  EXPECT_EQ(file, oracle);
  for (const auto& answer : order) EXPECT_TRUE(answer->ok());
}

}  // namespace
}  // namespace forebay
