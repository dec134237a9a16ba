// Attributes and appends as clients of a server see them.
#include <gtest/gtest.h>

#include <set>

#include "server/raw_client.h"

namespace forebay::server {
namespace {

class SharedServer : public ::testing::Test {
 protected:
  void SetUp() override {
    sim_ = std::make_unique<SimServer>(test_seed());
    a_ = sim_->client("a");
    b_ = sim_->client("b");
    file_ = create(*a_, "f");
    others_ = opened(*b_, Access::both);
  }
  void TearDown() override {
    a_.reset();
    b_.reset();
  }
  OpenFile opened(RawClient& client, Access access) {
    Request open = request(Op::open, file_.handle);
    open.access = access;
    return {file_.handle, client.call(std::move(open))->reply().right};
  }
  Request attr(Op op, const OpenFile& file, std::string name, uint64_t value = 0, Once once = {}) {
    Request r = request(op, file.handle, std::move(name));
    r.right = file.right;
    r.value = value;
    r.once = once;
    return r;
  }
  Request append(const OpenFile& file, size_t size, Once once = {}) {
    Request r = data_request(Op::write, file, range(0, size));
    r.flags = kFlagAppend;
    r.once = once;
    return r;
  }

  std::unique_ptr<SimServer> sim_;
  std::unique_ptr<RawClient> a_, b_;
  OpenFile file_, others_;
};

TEST_F(SharedServer, ClientsShareNumbers) {
  EXPECT_EQ(a_->call(attr(Op::attr_fetch_add, file_, "n", 1))->error(), ENODATA);
  EXPECT_EQ(a_->call(attr(Op::attr_create, file_, "n", 5))->error(), 0);
  EXPECT_EQ(b_->call(attr(Op::attr_create, others_, "n", 5))->error(), EEXIST);
  EXPECT_EQ(b_->call(attr(Op::attr_fetch_add, others_, "n", 2))->reply().value, 5u);
  EXPECT_EQ(a_->call(attr(Op::attr_get, file_, "n"))->reply().value, 7u);
  Request cas = attr(Op::attr_cas, file_, "n", 9);
  cas.expected = 7;
  EXPECT_EQ(a_->call(std::move(cas))->reply().value, 7u);
  EXPECT_EQ(b_->call(attr(Op::attr_list, others_, ""))->reply().data,
            std::string("\x09\0\0\0\0\0\0\0n\0", 10));
  EXPECT_EQ(b_->call(attr(Op::attr_remove, others_, "n"))->error(), 0);
  EXPECT_EQ(a_->call(attr(Op::attr_get, file_, "n"))->error(), ENODATA);
  EXPECT_EQ(a_->call(attr(Op::attr_create, file_, std::string(256, 'x')))->error(), ENAMETOOLONG);
}

TEST_F(SharedServer, OnlyForThoseWhoHaveTheFileOpen) {
  EXPECT_EQ(a_->call(attr(Op::attr_create, {file_.handle, {"rubbish"}}, "n"))->error(), EBADF);
  const OpenFile other = create(*a_, "g");
  EXPECT_EQ(a_->call(attr(Op::attr_create, {file_.handle, other.right}, "n"))->error(), EBADF);
  const OpenFile reader = opened(*b_, Access::read);
  EXPECT_EQ(b_->call(attr(Op::attr_create, reader, "n"))->error(), 0) << "reading will do";
}

TEST_F(SharedServer, ARequestIsDoneOnceWhoeverBringsIt) {
  a_->call(attr(Op::attr_create, file_, "n"));
  const Once once{11, 12, 1, 0};
  EXPECT_EQ(a_->call(attr(Op::attr_fetch_add, file_, "n", 3, once))->reply().value, 0u);
  EXPECT_EQ(b_->call(attr(Op::attr_fetch_add, others_, "n", 3, once))->reply().value, 0u);
  EXPECT_EQ(a_->call(attr(Op::attr_get, file_, "n"))->reply().value, 3u);
  const Once next{11, 12, 2, 0};
  EXPECT_EQ(b_->call(attr(Op::attr_fetch_add, others_, "n", 3, next))->reply().value, 3u);
  EXPECT_EQ(a_->call(attr(Op::attr_fetch_add, file_, "n", 3, once))->error(), ECANCELED);
}

TEST_F(SharedServer, AppendsHaveTheirOwnPlaces) {
  std::vector<std::pair<RawClient::CallRef, std::string>> sent;
  uint64_t total = 0;
  for (int i = 0; i < 40; ++i) {
    const bool mine = i % 2 == 0;
    const std::string bytes = pattern(static_cast<uint64_t>(i), 1 + (i * 7919) % 50'000);
    total += bytes.size();
    sent.emplace_back(
        (mine ? a_ : b_)->send(append(mine ? file_ : others_, bytes.size()), bytes, i % 5 == 0),
        bytes);
  }
  std::map<uint64_t, std::string> placed;
  for (auto& [call, bytes] : sent) {
    a_->wait(call);
    b_->wait(call);
    ASSERT_EQ(call->error(), 0);
    EXPECT_EQ(call->reply().count, bytes.size());
    EXPECT_TRUE(placed.emplace(call->reply().value, bytes).second);
  }
  std::string all;
  for (const auto& [place, bytes] : placed) {
    EXPECT_EQ(place, all.size());
    all += bytes;
  }
  EXPECT_EQ(all.size(), total);
  std::string got;
  while (got.size() < total) {
    const auto part = a_->call(data_request(Op::read, file_, range(got.size(), 30'000)));
    ASSERT_EQ(part->error(), 0);
    got += part->in.substr(0, part->reply().count);
  }
  EXPECT_TRUE(got == all);
}

TEST_F(SharedServer, AppendsFollowWritesAndResizes) {
  EXPECT_EQ(a_->call(append(file_, 3), "abc")->reply().value, 0u);
  a_->call(data_request(Op::write, file_, range(10, 2)), "xy");
  EXPECT_EQ(b_->call(append(others_, 3), "def")->reply().value, 12u);
  Request cut = request(Op::resize, file_.handle);
  cut.length = Length(5);
  cut.right = file_.right;
  // All sent at once: in this order.
  const auto before = a_->send(append(file_, 3), "ghi");
  const auto resized = a_->send(cut);
  const auto after = a_->send(append(file_, 3), "jkl");
  EXPECT_EQ(a_->wait(before).reply().value, 15u);
  EXPECT_EQ(a_->wait(resized).error(), 0);
  EXPECT_EQ(a_->wait(after).reply().value, 5u);
  EXPECT_EQ(read_back(*b_, others_, 100), std::string("abc\0\0jkl", 8));
  Request again = request(Op::create, a_->welcome.root, "f");
  again.flags = kFlagTruncate;
  again.access = Access::both;
  again.mode = 0644;
  EXPECT_EQ(a_->call(std::move(again))->error(), 0);
  EXPECT_EQ(b_->call(append(others_, 3), "mno")->reply().value, 0u);
}

TEST_F(SharedServer, WhoMayOnlyReadMovesNoEnd) {
  EXPECT_EQ(a_->call(append(file_, 3), "abc")->reply().value, 0u);
  const OpenFile reader = opened(*b_, Access::read);
  read_back(*b_, reader, 3);  // its session knows the right from now on
  constexpr uint64_t kFar = uint64_t{1} << 50;
  for (const bool pulled : {false, true}) {
    EXPECT_EQ(b_->call(append(reader, 1000), std::string(1000, 'x'), pulled)->error(), EBADF);
    const auto far = b_->call(data_request(Op::write, reader, range(kFar, 1)), "x", pulled);
    EXPECT_EQ(far->error(), EBADF);
  }
  Request allocate = request(Op::fallocate, reader.handle);
  allocate.right = reader.right;
  allocate.length = Length(kFar);
  EXPECT_EQ(b_->call(std::move(allocate))->error(), EBADF);
  EXPECT_EQ(a_->call(append(file_, 3), "def")->reply().value, 3u);
  EXPECT_NE(sim_->server->status().find("\"holes\": 0"), std::string::npos);
}

TEST_F(SharedServer, WhatIsNotWrittenMovesNoEnd) {
  EXPECT_EQ(a_->call(append(file_, 3), "abc")->reply().value, 0u);
  constexpr uint64_t kFar = uint64_t{1} << 50;
  sim_->store->add({.op = Op::write, .error = EFBIG});
  sim_->store->add({.op = Op::fallocate, .error = EFBIG});
  Request allocate = request(Op::fallocate, file_.handle);
  allocate.right = file_.right;
  allocate.length = Length(kFar);
  const auto lands_behind = [&](uint64_t end) {
    sim_->store->clear();
    const uint64_t place = b_->call(append(others_, 3), "def")->reply().value;
    sim_->store->add({.op = Op::write, .error = EFBIG});
    sim_->store->add({.op = Op::fallocate, .error = EFBIG});
    return place == end;
  };
  EXPECT_EQ(a_->call(std::move(allocate))->error(), EFBIG);
  EXPECT_TRUE(lands_behind(3));
  EXPECT_EQ(a_->call(data_request(Op::write, file_, range(kFar, 1)), "x")->error(), EFBIG);
  EXPECT_TRUE(lands_behind(6));
  const std::string large(100'000, 'x');
  EXPECT_EQ(a_->call(data_request(Op::write, file_, range(kFar, large.size())), large)->error(),
            EFBIG);
  EXPECT_TRUE(lands_behind(9));
  // Two at a time, the nearer of which fails first; one of the short way (small_writes.h).
  sim_->store->clear();
  EXPECT_EQ(a_->call(data_request(Op::write, file_, range(0, 1)), "a")->error(), 0);
  EXPECT_EQ(a_->call(data_request(Op::write, file_, range(0, 1)), "a")->error(), 0);
  sim_->store->add({.op = Op::write, .error = EFBIG});
  const auto near = a_->send(data_request(Op::write, file_, range(kFar, 1)), "x");
  const auto far = a_->send(data_request(Op::write, file_, range(2 * kFar, 1)), "x");
  EXPECT_EQ(a_->wait(near).error(), EFBIG);
  EXPECT_EQ(a_->wait(far).error(), EFBIG);
  EXPECT_TRUE(lands_behind(12));
}

TEST_F(SharedServer, AFailedAppendLeavesAHoleUntilItComesAgain) {
  a_->call(append(file_, 3), "abc");
  const Once once{5, 6, 1, 0};
  a_->auto_pull = false;
  const auto failed = a_->send(append(file_, 4, once), "defg", true);
  run_until(
      sim_->loop, [&] { return !a_->pulls.empty(); }, 10s);
  ASSERT_FALSE(a_->pulls.empty()) << "it has its place";
  EXPECT_EQ(b_->call(append(others_, 3), "hij")->reply().value, 7u);
  sim_->store->add({.op = Op::write, .error = ENOSPC});
  a_->answer(a_->pulls.front());
  EXPECT_EQ(a_->wait(failed).error(), ENOSPC);
  sim_->store->clear();
  EXPECT_EQ(read_back(*a_, file_, 100), std::string("abc\0\0\0\0hij", 10));
  EXPECT_NE(sim_->server->status().find("\"holes\": 1"), std::string::npos);
  EXPECT_EQ(b_->call(append(others_, 4, once), "defg")->reply().value, 3u);
  EXPECT_EQ(read_back(*a_, file_, 100), "abcdefghij");
  EXPECT_NE(sim_->server->status().find("\"holes\": 0"), std::string::npos);
  EXPECT_EQ(b_->call(append(others_, 4, once), "defg")->reply().value, 3u) << "from memory";
}

TEST_F(SharedServer, AFullDiskTurnsNoLogIntoZeros) {
  a_->call(append(file_, 3), "abc");
  sim_->store->add({.op = Op::write, .error = ENOSPC});
  std::vector<RawClient::CallRef> failed;
  for (uint64_t i = 1; i <= 60; ++i) {
    const bool mine = i % 2 == 0;
    const size_t size = 1 + i * 997 % 30'000;
    failed.push_back(
        (mine ? a_ : b_)
            ->send(append(mine ? file_ : others_, size, {5, 6, 1, static_cast<uint16_t>(i)}),
                   pattern(i, size), i % 3 == 0));
    if (i % 7 == 0) (mine ? a_ : b_)->wait(failed.back());
  }
  for (const auto& call : failed) {
    a_->wait(call);
    b_->wait(call);
    EXPECT_EQ(call->error(), ENOSPC);
  }
  sim_->store->clear();
  EXPECT_NE(sim_->server->status().find("\"open_places\": 0, \"holes\": 0"), std::string::npos);
  EXPECT_EQ(b_->call(append(others_, 3), "def")->reply().value, 3u);
  // The last of them comes again: it was never done, and the place is another's by now.
  const size_t size = 1 + 60 * 997 % 30'000;
  EXPECT_EQ(b_->call(append(others_, size, {5, 6, 1, 60}), pattern(60, size))->reply().value, 6u);
  EXPECT_EQ(b_->call(append(others_, size, {5, 6, 1, 60}), pattern(60, size))->reply().value, 6u);
  EXPECT_EQ(read_back(*a_, file_, 6), "abcdef");
}

TEST_F(SharedServer, WhatWasWrittenInPartKeepsItsPlace) {
  a_->call(append(file_, 3), "abc");
  sim_->store->add(
      {.op = Op::write, .action = FaultRule::Action::short_write, .error = ENOSPC, .bytes = 2});
  EXPECT_EQ(a_->call(append(file_, 4, {5, 6, 1, 0}), "defg")->error(), ENOSPC);
  sim_->store->clear();
  sim_->store->add({.op = Op::write, .action = FaultRule::Action::fail_after, .error = EIO});
  EXPECT_EQ(a_->call(append(file_, 4, {5, 6, 1, 1}), "hijk")->error(), EIO);
  sim_->store->clear();
  EXPECT_EQ(b_->call(append(others_, 3), "lmn")->reply().value, 11u);
  EXPECT_NE(sim_->server->status().find("\"holes\": 2"), std::string::npos);
  EXPECT_EQ(b_->call(append(others_, 4, {5, 6, 1, 0}), "defg")->reply().value, 3u);
  EXPECT_EQ(b_->call(append(others_, 4, {5, 6, 1, 1}), "hijk")->reply().value, 7u);
  EXPECT_EQ(read_back(*a_, file_, 100), "abcdefghijklmn");
}

TEST_F(SharedServer, ADeadWritersHoleIsListed) {
  const auto holes = [&] {
    Request list = attr(Op::attr_list, file_, "");
    list.flags = kFlagPlus;
    const auto reply = a_->call(std::move(list));
    EXPECT_EQ(reply->error(), 0);
    EXPECT_EQ(reply->reply().value, reply->reply().data.size() / 16);
    return reply->reply().data;
  };
  EXPECT_EQ(holes(), "");
  a_->call(append(file_, 3), "abc");
  b_->auto_pull = false;
  b_->send(append(others_, 4), "defg", true);  // it never brings its bytes
  run_until(
      sim_->loop, [&] { return !b_->pulls.empty(); }, 10s);
  EXPECT_EQ(a_->call(append(file_, 3), "hij")->reply().value, 7u);
  b_.reset();
  sim_->loop.run_for(10min);
  EXPECT_EQ(holes(), std::string("\3\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0", 16));
  EXPECT_EQ(read_back(*a_, file_, 100), std::string("abc\0\0\0\0hij", 10));
}

// ---- Files that are removed ----

TEST_F(SharedServer, WhatIsKeptAboutAFileGoesWithItsLastNameAndItsLastHolder) {
  const auto call = [&](Op op, Handle dir, const char* name, Handle dir2 = {},
                        const char* name2 = "", Once once = {}) {
    Request r = request(op, std::move(dir), name);
    r.handle2 = std::move(dir2);
    r.name2 = name2;
    r.once = once;
    EXPECT_EQ(a_->call(std::move(r))->error(), 0) << name;
  };
  const auto close = [&](const OpenFile& file) {
    Request r = request(Op::close, file.handle);
    r.right = file.right;
    EXPECT_EQ(a_->call(std::move(r))->error(), 0);
  };
  const auto files = [&] {
    sim_->loop.run_for(1s);
    const std::string status = sim_->server->status();
    const std::string_view before = "\"state\": {\"files\": ";
    return std::stoi(status.substr(status.find(before) + before.size()));
  };
  const Handle root = a_->welcome.root;
  uint64_t sequence = 0;
  const auto once = [&](bool named) { return named ? Once{7, 7, ++sequence, 0} : Once{}; };
  for (const bool named : {false, true}) {
    // Closed, then removed.
    const OpenFile g = create(*a_, "g");
    a_->call(attr(Op::attr_create, g, "n"));
    close(g);
    EXPECT_EQ(files(), 1);
    call(Op::link, g.handle, "", root, "other", once(named));
    call(Op::remove, root, "g", {}, "", once(named));
    EXPECT_EQ(files(), 1) << "it has another name";
    call(Op::remove, root, "other", {}, "", once(named));
    EXPECT_EQ(files(), 0);
    // Removed, then closed; its attribute came between.
    const OpenFile h = create(*a_, "h");
    call(Op::remove, root, "h", {}, "", once(named));
    a_->call(attr(Op::attr_create, h, "n"));
    EXPECT_EQ(files(), 1);
    close(h);
    EXPECT_EQ(files(), 0);
    // Another takes its name.
    const OpenFile i = create(*a_, "i");
    a_->call(append(i, 3), "abc");
    a_->call(attr(Op::attr_create, i, "n"));
    close(i);
    close(create(*a_, "j"));
    call(Op::rename, root, "j", root, "i", once(named));
    EXPECT_EQ(files(), 0);
    call(Op::remove, root, "i", {}, "", once(named));
  }
}

TEST_F(SharedServer, AnAppendOfNothingTellsTheEnd) {
  a_->call(append(file_, 3), "abc");
  EXPECT_EQ(a_->call(append(file_, 0))->reply().value, 3u);
}

TEST_F(SharedServer, AClientThatSaysGoodbyeIsForgotten) {
  a_->call(attr(Op::attr_create, file_, "n"));
  a_->call(attr(Op::attr_fetch_add, file_, "n", 1, {11, 12, 1, 0}));
  EXPECT_NE(sim_->server->status().find("\"remembered\": 1"), std::string::npos);
  a_->send_raw(wire::encode_goodbye("done", false));
  sim_->loop.run_for(1s);
  EXPECT_NE(sim_->server->status().find("\"remembered\": 0"), std::string::npos);
}

}  // namespace
}  // namespace forebay::server
