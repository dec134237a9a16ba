// SharedMemory: memory of one process that others on its node map through /proc. It has no name, so
// nothing stays behind, and it is there as long as anybody maps it. The owner must live until
// everybody has attached.
//
// The first bytes hold a mark, by which a guest knows that it found what it was told of; data()
// begins after them, aligned to 4096.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/result.h"

namespace forebay::mpiio {

class SharedMemory {
 public:
  // Plain bytes, to be sent to others.
  struct Place {
    std::array<char, 128> node{};  // of the machine and its processes' name space
    int32_t process = 0;
    int32_t descriptor = -1;
    uint64_t mark = 0;
    uint64_t bytes = 0;  // of data()
  };

  // Zeros. `alone`: nobody else will come.
  static Result<SharedMemory> make(uint64_t bytes, bool alone = false);
  static Result<SharedMemory> attach(const Place& place);
  // Is it on this node, and are we allowed to look into its owner?
  static bool near(const Place& place);
  // The same number on all processes of a node, and another one elsewhere.
  static uint64_t this_node();

  SharedMemory() = default;
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept { swap(other); }
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    swap(other);
    return *this;
  }

  std::byte* data() const;
  const Place& place() const { return place_; }
  bool own() const { return descriptor_ >= 0; }  // made here, for others too
  explicit operator bool() const { return space_ != nullptr; }

 private:
  void swap(SharedMemory& other) noexcept;
  uint64_t space_bytes() const;

  Place place_;
  void* space_ = nullptr;
  int descriptor_ = -1;  // of the owner
};

}  // namespace forebay::mpiio
