#include "store/sealed.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <sys/random.h>

#include <cstring>
#include <mutex>
#include <vector>

#include "core/key_file.h"

namespace forebay {

namespace {

struct FreeContext {
  void operator()(EVP_MAC_CTX* c) const { EVP_MAC_CTX_free(c); }
};
using Context = std::unique_ptr<EVP_MAC_CTX, FreeContext>;

Context keyed_context(const SealKey::Bytes& key) {
  EVP_MAC* mac = EVP_MAC_fetch(nullptr, "HMAC", nullptr);
  FOREBAY_ASSERT(mac != nullptr, "OpenSSL has no HMAC");
  Context context(EVP_MAC_CTX_new(mac));
  EVP_MAC_free(mac);
  char digest[] = "SHA256";
  const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                               OSSL_PARAM_construct_end()};
  FOREBAY_ASSERT(context && EVP_MAC_init(context.get(), key.data(), key.size(), params) == 1);
  return context;
}

void fill_random(uint8_t* to, size_t size) {
  FOREBAY_ASSERT(RAND_bytes(to, static_cast<int>(size)) == 1, "the system gives no random bytes");
}

// FNV-1a, and a last mix so that every bit counts.
uint64_t checksum_of(uint64_t seed, std::string_view body) {
  uint64_t hash = 0xcbf29ce484222325u ^ seed;
  for (const char c : body) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  hash = (hash ^ hash >> 32) * 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 29;
}

}  // namespace

class SealKey::Contexts {
 public:
  explicit Contexts(const Bytes& key) : key_(key) {}
  ~Contexts() { OPENSSL_cleanse(key_.data(), key_.size()); }

  Mac mac(SealDomain domain, std::string_view body) {
    Context context = take();
    const auto tag = static_cast<unsigned char>(domain);
    Mac out;
    size_t size = 0;
    // A null key means: the same one again.
    const bool ok =
        EVP_MAC_init(context.get(), nullptr, 0, nullptr) == 1 &&
        EVP_MAC_update(context.get(), &tag, 1) == 1 &&
        EVP_MAC_update(context.get(), reinterpret_cast<const unsigned char*>(body.data()),
                       body.size()) == 1 &&
        EVP_MAC_final(context.get(), out.data(), &size, out.size()) == 1;
    FOREBAY_ASSERT(ok && size == out.size());
    give_back(std::move(context));
    return out;
  }

 private:
  Context take() {
    {
      std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        Context context = std::move(free_.back());
        free_.pop_back();
        return context;
      }
    }
    return keyed_context(key_);
  }
  void give_back(Context context) {
    std::lock_guard lock(mutex_);
    free_.push_back(std::move(context));
  }

  Bytes key_;
  std::mutex mutex_;
  std::vector<Context> free_;  // as many as there were calls at the same time
};

SealKey::SealKey(const Bytes& key) : contexts_(std::make_shared<Contexts>(key)) {}

SealKey SealKey::random() {
  Bytes key;
  fill_random(key.data(), key.size());
  return SealKey(key);
}

SealKey SealKey::checksum() {
  SealKey key;
  // Never short for so few bytes.
  FOREBAY_ASSERT(::getrandom(&key.seed_, sizeof key.seed_, 0) == sizeof key.seed_);
  return key;
}

SealKey::Mac SealKey::mac(SealDomain domain, std::string_view body) const {
  if (contexts_) return contexts_->mac(domain, body);
  const uint64_t seed = seed_ + static_cast<uint64_t>(domain);
  const uint64_t sums[] = {checksum_of(seed, body), checksum_of(~seed, body)};
  static_assert(sizeof sums == kSealBytes);
  Mac out = {};
  std::memcpy(out.data(), sums, sizeof sums);
  return out;
}

Result<SealKey> SealKey::load_or_create(const std::string& path) {
  auto key = read_key_file(path);
  if (!key && key.error().code() == ENOENT) {
    auto made = make_key_file(path);
    if (!made && made.error().code() != EEXIST) return std::move(made).error();
    key = read_key_file(path);
  }
  if (!key) return std::move(key).error();
  Bytes bytes;
  std::memcpy(bytes.data(), key->data(), bytes.size());
  OPENSSL_cleanse(key->data(), key->size());
  return SealKey(bytes);
}

std::string SealKey::seal(SealDomain domain, std::string_view body) const {
  const Mac seal = mac(domain, body);
  std::string sealed;
  sealed.reserve(body.size() + kSealBytes);
  sealed.append(body);
  sealed.append(reinterpret_cast<const char*>(seal.data()), kSealBytes);
  return sealed;
}

std::optional<std::string_view> SealKey::unseal(SealDomain domain, std::string_view sealed) const {
  if (sealed.size() < kSealBytes) return std::nullopt;
  const std::string_view body = sealed.substr(0, sealed.size() - kSealBytes);
  const Mac good = mac(domain, body);
  if (CRYPTO_memcmp(good.data(), sealed.data() + body.size(), kSealBytes) != 0) return std::nullopt;
  return body;
}

}  // namespace forebay
