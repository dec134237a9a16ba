// The fuzz target over a live server (README.md, script.h). All in one thread, in virtual time; the
// same input always takes the same course, but for the keys that are drawn.
#include <algorithm>
#include <charconv>
#include <memory>
#include <vector>

#include "core/fuzzing.h"
#include "loop/sim_loop.h"
#include "script.h"
#include "server/server.h"
#include "store/fault.h"
#include "store/memory.h"
#include "transport/sim_transport.h"
#include "wire/codec.h"

namespace forebay::fuzz {
namespace {

using namespace std::chrono_literals;

const Address kServer{Address::Kind::simulated, "server", 0};

// What the server gave, over all connections of a run.
struct Given {
  wire::Welcome welcome;
  std::vector<Handle> handles;
  std::vector<Right> rights;
  uint64_t lease = 0;  // the last

  void take(const wire::ReplyMessage& reply) {
    if (!reply.result) return;
    if (!reply.result->handle.empty()) handles.push_back(reply.result->handle);
    if (!reply.result->right.empty()) rights.push_back(reply.result->right);
    if (reply.result->value > UINT32_MAX) lease = reply.result->value;
  }
};

// The client's end of one connection: sends whatever it is told, and checks what comes.
class Client final : public ConnectionHandler {
 public:
  Client(std::unique_ptr<Connection> connection, Given& given)
      : given_(given), connection_(std::move(connection)) {
    connection_->start(*this);
  }

  void send(std::string bytes) {
    if (!closed_) connection_->send(std::move(bytes));
  }

  Result<Memory> on_message(const wire::FrameHeader& header, wire::Bytes message) override {
    check(header.type, message);
    payload_.resize(header.payload_size);
    return Memory::of(std::span(payload_));
  }
  void on_payload() override {}
  void on_closed(const Error& why) override {
    FOREBAY_ASSERT(why.code() != EPROTO, why.message());
    closed_ = true;
  }

 private:
  void check(wire::FrameType type, wire::Bytes message) {
    if (type == wire::FrameType::welcome) {
      given_.welcome = wire::decode_welcome(message).value();
      if (given_.handles.empty()) given_.handles.push_back(given_.welcome.root);
    } else if (type == wire::FrameType::reply) {
      given_.take(wire::decode_reply(message).value());
    } else if (type == wire::FrameType::pull) {
      FOREBAY_ASSERT(wire::decode_pull(message).value().length <= kChunk);
    } else if (type == wire::FrameType::data) {
      wire::decode_data(message).value();
    } else if (type == wire::FrameType::refused) {
      wire::decode_refused(message).value();
    } else if (type == wire::FrameType::control_reply) {
      wire::decode_control_reply(message).value();
    } else {
      FOREBAY_ASSERT(type == wire::FrameType::goodbye, "a frame that no server sends");
    }
  }

  Given& given_;
  std::vector<std::byte> payload_;
  bool closed_ = false;
  std::unique_ptr<Connection> connection_;
};

class World {
 public:
  explicit World(unsigned mode) : mode_(mode) {
    ServerOptions options;
    options.boot = 1;
    options.slots = 4;
    options.eager_session = 2 * kEagerMax;
    options.eager_max = kEagerMax;
    server_ = std::make_unique<Server>(options, loop_, std::vector<Loop*>{&loop_}, counters_);
    ExportOptions exported;
    exported.name = "x";
    exported.pool = 8 * kChunk;
    exported.chunk = kChunk;
    exported.in_flight = 2;
    FOREBAY_ASSERT(server_->add_export(exported, make_store()).has_value());
    listener_ =
        server_side_
            ->listen(kServer, loop_,
                     [this](std::unique_ptr<Connection> c) { server_->accept(std::move(c)); })
            .value();
    connect();
  }

  void play(std::string_view script) {
    bool waits = !(mode_ & kRude);
    while (!script.empty()) {
      const std::string_view step = script.substr(0, step_size(script));
      script.remove_prefix(step.size());
      if (step.starts_with(kCut)) {
        connect();
      } else if (step.starts_with(kResume)) {
        connect();
        resume();
      } else if (step.starts_with(kWait)) {
        loop_.run_for(10ms);
      } else {
        client_->send(filled_in(step));
      }
      if (waits) settle();
      waits = !(mode_ & (kAtOnce | kRude));
    }
    settle();
  }

