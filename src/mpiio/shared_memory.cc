#include "mpiio/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

namespace forebay::mpiio {
namespace {

constexpr uint64_t kHead = 4096;  // where the mark is; a page, so that data is aligned to one

// The machine, since it was started, and the name space that its processes' numbers are of.
std::string read_node() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char space[64] = {};
  (void)!::readlink("/proc/self/ns/pid", space, sizeof space - 1);
  return boot + space;
}

const std::string& node_name() {
  static const std::string node = read_node();  // a process stays where it is
  return node;
}

std::string path_of(const SharedMemory::Place& place) {
  return fmt::format("/proc/{}/fd/{}", place.process, place.descriptor);
}

Error failed(const char* what) {
  const int code = errno;
  return Error(code, fmt::format("memory that ranks share: {}", what));
}

// The limit on files counts for memory that has a descriptor, and to exceed it is a signal that
// ends the process.
Result<void> check_limit(uint64_t bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || bytes <= limit.rlim_cur) return {};
  return Error(ENOMEM, fmt::format("memory that ranks share: {} bytes are more than the limit on "
                                   "the size of files (ulimit -f) allows",
                                   bytes));
}

}  // namespace

uint64_t SharedMemory::space_bytes() const {
  return kHead + place_.bytes;
}

std::byte* SharedMemory::data() const {
  return static_cast<std::byte*>(space_) + kHead;
}

void SharedMemory::swap(SharedMemory& other) noexcept {
  std::swap(place_, other.place_);
  std::swap(space_, other.space_);
  std::swap(descriptor_, other.descriptor_);
}

Result<SharedMemory> SharedMemory::make(uint64_t bytes, bool alone) {
  SharedMemory memory;
  Place& place = memory.place_;
  const std::string& node = node_name();
  std::memcpy(place.node.data(), node.data(), std::min(node.size(), place.node.size()));
  place.process = ::getpid();
  place.bytes = bytes;
  if (::getrandom(&place.mark, sizeof place.mark, 0) != sizeof place.mark)
    return failed("getrandom");
  if (!alone) {
    if (auto ok = check_limit(memory.space_bytes()); !ok) return ok.error();
    memory.descriptor_ = place.descriptor = ::memfd_create("forebay-mpi-file", MFD_CLOEXEC);
    if (place.descriptor < 0) return failed("memfd_create");
    if (::ftruncate(place.descriptor, static_cast<off_t>(memory.space_bytes())) != 0)
      return failed("ftruncate");
  }
  void* space = ::mmap(nullptr, memory.space_bytes(), PROT_READ | PROT_WRITE,
                       alone ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, place.descriptor, 0);
  if (space == MAP_FAILED) return failed("mmap");
  memory.space_ = space;
  std::memcpy(space, &place.mark, sizeof place.mark);
  return memory;
}

Result<SharedMemory> SharedMemory::attach(const Place& place) {
  SharedMemory memory;
  memory.place_ = place;
  const int fd = ::open(path_of(place).c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return failed("open another rank's");
  void* space = ::mmap(nullptr, memory.space_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  const int code = errno;
  ::close(fd);
  if (space == MAP_FAILED) return errno = code, failed("map another rank's");
  memory.space_ = space;
  if (std::memcmp(space, &place.mark, sizeof place.mark) == 0) return memory;
  return Error(EPROTO, "memory that ranks share: another rank's is not what it said");
}

bool SharedMemory::near(const Place& place) {
  if (std::strncmp(node_name().c_str(), place.node.data(), place.node.size()) != 0) return false;
  return place.process == ::getpid() || ::access(path_of(place).c_str(), R_OK | W_OK) == 0;
}

uint64_t SharedMemory::this_node() {
  return std::hash<std::string>()(node_name());
}

SharedMemory::~SharedMemory() {
  if (space_) ::munmap(space_, space_bytes());
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace forebay::mpiio
