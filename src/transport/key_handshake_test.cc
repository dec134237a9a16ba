// Proof of a key, and sealed frames, without a socket: whatever is changed, repeated, reflected or
// left out of a conversation is noticed before it is believed.
#include "transport/key_handshake.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "transport/frame_receiver.h"
#include "transport/send_queue.h"
#include "transport/testing.h"

namespace forebay {
namespace {

AuthKeyRef key_of(char c) {
  return std::make_shared<const AuthKey>(std::string(32, c), std::string("key ") + c);
}
CallerRef someone(size_t groups = 3) {
  Caller caller{1001, 100, {}, {}};
  for (size_t i = 0; i < groups; ++i) caller.groups.push_back(uint32_t(i * 7));
  return std::make_shared<const Caller>(caller);
}
std::span<const std::byte> bytes_of(const std::string& s) {
  return std::as_bytes(std::span(s));
}

// The server's end, fed with everything that a client sends: how far does it get?
class Asked {
 public:
  explicit Asked(AuthKeyRef key) : asked_(std::move(key)) {}

  std::string challenge;
  std::optional<Error> error;

  void hello(const std::string& bytes) {
    auto made = asked_.challenge(bytes_of(bytes).first<kKeyHello>());
    if (made)
      challenge = *made;
    else
      error = made.error();
  }
  bool answer(const std::string& bytes) {
    if (error) return false;
    auto rest = asked_.answer(bytes_of(bytes).first<kKeyAnswer>());
    if (!rest) return error = rest.error(), false;
    if (bytes.size() < kKeyAnswer + *rest) return error = Error(EPROTO, "short"), false;
    if (*rest == 0) return true;
    auto good = asked_.groups(bytes_of(bytes).subspan(kKeyAnswer, *rest));
    if (!good) error = good.error();
    return good.has_value();
  }
  KeyAsked& operator*() { return asked_; }

