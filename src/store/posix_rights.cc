#include "store/posix_rights.h"

#include <sys/random.h>

#include <cstring>

namespace forebay::posix {

namespace {

// Binds a right to its handle by the handle's own seal, which is as unlike any other as a hash.
struct Body {
  uint64_t nonce;
  uint32_t uid;
  uint32_t access;
  char handle[SealKey::kSealBytes];
};
static_assert(sizeof(Body) == 32 && std::is_trivially_copyable_v<Body>);

bool bind(const Handle& handle, char (&seal)[SealKey::kSealBytes]) {
  if (handle.bytes.size() < sizeof seal) return false;
  std::memcpy(seal, handle.bytes.data() + handle.bytes.size() - sizeof seal, sizeof seal);
  return true;
}

}  // namespace

Right Rights::make(const Handle& handle, Grant grant) const {
  Body body = {};
  // Never short for so few bytes.
  FOREBAY_ASSERT(::getrandom(&body.nonce, sizeof body.nonce, 0) == sizeof body.nonce);
  body.uid = grant.uid;
  body.access = static_cast<uint32_t>(grant.access);
  FOREBAY_ASSERT(bind(handle, body.handle));
  char bytes[sizeof body];
  std::memcpy(bytes, &body, sizeof body);
  return {key_.seal(SealDomain::right, {bytes, sizeof bytes})};
}

Result<Grant> Rights::open(const Handle& handle, const Right& right) const {
  const std::optional<std::string_view> bytes = key_.unseal(SealDomain::right, right.bytes);
  Body body;
  char seal[SealKey::kSealBytes];
  if (!bytes || bytes->size() != sizeof body) return Error(EBADF, "forged or damaged right");
  std::memcpy(&body, bytes->data(), sizeof body);
  if (!bind(handle, seal) || std::memcmp(seal, body.handle, sizeof seal) != 0)
    return Error(EBADF, "the right is for another file");
  return Grant{body.uid, static_cast<Access>(body.access)};
}

}  // namespace forebay::posix
