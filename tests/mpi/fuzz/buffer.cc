#include "buffer.h"

#include <algorithm>

namespace fuzz {

template <class Visit>
void Buffer::for_each_piece(Visit visit) const {
  const Type& t = *access_.memory;
  for (int64_t i = 0; i < access_.count; ++i)
    for (const Piece& p : t.pieces) visit(i * t.extent() + p.at, p.length);
}

Buffer::Buffer(const Access& access) : access_(access) {
  for_each_piece([&](int64_t at, int64_t length) {
    low_ = std::min(low_, at);
    high_ = std::max(high_, at + length);
  });
  bytes_.resize(static_cast<size_t>(high_ - low_ + 2 * margin));
  Bytes nothing(static_cast<size_t>(access.bytes()), 0xEE);
  bytes_ = image(access.write ? access.data : nothing, {});
}

// The memory with the pattern, and in it `data` and, where that ends, `rest`.
Bytes Buffer::image(const Bytes& data, const Bytes& rest) const {
  Bytes out(bytes_.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<unsigned char>(0xA0 + i % 29);
  size_t from = 0;
  for_each_piece([&](int64_t at, int64_t length) {
    for (int64_t i = 0; i < length; ++i, ++from)
      out[static_cast<size_t>(margin - low_ + at + i)] =
          from < data.size() ? data[from] : rest[from];
  });
  return out;
}

Bytes Buffer::packed() const {
  Bytes out;
  for_each_piece([&](int64_t at, int64_t length) {
    auto begin = bytes_.begin() + margin - low_ + at;
    out.insert(out.end(), begin, begin + length);
  });
  return out;
}

std::optional<std::string> Buffer::difference(const Bytes& data, bool zeros) const {
  Bytes got = packed();
  for (size_t i = 0; i < data.size(); ++i) {
    if (same(data[i], got[i], zeros)) continue;
    return "byte " + std::to_string(i) + " of the data: expected " + std::to_string(data[i]) +
           ", got " + std::to_string(got[i]);
  }
  Bytes expected = image(got, {});
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] == bytes_[i]) continue;
    return "memory at " + std::to_string(static_cast<int64_t>(i) - margin + low_) +
           " from the buffer's address was touched: it held " + std::to_string(expected[i]) +
           ", now " + std::to_string(bytes_[i]);
  }
  return std::nullopt;
}

}  // namespace fuzz
