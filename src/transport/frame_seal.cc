#include "transport/frame_seal.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "core/assert.h"
#include "transport/payload_cursor.h"
#include "wire/little_endian.h"

namespace forebay {
namespace {

constexpr size_t kNonceBytes = 12;

const unsigned char* raw_bytes(FrameSeal::Bytes bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace

void FrameSeal::Free::operator()(evp_cipher_ctx_st* context) const {
  EVP_CIPHER_CTX_free(context);
}

FrameSeal::FrameSeal(const Key& key) : context_(EVP_CIPHER_CTX_new()) {
  const unsigned char nonce[kNonceBytes] = {};
  FOREBAY_ASSERT(context_ && EVP_EncryptInit_ex(context_.get(), EVP_aes_256_gcm(), nullptr,
                                                raw_bytes(key), nonce) == 1,
                 "OpenSSL has no AES-256-GCM");
}

void FrameSeal::begin(Part part) {
  std::array<std::byte, kNonceBytes> nonce{};
  nonce[0] = static_cast<std::byte>(part);
  wire::put_number<uint64_t>(frame_, nonce.data() + 4);
  FOREBAY_ASSERT(EVP_EncryptInit_ex(context_.get(), nullptr, nullptr, nullptr, raw_bytes(nonce)) ==
                 1);
}

// What GCM authenticates and does not encrypt: with nothing to encrypt, GCM is GMAC.
void FrameSeal::add(Bytes piece) {
  constexpr size_t kMost = size_t(1) << 30;  // OpenSSL counts in ints
  for (; !piece.empty(); piece = piece.subspan(std::min(piece.size(), kMost))) {
    int taken = 0;
    const auto size = static_cast<int>(std::min(piece.size(), kMost));
    FOREBAY_ASSERT(EVP_EncryptUpdate(context_.get(), nullptr, &taken, raw_bytes(piece), size) == 1);
  }
}

FrameSeal::Tag FrameSeal::end() {
  Tag tag;
  int none = 0;
  unsigned char nothing[kTagBytes];
  FOREBAY_ASSERT(EVP_EncryptFinal_ex(context_.get(), nothing, &none) == 1 &&
                 EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_GCM_GET_TAG, kTagBytes, tag.data()) ==
                     1);
  return tag;
}

FrameSeal::Tag FrameSeal::head(Bytes header, Bytes message) {
  ++frame_;
  begin(Part::head);
  add(header);
  add(message);
  return end();
}

void FrameSeal::begin_payload() {
  begin(Part::payload);
}

FrameSeal::Tag FrameSeal::end_payload() {
  return end();
}

FrameSeal::Tag FrameSeal::payload(const Memory& memory) {
  begin_payload();
  PayloadCursor cursor(memory);
  std::array<std::byte, 16 * 1024> bounce;
  std::array<iovec, 64> pieces;
  while (cursor.left() != 0) {
    if (cursor.fine()) {
      add(Bytes(bounce).first(cursor.drain(bounce)));
      continue;
    }
    const auto d = cursor.describe(pieces, UINT64_MAX);
    for (const iovec& piece : std::span(pieces).first(d.count)) {
      add({static_cast<const std::byte*>(piece.iov_base), piece.iov_len});
    }
    cursor.advance(d.bytes);
  }
  return end_payload();
}

bool FrameSeal::same(const Tag& tag, Bytes other) {
  return other.size() == tag.size() && CRYPTO_memcmp(tag.data(), other.data(), tag.size()) == 0;
}

}  // namespace forebay
