#include "store/memory_content.h"

#include <algorithm>
#include <cstring>

namespace forebay {

void SparseBytes::read(uint64_t offset, std::span<std::byte> to) const {
  while (!to.empty()) {
    const uint64_t within = offset % kPage;
    const uint64_t n = std::min<uint64_t>(kPage - within, to.size());
    const auto page = pages_.find(offset / kPage);
    if (page == pages_.end()) {
      std::memset(to.data(), 0, n);
    } else {
      std::memcpy(to.data(), page->second->data() + within, n);
    }
    offset += n;
    to = to.subspan(n);
  }
}

uint64_t SparseBytes::write(uint64_t offset, std::span<const std::byte> from) {
  uint64_t done = 0;
  while (done < from.size()) {
    const uint64_t at = offset + done, within = at % kPage;
    const uint64_t n = std::min<uint64_t>(kPage - within, from.size() - done);
    Page* page = page_for_write(at / kPage);
    if (!page) break;
    std::memcpy(page->data() + within, from.data() + done, n);
    done += n;
  }
  return done;
}

SparseBytes::Page* SparseBytes::page_for_write(uint64_t number) {
  const auto found = pages_.find(number);
  if (found != pages_.end()) return found->second.get();
  if (budget_->free < kPage) return nullptr;
  budget_->free -= kPage;
  return pages_.emplace(number, std::make_unique<Page>()).first->second.get();
}

SparseBytes::Pages::iterator SparseBytes::erase(Pages::iterator page) {
  budget_->free += kPage;
  return pages_.erase(page);
}

void SparseBytes::zero(uint64_t offset, uint64_t length) {
  const uint64_t end = offset + length;  // both at most INT64_MAX
  auto page = pages_.lower_bound(offset / kPage);
  while (page != pages_.end() && page->first * kPage < end) {
    const uint64_t start = page->first * kPage;
    const uint64_t from = std::max(offset, start), to = std::min(end, start + kPage);
    if (to - from == kPage) {
      page = erase(page);
    } else {
      std::memset(page->second->data() + (from - start), 0, to - from);
      ++page;
    }
  }
}

void SparseBytes::erase_from(uint64_t offset) {
  auto page = pages_.lower_bound(offset / kPage);
  if (page != pages_.end() && page->first * kPage < offset) {
    const uint64_t within = offset % kPage;
    std::memset(page->second->data() + within, 0, kPage - within);
    ++page;
  }
  while (page != pages_.end()) page = erase(page);
}

}  // namespace forebay
