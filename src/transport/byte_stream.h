// ByteStream: a connected, ordered stream of bytes on a loop: a socket (socket_bytes.h) or a
// simulated one (sim_transport.cc). Frames and their rules are made over it once, in
// frame_stream.h, so that the simulation runs the very code that sockets run.
//
// On the loop only. After it is destroyed or detached its user is not called any more.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <memory>
#include <span>

#include "core/fd.h"
#include "loop/loop.h"

namespace forebay {

class SharedRegion;

class ByteStream {
 public:
  class User {
   public:
    virtual void readable() = 0;
    virtual void writable() = 0;
    virtual void deferred() = 0;
    virtual void posted(uint64_t bits) = 0;  // while it awaits readable()

   protected:
    ~User() = default;
  };

  virtual ~ByteStream() = default;  // closes

  // Binds it to a loop. Before anything else, and again after detach().
  virtual void attach(Loop& loop, User& user) = 0;
  virtual void detach() = 0;

  // As recvmsg and sendmsg, never blocking: -1 and errno, EAGAIN if nothing can be moved now.
  // receive() gives 0 at the end of the stream. One that moves less than there is space for has
  // found the end of what was there.
  virtual ssize_t receive(std::span<iovec> space) = 0;
  virtual ssize_t send(std::span<iovec> bytes) = 0;
  // Does each send() and receive() cost so much (a system call) that fewer are better?
  virtual bool calls_are_dear() const { return true; }

  virtual void announce() {}                       // as Connection::announce()
  virtual void post(uint64_t) {}                   // as Connection::post()
  virtual bool hand(int) { return false; }         // as Connection::hand()
  virtual Fd take_handed(uint64_t) { return {}; }  // as Connection::take_handed()

  // One call of readable() as soon as receive() would give something; at once if it would now.
  virtual void await_readable() = 0;
  virtual void await_writable() = 0;
  // One call of deferred(), later; also after shut().
  virtual void defer() = 0;

  // Closes; nothing but defer() works afterwards.
  virtual void shut() = 0;

  virtual int descriptor() const { return -1; }  // as Connection::descriptor()
  virtual std::shared_ptr<SharedRegion> shared() const {
    return nullptr;
  }  // as Connection::shared()
};

}  // namespace forebay
