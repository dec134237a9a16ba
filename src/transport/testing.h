// Helpers of transport's tests: a handler that records whole frames, frames to send, and worlds (a
// loop with a transport on it) for the suites that run over every transport.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/testing.h"
#include "loop/epoll_loop.h"
#include "loop/sim_loop.h"
#include "transport/sim_transport.h"
#include "transport/socket_transport.h"
#include "transport/transport.h"

namespace forebay {

inline std::string head_of(const std::string& message, uint32_t payload_size = 0,
                           wire::FrameType type = wire::FrameType::data) {
  std::string head(wire::kHeaderSize, '\0');
  const wire::FrameHeader header{type, static_cast<uint32_t>(message.size()), payload_size};
  wire::encode(header, std::span<std::byte, wire::kHeaderSize>(
                           reinterpret_cast<std::byte*>(head.data()), wire::kHeaderSize));
  return head + message;
}

inline std::string random_bytes(std::mt19937_64& random, size_t size) {
  std::string out(size, '\0');
  for (size_t i = 0; i < size; i += 8) {
    const uint64_t word = random();
    std::memcpy(out.data() + i, &word, std::min<size_t>(8, size - i));
  }
  return out;
}

inline std::span<std::byte> as_bytes(std::string& s) {
  return {reinterpret_cast<std::byte*>(s.data()), s.size()};
}

// Memory for `size` bytes of stream: one range, a list of pieces out of order, or a strided view
// with pieces of a few bytes.
class TestMemory {
 public:
  TestMemory(std::mt19937_64& random, size_t size) {
    switch (size < 16 ? 0 : random() % 3) {
      case 0:
        space_.resize(size);
        memory_ = Memory::of(as_bytes(space_));
        break;
      case 1:
        make_list(random, size);
        break;
      default:
        make_strided(random, size);
    }
  }
  const Memory& memory() const { return memory_; }
  void put(const std::string& stream) {
    copy_in({reinterpret_cast<const std::byte*>(stream.data()), stream.size()}, memory_);
  }
  std::string get() const {
    std::string stream(memory_.shape.total().value, '\0');
    copy_out(memory_, as_bytes(stream));
    return stream;
  }

 private:
  void make_list(std::mt19937_64& random, size_t size) {
    space_.resize(2 * size + 64);
    std::vector<Extent> pieces;
    uint64_t at = 0;
    for (size_t left = size; left != 0;) {
      const size_t n = std::min<size_t>(left, 1 + random() % (size / 4 + 1));
      pieces.push_back({Offset(at), Length(n)});
      at += n + (at + 2 * n < space_.size() - size ? random() % n : 0);
      left -= n;
    }
    std::shuffle(pieces.begin(), pieces.end(), random);
    space_.resize(std::max<size_t>(space_.size(), at));
    memory_ = {as_bytes(space_).data(), Extents::make(pieces).value()};
  }
  void make_strided(std::mt19937_64& random, size_t size) {
    const uint64_t piece = 1 + size / 20000 + random() % 12;  // fine, but not for ever
    const uint64_t whole = size / piece;
    space_.resize(size * 2 + 64);
    auto strided =
        Extents::make({{Offset(0), Length(piece)}}, {{whole, static_cast<int64_t>(2 * piece)}});
    memory_ = {as_bytes(space_).data(), strided.value()};
    if (const uint64_t rest = size % piece) {
      auto list = memory_.shape.to_list(UINT64_MAX).value();
      list.push_back({Offset(2 * piece * whole), Length(rest)});
      memory_.shape = Extents::make(std::move(list)).value();
    }
  }

  std::string space_;
  Memory memory_;
};

struct TestFrame {
  std::string message, payload;
  bool operator==(const TestFrame&) const = default;
};

// Records frames. `on_frame` sees each when it is whole, and may do anything to the connection.
class Recorder : public ConnectionHandler {
 public:
  explicit Recorder(uint64_t seed = 1) : random_(seed) {}

  std::vector<TestFrame> frames;
  std::optional<Error> closed;
  std::function<void(const TestFrame&)> on_frame = [](const TestFrame&) {};
  std::function<void()> when_closed = [] {};
  std::function<std::optional<Error>(const wire::FrameHeader&)> refuse =
      [](const wire::FrameHeader&) { return std::nullopt; };

