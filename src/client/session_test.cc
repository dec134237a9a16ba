// A client whose connection holds: slots, credits, data, lists, cancel.
#include <fmt/format.h>
#include <sys/uio.h>

#include <map>

#include "client/testing.h"

namespace forebay {
namespace {

using SessionTest = ClientFixture;

TEST_F(SessionTest, SaysHelloAndLearnsTheRoot) {
  connect();
  EXPECT_EQ(store->root().value().bytes, "root");
  ASSERT_EQ(server.hellos.size(), 1u);
  EXPECT_EQ(server.hellos[0].export_name, "data");
  EXPECT_EQ(server.hellos[0].job, "job 1");
  EXPECT_EQ(server.hellos[0].session, 0u);
  EXPECT_EQ(server.hellos[0].purpose, wire::Hello::Purpose::data);
}

TEST_F(SessionTest, SendsARequestAndTakesItsReply) {
  connect();
  const auto a = submit(getattr());
  const auto request = server.take_request();
  EXPECT_EQ(request.request.op, Op::getattr);
  EXPECT_EQ(request.request.handle.bytes, "file");
  EXPECT_EQ(request.id.sequence, 1u);
  EXPECT_EQ(request.request.caller, nullptr) << "the peer itself needs no name";
  Reply reply;
  reply.attr.size = uint64_t{5} << 33;
  server.reply(request.id, reply);
  ASSERT_TRUE(a->ok());
  EXPECT_EQ((*a->result)->attr.size, uint64_t{5} << 33);
  EXPECT_EQ(store->stats().requests, 1u);
}

TEST_F(SessionTest, NamesACallerWhoIsSomebodyElse) {
  connect();
  Request request = getattr();
  request.caller = std::make_shared<Caller>(Caller{4711, 4712, {4713}, "j"});
  submit(std::move(request));
  const auto sent = server.take_request();
  ASSERT_TRUE(sent.request.caller);
  EXPECT_EQ(sent.request.caller->uid, 4711u);
}

TEST_F(SessionTest, RefusesWhatIsNotWellFormedWithoutAskingTheServer) {
  connect();
  EXPECT_EQ(submit(getattr(""))->code(), EINVAL);
  server.settle();
  EXPECT_EQ(server.connects, 0u);
}

TEST_F(SessionTest, AServersErrorComesUnchanged) {
  connect();
  std::string bytes = pattern(10);
  const auto a = submit(data(Op::write, 0, bytes));
  server.reply(server.take_request().id, Error(ENOSPC, "full").with_done(3));
  EXPECT_EQ(a->code(), ENOSPC);
  EXPECT_EQ(a->result->error().done(), 3u);
}

TEST_F(SessionTest, RequestsBeyondTheSlotsWaitTheirTurn) {
  connect();
  for (int i = 0; i < 10; ++i) submit(getattr(fmt::format("f{}", i)));
  server.settle();
  EXPECT_EQ(server.frames.size(), 4u);
  std::map<uint16_t, uint64_t> last;
  for (int i = 0; i < 10; ++i) {
    const auto request = server.take_request();
    EXPECT_EQ(request.request.handle.bytes, fmt::format("f{}", i));
    EXPECT_LT(request.id.slot, 4);
    EXPECT_EQ(request.id.sequence, ++last[request.id.slot]);
    server.reply(request.id, Reply{});
    EXPECT_TRUE(order[static_cast<size_t>(i)]->ok());
  }
}

TEST_F(SessionTest, SmallWritesAreEagerWithinTheCredit) {
  connect();
  std::string a = pattern(600), b = pattern(400), c = pattern(10), payload;
  submit(data(Op::write, 0, a));
  submit(data(Op::write, 1000, b));
  submit(data(Op::write, 2000, c));
  const auto first = server.take_request(&payload);
  EXPECT_TRUE(first.eager);
  EXPECT_EQ(payload, a);
  EXPECT_TRUE(server.take_request(&payload).eager);
  EXPECT_EQ(payload, b);
  EXPECT_FALSE(server.take_request(&payload).eager) << "no credit left";
  EXPECT_EQ(payload, "");
  server.reply(first.id, counted(600));
  submit(data(Op::write, 3000, a));
  EXPECT_TRUE(server.take_request(&payload).eager) << "the credit came back";
}

TEST_F(SessionTest, AnswersPullsFromScatteredMemory) {
  connect();
  std::string x = pattern(700), y = pattern(900);
  const iovec pieces[] = {{x.data(), x.size()}, {y.data(), y.size()}};
  const auto a = submit(data(Op::write, Extents(Extent{Offset(uint64_t{1} << 40), Length(1600)}),
                             Memory::of(pieces).value()));
  const auto request = server.take_request();
  EXPECT_FALSE(request.eager);
  EXPECT_EQ(request.total, 1600u);
  server.deliver(wire::encode(wire::Pull{request.id, wire::Part::stream, 600, 300}));
  server.deliver(wire::encode(wire::Pull{request.id, wire::Part::stream, 0, 600}));
  const auto one = server.take(), two = server.take();
  EXPECT_EQ(wire::decode_data(one.bytes())->position, 600u);
  EXPECT_EQ(one.payload, (x + y).substr(600, 300));
  EXPECT_EQ(two.payload, x.substr(0, 600));
  server.reply(request.id, counted(1600));
  EXPECT_TRUE(a->ok());
}

TEST_F(SessionTest, DoesNotCompleteWhileItsMemoryIsBeingSent) {
  connect();
  std::string bytes = pattern(5000);
  const auto a = submit(data(Op::write, 0, bytes));
  const auto request = server.take_request();
  server.hold_sends = true;
  server.deliver(wire::encode(wire::Pull{request.id, wire::Part::stream, 0, 4096}));
  server.reply(request.id, Error(ENOSPC));
  EXPECT_FALSE(a->result);
  server.release_sends();
  EXPECT_EQ(a->code(), ENOSPC);
}

TEST_F(SessionTest, ReadsLandWhereTheyBelong) {
  connect();
  std::string small(100, '-'), large(9000, '-');
  const std::string source = pattern(9000);
  const auto a = submit(data(Op::read, 0, small));
  const auto b = submit(data(Op::read, 0, large));
  const auto ra = server.take_request(), rb = server.take_request();
  server.reply(ra.id, counted(60), source.substr(0, 60));
  EXPECT_TRUE(a->ok());
  EXPECT_EQ(small, source.substr(0, 60) + std::string(40, '-'));
  for (uint64_t at : {8192u, 0u, 4096u}) {
    const std::string part = source.substr(at, 4096);
    server.deliver(
        wire::encode(wire::Data{rb.id, wire::Part::stream, at}, static_cast<uint32_t>(part.size())),
        part);
  }
  EXPECT_FALSE(b->result);
  server.reply(rb.id, counted(9000));
  EXPECT_TRUE(b->ok());
  EXPECT_EQ(large, source);
}

// ---- Long lists ----

struct LongList {
  explicit LongList(size_t blocks) : bytes(blocks, 'x') {
    for (size_t i = 0; i < blocks; ++i) list.push_back({Offset(3 * i), Length(1)});
  }
  std::vector<Extent> list;
  std::string bytes;
  Extents file() const { return Extents::make(list).value(); }
  Memory memory() { return Memory::of(std::as_writable_bytes(std::span(bytes))); }
};

TEST_F(SessionTest, ALongListIsPulled) {
  connect();
  LongList l(2000);
  const auto a = submit(data(Op::read, l.file(), l.memory()));
  const auto request = server.take_request();
  EXPECT_EQ(request.list_blocks, 2000u);
  EXPECT_EQ(request.total, 2000u);
  EXPECT_EQ(request.list_bounds, (Extent{Offset(0), Length(5998)}));
  server.deliver(wire::encode(wire::Pull{request.id, wire::Part::list, 4096, 4096}));
  const auto part = server.take();
  EXPECT_EQ(wire::decode_data(part.bytes())->part, wire::Part::list);
  const auto blocks = wire::decode_blocks(std::as_bytes(std::span(part.payload)));
  ASSERT_EQ(blocks.size(), 256u);
  EXPECT_EQ(blocks[0], l.list[256]);
  server.reply(request.id, counted(2000));
  EXPECT_TRUE(a->ok());
}

TEST_F(SessionTest, AListThatIsTooLongIsDoneInPartsAndNothingOvertakesIt) {
  server.welcome.max_list_bytes = 1500 * wire::kBlockBytes;
  connect();
  LongList l(4000);
  const auto a = submit(data(Op::write, l.file(), l.memory()));
  const auto b = submit(getattr());
  for (uint64_t n : {1500u, 1500u, 1000u}) {
    const auto request = server.take_request();
    ASSERT_EQ(request.request.op, Op::write);
    EXPECT_EQ(request.total, n);
    EXPECT_TRUE(server.frames.empty());
    EXPECT_FALSE(a->result);
    server.reply(request.id, counted(n));
  }
  ASSERT_TRUE(a->ok());
  EXPECT_EQ((*a->result)->count, 4000u);
  server.reply(server.take_request().id, Reply{});
  EXPECT_TRUE(b->ok());
}

TEST_F(SessionTest, AnErrorInAPartSaysHowMuchWasDone) {
  server.welcome.max_list_bytes = 1500 * wire::kBlockBytes;
  connect();
  LongList l(4000);
  const auto a = submit(data(Op::write, l.file(), l.memory()));
  server.reply(server.take_request().id, counted(1500));
  server.reply(server.take_request().id, Error(ENOSPC).with_done(20));
  EXPECT_EQ(a->code(), ENOSPC);
  EXPECT_EQ(a->result->error().done(), 1520u);
  EXPECT_TRUE(server.frames.empty());
}

TEST_F(SessionTest, AServerThatFindsTheListTooLongGetsItInSmallerParts) {
  connect();
  LongList l(3000);
  const auto a = submit(data(Op::write, l.file(), l.memory()));
  server.reply(server.take_request().id, Error(E2BIG));
  for (int i = 0; i < 2; ++i) {
    const auto request = server.take_request();
    EXPECT_EQ(request.total, 1500u);
    server.reply(request.id, counted(1500));
  }
  EXPECT_TRUE(a->ok());
}

// ---- Cancel ----

TEST_F(SessionTest, CancelOfWhatWaitsCompletesAtOnce) {
  connect();
  for (int i = 0; i < 4; ++i) submit(getattr());
  std::stop_source stop;
  Request request = getattr();
  request.stop = stop.get_token();
  const auto a = submit(std::move(request));
  server.settle();
  stop.request_stop();
  server.settle();
  EXPECT_EQ(a->code(), ECANCELED);
}

TEST_F(SessionTest, CancelOfWhatWasSentAsksTheServer) {
  connect();
  std::stop_source stop;
  Request request = getattr();
  request.stop = stop.get_token();
  const auto a = submit(std::move(request));
  const auto sent = server.take_request();
  stop.request_stop();
  stop.request_stop();
  const auto frame = server.take();
  ASSERT_EQ(frame.header.type, wire::FrameType::cancel);
  EXPECT_EQ(wire::decode_cancel(frame.bytes())->id, sent.id);
  EXPECT_FALSE(a->result);
  server.reply(sent.id, Error(ECANCELED));
  EXPECT_EQ(a->code(), ECANCELED);
  EXPECT_TRUE(server.frames.empty());
}

TEST_F(SessionTest, CancelBeforeSubmit) {
  connect();
  std::stop_source stop;
  stop.request_stop();
  Request request = getattr();
  request.stop = stop.get_token();
  const auto a = submit(std::move(request));
  server.settle();
  EXPECT_TRUE(a->code() == ECANCELED || (server.frames.size() == 2 &&
                                         server.frames[1].header.type == wire::FrameType::cancel));
}

// ---- The end ----

TEST_F(SessionTest, SaysGoodbye) {
  connect();
  ASSERT_TRUE(store->root());
  store.reset();
  EXPECT_EQ(server.take().header.type, wire::FrameType::goodbye);
}

TEST_F(SessionTest, CompletionsMaySubmit) {
  connect();
  int left = 20;
  std::function<void()> again = [&] {
    Request request = getattr();
    request.caller = this_process_caller();
    store->submit(std::move(request), [&](Result<Reply>) {
      if (--left > 0) again();
    });
  };
  again();
  while (left > 0) server.reply(server.take_request().id, Reply{});
  EXPECT_TRUE(server.frames.empty());
}

}  // namespace
}  // namespace forebay
