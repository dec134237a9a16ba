// Helpers of the tests in this folder: ScriptedServer, the other end of a client's connection,
// played by a test frame by frame, and a fixture with a client that talks to it.
//
// One thread, on a SimLoop. It keeps what the client sent, and sends what the test says; nothing is
// answered by itself except, if `welcoming`, hello.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/remote_store.h"
#include "loop/sim_loop.h"
#include "wire/codec.h"

namespace forebay {

class ScriptedServer {
 public:
  struct Frame {
    wire::FrameHeader header;
    std::string message;
    std::string payload;
    wire::Bytes bytes() const { return std::as_bytes(std::span(message)); }
  };

  explicit ScriptedServer(SimLoop& sim) : loop(sim) {
    welcome.session = 7;
    welcome.session_key = "0123456789abcdef";
    welcome.boot = 1;
    welcome.root.bytes = "root";
    welcome.slots = 4;
    welcome.eager_bytes = 1000;
    welcome.eager_max = 600;
    welcome.chunk = 4096;
    welcome.max_list_bytes = 1 << 20;
  }

  SimLoop& loop;
  wire::Welcome welcome;
  bool welcoming = true;
  bool there = true;         // false: connects are refused
  bool hold_sends = false;   // `sent` of payloads does not run until release_sends()
  std::deque<Frame> frames;  // from the client, hellos taken out
  std::vector<wire::Hello> hellos;
  unsigned connects = 0;

  RemoteRuntime runtime() {
    RemoteRuntime r;
    r.loop = &loop;
    r.make_transport = [this](Loop&) { return std::make_unique<FakeTransport>(*this); };
    return r;
  }

  bool connected() const { return connection_ != nullptr; }

  // Sends a frame to the client.
  void deliver(std::string head, std::string payload = {}) {
    ASSERT_TRUE(connection_) << "the client is not connected";
    loop.post([this, c = connection_, head = std::move(head), payload = std::move(payload)] {
      if (c == connection_) c->receive(head, payload);
    });
    settle();
  }
  void reply(const wire::RequestId& id, Result<Reply>&& result, std::string payload = {}) {
    deliver(wire::encode(wire::ReplyMessage{id, std::move(result)},
                         static_cast<uint32_t>(payload.size())),
            payload);
  }
  void cut() {
    if (connection_) connection_->close(Error(ECONNRESET, "cut by the test"));
    settle();
  }
  void release_sends() {
    hold_sends = false;
    for (auto& sent : std::exchange(held_, {})) sent({});
    settle();
  }

  // Runs what is ready, and a few milliseconds more.
  void settle() { loop.run_for(std::chrono::milliseconds(5)); }

  Frame take() {
    settle();
    if (frames.empty()) {
      ADD_FAILURE() << "the client sent nothing";
      return {};
    }
    Frame f = std::move(frames.front());
    frames.pop_front();
    return f;
  }
  wire::RequestMessage take_request(std::string* payload = nullptr) {
    Frame f = take();
    EXPECT_EQ(f.header.type, wire::FrameType::request);
    if (payload) *payload = f.payload;
    auto r = wire::decode_request(f.bytes());
    EXPECT_TRUE(r.has_value());
    return r ? std::move(*r) : wire::RequestMessage{};
  }

 private:
  class FakeConnection final : public Connection {
   public:
    explicit FakeConnection(ScriptedServer& server) : server_(server) {}
    ~FakeConnection() override {
      if (server_.connection_ == this) server_.connection_ = nullptr;
    }
    void start(ConnectionHandler& handler) override { handler_ = &handler; }
    void send(std::string head, Memory payload, Sent sent) override {
      if (closing_) {
        if (sent) sent(Error(EPIPE));
        return;
      }
      server_.receive(*this, head, payload, std::move(sent));
    }
    uint64_t unsent() const override { return 0; }
    void close(Error why) override {
      if (closing_) return;
      closing_ = true;
      server_.connection_ = nullptr;
      server_.loop.post([this, alive = std::weak_ptr<int>(alive_), why] {
        if (alive.expired()) return;
        for (auto& sent : std::exchange(server_.held_, {})) sent(why);
        handler_->on_closed(why);
      });
    }
    const Peer& peer() const override { return peer_; }
    Loop& loop() override { return server_.loop; }

    void receive(const std::string& head, const std::string& payload) {
      const auto bytes = std::as_bytes(std::span(head));
      const auto header = wire::decode_header(bytes.first<wire::kHeaderSize>());
      Result<Memory> to = handler_->on_message(*header, bytes.subspan(wire::kHeaderSize));
      if (!to) return close(to.error());
      if (payload.empty()) return;
      ASSERT_EQ(to->shape.total().value, payload.size());
      copy_in(std::as_bytes(std::span(payload)), *to);
      handler_->on_payload();
    }

