// AuthKey: the key by which servers and clients on different nodes know each other. Whoever has it
// may say who it is, so it is kept like a password: in a file of its owner (core/key_file.h), the
// same on every node. It is never sent: what is sent is MACs with it (key_handshake.h).
//
// Immutable. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/result.h"

namespace forebay {

class AuthKey {
 public:
  static constexpr size_t kLeast = 32, kMost = 4096;  // bytes
  using Digest = std::array<std::byte, 32>;
  using Bytes = std::span<const std::byte>;

  // An error says what is wrong with the file, and how to make one.
  static Result<std::shared_ptr<const AuthKey>> load(const std::string& path);
  // `name` is for people.
  AuthKey(std::string_view key, std::string name);
  ~AuthKey();
  AuthKey(const AuthKey&) = delete;

  // HMAC-SHA256 over the label, which says what the digest is for and has at most 32 bytes, and the
  // parts, whose sizes the label implies.
  Digest mac(std::string_view label, std::initializer_list<Bytes> parts) const;

  const std::string& name() const { return name_; }

 private:
  std::string key_;
  const std::string name_;
};
using AuthKeyRef = std::shared_ptr<const AuthKey>;

}  // namespace forebay
