#include "transport/auth_key.h"

#include <fmt/format.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <algorithm>

#include "core/assert.h"
#include "core/key_file.h"

namespace forebay {
namespace {

struct Free {
  void operator()(EVP_MAC* m) const { EVP_MAC_free(m); }
  void operator()(EVP_MAC_CTX* c) const { EVP_MAC_CTX_free(c); }
};

const unsigned char* raw(AuthKey::Bytes bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace

Result<AuthKeyRef> AuthKey::load(const std::string& path) {
  auto bytes = read_key_file(path, kLeast, kMost);
  if (!bytes && bytes.error().code() == ENOENT) {
    return Error(ENOENT, fmt::format("key file {}: is not there; `forebay key make {}` makes one, "
                                     "and every node needs a copy of it",
                                     path, path));
  }
  if (!bytes) return std::move(bytes).error();
  auto key = std::make_shared<const AuthKey>(*bytes, path);
  OPENSSL_cleanse(bytes->data(), bytes->size());
  return key;
}

AuthKey::AuthKey(std::string_view key, std::string name) : key_(key), name_(std::move(name)) {
  FOREBAY_ASSERT(key_.size() >= kLeast);
}

AuthKey::~AuthKey() {
  OPENSSL_cleanse(key_.data(), key_.size());
}

AuthKey::Digest AuthKey::mac(std::string_view label, std::initializer_list<Bytes> parts) const {
  std::array<std::byte, 32> padded{};
  FOREBAY_ASSERT(label.size() <= padded.size());
  std::ranges::copy(std::as_bytes(std::span(label)), padded.begin());
  const std::unique_ptr<EVP_MAC, Free> hmac(EVP_MAC_fetch(nullptr, "HMAC", nullptr));
  const std::unique_ptr<EVP_MAC_CTX, Free> context(hmac ? EVP_MAC_CTX_new(hmac.get()) : nullptr);
  FOREBAY_ASSERT(context, "OpenSSL has no HMAC");
  char sha[] = "SHA256";
  const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, sha, 0),
                               OSSL_PARAM_construct_end()};
  bool good =
      EVP_MAC_init(context.get(), raw(std::as_bytes(std::span(key_))), key_.size(), params) == 1 &&
      EVP_MAC_update(context.get(), raw(padded), padded.size()) == 1;
  for (const Bytes part : parts) {
    good = good && EVP_MAC_update(context.get(), raw(part), part.size()) == 1;
  }
  Digest out;
  size_t size = 0;
  good = good && EVP_MAC_final(context.get(), reinterpret_cast<unsigned char*>(out.data()), &size,
                               out.size()) == 1;
  FOREBAY_ASSERT(good && size == out.size());
  return out;
}

}  // namespace forebay
