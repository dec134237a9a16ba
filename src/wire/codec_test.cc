#include "wire/codec.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "core/testing.h"
#include "wire/small_write.h"
#include "wire/testing.h"

namespace forebay::wire {
namespace {

// A copy of exactly these bytes, `shift` bytes past an aligned address, so that AddressSanitizer
// sees any read beyond the end and UndefinedBehaviorSanitizer any misaligned one.
class Copy {
 public:
  explicit Copy(Bytes bytes, size_t shift = 0) : space_(new std::byte[bytes.size() + shift]) {
    bytes_ = {space_.get() + shift, bytes.size()};
    if (!bytes.empty()) std::memcpy(space_.get() + shift, bytes.data(), bytes.size());
  }
  Bytes bytes() const { return bytes_; }

 private:
  std::unique_ptr<std::byte[]> space_;
  Bytes bytes_;
};

FrameHeader header_of(std::string_view head) {
  const auto header = decode_header(bytes_of(head).first<kHeaderSize>());
  EXPECT_TRUE(header) << (header ? "" : header.error().message());
  return header ? *header : FrameHeader{};
}

// What a head says of itself is so, whatever is in the message.
void expect_sound(std::string_view head, FrameType type, uint32_t payload = 0) {
  const FrameHeader expected{type, static_cast<uint32_t>(head.size() - kHeaderSize), payload};
  EXPECT_EQ(header_of(head), expected);
  EXPECT_EQ(head.size() % 8, 0u) << "the next frame would not be aligned";
}

class Codec : public testing::Test {
 protected:
  const uint64_t seed_ = test_seed();
  RandomMessages random_{seed_};
};

// ---- Round trips ----

TEST_F(Codec, EveryMessageSurvivesTheRoundTrip) {
  for (int i = 0; i < 1000; ++i) {
    const auto heads = one_of_each(random_);
    for (size_t k = 0; k < heads.size(); ++k) {
      const auto type = static_cast<FrameType>(k + 1);
      expect_sound(heads[k], type, type == FrameType::data ? 16 : 0);
      ASSERT_TRUE(decode_and_back(type, message_of(heads[k]))) << "type " << k + 1;
    }
  }
}

TEST_F(Codec, ValuesAreThoseThatWereEncoded) {
  for (int i = 0; i < 500; ++i) {
    const Hello hello = random_.hello();
    EXPECT_EQ(*decode_hello(message_of(encode(hello))), hello);
    const Welcome welcome = random_.welcome();
    EXPECT_EQ(*decode_welcome(message_of(encode(welcome))), welcome);
    const Error error = random_.error();
    EXPECT_EQ(decode_refused(message_of(encode_refused(error)))->why, error);
    const Pull pull = random_.pull();
    EXPECT_EQ(*decode_pull(message_of(encode(pull))), pull);
    const Data data = random_.data();
    EXPECT_EQ(*decode_data(message_of(encode(data, 5))), data);
    const Cancel cancel = random_.cancel();
    EXPECT_EQ(*decode_cancel(message_of(encode(cancel))), cancel);
    const Control control = random_.control();
    EXPECT_EQ(*decode_control(message_of(encode(control))), control);
    const ControlReply answer = random_.control_reply();
    EXPECT_TRUE(same(*decode_control_reply(message_of(encode(answer))), answer));
    const std::string reason = random_.bytes(kMaxText);
    EXPECT_EQ(*decode_goodbye(message_of(encode_goodbye(reason))), (Goodbye{reason, false}));
    EXPECT_EQ(*decode_goodbye(message_of(encode_goodbye(reason, true))), (Goodbye{reason, true}));
  }
}

TEST_F(Codec, RequestsAndRepliesAreThoseThatWereEncoded) {
  for (int i = 0; i < 2000; ++i) {
    const RequestMessage request = random_.request();
    const auto decoded = decode_request(message_of(encode(request, 8)));
    ASSERT_TRUE(decoded) << decoded.error().message();
    ASSERT_FALSE(decoded->bad) << decoded->bad->message();
    ASSERT_TRUE(same(*decoded, request)) << "request " << i;
    const ReplyMessage reply = random_.reply();
    const auto back = decode_reply(message_of(encode(reply, 8)));
    ASSERT_TRUE(back) << back.error().message();
    ASSERT_TRUE(same(*back, reply)) << "reply " << i;
  }
}

TEST_F(Codec, AnyAddressWillDo) {
  for (size_t shift = 0; shift < 8; ++shift) {
    for (int i = 0; i < 20; ++i) {
      const auto heads = one_of_each(random_);
      for (size_t k = 0; k < heads.size(); ++k) {
        const Copy copy(message_of(heads[k]), shift);
        EXPECT_TRUE(decode_and_back(static_cast<FrameType>(k + 1), copy.bytes()));
      }
    }
  }
}

TEST_F(Codec, SmallWritesAreKnown) {
  RequestMessage small;
  small.id = {3, 4};
  small.request.op = Op::write;
  small.request.handle.bytes = "handle";
  small.request.right.bytes = "right";
  small.request.file = Extents(Extent{Offset(4096), Length(100)});
  small.eager = true;
  const std::string head = encode(small, 100);
  ASSERT_TRUE(view_small_write(message_of(head)));
  EXPECT_TRUE(decode_and_back(FrameType::request, message_of(head)));
  const std::string shifted = "x" + std::string(head);
  EXPECT_TRUE(view_small_write(message_of(shifted.substr(1))));
  for (auto change : std::vector<void (*)(RequestMessage&)>{
           [](RequestMessage& m) { m.request.flags = kFlagStable; },
           [](RequestMessage& m) { m.request.op = Op::read, m.eager = false; },
           [](RequestMessage& m) { m.eager = false; },
           [](RequestMessage& m) { m.request.name = "name"; },
           [](RequestMessage& m) { m.request.caller = this_process_caller(); },
           [](RequestMessage& m) { m.request.right = {}; },
           [](RequestMessage& m) { m.request.file = {}; }}) {
    RequestMessage other = small;
    change(other);
    EXPECT_FALSE(view_small_write(message_of(encode(other))));
  }
}

TEST_F(Codec, BlocksSurviveTheRoundTrip) {
  std::vector<Extent> blocks(1000);
  for (Extent& e : blocks)
    e = {Offset(random_.below(UINT64_MAX)), Length(random_.below(UINT64_MAX))};
  std::vector<std::byte> bytes(blocks.size() * kBlockBytes);
  encode_blocks(blocks, bytes);
  EXPECT_EQ(decode_blocks(bytes), blocks);
  EXPECT_EQ(decode_blocks(Bytes(bytes).first(40)).size(), 2u);  // only whole blocks
  EXPECT_TRUE(decode_blocks({}).empty());
}

// ---- Malformed bytes ----

// Every decoder, on these bytes: whatever it says, it must not read outside them.
void decode_as_all(Bytes message) {
  for (int type = 1; type <= static_cast<int>(kLastFrameType); ++type)
    decode_and_back(static_cast<FrameType>(type), message);
}

TEST_F(Codec, EveryTruncationIsHandled) {
  for (int i = 0; i < 4; ++i) {
    const auto heads = one_of_each(random_);
    for (size_t k = 0; k < heads.size(); ++k) {
      const Bytes message = message_of(heads[k]);
      // A few random messages are long: all of the first bytes, then steps.
      for (size_t n = 0; n < message.size(); n += n < 600 ? 1 : 1 + message.size() / 100) {
        const Copy copy(message.first(n));
        decode_and_back(static_cast<FrameType>(k + 1), copy.bytes());
      }
    }
  }
}

TEST_F(Codec, BitFlipsAreHandled) {
  for (int i = 0; i < 100; ++i) {
    for (const std::string& head : one_of_each(random_)) {
      std::string bad = head.substr(0, kHeaderSize + 4096);
      for (int flips = 0; flips < 8; ++flips) {
        const size_t bit = random_.below(std::min<size_t>(bad.size(), 300) * 8);
        bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
        const Copy copy(bytes_of(bad));
        (void)decode_header(copy.bytes().first<kHeaderSize>());
        const Copy message(message_of(bad));
        decode_as_all(message.bytes());
      }
    }
  }
}

TEST_F(Codec, OneMessageReadAsAnotherIsHandled) {
  for (int i = 0; i < 100; ++i)
    for (const std::string& head : one_of_each(random_)) decode_as_all(message_of(head));
}

TEST_F(Codec, NoiseIsHandled) {
  for (int i = 0; i < 5000; ++i) {
    const std::string noise = random_.bytes(200);
    const Copy copy(bytes_of(noise), i % 8);
    decode_as_all(copy.bytes());
  }
}

TEST(CodecLimits, AMessageBeyondTheLimitIsRefused) {
  const std::string zeros(kMaxMessage + 8, '\0');
  EXPECT_EQ(decode_request(bytes_of(zeros)).error().code(), EPROTO);
  EXPECT_EQ(decode_request(bytes_of(zeros).subspan(1)).error().code(), EPROTO);
  EXPECT_EQ(decode_hello({}).error().code(), EPROTO);
}

// ---- Arguments that no server takes: the request can still be answered ----

void expect_bad(const RequestMessage& m, int code, const char* part) {
  const auto decoded = decode_request(message_of(encode(m)));
  ASSERT_TRUE(decoded) << decoded.error().message();
  EXPECT_EQ(decoded->id, m.id);
  ASSERT_TRUE(decoded->bad) << part;
  EXPECT_EQ(decoded->bad->code(), code);
  EXPECT_NE(decoded->bad->what().find(part), std::string::npos) << decoded->bad->what();
}

RequestMessage a_request(Op op) {
  RequestMessage m;
  m.id = {7, 4711};
  m.request.op = op;
  return m;
}

TEST(CodecBadRequest, FieldsBeyondTheirLimits) {
  auto m = a_request(Op::getattr);
  m.request.handle.bytes.assign(kMaxHandle + 1, 'h');
  expect_bad(m, EINVAL, "handle");
  m = a_request(Op::lookup);
  m.request.name.assign(kMaxPath + 1, 'n');
  expect_bad(m, ENAMETOOLONG, "name");
  m = a_request(Op::read);
  m.request.right.bytes.assign(kMaxRight + 1, 'r');
  expect_bad(m, EINVAL, "right");
  m = a_request(Op::xattr_set);
  m.request.data.assign(kMaxXattr + 1, 'd');
  expect_bad(m, E2BIG, "data");
  m = a_request(Op::resize);
  m.request.length = Length(kMaxOffset + 1);
  expect_bad(m, EINVAL, "length");
  m = a_request(Op::fallocate);
  m.request.offset = Offset(UINT64_MAX);
  expect_bad(m, EINVAL, "offset");
  m = a_request(Op::getattr);
  m.request.caller =
      std::make_shared<const Caller>(Caller{1, 1, std::vector<uint32_t>(kMaxGroups + 1), ""});
  expect_bad(m, EINVAL, "groups");
}

TEST(CodecBadRequest, UnknownValues) {
  expect_bad(a_request(static_cast<Op>(kOpCount)), EOPNOTSUPP, "operation");
  expect_bad(a_request(static_cast<Op>(255)), EOPNOTSUPP, "255");
  auto m = a_request(Op::open);
  m.request.access = static_cast<Access>(4);
  expect_bad(m, EINVAL, "access");
}

TEST(CodecBadRequest, ListsThatCannotBe) {
  auto m = a_request(Op::getattr);
  m.list_blocks = 5000;
  expect_bad(m, EINVAL, "neither a read nor a write");
  m = a_request(Op::read);
  m.list_blocks = UINT64_MAX;
  expect_bad(m, E2BIG, "pulled");
  m = a_request(Op::read);
  m.list_blocks = 5000;
  m.list_bounds = {Offset(kMaxOffset), Length(1)};
  expect_bad(m, EINVAL, "bounds");
  m = a_request(Op::read);
  m.list_blocks = 5000;
  m.list_loops.resize(kMaxLoops + 1);
  expect_bad(m, E2BIG, "loops");
  m = a_request(Op::read);
  m.list_blocks = 5000;
  m.total = kMaxOffset + 1;
  expect_bad(m, EINVAL, "total");
  m = a_request(Op::read);
  m.eager = true;
  expect_bad(m, EINVAL, "eager");
}

// The one way to make extents out of bounds from here: change bytes of a good message.
TEST(CodecBadRequest, ExtentsOutOfBounds) {
  auto m = a_request(Op::read);
  m.request.file = Extents(Extent{Offset(0x1122334455667788), Length(1)});
  std::string head = encode(m);
  const size_t at = head.find(std::string("\x88\x77\x66\x55\x44\x33\x22\x11", 8));
  ASSERT_NE(at, std::string::npos);
  head.replace(at, 8, 8, '\xff');
  const auto decoded = decode_request(message_of(head));
  ASSERT_TRUE(decoded);
  ASSERT_TRUE(decoded->bad);
  EXPECT_EQ(decoded->bad->code(), EINVAL);
  EXPECT_EQ(decoded->id, m.id);
}

// ---- Messages that break the rules ----

TEST(CodecRules, HandshakeFieldsBeyondTheirLimits) {
  Hello hello;
  hello.purpose = static_cast<Hello::Purpose>(2);
  EXPECT_EQ(decode_hello(message_of(encode(hello))).error().code(), EPROTO);
  hello = {};
  hello.export_name.assign(kMaxLabel + 1, 'e');
  EXPECT_EQ(decode_hello(message_of(encode(hello))).error().code(), EPROTO);
  hello = {};
  hello.host.assign(kMaxLabel + 1, 'h');  // for people: shortened
  EXPECT_EQ(decode_hello(message_of(encode(hello)))->host.size(), kMaxLabel);

  Welcome welcome;
  welcome.version = kProtocolMax + 1;
  EXPECT_NE(decode_welcome(message_of(encode(welcome))).error().what().find("version 2"),
            std::string::npos);
  welcome = {};
  welcome.slots = 0;
  EXPECT_FALSE(decode_welcome(message_of(encode(welcome))));
  welcome = {};
  welcome.chunk = kMaxPayload + 1;
  EXPECT_FALSE(decode_welcome(message_of(encode(welcome))));
}

TEST(CodecRules, PullsAndData) {
  const RequestId id{1, 1};
  EXPECT_FALSE(decode_pull(message_of(encode(Pull{id, Part::stream, 0, 0}))));
  EXPECT_FALSE(decode_pull(message_of(encode(Pull{id, Part::stream, 0, kMaxPayload + 1}))));
  EXPECT_FALSE(decode_pull(message_of(encode(Pull{id, Part::stream, kMaxOffset, 1}))));
  EXPECT_FALSE(decode_pull(message_of(encode(Pull{id, Part::list, 8, 16}))));
  EXPECT_FALSE(decode_pull(message_of(encode(Pull{id, Part::list, 16, 8}))));
  EXPECT_FALSE(decode_pull(message_of(encode(Pull{id, static_cast<Part>(2), 0, 16}))));
  EXPECT_FALSE(decode_data(message_of(encode(Data{id, Part::list, 8}, 16))));
  EXPECT_TRUE(decode_data(message_of(encode(Data{id, Part::stream, 8}, 16))));
}

TEST(CodecRules, ErrorsOnTheWire) {
  const auto refused = [](const Error& e) { return decode_refused(message_of(encode_refused(e))); };
  EXPECT_EQ(refused(Error(ENOSPC, std::string(10000, 'x')))->why.what().size(), kMaxText);
  EXPECT_EQ(refused(Error(-5))->why.code(), EIO);
  EXPECT_EQ(refused(Error(100000))->why.code(), EIO);
  // A refused frame without an error is no refused frame, and says so.
  EXPECT_EQ(decode_refused(message_of(encode(Control{}))).error().code(), EPROTO);
}

TEST(CodecRules, AnswersThatAreTooLong) {
  const auto json =
      decode_control_reply(message_of(encode(ControlReply{std::string(kMaxMessage, 'j')})));
  EXPECT_EQ(json->json.error().code(), E2BIG);
  Reply reply;
  reply.data.assign(kMaxMessage, 'd');
  EXPECT_EQ(decode_reply(message_of(encode(ReplyMessage{{}, reply})))->result.error().code(),
            E2BIG);
}

// A directory that does not fit is cut, never lost: the client goes on from the last cookie.
void expect_cut(const Entry& like, bool names_vary) {
  Reply reply;
  reply.end = true;
  for (uint64_t i = 0; i < 40000; ++i) {
    Entry e = like;
    e.cookie = i;
    if (names_vary) e.name.resize(i % (kMaxName + 1), 'n');
    reply.entries.push_back(std::move(e));
  }
  const auto decoded = decode_reply(message_of(encode(ReplyMessage{{1, 1}, reply})));
  ASSERT_TRUE(decoded) << decoded.error().message();
  const Reply& got = *decoded->result;
  EXPECT_FALSE(got.end);
  ASSERT_GT(got.entries.size(), 100u);
  ASSERT_LT(got.entries.size(), reply.entries.size());
  EXPECT_TRUE(std::equal(got.entries.begin(), got.entries.end(), reply.entries.begin()));
}

TEST(CodecRules, LongDirectoriesAreCut) {
  Entry entry;
  expect_cut(entry, false);
  expect_cut(entry, true);
  entry.file_id = 5;
  entry.type = FileType::file;
  entry.name.assign(1, 'n');
  entry.handle.bytes.assign(1, 'h');
  expect_cut(entry, false);
  entry.attr.size = 1;
  expect_cut(entry, true);
  entry.handle.bytes.assign(kMaxHandle, 'h');
  expect_cut(entry, true);
}

// ---- Versions ----

TEST(Negotiate, PicksTheHighestThatBothSpeak) {
  Hello hello;
  EXPECT_EQ(*negotiate(hello), kProtocolMax);
  hello.version_max = 9;
  EXPECT_EQ(*negotiate(hello), kProtocolMax);
  hello.version_min = 0;
  EXPECT_EQ(*negotiate(hello), kProtocolMax);
}

TEST(Negotiate, SaysWhoIsTooOld) {
  Hello hello;
  hello.version_min = 2;
  hello.version_max = 3;
  EXPECT_EQ(negotiate(hello).error().code(), EPROTO);
  EXPECT_EQ(negotiate(hello).error().what(),
            "the client speaks protocol versions 2 to 3, this server version 1: update the server");
  hello.version_min = hello.version_max = 0;
  EXPECT_EQ(negotiate(hello).error().what(),
            "the client speaks protocol version 0, this server version 1: update the client");
  hello.version_min = 5;
  EXPECT_NE(negotiate(hello).error().what().find("empty range"), std::string::npos);
}

}  // namespace
}  // namespace forebay::wire
