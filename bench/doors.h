// The doors through which loads reach their files: the client's own calls, a forebayd (with
// ordinary memory, or with memory from fb_alloc), and a bare socket.
#pragma once

#include "bench/bare.h"
#include "bench/bed.h"
#include "bench/load.h"

namespace forebay::bench {

// pwrite and pread, as one would write it.
class DirectFile {
 public:
  explicit DirectFile(const std::string& path);
  ~DirectFile();
  DirectFile(const DirectFile&) = delete;
  void write(uint64_t at, std::span<const std::byte> bytes) const;
  void read(uint64_t at, std::span<std::byte> bytes) const;

 private:
  int fd_;
};

OpenDoor direct_door(std::string directory);
OpenDoor store_door(const Bed& bed, Socket kind = Socket::unix_socket);
// The C interface; buffers from fb_alloc.
OpenDoor alloc_door(const Bed& bed);
// The server behind the listener has one file, whatever its name.
OpenDoor bare_door(const BareListener& listener);

}  // namespace forebay::bench
