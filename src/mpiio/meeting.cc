#include "mpiio/meeting.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "mpiio/arbiter_client.h"

namespace forebay::mpiio {
namespace {

// The machine, since it was started, and the name space that its processes' numbers are of.
std::string read_node() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char space[64] = {};
  (void)!::readlink("/proc/self/ns/pid", space, sizeof space - 1);
  return boot + space;
}

const std::string& this_node() {
  static const std::string node = read_node();  // a process stays where it is
  return node;
}

Error failed(const char* what) {
  const int code = errno;
  return Error(code, fmt::format("the state that ranks share: {}", what));
}

}  // namespace

struct Meeting::Memory {
  NodeMemory node;
  uint64_t mark;
};

Result<std::unique_ptr<Meeting>> Meeting::host(bool alone) {
  std::unique_ptr<Meeting> meeting(new Meeting);
  meeting->host_ = true;
  Place& place = meeting->place_;
  const std::string node = this_node();
  std::memcpy(place.node.data(), node.data(), std::min(node.size(), place.node.size()));
  place.process = ::getpid();
  if (!alone) {
    place.descriptor = ::memfd_create("forebay-mpi-file", MFD_CLOEXEC);
    if (place.descriptor < 0) return failed("memfd_create");
    if (::ftruncate(place.descriptor, sizeof(Memory)) != 0) return failed("ftruncate");
  }
  void* space = ::mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE,
                       alone ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, place.descriptor, 0);
  if (space == MAP_FAILED) return failed("mmap");
  meeting->memory_ = static_cast<Memory*>(space);
  NodeMemory::create(&meeting->memory_->node);
  if (::getrandom(&place.mark, sizeof place.mark, 0) != sizeof place.mark)
    return failed("getrandom");
  meeting->memory_->mark = place.mark;
  return meeting;
}

std::unique_ptr<Meeting> Meeting::guest(const Place& place) {
  std::unique_ptr<Meeting> meeting(new Meeting);
  meeting->place_ = place;
  return meeting;
}

Meeting::~Meeting() {
  state_.reset();
  if (arbiter_) arbiter_->close_file(invitation_);
  if (memory_) ::munmap(memory_, sizeof(Memory));
  if (host_ && place_.descriptor >= 0) ::close(place_.descriptor);
}

bool Meeting::near() const {
  if (std::strncmp(this_node().c_str(), place_.node.data(), place_.node.size()) != 0) return false;
  return host_ || ::access(path().c_str(), R_OK | W_OK) == 0;
}

std::string Meeting::path() const {
  return fmt::format("/proc/{}/fd/{}", place_.process, place_.descriptor);
}

Result<void> Meeting::attach() {
  if (memory_) return {};
  const int fd = ::open(path().c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return failed("open the memory of rank 0");
  void* space = ::mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  const int code = errno;
  ::close(fd);
  if (space == MAP_FAILED) return errno = code, failed("map the memory of rank 0");
  memory_ = static_cast<Memory*>(space);
  if (memory_->mark == place_.mark) return {};
  return Error(EPROTO, "the state that ranks share: rank 0's memory is not what it said");
}

Result<SharedState*> Meeting::state() {
  std::lock_guard lock(mutex_);
  if (state_) return state_.get();
  if (moved_) {
    auto client = ArbiterClient::connect(invitation_);
    if (!client) return client.error();
    state_ = std::move(*client);
  } else {
    if (auto ok = attach(); !ok) return ok.error();
    state_ = std::make_unique<NodeState>(memory_->node);
  }
  return state_.get();
}

}  // namespace forebay::mpiio
