// Test helpers: a server on the simulated loop and network, and a client that speaks raw frames and
// does as much, or as wrong, as a test wants. It is no client library: no reconnecting by itself,
// no credits, no order but what the test says.
#pragma once

#include <fmt/format.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/testing.h"
#include "loop/sim_loop.h"
#include "server/server.h"
#include "store/fault.h"
#include "store/memory.h"
#include "transport/sim_transport.h"
#include "wire/codec.h"

namespace forebay::server {

using namespace std::chrono_literals;

inline std::string pattern(uint64_t seed, size_t size) {
  std::mt19937_64 random(seed);
  std::string out(size, '\0');
  for (size_t i = 0; i < size; ++i) {
    out[i] = static_cast<char>(i % 8 == 0 ? random() : random() >> 32);
  }
  return out;
}

inline std::string numbered(const char* name, int number) {
  return fmt::format("{}{}", name, number);
}

inline std::span<const std::byte> bytes_of(const std::string& s) {
  return std::as_bytes(std::span(s));
}

// Runs the loop until pred() holds; false if `limit` passed, or nothing is left to run.
template <class Pred>
bool run_until(Loop& loop, Pred&& pred, Duration limit) {
  const Time end = loop.now() + limit;
  while (!pred()) {
    const Time before = loop.now();
    if (before >= end) return false;
    if (!loop.run_one(end - before) && loop.now() == before) return pred();
  }
  return true;
}

class RawClient final : public ConnectionHandler {
 public:
  struct Call {
    wire::RequestMessage message;
    std::string data;          // the stream of a write
    std::vector<Extent> list;  // of a list to be pulled
    std::string in;            // the stream of a read
    std::optional<Result<Reply>> result;
    unsigned pulls = 0, replies = 0;

    bool done() const { return result.has_value(); }
    const Reply& reply() const { return result->value(); }
    int error() const { return *result ? 0 : result->error().code(); }
  };
  using CallRef = std::shared_ptr<Call>;

  RawClient(SimLoop& loop, SimNetwork& network, std::string host,
            std::optional<Peer> identity = std::nullopt)
      : RawClient(loop, identity ? network.transport(host, *identity) : network.transport(host),
                  *Address::parse("sim:server"), host) {}
  RawClient(Loop& loop, std::unique_ptr<Transport> transport, Address server, std::string host)
      : loop_(loop), transport_(std::move(transport)), server_(std::move(server)) {
    hello.export_name = "main";
    hello.host = std::move(host);
    hello.program = "raw";
  }

  wire::Hello hello;
  wire::Welcome welcome;
  bool auto_pull = true;     // answer pulls
  bool auto_release = true;  // answer recalls
  bool greeted = false, goodbye = false, written = false, closed = false;
  std::optional<Error> refused;
  std::optional<Result<std::string>> control_reply;
  std::deque<wire::Pull> pulls;  // seen and, without auto_pull, not answered
  std::vector<uint64_t> recalls;

  // Connects and says hello; false if it was refused or lost.
  bool connect() {
    greeted = closed = false;
    refused.reset();
    bool failed = false;
    transport_->connect(server_, loop_, 1s, [&](Result<std::unique_ptr<Connection>> made) {
      if (!made) return void(failed = true);
      connection_ = std::move(*made);
      connection_->start(*this);
      connection_->send(wire::encode(hello));
    });
    run_until(
        loop_, [&] { return greeted || closed || failed; }, 30s);
    return greeted;
  }
  // Comes back after a lost connection, and sends again what is unanswered.
  bool resume() {
    connection_.reset();
    hello.session = welcome.session;
    hello.session_key = welcome.session_key;
    if (!connect()) return false;
    if (welcome.resumed) {
      for (const CallRef& call : unanswered()) transmit(*call);
    }
    return true;
  }
  std::vector<CallRef> unanswered() const {
    std::vector<CallRef> out;
    for (const auto& call : order_) {
      if (!call->done()) out.push_back(call);
    }
    return out;
  }