   private:
    void do_move(std::unique_ptr<Connection>, Loop&, Moved) override {}
    ScriptedServer& server_;
    ConnectionHandler* handler_ = nullptr;
    bool closing_ = false;
    Peer peer_;
    std::shared_ptr<int> alive_ = std::make_shared<int>();
  };

  class FakeTransport final : public Transport {
   public:
    explicit FakeTransport(ScriptedServer& server) : server_(server) {}
    Result<std::unique_ptr<Listener>> listen(const Address&, Loop&, Accept) override {
      return Error(ENOTSUP);
    }
    void connect(const Address&, Loop& loop, Duration, Connected done) override {
      ++server_.connects;
      loop.post([&server = server_, done = std::make_shared<Connected>(std::move(done))] {
        if (!server.there) return (*done)(Error(ECONNREFUSED));
        auto connection = std::make_unique<FakeConnection>(server);
        server.connection_ = connection.get();
        (*done)(std::unique_ptr<Connection>(std::move(connection)));
      });
    }

   private:
    ScriptedServer& server_;
  };

  void receive(FakeConnection& from, const std::string& head, const Memory& payload,
               Connection::Sent sent) {
    const auto header =
        wire::decode_header(std::as_bytes(std::span(head)).first<wire::kHeaderSize>());
    Frame f{*header, head.substr(wire::kHeaderSize), std::string(header->payload_size, '\0')};
    EXPECT_EQ(payload.shape.total().value, header->payload_size);
    copy_out(payload, std::as_writable_bytes(std::span(f.payload)));
    if (header->type == wire::FrameType::hello) {
      hellos.push_back(wire::decode_hello(f.bytes()).value());
      if (welcoming) {
        loop.post([this, c = &from] {
          if (c == connection_) c->receive(wire::encode(welcome), {});
        });
      }
    } else {
      frames.push_back(std::move(f));
    }
    if (!sent) return;
    if (hold_sends && header->payload_size != 0) {
      held_.push_back(std::move(sent));
    } else {
      sent({});
    }
  }

  FakeConnection* connection_ = nullptr;
  std::vector<Connection::Sent> held_;
};

// A RemoteStore that talks to a ScriptedServer.
class ClientFixture : public ::testing::Test {
 protected:
  struct Answer {
    std::optional<Result<Reply>> result;
    bool ok() const { return result && result->has_value(); }
    int code() const { return result && !*result ? result->error().code() : 0; }
    bool unknown() const { return result && !*result && result->error().is_outcome_unknown(); }
  };

  ~ClientFixture() override { finish(); }

  void connect(Duration retry_for = std::chrono::seconds(60)) {
    RemoteOptions options;
    options.address = [this]() -> Result<Address> {
      ++addresses_asked;
      return Address{Address::Kind::simulated, "server", 0};
    };
    options.export_name = "data";
    options.retry_for = retry_for;
    options.job = "job 1";
    store = RemoteStore::connect(options, server.runtime()).value();
  }
  // Answers everything that is left, so that the store can end.
  void finish() {
    if (!store) return;
    server.there = server.welcoming = false;
    server.cut();
    store.reset();
  }

  std::shared_ptr<Answer> submit(Request request) {
    auto answer = std::make_shared<Answer>();
    if (!request.caller) request.caller = this_process_caller();
    order.push_back(answer);
    store->submit(std::move(request), [answer](Result<Reply>&& r) {
      EXPECT_FALSE(answer->result) << "completed twice";
      answer->result = std::move(r);
    });
    return answer;
  }

  static Request getattr(std::string handle = "file") {
    Request r;
    r.op = Op::getattr;
    r.handle.bytes = std::move(handle);
    return r;
  }
  static Request remove(std::string name) {
    Request r;
    r.op = Op::remove;
    r.handle.bytes = "folder";
    r.name = std::move(name);
    return r;
  }
  static Request data(Op op, Extents file, Memory memory) {
    Request r;
    r.op = op;
    r.handle.bytes = "file";
    r.right.bytes = "right";
    r.file = std::move(file);
    r.memory = std::move(memory);
    return r;
  }
  static Request data(Op op, uint64_t at, std::string& bytes) {
    return data(op, Extents(Extent{Offset(at), Length(bytes.size())}),
                Memory::of(std::as_writable_bytes(std::span(bytes))));
  }
  static std::string pattern(size_t n) {
    std::string s(n, '\0');
    for (size_t i = 0; i < n; ++i) s[i] = static_cast<char>('a' + i * 7 % 26);
    return s;
  }
  static Reply counted(uint64_t n) {
    Reply r;
    r.count = n;
    return r;
  }

  SimLoop loop{1};
  ScriptedServer server{loop};
  std::unique_ptr<RemoteStore> store;
  unsigned addresses_asked = 0;
  std::vector<std::shared_ptr<Answer>> order;
};

}  // namespace forebay