  // Hangs up, lets everything run out that waits for anything, and looks whether all is let go.
  void end() {
    client_.reset();
    loop_.run_until([&] { return loop_.idle(); }, 1h);
    FOREBAY_ASSERT(loop_.idle(), "something still happens long after the last client went");
    const std::string status = server_->status();
    for (const char* rest :
         {R"("sessions": [])", R"("flights": 0)", R"("in_use": 0)", R"("used": 0)",
          R"("reservations": 0)", R"("leases": 0)", R"("recalls": 0)"}) {
      FOREBAY_ASSERT(status.find(rest) != std::string::npos, status);
    }
    // A close that failed has closed nothing.
    FOREBAY_ASSERT((mode_ & kFailing) || memory_->open_rights() == 0, "the store holds files open");
  }

 private:
  static SimOptions network_options() {
    SimOptions o;
    o.delay_max = 50us;
    o.pieces_max = 3;
    return o;
  }

  std::unique_ptr<Store> make_store() {
    MemoryOptions options;
    options.limit = 4_MiB;
    auto memory = std::make_unique<MemoryStore>(options);
    memory_ = memory.get();
    if (!(mode_ & (kSlowStore | kFailing))) return memory;
    auto faults = std::make_unique<FaultStore>(
        std::move(memory), 1, [this](Duration d, Task task) { loop_.after(d, std::move(task)); });
    if (mode_ & kFailing) faults->add({.probability = 0.25});
    if (mode_ & kSlowStore) faults->add({.action = FaultRule::Action::delay, .delay = 5ms});
    return faults;
  }

  void connect() {
    client_.reset();
    network_.transport("client")->connect(kServer, loop_, 1s, [this](auto made) {
      client_ = std::make_unique<Client>(std::move(made).value(), given_);
    });
    loop_.run_until([&] { return client_ != nullptr; }, 2s);
  }

  void resume() {
    wire::Hello hello;
    hello.session = given_.welcome.session;
    hello.session_key = given_.welcome.session_key;
    client_->send(wire::encode(hello));
    settle();
  }

  // Longer than the way there and back, shorter than a slow store.
  void settle() { loop_.run_for(500us); }

  static size_t step_size(std::string_view script) {
    const auto bytes = std::as_bytes(std::span(script));
    if (bytes.size() <= wire::kHeaderSize) return bytes.size();
    const auto header = wire::decode_header(bytes.first<wire::kHeaderSize>());
    if (!header) return kMarkSize;
    const uint64_t size = wire::kHeaderSize + header->message_size + header->payload_size;
    return std::min<uint64_t>(size, bytes.size());
  }

  std::string filled_in(std::string_view frame) const {
    const auto bytes = std::as_bytes(std::span(frame));
    if (bytes.size() < wire::kHeaderSize) return std::string(frame);
    const auto header = wire::decode_header(bytes.first<wire::kHeaderSize>());
    if (!header || header->type != wire::FrameType::request ||
        bytes.size() < wire::kHeaderSize + header->message_size) {
      return std::string(frame);
    }
    auto m = wire::decode_request(bytes.subspan(wire::kHeaderSize, header->message_size));
    if (!m || m->bad) return std::string(frame);
    bool filled = fill(m->request.handle, '@', given_.handles);
    filled = fill(m->request.handle2, '@', given_.handles) || filled;
    filled = fill(m->request.right, '#', given_.rights) || filled;
    if (m->request.cookie == kLastLease) {
      m->request.cookie = given_.lease;
      filled = true;
    }
    if (!filled) return std::string(frame);
    return wire::encode(*m, header->payload_size)
        .append(frame.substr(wire::kHeaderSize + header->message_size));
  }

  template <class T>
  static bool fill(T& value, char mark, const std::vector<T>& from) {
    if (value.bytes.size() < 2 || value.bytes[0] != mark) return false;
    size_t n = 0;
    std::from_chars(value.bytes.data() + 1, value.bytes.data() + value.bytes.size(), n);
    if (n >= from.size()) return false;
    value = from[n];
    return true;
  }

  // In the order in which they are built; what comes later goes first.
  const unsigned mode_;
  SimLoop loop_{1};
  SimNetwork network_{loop_, 2, network_options()};
  std::unique_ptr<Transport> server_side_ = network_.transport("server");
  CounterSet counters_;
  MemoryStore* memory_ = nullptr;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Listener> listener_;
  Given given_;
  std::unique_ptr<Client> client_;
};

void run_one(wire::Bytes input) {
  if (input.empty()) return;
  World world(std::to_integer<unsigned>(input[0]));
  world.play({reinterpret_cast<const char*>(input.data()) + 1, input.size() - 1});
  world.end();
}

void make_corpus(const std::filesystem::path& folder) {
  for (const auto& [name, bytes] : seeds()) write_seed(folder / name, bytes);
}

}  // namespace
}  // namespace forebay::fuzz

int main(int argc, char** argv) {
  using namespace forebay;
  return FuzzProgram({"session_fuzz", fuzz::run_one, fuzz::make_corpus}).main(argc, argv);
}
