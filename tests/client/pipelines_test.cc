// Every pipeline over every transport moves the same bytes, whatever the size of a request against
// the chunk and the pool.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "client/remote_store.h"
#include "core/testing.h"
#include "loop/epoll_loop.h"
#include "loop/loop_thread.h"
#include "loop/sim_loop.h"
#include "server/server.h"
#include "store/memory.h"
#include "transport/sim_transport.h"
#include "transport/socket_transport.h"

namespace forebay {
namespace {

constexpr uint64_t kChunk = 16_KiB;
constexpr uint64_t kPool = 4 * kChunk;

struct Way {
  const char* name;
  Address::Kind kind;
  uint64_t shared;  // memory, of the client
  friend void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }
};
const Way kWays[] = {
    {"simulated", Address::Kind::simulated, 0},
    {"unix", Address::Kind::unix_socket, 0},
    {"shared", Address::Kind::unix_socket, 3 * kChunk},
    {"tcp", Address::Kind::tcp, 0},
};

struct Mode {
  const char* name;
  Pipeline pipeline;
  unsigned in_flight;
  uint32_t chunk;  // of the client
  friend void PrintTo(const Mode& mode, std::ostream* out) { *out << mode.name; }
};
const Mode kModes[] = {
    {"none", Pipeline::none, 4, 0},
    {"none_small", Pipeline::none, 4, 4096},
    {"serial", Pipeline::serial, 2, 0},
    {"parallel", Pipeline::parallel, 4, 0},
    {"parallel_small", Pipeline::parallel, 3, 4096},
    {"one", Pipeline::parallel, 1, 0},
};

// A server with one such export, and a client of it.
class Rig {
 public:
  Rig(const Mode& mode, const Way& way) {
    const bool simulated = way.kind == Address::Kind::simulated;
    Loop& loop = simulated ? static_cast<Loop&>(sim_loop_) : loop_;
    ServerOptions options;
    options.eager_max = 512;
    server_ = std::make_unique<Server>(options, loop, std::vector<Loop*>{&loop}, counters_);
    ExportOptions exported;
    exported.name = "data";
    exported.pool = kPool;
    exported.chunk = kChunk;
    exported.in_flight = mode.in_flight;
    exported.pipeline = mode.pipeline;
    server_->add_export(exported, std::make_unique<MemoryStore>()).value();

    transport_ = simulated ? network_.transport("server") : std::make_unique<SocketTransport>();
    Address address{way.kind, simulated ? "server" : "127.0.0.1", 0};
    if (way.kind == Address::Kind::unix_socket) address.host = dir_ / "socket";
    listener_ =
        transport_
            ->listen(address, loop,
                     [this](std::unique_ptr<Connection> c) { server_->accept(std::move(c)); })
            .value();
    if (!simulated) thread_ = std::make_unique<LoopThread>(loop_);
    connect(mode, way);
  }

  RemoteStore& store() { return *store_; }

 private:
  void connect(const Mode& mode, const Way& way) {
    RemoteRuntime runtime;
    if (way.kind == Address::Kind::simulated) {
      runtime.loop = &sim_loop_;
      runtime.make_transport = [this](Loop&) { return network_.transport("client"); };
    } else {
      runtime.make_loop = [] { return std::make_unique<EpollLoop>(); };
      runtime.make_transport = [shared = way.shared](Loop&) {
        return std::make_unique<SocketTransport>(SocketOptions{.shared_area = shared});
      };
    }
    RemoteOptions options;
    options.address = [a = listener_->address()]() -> Result<Address> { return a; };
    options.export_name = "data";
    options.chunk = mode.chunk;
    store_ = RemoteStore::connect(std::move(options), std::move(runtime)).value();
  }

  // In the order in which they are built; what comes later goes first.
  TempDir dir_;
  SimLoop sim_loop_{1};
  SimNetwork network_{sim_loop_, 2};
  EpollLoop loop_;
  CounterSet counters_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<LoopThread> thread_;
  std::unique_ptr<RemoteStore> store_;
};

class PipelinesTest : public ::testing::TestWithParam<std::tuple<Mode, Way>> {
 protected:
  void open() {
    rig_ = std::make_unique<Rig>(std::get<0>(GetParam()), std::get<1>(GetParam()));
    Request r;
    r.op = Op::create;
    r.handle = rig_->store().root().value();
    r.name = "file";
    r.mode = 0600;
    r.access = Access::both;
    r.caller = caller_;
    made_ = rig_->store().call(std::move(r)).value();
  }

  void transfer(Op op, const Extents& file, std::string& bytes) {
    Request r;
    r.op = op;
    r.caller = caller_;
    r.handle = made_.handle;
    r.right = made_.right;
    r.file = file;
    r.memory = Memory::of(std::as_writable_bytes(std::span(bytes)));
    const Result<Reply> reply = rig_->store().call(std::move(r));
    ASSERT_TRUE(reply) << reply.error().message();
    ASSERT_EQ(reply->count, bytes.size());
  }

  // Writes random bytes there, and reads them and all around them back.
  void round_trip(const Extents& file) {
    std::string out(file.total().value, '\0');
    for (char& c : out) c = static_cast<char>(random_());
    transfer(Op::write, file, out);
    std::string expected;
    size_t at = 0;
    for (ExtentCursor c(file); !c.done();) {
      const Extent e = c.take(file.total());
      if (oracle_.size() < e.end().value) oracle_.resize(e.end().value);
      oracle_.replace(e.offset.value, e.length.value, out, at, e.length.value);
      at += e.length.value;
    }
    for (ExtentCursor c(file); !c.done();) {
      const Extent e = c.take(file.total());
      expected.append(oracle_, e.offset.value, e.length.value);
    }
    std::string in(out.size(), '?');
    transfer(Op::read, file, in);
    EXPECT_TRUE(in == expected);
    std::string all(oracle_.size(), '?');
    transfer(Op::read, Extents(Extent{Offset(0), Length(all.size())}), all);
    EXPECT_TRUE(all == oracle_);
  }

  std::unique_ptr<Rig> rig_;
  CallerRef caller_ = this_process_caller();
  Reply made_;
  std::string oracle_;
  std::mt19937_64 random_{test_seed()};
};

INSTANTIATE_TEST_SUITE_P(
    All, PipelinesTest, ::testing::Combine(::testing::ValuesIn(kModes), ::testing::ValuesIn(kWays)),
    [](const auto& of) {
      return fmt::format("{}_{}", std::get<0>(of.param).name, std::get<1>(of.param).name);
    });

TEST_P(PipelinesTest, MovesTheSameBytes) {
  open();
  for (const uint64_t around : {uint64_t{513}, kChunk, 2 * kChunk, kPool, 3 * kPool + kChunk}) {
    for (const uint64_t size : {around - 1, around, around + 1}) {
      SCOPED_TRACE(size);
      round_trip(Extents(Extent{Offset(random_() % 5000), Length(size)}));
      // Pieces with gaps, and pieces that write over each other.
      const uint64_t pieces = 7, length = size / pieces + 1;
      round_trip(Extents::make({{Offset(11), Length(length)}},
                               {{pieces, static_cast<int64_t>(length + 100)}})
                     .value());
      round_trip(Extents::make({{Offset(11), Length(length)}},
                               {{pieces, static_cast<int64_t>(length / 2 + 1)}})
                     .value());
    }
  }
}

}  // namespace
}  // namespace forebay