  // Sends on a free slot. Small writes go eagerly unless `bulk`.
  CallRef send(Request request, std::string data = {}, bool bulk = false) {
    auto call = std::make_shared<Call>();
    call->data = std::move(data);
    call->message.request = std::move(request);
    auto& m = call->message;
    m.total = m.request.file.total().value;
    m.eager = m.request.op == Op::write && m.total <= welcome.eager_max && !bulk;
    return send(std::move(call));
  }
  CallRef send(CallRef call) {
    auto& m = call->message;
    for (uint16_t slot = 0; m.id.sequence == 0; ++slot) {
      if (slot >= slots_.size()) slots_.resize(slot + 1u);
      if (slots_[slot].second && !slots_[slot].second->done()) continue;
      m.id = {slot, ++slots_[slot].first};
      slots_[slot].second = call;
    }
    if (m.request.op == Op::read) call->in.assign(m.total, '\0');
    calls_[{m.id.slot, m.id.sequence}] = call;
    order_.push_back(call);
    transmit(*call);
    return call;
  }
  // A request whose list of extents is pulled.
  CallRef send_list(Request request, std::vector<Extent> list, std::string data,
                    bool eager = false) {
    auto call = std::make_shared<Call>();
    auto& m = call->message;
    m.request = std::move(request);
    m.list_blocks = list.size();
    const Extents made = *Extents::make(list);
    m.total = made.total().value;
    m.list_bounds = made.bounds();
    m.eager = eager;
    call->list = std::move(list);
    call->data = std::move(data);
    return send(std::move(call));
  }
  void transmit(Call& call) {
    const auto& m = call.message;
    if (m.eager) {
      const auto size = static_cast<uint32_t>(call.data.size());
      connection_->send(wire::encode(m, size), Memory::of(bytes_of(call.data)));
    } else {
      connection_->send(wire::encode(m));
    }
  }
  void send_raw(std::string head, const std::string& payload = {}) {
    raw_.push_back(payload);
    connection_->send(std::move(head), Memory::of(bytes_of(raw_.back())));
  }

  Call& wait(const CallRef& call, Duration most = 100s) {
    run_until(
        loop_, [&] { return call->done() || closed; }, most);
    return *call;
  }
  CallRef call(Request request, std::string data = {}, bool bulk = false) {
    auto sent = send(std::move(request), std::move(data), bulk);
    wait(sent);
    return sent;
  }

  void answer(const wire::Pull& pull) {
    Call& call = *calls_.at({pull.id.slot, pull.id.sequence});
    ++call.pulls;
    std::span<const std::byte> from = bytes_of(call.data);
    if (pull.part == wire::Part::list) {
      const auto inside = call.message.request.file.blocks();
      if (call.list.empty()) call.list.assign(inside.begin(), inside.end());
      raw_.emplace_back(call.list.size() * wire::kBlockBytes, '\0');
      wire::encode_blocks(call.list, std::as_writable_bytes(std::span(raw_.back())));
      from = bytes_of(raw_.back());
    }
    connection_->send(wire::encode(wire::Data{pull.id, pull.part, pull.position}, pull.length),
                      Memory::of(from.subspan(pull.position, pull.length)));
  }

  void hang_up() { connection_.reset(); }
  Connection* connection() { return connection_.get(); }

  Result<Memory> on_message(const wire::FrameHeader& header,
                            std::span<const std::byte> message) override {
    landing_.reset();
    switch (header.type) {
      case wire::FrameType::welcome:
        welcome = *wire::decode_welcome(message);
        greeted = true;
        return Memory{};
      case wire::FrameType::refused:
        refused = wire::decode_refused(message)->why;
        return Memory{};
      case wire::FrameType::goodbye:
        goodbye = true;
        written = wire::decode_goodbye(message)->written;
        return Memory{};
      case wire::FrameType::control_reply:
        control_reply = wire::decode_control_reply(message)->json;
        return Memory{};
      case wire::FrameType::pull:
        pulls.push_back(*wire::decode_pull(message));
        if (auto_pull) answer(pulls.back()), pulls.pop_back();
        return Memory{};
      case wire::FrameType::recall:
        recalls.push_back(wire::decode_recall(message)->lease);
        if (auto_release) connection_->send(wire::encode(wire::Released{recalls.back()}));
        return Memory{};
      case wire::FrameType::data: {
        const wire::Data data = *wire::decode_data(message);
        Call& call = *calls_.at({data.id.slot, data.id.sequence});
        return Memory::of(
            std::as_writable_bytes(std::span(call.in)).subspan(data.position, header.payload_size));
      }
      case wire::FrameType::reply:
        return on_reply(*wire::decode_reply(message), header.payload_size);
      default:
        return Error(EPROTO, "unexpected frame");
    }
  }
  void on_payload() override {
    if (landing_) landing_->first->result = std::move(landing_->second);
    landing_.reset();
  }
  void on_closed(const Error&) override {
    closed = true;
    landing_.reset();
  }

