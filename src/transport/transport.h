// Transport: connections that carry frames (wire/frame.h) between a client and a server, and
// nothing about what they mean. TCP and Unix sockets are one implementation (socket_transport.h),
// the simulated one another (sim_transport.h); shared memory and libfabric fit behind the same
// interface: the server says where a payload goes before it is received, so bulk data is pulled and
// pushed straight into its buffers.
//
// Threads: a Connection belongs to one Loop. Every method and every handler call happens on it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "core/callback.h"
#include "core/fd.h"
#include "core/memory.h"
#include "core/op.h"
#include "core/result.h"
#include "loop/loop.h"
#include "wire/frame.h"

namespace forebay {

class SharedPages;
class SharedRegion;

// A place to connect to or listen on: "unix:/path", "tcp:127.0.0.1:4711", "sim:name".
struct Address {
  enum class Kind { unix_socket, tcp, simulated } kind = Kind::unix_socket;
  std::string host;   // a path for unix, a name for simulated
  uint16_t port = 0;  // tcp: 0 listens on an ephemeral port

  static Result<Address> parse(std::string_view text);
  std::string text() const;
  bool operator==(const Address&) const = default;
};

// Who is at the other end, as far as the kernel vouches for it, or the key that it has proved.
struct Peer {
  CallerRef caller;                   // null: unknown; by key: as it says itself
  int pid = 0;                        // 0: unknown
  bool may_speak_for_others = false;  // root on a Unix socket; root, or another server, by key
  std::string where;                  // for people: "unix, pid 4711", "tcp 127.0.0.1:39211"
  enum class Proof : uint8_t { none, client, server } proof = Proof::none;  // of the key, as what
};

// What a Connection tells its user. All on the connection's loop.
class ConnectionHandler {
 public:
  virtual ~ConnectionHandler() = default;

  // A frame's header and message have arrived; `message` is valid during the call only. If
  // header.payload_size is not 0, returns where the payload goes: memory of exactly that size,
  // which stays valid until on_payload or on_closed. An error closes the connection with it.
  virtual Result<Memory> on_message(const wire::FrameHeader& header,
                                    std::span<const std::byte> message) = 0;
  // The payload of the last message has landed whole.
  virtual void on_payload() = 0;
  // The other end has posted these bits; in no order with its frames.
  virtual void on_posts(uint64_t) {}

  // The connection is gone, once, last; no send is under way any more. May destroy the connection.
  virtual void on_closed(const Error& why) = 0;
};

class Connection {
 public:
  // Closes without a call to on_closed; the `sent` of what was not sent is dropped, not called.
  virtual ~Connection() = default;

  // Begins to deliver frames. Handler must outlive the connection or its on_closed.
  virtual void start(ConnectionHandler& handler) = 0;

  // Sends a frame: `head` is the encoded header and message; `payload` follows it and stays
  // untouched until `sent` runs (with an error if the connection closed first). Frames go out in
  // order, none interleaved. `sent` may be empty, and may run inside send(). Small frames sent in
  // one turn of the loop go out together where that saves a system call.
  using Sent = Callback<void(Result<void>)>;
  virtual void send(std::string head, Memory payload = {}, Sent sent = {}) = 0;

  // Tells the other end, if it shares memory with this one, of what lies there: which places the
  // bits stand for is between the handlers.
  virtual void post(uint64_t) {}

  // Gives a copy of the descriptor to the other end, if it shares memory with this one, before the
  // frames that follow. False: it cannot be. The other end may still not get it (it has too many),
  // and takes it by its inode, which those frames may tell; a few wait for that.
  virtual bool hand(int) { return false; }
  virtual Fd take_handed(uint64_t) { return {}; }

  // The next frame will come in some 50 us, and so may the answer to it: whoever would have to be
  // woken for it may be woken now. Does nothing where that costs more than it gains.
  virtual void announce() {}

  // Bytes handed to send() that the kernel has not taken yet.
  virtual uint64_t unsent() const = 0;

  // Closes at once, dropping what was not sent; on_closed(why) follows from the loop.
  virtual void close(Error why) = 0;

  // Moves the connection to another loop: nothing is delivered on this one any more, and `moved`
  // runs on the new one, where start() sets the handler anew. Called from a task of the old loop,
  // never inside a handler call, with no send under way. Bytes already received are kept; a payload
  // that is coming goes on landing in its memory, and the new handler hears of it.
  using Moved = Callback<void(std::unique_ptr<Connection>)>;
  static void move(std::unique_ptr<Connection> connection, Loop& to, Moved moved) {
    Connection& c = *connection;
    c.do_move(std::move(connection), to, std::move(moved));
  }

  virtual const Peer& peer() const = 0;
  virtual Loop& loop() = 0;

  // The socket, so that a forked child can close its copy; -1: there is none.
  virtual int descriptor() const { return -1; }

  // Memory that both ends see (shared_region.h), for bulk data; null: there is none. Known from the
  // first message on.
  virtual std::shared_ptr<SharedRegion> shared() const { return nullptr; }

 private:
  virtual void do_move(std::unique_ptr<Connection> self, Loop& to, Moved moved) = 0;
};

class Listener {
 public:
  virtual ~Listener() = default;               // stops listening; unlinks a Unix socket it made
  virtual const Address& address() const = 0;  // with the real port
};

class Transport {
 public:
  virtual ~Transport() = default;

  // Accepted connections are bound to `loop`, not started. EADDRINUSE names the address.
  using Accept = Callback<void(std::unique_ptr<Connection>)>;
  virtual Result<std::unique_ptr<Listener>> listen(const Address& address, Loop& loop,
                                                   Accept accept) = 0;

  // `done` runs on the loop, at most `timeout` later.
  using Connected = Callback<void(Result<std::unique_ptr<Connection>>)>;
  virtual void connect(const Address& address, Loop& loop, Duration timeout, Connected done) = 0;

  // Connections made from now on lend this memory to servers that can share memory: requests name
  // places in it (wire::RequestMessage::place) instead of carrying data. Others do not care.
  virtual void lend(std::shared_ptr<SharedPages>) {}
};

}  // namespace forebay
