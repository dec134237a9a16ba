// SharedWorld: a real server on a thread of its own, over a Unix socket and shared memory; a
// hostile client that plays a program; and two honest ones. One of these works beside the hostile
// client, the other asks for a round trip when the program is over. What they wrote is what they
// read, and when all are gone the server holds nothing: no session, flight, reservation, buffer,
// open file, descriptor or mapping.
//
// A program is one byte of Mode bits, one that says what is offered at first, and steps of six
// bytes: what to do, Operands (hostile.h) in little endian. What lacks at the end is zero.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "client/remote_store.h"
#include "core/testing.h"
#include "hostile.h"
#include "loop/epoll_loop.h"
#include "loop/loop_thread.h"
#include "server/server.h"
#include "store/memory.h"
#include "transport/socket_transport.h"

namespace forebay::fuzz {

enum SharedMode : unsigned char {
  kRush = 1,          // nothing waits for the server but what says so
  kSlow = 2,          // calls of the store take a while
  kPosix = 4,         // the store is a directory; if slow as well, with direct I/O
  kStubborn = 8,      // when refused it does not come back by itself
  kUnannounced = 16,  // it begins without a hello
  kRestless = 32,     // what it shares for data changes all the time; if stubborn, the rings too
  // Two bits more are the server's pipeline.
};

enum class Step : uint8_t {
  write,
  read,
  write_list,
  read_list,
  commit,
  close,
  answer,
  take,
  cancel,
  listen,
  settle,  // until the server has looked
  wait,    // longer than the store takes
  honest,  // the honest client beside it begins something
  set_word,
  scribble_ring,
  scribble_area,
  scribble_lent,
  box,
  raw,  // bytes of the program that follow
  bell,
  socket_bytes,
  punch,
  truncate,
  quiet,
  connect,  // anew; the session is resumed, or not
  hello,
  create,
  goodbye,
  hang_up,
  shortcut,
  open_honest,  // the file of an honest client, to read it
  count
};

inline constexpr size_t kStepSize = 6;
inline constexpr size_t kMaxSteps = 300, kMaxWaits = 10;

// An honest client with a file of its own, and what must be in it.
class Honest {
 public:
  Honest(const Address& server, const std::string& name);
  ~Honest();

  void begin_write(const Operands& x);  // does not wait for it
  void verify();                        // waits for all, and reads
  void round_trip();

 private:
  void submit(Op op, uint64_t at, std::shared_ptr<std::string> bytes, bool lent);
  void settle();

  std::unique_ptr<RemoteStore> store_;
  CallerRef caller_ = this_process_caller();
  Handle handle_;
  Right right_;
  std::string content_;
  std::mutex mutex_;
  std::condition_variable changed_;
  unsigned under_way_ = 0;
};

class SharedWorld {
 public:
  explicit SharedWorld(unsigned mode);
  ~SharedWorld();

  void play(std::span<const std::byte> steps);
  void begin(uint8_t offer) { hostile_.begin(kind_of(offer), offer / 16, false); }
  // The honest clients are well, and when everybody has gone nothing is left.
  void end();
  Hostile& hostile() { return hostile_; }

 private:
  static OfferKind kind_of(uint8_t offer) {
    return static_cast<OfferKind>(offer % static_cast<uint8_t>(OfferKind::count));
  }
  std::unique_ptr<Store> make_store();
  void step(Step what, const Operands& x, std::span<const std::byte>& rest);
  bool hostile_step(Step what, const Operands& x);
  void settle();
  void wait_until_empty();
  template <class Fn>
  void on_loop(Fn&& fn);

  const unsigned mode_;
  unsigned waits_ = 0;
  TempDir directory_;
  const Address address_{Address::Kind::unix_socket, directory_ / "s", 0};
  CounterSet counters_;
  EpollLoop loop_;
  SocketTransport transport_{SocketOptions{.max_shared_area = kHostileArea}};
  MemoryStore* memory_ = nullptr;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<LoopThread> thread_;
  std::unique_ptr<Honest> beside_, after_;
  Hostile hostile_{address_.host};
};

// Plays one program in a world of its own, and looks whether the process is as it was.
void play_shared(std::span<const std::byte> program);

}  // namespace forebay::fuzz
