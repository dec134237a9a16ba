// The receiver without a socket: any cut of a stream into pieces gives the same frames.
#include "transport/frame_receiver.h"

#include <array>

#include "transport/testing.h"

namespace forebay {
namespace {

// Feeds at most `most` bytes as a socket would; returns how many went in.
size_t feed_once(FrameReceiver& in, std::string_view stream, size_t most, bool lean = false) {
  std::array<iovec, FrameReceiver::kIovecs> space;
  const auto d = in.space(space, lean);
  EXPECT_GT(d.bytes, 0u);
  size_t fed = 0;
  for (size_t i = 0; i < d.count; ++i) {
    const size_t n = std::min({space[i].iov_len, most - fed, stream.size() - fed});
    std::memcpy(space[i].iov_base, stream.data() + fed, n);
    fed += n;
  }
  in.received(fed);
  return fed;
}

Result<void> feed(FrameReceiver& in, ConnectionHandler& handler, std::string_view stream,
                  const std::function<size_t()>& piece, bool lean = false) {
  while (!stream.empty()) {
    stream.remove_prefix(feed_once(in, stream, piece(), lean));
    for (;;) {
      auto more = in.step(handler);
      if (!more) return std::move(more).error();
      if (!*more) break;
    }
  }
  return {};
}

struct Stream {
  std::vector<TestFrame> frames;
  std::string bytes;
};

Stream random_stream(std::mt19937_64& random, int count) {
  Stream s;
  for (int i = 0; i < count; ++i) {
    TestFrame f{random_bytes(random, random() % (i % 10 == 0 ? 40000 : 100)),
                random_bytes(random, i % 3 == 0 ? random() % 50000 : 0)};
    s.bytes += head_of(f.message, f.payload.size()) + f.payload;
    s.frames.push_back(std::move(f));
  }
  return s;
}

TEST(FrameReceiver, ByteByByte) {
  std::mt19937_64 random(test_seed());
  const Stream s = random_stream(random, 12);
  FrameReceiver in;
  Recorder recorder(random());
  ASSERT_TRUE(feed(in, recorder, s.bytes, [] { return size_t{1}; }));
  EXPECT_TRUE(recorder.frames == s.frames);
  EXPECT_FALSE(in.has_staged());
}

TEST(FrameReceiver, AnyPieces) {
  std::mt19937_64 random(test_seed());
  for (const size_t largest : {20u, 1000u, 20000u, 5000000u}) {
    for (const bool lean : {false, true}) {
      const Stream s = random_stream(random, 60);
      FrameReceiver in;
      Recorder recorder(random());
      ASSERT_TRUE(feed(
          in, recorder, s.bytes, [&] { return 1 + random() % largest; }, lean));
      EXPECT_TRUE(recorder.frames == s.frames) << largest;
    }
  }
}

class OneRange final : public ConnectionHandler {
 public:
  int messages = 0, payloads = 0;

 private:
  Result<Memory> on_message(const wire::FrameHeader& header, std::span<const std::byte>) override {
    ++messages;
    space_.resize(header.payload_size);
    return Memory::of(as_bytes(space_));
  }
  void on_payload() override { ++payloads; }
  void on_closed(const Error&) override {}
  std::string space_;
};

TEST(FrameReceiver, APayloadAndTheNextHeaderComeInOneReceive) {
  FrameReceiver in;
  OneRange handler;
  const std::string payload(100000, 'p');
  const std::string stream = head_of("a", payload.size()) + payload + head_of("b");
  size_t at = 0, receives = 0;
  while (at < stream.size()) {
    at += feed_once(in, std::string_view(stream).substr(at), SIZE_MAX / 2);
    ++receives;
    while (in.step(handler).value()) continue;
  }
  EXPECT_EQ(receives, 2u);
  EXPECT_EQ(handler.messages, 2);
  EXPECT_EQ(handler.payloads, 1);
}

TEST(FrameReceiver, BrokenHeadersAreProtocolErrors) {
  std::string head = head_of("message");
  for (const size_t at : {0u, 4u, 5u, 6u, 11u, 15u}) {
    FrameReceiver in;
    Recorder recorder;
    std::string broken = head;
    broken[at] = '\x7f';
    auto fed = feed(in, recorder, broken, [] { return size_t{64}; });
    ASSERT_FALSE(fed) << at;
    EXPECT_EQ(fed.error().code(), EPROTO);
    EXPECT_TRUE(recorder.frames.empty());
  }
}

}  // namespace
}  // namespace forebay
