// SparseBytes: the content of one file in memory. Pages that were never written are holes and read
// as zeros, so a file may be far larger than memory. The size is kept by its owner.
//
// Pages are paid from a Budget that the files of a store share, and refunded when they go.
// Not thread-safe: the store's lock covers it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

namespace forebay {

struct Budget {
  uint64_t free = UINT64_MAX;  // bytes
};

class SparseBytes {
 public:
  static constexpr uint64_t kPage = 64 * 1024;

  explicit SparseBytes(Budget& budget) : budget_(&budget) {}
  ~SparseBytes() { erase_from(0); }
  SparseBytes(const SparseBytes&) = delete;
  SparseBytes& operator=(const SparseBytes&) = delete;

  void read(uint64_t offset, std::span<std::byte> to) const;
  // Returns how much was written: less than asked only when the budget is used up.
  uint64_t write(uint64_t offset, std::span<const std::byte> from);
  // Makes [offset, offset + length) read as zeros, and frees the pages wholly inside.
  void zero(uint64_t offset, uint64_t length);
  // Forgets everything from `offset` on.
  void erase_from(uint64_t offset);

  uint64_t allocated() const { return pages_.size() * kPage; }

 private:
  using Page = std::array<std::byte, kPage>;
  using Pages = std::map<uint64_t, std::unique_ptr<Page>>;  // by page number

  Page* page_for_write(uint64_t number);
  Pages::iterator erase(Pages::iterator page);

  Budget* budget_;
  Pages pages_;
};

}  // namespace forebay
