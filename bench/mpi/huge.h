// Memory that begins at a huge page and asks for them. Else the heap's whim decides whether the
// same buffer has large or small pages, and reads into it differ threefold from one workload to the
// next.
#pragma once

#include <sys/mman.h>

#include <cstdlib>
#include <new>
#include <vector>

namespace bench {

template <class T>
struct Huge {
  using value_type = T;
  Huge() = default;
  template <class Other>
  Huge(const Huge<Other>&) {}

  T* allocate(size_t n) {
    constexpr size_t kPage = 2 << 20;
    const size_t bytes = (n * sizeof(T) + kPage - 1) / kPage * kPage;
    void* memory = std::aligned_alloc(kPage, bytes);
    if (!memory) throw std::bad_alloc();
    madvise(memory, bytes, MADV_HUGEPAGE);  // a wish
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t) { std::free(memory); }
  bool operator==(const Huge&) const = default;
};

template <class T>
using HugeVector = std::vector<T, Huge<T>>;

}  // namespace bench