 private:
  KeyAsked asked_;
};

Result<FrameSeals> answer_to(const KeyAsker& asker, const std::string& challenge) {
  return asker.answer(bytes_of(challenge).first<kKeyChallenge>());
}

TEST(KeyHandshake, BothProveAndTheCallerIsKnown) {
  for (const size_t groups : {size_t(0), size_t(1), size_t(65536)}) {
    const KeyAsker client(key_of('a'), KeyRole::client, someone(groups));
    Asked server(key_of('a'));
    server.hello(client.hello());
    const auto seals = answer_to(client, server.challenge);
    ASSERT_TRUE(seals) << seals.error().message();
    ASSERT_TRUE(server.answer(seals->first)) << server.error->message();
    EXPECT_EQ((*server).caller(), *someone(groups));
    EXPECT_EQ((*server).role(), KeyRole::client);
  }
}

TEST(KeyHandshake, AnotherKeyIsRefusedByBoth) {
  const KeyAsker client(key_of('a'), KeyRole::client, someone());
  Asked server(key_of('b'));
  server.hello(client.hello());
  const auto seals = answer_to(client, server.challenge);
  ASSERT_FALSE(seals);
  EXPECT_EQ(seals.error().code(), EACCES);
  EXPECT_NE(seals.error().what().find("another key than key a"), std::string::npos);
  // A client that does not care is not believed either.
  const KeyNonce nonce{};
  const KeyAsker liar(key_of('a'), KeyRole::client, someone(), nonce);
  Asked twin(key_of('a'));  // whom it asks for the bytes of an answer
  twin.hello(liar.hello());
  const auto other = answer_to(liar, twin.challenge);
  EXPECT_FALSE(server.answer(other->first));
  EXPECT_EQ(server.error->code(), EACCES);
}

TEST(KeyHandshake, AnswersAreGoodOnce) {
  const KeyAsker client(key_of('a'), KeyRole::client, someone());
  Asked first(key_of('a')), second(key_of('a'));
  first.hello(client.hello());
  second.hello(client.hello());  // replayed to the same server
  const auto seals = answer_to(client, first.challenge);
  ASSERT_TRUE(first.answer(seals->first));
  EXPECT_FALSE(second.answer(seals->first)) << "a recorded answer, to another challenge";
  EXPECT_FALSE(answer_to(KeyAsker(key_of('a'), KeyRole::client, someone()), first.challenge))
      << "a recorded challenge, to another hello";
}

TEST(KeyHandshake, ReflectionsAreRefused) {
  // What a server says, said back to it, proves nothing: neither its challenge as a hello, nor its
  // proof as an answer.
  const KeyAsker client(key_of('a'), KeyRole::client, someone());
  Asked server(key_of('a'));
  server.hello(client.hello());
  Asked again(key_of('a'));
  again.hello(server.challenge.substr(0, kKeyHello));
  EXPECT_TRUE(again.error || !again.answer(std::string(kKeyAnswer, '\0')));
  const std::string proof = server.challenge.substr(kKeyChallenge - 32);
  std::string forged(16, '\0');
  forged += proof;
  EXPECT_FALSE(server.answer(forged));
  EXPECT_FALSE(answer_to(client, client.hello() + std::string(32, '\0')))
      << "a client's hello, said back to it";
}

TEST(KeyHandshake, EveryBitOfItCounts) {
  const KeyAsker client(key_of('a'), KeyRole::client, someone());
  const std::string hello = client.hello();
  for (size_t bit = 0; bit < hello.size() * 8; ++bit) {
    std::string changed = hello;
    changed[bit / 8] ^= static_cast<char>(1 << bit % 8);
    Asked server(key_of('a'));
    server.hello(changed);
    if (server.error) continue;
    EXPECT_FALSE(answer_to(client, server.challenge)) << "bit " << bit << " of hello";
  }
  Asked server(key_of('a'));
  server.hello(hello);
  for (size_t bit = 0; bit < kKeyChallenge * 8; ++bit) {
    std::string changed = server.challenge;
    changed[bit / 8] ^= static_cast<char>(1 << bit % 8);
    EXPECT_FALSE(answer_to(client, changed)) << "bit " << bit << " of the challenge";
  }
  const std::string good = answer_to(client, server.challenge)->first;
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string changed = good;
    changed[bit / 8] ^= static_cast<char>(1 << bit % 8);
    Asked copy = server;
    EXPECT_FALSE(copy.answer(changed)) << "bit " << bit << " of the answer";
  }
  EXPECT_TRUE(server.answer(good));
}

// ---- Frames ----

struct Ends {
  FrameSeals client, server;
};
Ends make_ends(const KeyNonce& a = random_nonce(), const KeyNonce& b = random_nonce()) {
  const KeyAsker asker(key_of('a'), KeyRole::client, someone(0), a);
  KeyAsked asked(key_of('a'), b);
  const auto challenge = asked.challenge(bytes_of(asker.hello()).first<kKeyHello>());
  FrameSeals client = std::move(answer_to(asker, *challenge)).value();
  EXPECT_TRUE(asked.answer(bytes_of(client.first).first<kKeyAnswer>()));
  return {std::move(client), asked.seals()};
}

// What the queue holds, in pieces of random size.
std::string drain(SendQueue& queue, std::mt19937_64& random) {
  std::string out;
  std::array<iovec, 16> pieces;
  while (!queue.empty()) {
    const size_t count = queue.gather(pieces);
    uint64_t most = 1 + random() % 40000, taken = 0;
    for (size_t i = 0; i < count && most > 0; ++i) {
      const size_t n = std::min<uint64_t>(pieces[i].iov_len, most);
      out.append(static_cast<const char*>(pieces[i].iov_base), n);
      most -= n;
      taken += n;
    }
    queue.took(taken);
  }
  EXPECT_EQ(queue.bytes(), 0u);
  return out;
}

// Whether all of it was believed; `seen`: what was.
bool receive(FrameSeal seal, const std::string& stream, std::mt19937_64& random, Recorder& seen) {
  FrameReceiver in;
  in.set_seal(seal);
  for (size_t at = 0; at < stream.size();) {
    std::array<iovec, FrameReceiver::kIovecs> space;
    const auto d = in.space(space, random() % 2 == 0);
    size_t most = std::min<size_t>(stream.size() - at, 1 + random() % 30000), fed = 0;
    for (size_t i = 0; i < d.count && most > 0; ++i) {
      const size_t n = std::min(space[i].iov_len, most);
      std::memcpy(space[i].iov_base, stream.data() + at + fed, n);
      fed += n;
      most -= n;
    }
    at += fed;
    in.received(fed);
    for (;;) {
      const auto more = in.step(seen);
      if (!more) return false;
      if (!*more) break;
    }
  }
  return true;
}

struct Conversation {
  std::vector<TestFrame> frames;
  std::vector<size_t> starts;  // of the frames, in the stream
  std::string stream;
};

Conversation record(FrameSeal seal, std::mt19937_64& random, int count, size_t largest) {
  Conversation c;
  SendQueue queue;
  queue.set_seal(seal);
  for (int i = 0; i < count; ++i) {
    TestFrame frame{random_bytes(random, random() % 200),
                    random_bytes(random, i % 2 == 0 ? 1 + random() % largest : 0)};
    TestMemory memory(random, frame.payload.size());
    memory.put(frame.payload);
    queue.push(head_of(frame.message, uint32_t(frame.payload.size())),
               frame.payload.empty() ? Memory{} : memory.memory(), {});
    EXPECT_EQ(queue.bytes(), wire::kHeaderSize + frame.message.size() + frame.payload.size());
    c.starts.push_back(c.stream.size());
    c.stream += drain(queue, random);
    c.frames.push_back(std::move(frame));
  }
  return c;
}

TEST(FrameSeal, FramesArriveWhole) {
  std::mt19937_64 random(test_seed());
  Ends ends = make_ends();
  const Conversation c = record(std::move(ends.client.out), random, 60, 200000);
  Recorder seen(random());
  EXPECT_TRUE(receive(std::move(ends.server.in), c.stream, random, seen));
  EXPECT_TRUE(seen.frames == c.frames);
}

TEST(FrameSeal, EveryByteCounts) {
  std::mt19937_64 random(test_seed());
  for (int round = 0; round < 4; ++round) {
    const KeyNonce a = random_nonce(), b = random_nonce();
    const auto ends = [&] { return make_ends(a, b); };  // the same ones, as often as needed
    const Conversation c = record(std::move(ends().client.out), random, 5, 400);
    for (size_t at = 0; at < c.stream.size(); ++at) {
      std::string changed = c.stream;
      changed[at] ^= static_cast<char>(1 << random() % 8);
      Recorder seen(random());
      // A longer message than there is may also be waited for.
      const bool believed = receive(std::move(ends().server.in), changed, random, seen);
      EXPECT_TRUE(!believed || seen.frames.size() < c.frames.size()) << "byte " << at;
      ASSERT_LE(seen.frames.size(), c.frames.size());
      for (size_t i = 0; i < seen.frames.size(); ++i) EXPECT_TRUE(seen.frames[i] == c.frames[i]);
    }
  }
}

TEST(FrameSeal, NoneIsLeftOutRepeatedMovedOrReflected) {
  std::mt19937_64 random(test_seed());
  const KeyNonce a = random_nonce(), b = random_nonce();
  Ends ends = make_ends(a, b);
  Conversation c = record(std::move(ends.client.out), random, 4, 50);
  c.starts.push_back(c.stream.size());
  const auto frame = [&](size_t i) {
    return c.stream.substr(c.starts[i], c.starts[i + 1] - c.starts[i]);
  };
  const auto believes = [&](const std::string& stream, bool reflected = false) {
    Ends other = make_ends();
    Recorder seen(random());
    return receive(std::move(reflected ? other.client.in : other.server.in), stream, random, seen);
  };
  EXPECT_FALSE(believes(c.stream)) << "recorded, on another connection";
  EXPECT_FALSE(believes(c.stream, true));
  Recorder seen(random());
  EXPECT_FALSE(receive(std::move(ends.client.in), c.stream, random, seen)) << "reflected";
  Recorder good(random());
  EXPECT_TRUE(receive(std::move(make_ends(a, b).server.in), frame(0) + frame(1), random, good));
  const std::string orders[] = {frame(1), frame(0) + frame(2), frame(0) + frame(0),
                                frame(0) + frame(2) + frame(1)};
  for (const std::string& stream : orders) {
    Recorder there(random());
    EXPECT_FALSE(receive(std::move(make_ends(a, b).server.in), stream, random, there));
  }
}

// A handler may give the same memory for all of a payload that it does not want.
TEST(FrameSeal, PayloadThatLandsOnItself) {
  std::mt19937_64 random(test_seed());
  class Sink final : public ConnectionHandler {
   public:
    int whole = 0;
    Result<Memory> on_message(const wire::FrameHeader& header,
                              std::span<const std::byte>) override {
      std::vector<Extent> blocks;
      for (uint64_t left = header.payload_size; left > 0; left -= blocks.back().length.value) {
        blocks.push_back({Offset(0), Length(std::min<uint64_t>(left, space_.size()))});
      }
      return Memory{space_.data(), Extents::make(std::move(blocks)).value()};
    }
    void on_payload() override { ++whole; }
    void on_closed(const Error&) override {}

   private:
    std::vector<std::byte> space_ = std::vector<std::byte>(4096);
  };
  Ends ends = make_ends();
  SendQueue queue;
  queue.set_seal(ends.client.out);
  std::string payload = random_bytes(random, 100000);
  queue.push(head_of("sunk", uint32_t(payload.size())), Memory::of(as_bytes(payload)), {});
  const std::string stream = drain(queue, random);
  FrameReceiver in;
  in.set_seal(ends.server.in);
  Sink sink;
  for (size_t at = 0; at < stream.size();) {
    std::array<iovec, FrameReceiver::kIovecs> space;
    const auto d = in.space(space);
    size_t fed = 0;
    for (size_t i = 0; i < d.count; ++i) {
      const size_t n = std::min(space[i].iov_len, stream.size() - at - fed);
      std::memcpy(space[i].iov_base, stream.data() + at + fed, n);
      fed += n;
    }
    at += fed;
    in.received(fed);
    for (;;) {
      const auto more = in.step(sink);
      ASSERT_TRUE(more) << more.error().message();
      if (!*more) break;
    }
  }
  EXPECT_EQ(sink.whole, 1);
}

}  // namespace
}  // namespace forebay
