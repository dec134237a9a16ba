// Lobby: the inside of a Server. Accepts connections, shakes hands, finds or makes the session of a
// client and moves the connection to that session's loop; answers control requests; stops orderly.
//
// Lives on the lobby loop and calls no Store. Sessions are told things by tasks posted to their
// loops, and answer with tasks posted here.
//
// Invariants:
//  1. `sessions_` holds a session until nothing of it is left (News::gone); it can be resumed until
//     it has ended.
//  2. `eager_left_` and the eager credits of the sessions add up to eager_total.
//  3. Sessions that have ended take nobody's place. If there are more of them than there may be
//     sessions, of a user too, the oldest ones' rights are closed. If there are twice as many,
//     because a Store does not answer, there is no place for new sessions.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/export.h"
#include "server/server.h"
#include "server/session.h"

namespace forebay::server {

class Lobby : public std::enable_shared_from_this<Lobby> {
 public:
  Lobby(ServerOptions options, Loop& loop, std::vector<Loop*> workers, CounterSet& counters);
  ~Lobby();  // drops what is left

  Result<void> add_export(ExportOptions options, std::unique_ptr<Store> store);
  void accept(std::unique_ptr<Connection> connection);
  void stop(Duration most, Callback<void()> done);
  std::string status() const;

  Callback<void()> on_stop_request;

 private:
  // A connection that is not a session's: before its hello, or for control.
  class Guest;
  friend class Guest;

  struct Record {
    std::shared_ptr<Session> session;
    std::shared_ptr<SessionInfo> info;
    CallerRef caller;
    std::string key;
    std::string where;
    uint32_t eager = 0;
    bool resumable = true;
    bool relayed = false;
    uint64_t ended = 0;         // of those that have: in which order
    bool keeps_rights = false;  // and does nothing else
  };

  Result<void> welcome_peer(const Peer& peer, const wire::Hello& hello) const;
  // The session that the hello is for, found or made; `resumed` says which.
  Result<uint64_t> find_or_make(const Peer& peer, const wire::Hello& hello, bool& resumed);
  // May it relay, if that is what it wants? (server/relay.h)
  Result<void> check_relay(const Peer& peer, const wire::Hello& hello) const;
  Result<uint64_t> make_session(const Peer& peer, const wire::Hello& hello, uint16_t version);
  Result<std::shared_ptr<Export>> find_export(const std::string& name) const;
  Result<void> room_for(const Peer& peer) const;
  struct Count {
    size_t all = 0, of_user = 0;
  };
  Count count(uint32_t uid, bool resumable) const;
  unsigned most_of_user() const;
  void close_oldest_rights(uint32_t uid);
  bool may_resume(const Record& record, const Peer& peer, const wire::Hello& hello) const;
  void seat(std::unique_ptr<Connection> connection, uint64_t id, bool resumed, wire::Hello hello);
  void seat_again(std::unique_ptr<Connection> connection, wire::Hello hello);
  Guest& receive(std::unique_ptr<Connection> connection);
  void leave_guests(uint64_t guest, wire::Hello hello);
  Result<std::string> control(const Peer& peer, const std::string& verb);
  void hear(uint64_t id, Session::Parts::News news);
  void stopped_if_empty();
  void drain();
  void stopped_if_drained();

  const std::shared_ptr<const ServerOptions> options_;
  const uint64_t boot_;
  Loop& loop_;
  const std::vector<Loop*> workers_;
  CounterSet& counters_;
  const Time started_;
  std::vector<std::shared_ptr<Export>> exports_;
  std::unordered_map<uint64_t, std::unique_ptr<Guest>> guests_;  // by number, never reused
  uint64_t next_guest_ = 1;
  std::map<uint64_t, Record> sessions_;
  uint64_t next_session_ = 1;
  uint64_t ends_ = 0;
  size_t next_worker_ = 0;
  uint64_t eager_left_;
  bool stopping_ = false;
  bool draining_ = false;  // all sessions are gone
  size_t undrained_ = 0;   // exports that still write
  Callback<void()> stopped_;
  Loop::TimerId stop_timer_ = 0;
};

}  // namespace forebay::server
