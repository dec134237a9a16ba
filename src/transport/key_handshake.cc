#include "transport/key_handshake.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <sys/random.h>

#include <algorithm>

#include "core/assert.h"
#include "wire/little_endian.h"

namespace forebay {
namespace {

constexpr size_t kMostGroups = 65536;  // NGROUPS_MAX
constexpr size_t kSaidInChallenge = kKeyChallenge - sizeof(AuthKey::Digest);
constexpr size_t kSaidInAnswer = kKeyAnswer - sizeof(AuthKey::Digest);

using Bytes = std::span<const std::byte>;

Bytes bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}
std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void append_number(std::string& to, uint32_t value) {
  std::array<std::byte, 4> bytes;
  wire::put_number(value, bytes.data());
  to += text_of(bytes);
}

bool same(const AuthKey::Digest& good, Bytes other) {
  return other.size() == good.size() && CRYPTO_memcmp(good.data(), other.data(), good.size()) == 0;
}

// Of what both have said: hello, the challenge and the answer without their proofs.
AuthKey::Digest proof_of_asked(const AuthKey& key, std::string_view said) {
  return key.mac("forebay proof: who was asked", {bytes_of(said)});
}
AuthKey::Digest proof_of_asker(const AuthKey& key, std::string_view said) {
  return key.mac("forebay proof: who asks", {bytes_of(said)});
}
AuthKey::Digest mac_of_groups(const AuthKey& key, std::string_view said, Bytes groups) {
  return key.mac("forebay groups", {bytes_of(said), groups});
}
FrameSeal to_asked(const AuthKey& key, std::string_view said) {
  return FrameSeal(key.mac("forebay frames of who asks", {bytes_of(said)}));
}
FrameSeal to_asker(const AuthKey& key, std::string_view said) {
  return FrameSeal(key.mac("forebay frames of who was asked", {bytes_of(said)}));
}

std::string groups_of(const Caller& caller) {
  std::string out;
  for (const uint32_t group : caller.groups) append_number(out, group);
  return out;
}

}  // namespace

KeyNonce random_nonce() {
  KeyNonce nonce;
  FOREBAY_ASSERT(::getrandom(nonce.data(), nonce.size(), 0) == ssize_t(nonce.size()), "getrandom");
  return nonce;
}

// ---- Who asks ----

KeyAsker::KeyAsker(AuthKeyRef key, KeyRole role, CallerRef self, const KeyNonce& nonce)
    : key_(std::move(key)), self_(std::move(self)), hello_(kKeyMagic) {
  hello_ += static_cast<char>(role);
  hello_.append(7, '\0');
  hello_ += text_of(nonce);
  FOREBAY_ASSERT(hello_.size() == kKeyHello);
}

Result<FrameSeals> KeyAsker::answer(std::span<const std::byte, kKeyChallenge> challenge) const {
  const Bytes fixed = challenge.first<kSaidInChallenge>();
  if (text_of(fixed.first(kKeyMagic.size())) != kKeyMagic) {
    return Error(EPROTO, "it does not answer as one that has a key");
  }
  std::string said = hello_ + std::string(text_of(fixed));
  if (!same(proof_of_asked(*key_, said), challenge.subspan<kSaidInChallenge>())) {
    return Error(EACCES, fmt::format("the server there has another key than {}", key_->name()));
  }
  FOREBAY_ASSERT(self_->groups.size() <= kMostGroups);
  std::string ids;
  append_number(ids, self_->uid);
  append_number(ids, self_->gid);
  append_number(ids, static_cast<uint32_t>(self_->groups.size()));
  append_number(ids, 0);
  said += ids;
  std::string out = ids + std::string(text_of(proof_of_asker(*key_, said)));
  if (!self_->groups.empty()) {
    const std::string groups = groups_of(*self_);
    out += groups;
    out += text_of(mac_of_groups(*key_, said, bytes_of(groups)));
  }
  return FrameSeals{to_asker(*key_, said), to_asked(*key_, said), std::move(out)};
}

// ---- Who was asked ----

Result<std::string> KeyAsked::challenge(std::span<const std::byte, kKeyHello> hello) {
  const auto role = std::to_integer<uint8_t>(hello[kKeyMagic.size()]);
  const Bytes zeros = hello.subspan<9, 7>();
  if (text_of(hello.first<8>()) != kKeyMagic || role < 1 || role > 2 ||
      std::ranges::any_of(zeros, [](std::byte b) { return b != std::byte{0}; })) {
    return Error(EPROTO, "its first bytes are no hello");
  }
  role_ = static_cast<KeyRole>(role);
  said_ = text_of(hello);
  said_ += kKeyMagic;
  said_.append(8, '\0');
  said_ += text_of(nonce_);
  std::string out = said_.substr(kKeyHello);
  out += text_of(proof_of_asked(*key_, said_));
  FOREBAY_ASSERT(out.size() == kKeyChallenge);
  return out;
}

Result<size_t> KeyAsked::answer(std::span<const std::byte, kKeyAnswer> answer) {
  said_ += text_of(answer.first<kSaidInAnswer>());
  if (!same(proof_of_asker(*key_, said_), answer.subspan<kSaidInAnswer>())) {
    return Error(EACCES, fmt::format("it has another key than {}", key_->name()));
  }
  caller_.uid = wire::get_number<uint32_t>(answer.data());
  caller_.gid = wire::get_number<uint32_t>(answer.data() + 4);
  const auto count = wire::get_number<uint32_t>(answer.data() + 8);
  if (count > kMostGroups || wire::get_number<uint32_t>(answer.data() + 12) != 0) {
    return Error(EPROTO, fmt::format("it says that it has {} groups", count));
  }
  return count == 0 ? 0 : count * sizeof(uint32_t) + kKeyMac;
}

Result<void> KeyAsked::groups(Bytes bytes) {
  const Bytes groups = bytes.first(bytes.size() - kKeyMac);
  if (!same(mac_of_groups(*key_, said_, groups), bytes.subspan(groups.size()))) {
    return Error(EBADMSG, "its groups were changed on their way");
  }
  for (size_t at = 0; at < groups.size(); at += sizeof(uint32_t)) {
    caller_.groups.push_back(wire::get_number<uint32_t>(groups.data() + at));
  }
  return {};
}

FrameSeals KeyAsked::seals() const {
  return {to_asked(*key_, said_), to_asker(*key_, said_), {}};
}

}  // namespace forebay
