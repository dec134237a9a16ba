#include "mpiio/arbiter_wire.h"

#include <gtest/gtest.h>

#include <random>

#include "core/testing.h"

namespace forebay::mpiio {
namespace {

std::span<const std::byte> message_of(const std::string& frame) {
  return std::as_bytes(std::span(frame)).subspan(wire::kHeaderSize);
}

wire::FrameHeader header_of(const std::string& frame) {
  return wire::decode_header(std::as_bytes(std::span(frame)).first<wire::kHeaderSize>()).value();
}

Extents random_ranges(std::mt19937_64& random) {
  std::vector<Extent> blocks;
  for (uint64_t n = random() % 10; n > 0; --n) {
    blocks.push_back(ext(random() % 100000, random() % 1000));
  }
  std::vector<Stride> loops;
  for (uint64_t n = random() % 3; n > 0; --n) {
    loops.push_back({random() % 10, static_cast<int64_t>(random() % 5000)});
  }
  return Extents::make(std::move(blocks), std::move(loops)).value();
}

Asked random_asked(std::mt19937_64& random) {
  Asked asked;
  asked.call = static_cast<Call>(random() % 6);
  asked.mode = static_cast<LockMode>(random() % 2);
  asked.slot = static_cast<Slot>(random() % kSlots);
  asked.id = random();
  asked.a = random();
  asked.b = random();
  if (asked.call == Call::lock) asked.ranges = random_ranges(random);
  return asked;
}

TEST(ArbiterWire, WhatIsSaidIsHeard) {
  std::mt19937_64 random(test_seed());
  for (int i = 0; i < 2000; ++i) {
    const Asked asked = random_asked(random);
    const std::string frame = encode(asked);
    EXPECT_EQ(header_of(frame).type, wire::FrameType::request);
    EXPECT_EQ(header_of(frame).message_size, frame.size() - wire::kHeaderSize);
    ASSERT_EQ(decode_asked(message_of(frame)).value(), asked);
  }
  const Answer answer{7, UINT64_MAX, ENOLCK};
  EXPECT_EQ(decode_answer(message_of(encode(answer))).value(), answer);
  const Greeting greeting{UINT64_MAX - 1, make_nonce()};
  EXPECT_EQ(decode_greeting(message_of(encode(greeting))).value(), greeting);
  const Challenge challenge{make_nonce(), Proof{1, 2, 3}};
  EXPECT_EQ(decode_challenge(message_of(encode(challenge))).value(), challenge);
  EXPECT_EQ(decode_proof(message_of(encode(challenge.proof))).value(), challenge.proof);
}

TEST(ArbiterWire, RubbishIsRefused) {
  std::mt19937_64 random(test_seed());
  for (int i = 0; i < 20000; ++i) {
    std::string frame = encode(random_asked(random));
    switch (random() % 3) {
      case 0:
        frame.resize(wire::kHeaderSize + random() % (frame.size() - wire::kHeaderSize));
        break;
      case 1:
        frame.push_back('x');
        break;
      default:
        frame[wire::kHeaderSize + random() % (frame.size() - wire::kHeaderSize)] ^=
            static_cast<char>(1 + random() % 255);
        (void)decode_asked(message_of(frame));  // may be another request
        continue;
    }
    ASSERT_EQ(decode_asked(message_of(frame)).error().code(), EPROTO);
  }
  const std::string greeting = encode(Greeting{});
  EXPECT_EQ(decode_greeting(message_of(greeting).first(8)).error().code(), EPROTO);
  EXPECT_EQ(decode_greeting(message_of(greeting).subspan(1)).error().code(), EPROTO);
  EXPECT_EQ(decode_answer({}).error().code(), EPROTO);
}

TEST(ArbiterWire, AProofIsGoodForOneSideOneKeyAndOneMeeting) {
  const SealKey key = SealKey::random(), other = SealKey::random();
  const Greeting greeting{3, make_nonce()};
  const Nonce nonce = make_nonce();
  const Proof proof = make_proof(key, Side::client, greeting, nonce);
  EXPECT_TRUE(proves(key, Side::client, greeting, nonce, proof));
  EXPECT_FALSE(proves(key, Side::arbiter, greeting, nonce, proof));
  EXPECT_FALSE(proves(other, Side::client, greeting, nonce, proof));
  EXPECT_FALSE(proves(key, Side::client, greeting, make_nonce(), proof));
  EXPECT_FALSE(proves(key, Side::client, {4, greeting.nonce}, nonce, proof));
}

TEST(ArbiterWire, TooManyRangesAreSentAsOne) {
  std::vector<Extent> blocks;
  for (uint64_t i = 0; i <= kMaxBlocks; ++i) blocks.push_back(ext(100 + i * 10, 5));
  const Extents many = Extents::make(blocks).value();
  EXPECT_EQ(sendable(many), Extents(ext(100, kMaxBlocks * 10 + 5)));
  blocks.pop_back();
  const Extents few = Extents::make(blocks).value();
  EXPECT_EQ(sendable(few), few);
  EXPECT_LE(encode(Asked{.call = Call::lock, .id = 1, .ranges = few}).size(), wire::kMaxMessage);
}

}  // namespace
}  // namespace forebay::mpiio
