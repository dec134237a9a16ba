// How a client comes to a connection with its arbiter, and the connection: a socket that is used by
// blocking calls with time limits, without a loop or a thread.
//
// Threads: send() by one at a time, receive() by one at a time, the two beside each other; shut()
// from any, and makes both fail.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/fd.h"
#include "core/result.h"
#include "mpiio/invitation.h"
#include "wire/frame.h"

namespace forebay::mpiio {

class BlockingSocket {
 public:
  static constexpr Time kForever{Duration::max()};

  explicit BlockingSocket(Fd fd) : fd_(std::move(fd)) {}  // connected, non-blocking

  // All of it; false: the connection is lost, or the time is over.
  bool send(const std::string& bytes, Time until);
  // The message of the next frame: of this type, small, without payload. Otherwise, or if the
  // connection is lost or the time is over: an error.
  Result<std::vector<std::byte>> receive(wire::FrameType type, Time until);
  void shut();

 private:
  Result<void> fill(std::span<std::byte> out, Time until);

  Fd fd_;
};

// Finds the arbiter among the invitation's addresses, both sides prove that they know the key, and
// the file is there.
Result<BlockingSocket> connect_to_arbiter(const Invitation& invitation, Duration within);

}  // namespace forebay::mpiio
