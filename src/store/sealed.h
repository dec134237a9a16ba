// SealKey: the MAC that makes handles and rights unforgeable. A server hands out sealed bytes and
// later believes what it finds in them, because only holders of the key can seal.
//
// A sealed string is the body followed by the first 16 bytes of HMAC-SHA256 over a domain byte and
// the body. The domain is not in the string: whoever unseals says what it expects, so that a handle
// never passes for a right. The body is not encrypted.
//
// Copies share one key. Any thread; a call takes a keyed context from a free list and puts it back,
// because keying one costs more than the MAC itself.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"

namespace forebay {

enum class SealDomain : uint8_t {
  handle = 'H',
  right = 'R',
  arbiter = 'A',         // either side of a connection proves by it that it knows the key
  arbiter_client = 'C',  // (mpiio/arbiter_wire.h)
};

class SealKey {
 public:
  static constexpr size_t kKeyBytes = 32;
  static constexpr size_t kSealBytes = 16;
  using Bytes = std::array<uint8_t, kKeyBytes>;

  explicit SealKey(const Bytes& key);
  static SealKey random();  // a key of this life only
  // Seals against mistakes and not against forgers, for what never leaves the process: a checksum,
  // without the milliseconds that it takes to start OpenSSL.
  static SealKey checksum();

  // The key in the file `path`, made with random bytes and mode 0600 if there is none. Servers that
  // race agree on one key: it is written aside and linked into place. An error says what is wrong
  // with the file: not 32 bytes, open to others, not readable.
  static Result<SealKey> load_or_create(const std::string& path);

  std::string seal(SealDomain domain, std::string_view body) const;
  // The body, a part of `sealed`; nothing if it was not sealed with this key for this domain.
  // Compares in constant time.
  std::optional<std::string_view> unseal(SealDomain domain, std::string_view sealed) const;

 private:
  using Mac = std::array<uint8_t, 32>;
  class Contexts;
  SealKey() = default;
  Mac mac(SealDomain domain, std::string_view body) const;

  std::shared_ptr<Contexts> contexts_;  // null: a checksum
  uint64_t seed_ = 0;                   // of it
};

}  // namespace forebay
