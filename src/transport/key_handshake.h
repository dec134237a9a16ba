// How the two ends of a connection prove to each other that they have the same key (auth_key.h), in
// bytes; no sockets here. docs/wire-format.md ("Keys") is the format.
//
//   hello      asker: what it is (a client, a server), its nonce
//   challenge  the one asked: its nonce, and its proof
//   answer     asker: its proof, its uid and gid; then, if it has any, its groups with a MAC
//
// A proof is a MAC over everything before it, with a label of its own for each side: neither's is
// good for the other's, nor for another connection, because both nonces are in it. The one asked
// proves first, so that an asker with another key knows what is wrong. From the same bytes follow
// the keys of the frames after them (frame_seal.h), one for each direction.
//
// What is received before a proof is good has a fixed size.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/op.h"
#include "transport/auth_key.h"
#include "transport/frame_seal.h"

namespace forebay {

enum class KeyRole : uint8_t { client = 1, server = 2 };

inline constexpr std::string_view kKeyMagic = "KEYEDFB1";
inline constexpr size_t kKeyHello = 48, kKeyChallenge = 80, kKeyAnswer = 48;
inline constexpr size_t kKeyMac = 32;  // of the groups

using KeyNonce = std::array<std::byte, 32>;
KeyNonce random_nonce();

// The end that has connected.
class KeyAsker {
 public:
  KeyAsker(AuthKeyRef key, KeyRole role, CallerRef self, const KeyNonce& nonce = random_nonce());

  std::string hello() const { return hello_; }
  // The keys of the connection, with the answer as what goes out first; EACCES if the proof is
  // wrong, EPROTO if it is no challenge at all.
  Result<FrameSeals> answer(std::span<const std::byte, kKeyChallenge> challenge) const;

 private:
  const AuthKeyRef key_;
  const CallerRef self_;
  std::string hello_;
};

// The end that was connected to.
class KeyAsked {
 public:
  explicit KeyAsked(AuthKeyRef key, const KeyNonce& nonce = random_nonce())
      : key_(std::move(key)), nonce_(nonce) {}

  // The challenge; EPROTO if it is no hello.
  Result<std::string> challenge(std::span<const std::byte, kKeyHello> hello);
  // How many bytes follow: 0, or the groups and their MAC. EACCES if the proof is wrong.
  Result<size_t> answer(std::span<const std::byte, kKeyAnswer> answer);
  Result<void> groups(std::span<const std::byte> bytes);

  // When all of this was good.
  KeyRole role() const { return role_; }
  Caller caller() const { return caller_; }
  FrameSeals seals() const;

 private:
  const AuthKeyRef key_;
  const KeyNonce nonce_;
  KeyRole role_ = KeyRole::client;
  std::string said_;  // by both, so far
  Caller caller_;
};

}  // namespace forebay
