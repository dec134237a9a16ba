#include "store/sealed.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <mutex>
#include <vector>

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

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

Error key_error(int code, const std::string& path, std::string_view what) {
  return Error(code, fmt::format("key file {}: {}", path, what));
}

Result<SealKey::Bytes> read_key(const std::string& path) {
  Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.get() < 0) return key_error(errno, path, "cannot be opened");
  struct stat st;
  if (fstat(file.get(), &st) != 0) return key_error(errno, path, "cannot be examined");
  if (!S_ISREG(st.st_mode)) return key_error(EINVAL, path, "is not a regular file");
  if (st.st_uid != 0 && st.st_uid != geteuid()) {
    return key_error(EPERM, path, fmt::format("belongs to user {}, not to us", st.st_uid));
  }
  if ((st.st_mode & 077) != 0) {
    return key_error(EPERM, path, "is open to other users; use chmod 600");
  }
  SealKey::Bytes key;
  if (st.st_size != static_cast<off_t>(key.size())) {
    return key_error(EINVAL, path,
                     fmt::format("has {} bytes instead of {}", st.st_size, key.size()));
  }
  if (pread(file.get(), key.data(), key.size(), 0) != static_cast<ssize_t>(key.size())) {
    return key_error(EIO, path, "cannot be read");
  }
  return key;
}

// Moves `from` to `to` unless that exists; a file system without hard links can still do it by
// name.
int place_new(const std::string& from, const std::string& to) {
  if (link(from.c_str(), to.c_str()) == 0) return 0;
  if (errno != EPERM && errno != EOPNOTSUPP) return errno;
  return renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0 ? 0 : errno;
}

void sync_parent(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string parent = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  Descriptor dir(open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (dir.get() >= 0) fsync(dir.get());
}

Result<void> create_key(const std::string& path) {
  uint64_t nonce;
  fill_random(reinterpret_cast<uint8_t*>(&nonce), sizeof nonce);
  const std::string aside = fmt::format("{}.{:016x}", path, nonce);
  SealKey::Bytes key;
  fill_random(key.data(), key.size());
  int failed = 0;
  {
    Descriptor file(open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (file.get() < 0) return key_error(errno, path, "cannot be made");
    errno = EIO;
    if (write(file.get(), key.data(), key.size()) != static_cast<ssize_t>(key.size()) ||
        fsync(file.get()) != 0) {
      failed = errno;
    }
  }
  if (failed == 0) failed = place_new(aside, path);
  unlink(aside.c_str());
  if (failed != 0 && failed != EEXIST) return key_error(failed, path, "cannot be made");
  sync_parent(path);
  return {};
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
  auto key = read_key(path);
  if (!key && key.error().code() == ENOENT) {
    if (auto made = create_key(path); !made) return std::move(made).error();
    key = read_key(path);
  }
  if (!key) return std::move(key).error();
  return SealKey(*key);
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
