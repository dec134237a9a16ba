// What an Arbiter and its clients say to each other. No sockets.
//
// The frames are those of wire/frame.h, without payload; their messages are plain little-endian
// numbers, each kind of one size but for the ranges of a lock:
//
//   hello    client: magic (8), file (8), nonce (32)
//   welcome  arbiter: nonce (32), its proof (16)
//   data     client: its proof (16)
//   request  client: a Request; the first reply, to no request, says that the proof is taken
//   reply    arbiter: an Answer
//
// A proof is a MAC with the arbiter's key (store/sealed.h) over both nonces and the file, with a
// domain of its own for each side, so that neither side's is good for the other's. It says who is
// there when the connection begins; what follows is not sealed, as little as MPI's own messages
// are.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/clock.h"
#include "core/extents.h"
#include "core/result.h"
#include "mpiio/shared_state.h"
#include "store/sealed.h"
#include "wire/frame.h"

namespace forebay::mpiio {

inline constexpr size_t kMaxBlocks = 1024;  // of the ranges of one lock
inline constexpr size_t kMaxLoops = 62;     // as many as an Extents may have

// Either side notices after about so long that the other's machine or network died.
inline constexpr Duration kDeadAfter = std::chrono::seconds(30);

using Nonce = std::array<uint8_t, 32>;
using Proof = std::array<uint8_t, SealKey::kSealBytes>;

struct Greeting {  // hello
  uint64_t file = 0;
  Nonce nonce{};
  bool operator==(const Greeting&) const = default;
};
struct Challenge {  // welcome
  Nonce nonce{};
  Proof proof{};
  bool operator==(const Challenge&) const = default;
};

enum class Call : uint8_t { get, set, fetch_and_add, compare_and_swap, lock, unlock };

struct Asked {  // request
  Call call = Call::get;
  LockMode mode = LockMode::shared;
  Slot slot = Slot::shared_pointer;
  uint64_t id = 0;   // the client's choice, from 1; of a lock, its name from then on
  uint64_t a = 0;    // value, step, expected; the lock to unlock
  uint64_t b = 0;    // desired
  Extents ranges{};  // of a lock
  bool operator==(const Asked&) const = default;
};
struct Answer {  // reply
  uint64_t id = 0;
  uint64_t value = 0;
  uint32_t code = 0;  // an errno, or 0
  bool operator==(const Answer&) const = default;
};

Nonce make_nonce();
enum class Side { client, arbiter };
Proof make_proof(const SealKey& key, Side side, const Greeting& greeting, const Nonce& arbiters);
bool proves(const SealKey& key, Side side, const Greeting& greeting, const Nonce& arbiters,
            const Proof& proof);

// Whole frames.
std::string encode(const Greeting& greeting);
std::string encode(const Challenge& challenge);
std::string encode(const Proof& proof);
std::string encode(const Asked& asked);  // ranges within the limits (asserted)
std::string encode(const Answer& answer);

// Messages, from anywhere: EPROTO for what is not one.
Result<Greeting> decode_greeting(std::span<const std::byte> message);
Result<Challenge> decode_challenge(std::span<const std::byte> message);
Result<Proof> decode_proof(std::span<const std::byte> message);
Result<Asked> decode_asked(std::span<const std::byte> message);
Result<Answer> decode_answer(std::span<const std::byte> message);

// The ranges as they may be sent: themselves, or, if they are too many, all between the first and
// the last byte.
Extents sendable(const Extents& ranges);

}  // namespace forebay::mpiio
