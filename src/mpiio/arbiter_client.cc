#include "mpiio/arbiter_client.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "mpiio/arbiter_connect.h"
#include "mpiio/arbiter_wire.h"

namespace forebay::mpiio {

namespace {

Error lost() {
  return Error(ECONNRESET, "the arbiter of shared file pointers and atomic mode (rank 0) is gone");
}

}  // namespace

// Whoever waits for an answer reads if nobody else does, and hands to the others what is theirs.
// Nobody reads while nobody waits: what comes then (nothing does) stays in the socket.
struct ArbiterClient::Impl {
  explicit Impl(BlockingSocket s) : socket(std::move(s)) {}

  Result<uint64_t> call(Asked&& asked);
  bool send(const std::string& frame);
  std::optional<Answer> receive();
  void fail();

  BlockingSocket socket;
  std::mutex sending;  // one frame at a time

  std::mutex mutex;  // of what follows
  std::condition_variable changed;
  uint64_t last_id = 0;
  bool reading = false;
  bool broken = false;
  std::unordered_map<uint64_t, std::optional<Answer>> waiting;
};

bool ArbiterClient::Impl::send(const std::string& frame) {
  std::lock_guard lock(sending);
  return socket.send(frame, BlockingSocket::kForever);
}

std::optional<Answer> ArbiterClient::Impl::receive() {
  auto message = socket.receive(wire::FrameType::reply, BlockingSocket::kForever);
  if (!message) return std::nullopt;
  auto answer = decode_answer(*message);
  return answer ? std::optional(*answer) : std::nullopt;
}

// No answer will come any more, for anybody.
void ArbiterClient::Impl::fail() {
  broken = true;
  socket.shut();
  changed.notify_all();
}

Result<uint64_t> ArbiterClient::Impl::call(Asked&& asked) {
  std::unique_lock lock(mutex);
  if (broken) return lost();
  const uint64_t id = asked.id = ++last_id;
  waiting.emplace(id, std::nullopt);
  lock.unlock();
  const bool sent = send(encode(asked));
  lock.lock();
  if (!sent) fail();
  while (!broken && !waiting.at(id)) {
    if (reading) {
      changed.wait(lock);
      continue;
    }
    reading = true;
    lock.unlock();
    const auto answer = receive();
    lock.lock();
    reading = false;
    const auto whose = answer ? waiting.find(answer->id) : waiting.end();
    if (whose == waiting.end()) {
      fail();
    } else {
      whose->second = answer;
      changed.notify_all();
    }
  }
  const auto answer = waiting.extract(id).mapped();
  if (!answer) return lost();
  if (answer->code != 0) return Error(static_cast<int>(answer->code), "arbiter");
  return asked.call == Call::lock ? id : answer->value;
}

ArbiterClient::ArbiterClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ArbiterClient::~ArbiterClient() = default;

Result<std::unique_ptr<ArbiterClient>> ArbiterClient::connect(const Invitation& invitation,
                                                              Duration within) {
  auto socket = connect_to_arbiter(invitation, within);
  if (!socket) return std::move(socket).error();
  auto impl = std::make_unique<Impl>(std::move(*socket));
  return std::unique_ptr<ArbiterClient>(new ArbiterClient(std::move(impl)));
}

Result<uint64_t> ArbiterClient::get(Slot slot) {
  return impl_->call({.call = Call::get, .slot = slot});
}

Result<void> ArbiterClient::set(Slot slot, uint64_t value) {
  auto done = impl_->call({.call = Call::set, .slot = slot, .a = value});
  if (!done) return std::move(done).error();
  return {};
}

Result<uint64_t> ArbiterClient::fetch_and_add(Slot slot, uint64_t step) {
  return impl_->call({.call = Call::fetch_and_add, .slot = slot, .a = step});
}

Result<uint64_t> ArbiterClient::compare_and_swap(Slot slot, uint64_t expected, uint64_t desired) {
  return impl_->call({.call = Call::compare_and_swap, .slot = slot, .a = expected, .b = desired});
}

Result<uint64_t> ArbiterClient::acquire(const Extents& ranges, LockMode mode) {
  return impl_->call({.call = Call::lock, .mode = mode, .ranges = sendable(ranges)});
}

// If it cannot be sent, the connection is lost, and so is the lock.
void ArbiterClient::unlock(uint64_t ticket) {
  impl_->send(encode(Asked{.call = Call::unlock, .id = UINT64_MAX, .a = ticket}));
}

}  // namespace forebay::mpiio
