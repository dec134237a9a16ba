// Link: the connection to a server, made again whenever it is lost and somebody waits for it.
//
// It finds the address, connects, says hello (with the session to resume, if there is one) and
// hands over every frame after `welcome`. A lost connection is tried again at once, then after 10
// ms and twice as long each time up to 1 s, for `retry_for`; then it gives up, and the next that
// wants it gets a single attempt. While nobody waits it does nothing: a client without a thread
// could not.
//
// Threads: everything on the loop, except descriptor().
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "client/remote_store.h"
#include "transport/transport.h"
#include "wire/codec.h"

namespace forebay {

class Link final : private ConnectionHandler {
 public:
  class User {
   public:
    virtual ~User() = default;
    // Welcomed: frames may be sent. `resumed`: the session is the one before, with all it had.
    virtual void on_up(const wire::Welcome& welcome, bool resumed) = 0;
    virtual Result<Memory> on_frame(const wire::FrameHeader& header,
                                    std::span<const std::byte> message) = 0;
    virtual void on_payload() = 0;
    virtual void on_posts(uint64_t bits) = 0;
    // We are about to close it: before the other end can know.
    virtual void on_parting() = 0;
    // The connection is gone and no send is under way. `farewell`: the server said goodbye, so what
    // it had not answered was not begun, and its session is over; `written`: and it has written
    // all that it had acknowledged.
    virtual void on_down(bool farewell, bool written) = 0;
    // Nothing more is tried; the session is over. The error is for those who waited.
    virtual void on_give_up(const Error& why) = 0;
    virtual bool waiting() const = 0;  // does anybody need the connection?
  };

  // `patient`: keep trying for retry_for from the start; otherwise only once it has been up.
  Link(Loop& loop, Transport& transport, const RemoteOptions& options, User& user, bool patient);
  ~Link() override;

  bool up() const { return state_ == State::up; }
  bool trying() const { return state_ != State::up && state_ != State::idle; }
  // Somebody waits who did not before: connects if it is not up, at once.
  void want();
  // Up only.
  void send(std::string head, Memory payload = {}, Connection::Sent sent = {});
  void post(uint64_t bits) { connection_->post(bits); }
  Fd take_handed(uint64_t inode) { return connection_ ? connection_->take_handed(inode) : Fd(); }
  // Says goodbye if it is up; what that left unsent is in unsent().
  void leave();
  uint64_t unsent() const;
  // The memory that this connection shares with the server; null: none.
  std::shared_ptr<SharedRegion> shared() const {
    return connection_ ? connection_->shared() : nullptr;
  }

  const CallerRef& self() const { return self_; }  // this process, as its connection shows it
  uint64_t connects() const { return connects_; }

  // The socket, for a forked child to close, or -1 if that number means something else by now: the
  // child may have closed or replaced it. Any thread.
  int descriptor() const;

 private:
  enum class State { idle, connecting, greeting, up, closing, pausing };

  void remember_socket();
  Result<Memory> on_message(const wire::FrameHeader& header,
                            std::span<const std::byte> message) override;
  Result<Memory> take(const wire::FrameHeader& header, std::span<const std::byte> message);
  void on_payload() override { user_.on_payload(); }
  void on_posts(uint64_t bits) override;
  void on_closed(const Error& why) override;

  void attempt();
  void connected(std::unique_ptr<Connection> connection);
  void greet();
  Result<void> welcomed(std::span<const std::byte> message);
  void failed(const Error& why);
  void turned_away(const Error& why);
  void pause(Duration most);
  void give_up(const Error& why);
  void set_timer(Duration d, Task then);
  void clear_timer();
  Error unreachable(const Error& why) const;

  Loop& loop_;
  Transport& transport_;
  const RemoteOptions& options_;
  User& user_;

  State state_ = State::idle;
  std::unique_ptr<Connection> connection_;
  std::atomic<int> descriptor_{-1};
  std::atomic<uint64_t> device_{0}, inode_{0};  // of the socket; set before its descriptor
  std::string address_;                         // last tried; empty: there is none to try
  CallerRef self_;
  std::optional<Loop::TimerId> timer_;

  uint64_t session_ = 0;  // to resume
  std::string session_key_;

  bool patient_;
  bool farewell_ = false;         // this connection: the server said goodbye
  bool written_ = false;          // and has written all
  bool progress_ = false;         // this connection: it was worth having, so the outage is over
  std::optional<Error> refusal_;  // this connection: the server said why it closes
  Time outage_start_;
  Time up_since_;
  Duration backoff_{0};
  uint64_t connects_ = 0;

  // Answers of the transport that come after our end find it expired.
  std::shared_ptr<Link*> alive_ = std::make_shared<Link*>(this);
};

}  // namespace forebay
