// In place of uring.cc where the build has no liburing.
#include "store/uring.h"

namespace forebay {

struct Uring::Ring {};
Uring::Uring(std::unique_ptr<Ring> ring) : ring_(std::move(ring)) {}
Uring::~Uring() = default;

Result<std::unique_ptr<Uring>> Uring::open(unsigned) {
  return Error(ENOSYS, "built without liburing");
}
bool Uring::submit(const Transfer&) {
  return false;
}
bool Uring::wake() {
  return false;
}
size_t Uring::wait(std::span<Ended>) {
  return 0;
}
Result<int> Uring::add_memory(std::span<std::byte>) {
  return Error(ENOSYS);
}
void Uring::remove_memory(int) {}

}  // namespace forebay
