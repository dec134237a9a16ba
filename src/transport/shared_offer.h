// The two messages with which shared memory is agreed on, and descriptors on a Unix socket.
#pragma once

#include <array>
#include <cstdint>

#include "core/fd.h"
#include "core/result.h"
#include "transport/shared_region.h"

namespace forebay::shared {

// Differs from a frame's magic in the first byte, so that one byte tells them apart.
inline constexpr std::array<char, 8> kMagic = {'S', 'H', 'A', 'R', 'E', 'F', 'B', '1'};

struct Offer {
  std::array<char, 8> magic = kMagic;
  uint32_t ring = 0;
  uint32_t zero = 0;
  uint64_t area = 0;
  uint64_t lent = 0;  // not 0: a second descriptor, of so many bytes
};
static_assert(sizeof(Offer) == 32);

struct Answer {
  std::array<char, 8> magic = kMagic;
  int32_t refused = 0;  // an errno
  uint32_t zero = 0;
};
static_assert(sizeof(Answer) == 16);

// Sends all of it, with those descriptors that are not -1.
using Descriptors = std::array<int, 2>;
Result<void> send_with(int socket, const void* bytes, size_t size, Descriptors descriptors);
// Receives all of it, and the first descriptors that came with it, if any. EAGAIN if nothing has
// come; a part is EPROTO, because it was sent in one piece.
using Received = std::array<Fd, 2>;
// The same of any number of bytes, which it returns; 0: the end.
Result<size_t> receive_some_with(int socket, void* bytes, size_t most, Received& received);
Result<Received> receive_with(int socket, void* bytes, size_t size);

// Closes a descriptor of unknown kind, which may take as long as its sender likes (one of a file
// system of its own), on a thread of its own. There are few of those at a time: while all are busy,
// receive_with() lets the kernel drop what comes.
void close_elsewhere(Fd descriptor);

}  // namespace forebay::shared