 private:
  Result<Memory> on_reply(wire::ReplyMessage reply, uint32_t payload) {
    const CallRef& call = calls_.at({reply.id.slot, reply.id.sequence});
    ++call->replies;
    if (payload == 0) return call->result = std::move(reply.result), Memory{};
    landing_.emplace(call, std::move(reply.result));
    return Memory::of(std::as_writable_bytes(std::span(call->in)).first(payload));
  }

  Loop& loop_;
  std::unique_ptr<Transport> transport_;
  const Address server_;
  std::deque<std::string> raw_;  // payloads on their way
  std::vector<std::pair<uint64_t, CallRef>> slots_;
  std::map<std::pair<uint16_t, uint64_t>, CallRef> calls_;
  std::vector<CallRef> order_;
  std::optional<std::pair<CallRef, Result<Reply>>> landing_;
  std::unique_ptr<Connection> connection_;
};

// A server with one export, "main", on a MemoryStore under a FaultStore.
class SimServer {
 public:
  explicit SimServer(uint64_t seed, ServerOptions options = generous(),
                     ExportOptions exported = small(), SimOptions network = {})
      : seed_(seed), loop(seed), net(loop, seed + 1, network), options_(std::move(options)) {
    start(std::move(exported));
  }
  ~SimServer() { crash(); }

  // Raw clients do not count their eager bytes.
  static ServerOptions generous() {
    ServerOptions o;
    o.eager_shares = 1;
    return o;
  }
  static ExportOptions small() {
    ExportOptions o;
    o.name = "main";
    o.pool = 256_KiB;
    o.chunk = 16_KiB;
    return o;
  }

  // One call of the Store for each chunk or request, in order: for tests that count calls.
  static ExportOptions unmerged() {
    ExportOptions o = small();
    o.scheduler.policy = SchedulerOptions::Policy::fifo;
    return o;
  }

  void start(ExportOptions exported = small()) {
    server = std::make_unique<Server>(options_, loop, std::vector<Loop*>{&loop}, counters);
    auto fault = std::make_unique<FaultStore>(
        make_memory(), seed_ + 2,
        [this](Duration d, Task task) { loop.after(d, std::move(task)); });
    store = fault.get();
    FOREBAY_ASSERT(server->add_export(std::move(exported), std::move(fault)).has_value());
    transport_ = net.transport("server");
    auto made =
        transport_->listen(*Address::parse("sim:server"), loop,
                           [this](std::unique_ptr<Connection> c) { server->accept(std::move(c)); });
    listener_ = std::move(*made);
  }
  void crash() {
    listener_.reset();
    store = nullptr;
    memory = nullptr;
    server.reset();
  }

  std::unique_ptr<RawClient> client(std::string host = "client",
                                    std::optional<Peer> identity = std::nullopt) {
    auto made = std::make_unique<RawClient>(loop, net, std::move(host), std::move(identity));
    FOREBAY_ASSERT(made->connect(), "connect to the simulated server");
    return made;
  }

 private:
  uint64_t seed_;

 public:
  SimLoop loop;
  SimNetwork net;
  CounterSet counters;
  MemoryStore* memory = nullptr;
  FaultStore* store = nullptr;
  std::unique_ptr<Server> server;

 private:
  std::unique_ptr<Store> make_memory() {
    auto made = std::make_unique<MemoryStore>();
    memory = made.get();
    return made;
  }

  ServerOptions options_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Listener> listener_;
};

// ---- Requests ----

struct OpenFile {
  Handle handle;
  Right right;
};

inline Request request(Op op, Handle handle, std::string name = {}) {
  Request r;
  r.op = op;
  r.handle = std::move(handle);
  r.name = std::move(name);
  return r;
}
inline OpenFile create(RawClient& client, const std::string& name) {
  Request r = request(Op::create, client.welcome.root, name);
  r.mode = 0644;
  r.access = Access::both;
  const auto made = client.call(std::move(r));
  return {made->reply().handle, made->reply().right};
}
inline Request data_request(Op op, const OpenFile& file, Extents extents) {
  Request r = request(op, file.handle);
  r.right = file.right;
  r.file = std::move(extents);
  return r;
}
inline Extents range(uint64_t offset, uint64_t length) {
  return Extents(Extent{Offset(offset), Length(length)});
}
inline std::string read_back(RawClient& client, const OpenFile& file, uint64_t size) {
  const auto got = client.call(data_request(Op::read, file, range(0, size)));
  return got->in.substr(0, got->reply().count);
}

}  // namespace forebay::server
