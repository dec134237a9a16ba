// Leases as a client holds them.
#include <thread>

#include "client/testing.h"

namespace forebay {
namespace {

using namespace std::chrono_literals;

class LeaseTest : public ClientFixture {
 protected:
  struct Holder final : LeaseHolder {
    void recalled(uint64_t lease) override { recalls.push_back(lease); }
    void lost() override { ++losses; }
    std::vector<uint64_t> recalls;
    int losses = 0;
  };

  void SetUp() override {
    ClientFixture::SetUp();
    connect();
    store->hold_leases(&holder);
  }
  void TearDown() override {
    store->hold_leases(nullptr);
    ClientFixture::TearDown();
  }
  void grant(uint64_t number, const char* file = "file", uint64_t milliseconds = 4000) {
    Request r;
    r.op = Op::lease;
    r.handle.bytes = file;
    r.right.bytes = "right";
    r.flags = kFlagShared;
    submit(std::move(r));
    Reply reply;
    reply.value = number;
    reply.count = milliseconds;
    server.reply(server.take_request().id, std::move(reply));
  }
  uint64_t take_released() {
    const auto frame = server.take();
    EXPECT_EQ(frame.header.type, wire::FrameType::released);
    const auto released = wire::decode_released(frame.bytes());
    return released ? released->lease : 0;
  }
  void pass(Duration d) {
    loop.after(d, [] {});
    loop.run_for(d);
  }

  Holder holder;
};

TEST_F(LeaseTest, IsRecalledAndGivenBack) {
  grant(5);
  EXPECT_GT(store->leases_until(), since_boot() + 3s);
  EXPECT_LT(store->leases_until(), since_boot() + 3600ms) << "less than the server gives it";
  server.deliver(wire::encode(wire::Recall{5}));
  EXPECT_EQ(holder.recalls, std::vector<uint64_t>{5});
  server.deliver(wire::encode(wire::Recall{5}));
  server.deliver(wire::encode(wire::Recall{6}));
  EXPECT_EQ(holder.recalls.size(), 1u) << "what it does not hold";
  EXPECT_TRUE(server.frames.empty());
  store->give_back(5);
  EXPECT_EQ(take_released(), 5u);
  grant(7);
  store->give_back(7);
  EXPECT_EQ(take_released(), 7u);
  server.deliver(wire::encode(wire::Recall{7}));
  EXPECT_EQ(holder.recalls.size(), 1u) << "given back already";
}

TEST_F(LeaseTest, MayBeRecalledBeforeItIsHeardOf) {
  Request r;
  r.op = Op::lease;
  r.handle.bytes = "file";
  r.right.bytes = "right";
  r.flags = kFlagShared;
  submit(std::move(r));
  const auto asked = server.take_request();
  server.deliver(wire::encode(wire::Recall{9}));
  EXPECT_TRUE(holder.recalls.empty());
  Reply reply;
  reply.value = 9;
  reply.count = 4000;
  server.reply(asked.id, std::move(reply));
  EXPECT_EQ(holder.recalls, std::vector<uint64_t>{9});
}

TEST_F(LeaseTest, IsRenewedWhileItIsHeld) {
  grant(5);
  pass(1100ms);
  const auto renewal = server.take_request();
  EXPECT_EQ(renewal.request.op, Op::lease);
  EXPECT_EQ(renewal.request.cookie, 5u);
  EXPECT_TRUE(renewal.request.flags & kFlagReclaim);
  server.reply(renewal.id, Error(ENOLCK));
  EXPECT_EQ(holder.recalls, std::vector<uint64_t>{5}) << "whatever the server says";
  pass(3s);
  EXPECT_TRUE(server.frames.empty());
}

TEST_F(LeaseTest, ThatRanOutIsNotRevivedByTheNext) {
  grant(5, "file", 200);
  std::this_thread::sleep_for(200ms);  // and no timer has run
  grant(6, "other");
  EXPECT_EQ(holder.losses, 1);
  EXPECT_GT(store->leases_until(), since_boot() + 3s);
  server.deliver(wire::encode(wire::Recall{5}));
  EXPECT_TRUE(holder.recalls.empty());
  server.deliver(wire::encode(wire::Recall{6}));
  EXPECT_EQ(holder.recalls, std::vector<uint64_t>{6});
}

TEST_F(LeaseTest, WhatWasKeptTravelsAloneAndNamesIt) {
  const std::string data = "kept";
  for (uint64_t i = 0; i < 3; ++i) {
    Request r;
    r.op = Op::write;
    r.handle.bytes = "file";
    r.right.bytes = "right";
    r.cookie = 5;
    r.file = Extents(Extent{Offset(i * 4), Length(4)});
    r.memory = Memory::of(std::as_bytes(std::span(data)));
    submit(std::move(r));
  }
  for (uint64_t i = 0; i < 3; ++i) {
    const auto sent = server.take_request();
    EXPECT_EQ(sent.request.cookie, 5u);
    EXPECT_EQ(sent.request.file.total().value, 4u);
    server.reply(sent.id, Error(ESTALE));
  }
}

TEST_F(LeaseTest, EndsWithTheConnection) {
  grant(5);
  grant(6, "other");
  server.cut();
  EXPECT_EQ(holder.losses, 1);
  EXPECT_EQ(store->leases_until(), Duration::zero());
  submit(getattr());
  server.reply(server.take_request().id, Reply{});
  server.deliver(wire::encode(wire::Recall{5}));
  EXPECT_TRUE(holder.recalls.empty());
  grant(8);
  server.deliver(wire::encode_goodbye("stopping"));
  EXPECT_EQ(holder.losses, 2);
}

}  // namespace
}  // namespace forebay