 private:
  Result<Memory> on_message(const wire::FrameHeader& header,
                            std::span<const std::byte> message) override {
    EXPECT_FALSE(closed);
    EXPECT_FALSE(memory_);
    EXPECT_EQ(message.size(), header.message_size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(message.data()) % 8, 0u);
    if (auto error = refuse(header)) return *error;
    current_.message.assign(reinterpret_cast<const char*>(message.data()), message.size());
    current_.payload.clear();
    if (header.payload_size == 0) return whole(), Memory{};
    memory_.emplace(random_, header.payload_size);
    return memory_->memory();
  }
  void on_payload() override {
    ASSERT_TRUE(memory_);
    current_.payload = memory_->get();
    memory_.reset();
    whole();
  }
  void on_closed(const Error& why) override {
    EXPECT_FALSE(closed);
    closed = why;
    when_closed();
  }
  void whole() {
    frames.push_back(current_);
    on_frame(frames.back());
  }

  std::mt19937_64 random_;
  std::optional<TestMemory> memory_;
  TestFrame current_;
};

// A loop that runs both ends in this thread, with a transport and an address to listen on.
struct World {
  virtual ~World() = default;
  virtual Loop& loop() = 0;
  virtual Transport& server() = 0;
  virtual Transport& client() = 0;
  virtual Address address() = 0;

  // At most `most` of the loop's own time.
  bool run_until(const std::function<bool()>& pred, Duration most = std::chrono::seconds(30)) {
    const Time end = loop().now() + most;
    while (!pred() && loop().now() < end) {
      if (!loop().run_one(end - loop().now()) && (pred() || idle())) break;
    }
    return pred();
  }
  void run_for(Duration d) {
    const Time end = loop().now() + d;
    while (loop().now() < end && (loop().run_one(end - loop().now()) || loop().now() < end)) {
      if (idle()) break;
    }
  }
  virtual bool idle() { return false; }
};

struct SocketWorld : World {
  explicit SocketWorld(SocketOptions options = {}) : transport(options) {}
  EpollLoop the_loop;
  SocketTransport transport;
  Loop& loop() override { return the_loop; }
  Transport& server() override { return transport; }
  Transport& client() override { return transport; }
};

struct UnixWorld final : SocketWorld {
  TempDir directory;
  int made = 0;
  Address address() override {
    return {Address::Kind::unix_socket, directory / std::to_string(made++), 0};
  }
};

// With shared memory between the two.
struct SharedWorld final : SocketWorld {
  SharedWorld() : SocketWorld({.shared_area = 64 << 10}) {}
  TempDir directory;
  int made = 0;
  Address address() override {
    return {Address::Kind::unix_socket, directory / std::to_string(made++), 0};
  }
};

struct TcpWorld final : SocketWorld {
  Address address() override { return {Address::Kind::tcp, "127.0.0.1", 0}; }
};

// With a key that both prove, and sealed frames.
struct KeyedWorld final : SocketWorld {
  explicit KeyedWorld(Duration limit = std::chrono::seconds(10))
      : SocketWorld({.key = std::make_shared<const AuthKey>(std::string(32, 'k'), "the key"),
                     .key_limit = limit}) {}
  Address address() override { return {Address::Kind::tcp, "127.0.0.1", 0}; }
};

struct SimWorld final : World {
  explicit SimWorld(SimOptions options = {}) : network(the_loop, seed + 1, options) {}
  const uint64_t seed = test_seed();
  SimLoop the_loop{seed};
  SimNetwork network;
  std::unique_ptr<Transport> server_side = network.transport("server");
  std::unique_ptr<Transport> client_side = network.transport("client");
  int made = 0;
  Loop& loop() override { return the_loop; }
  Transport& server() override { return *server_side; }
  Transport& client() override { return *client_side; }
  Address address() override { return {Address::Kind::simulated, std::to_string(made++), 0}; }
  bool idle() override { return the_loop.idle(); }
};

// A listener and pairs of connections through it.
class Pairs {
 public:
  struct Pair {
    std::unique_ptr<Connection> client, server;
  };

  explicit Pairs(World& world) : world_(world) {
    auto listening = world.server().listen(
        world.address(), world.loop(),
        [this](std::unique_ptr<Connection> c) { accepted_.push_back(std::move(c)); });
    listener_ = std::move(listening).value();
  }

  Pair make() {
    Pair pair;
    world_.client().connect(
        listener_->address(), world_.loop(), std::chrono::seconds(10),
        [&](Result<std::unique_ptr<Connection>> c) { pair.client = std::move(c).value(); });
    EXPECT_TRUE(world_.run_until([&] { return pair.client && !accepted_.empty(); }));
    pair.server = std::move(accepted_.back());
    accepted_.pop_back();
    return pair;
  }
  Listener& listener() { return *listener_; }

 private:
  World& world_;
  std::unique_ptr<Listener> listener_;
  std::vector<std::unique_ptr<Connection>> accepted_;
};

}  // namespace forebay
