// A load: clients, each a process of its own, that write or read files in requests of one size for
// a while, through one door or another. All rows of `forebay bench forward` that move bytes are
// loads, so both sides of a row differ in the door alone.
//
// State of the files: they are written in full before, directly, so that their blocks are allocated
// and, where there is a page cache, cached. Both sides then use the same files in turn. Or they are
// fresh: removed before every run, and every block is written once. (On ext4 that is most of what a
// small write costs, and what merging saves. Overwriting a file that was made by large writes costs
// more than one that was made by small ones, because its pages come in large folios.) Nobody syncs.
// The clock stops after the file is closed, so what a door still owes is paid in time.
//
// Verification: the words of a request depend on their place in it, on the client and on the run
// (`salt`), its first two on where it lies in the file. After each run of writes every request that
// was done is read back directly and compared. Of reads, each one's first words are looked at in
// time and a sample is compared in full afterwards.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/fleet.h"
#include "core/types.h"

namespace forebay::bench {

// How a client reaches its file. Throws what goes wrong. One thread, but submit() may complete on
// another, from which the next one may be submitted.
class Door {
 public:
  virtual ~Door() = default;
  virtual std::span<std::byte> memory(uint64_t size) = 0;  // page-aligned; as long as the door
  virtual void write(uint64_t at, std::span<const std::byte> bytes) = 0;
  virtual void read(uint64_t at, std::span<std::byte> bytes) = 0;
  // For loads with several requests in flight; only some doors can.
  using Done = std::function<void(bool good)>;
  virtual void submit(bool write, uint64_t at, std::span<std::byte> bytes, Done done);
  virtual void close() = 0;
};
// Called in the client's process with the name of its file.
using OpenDoor = std::function<std::unique_ptr<Door>(const std::string& file)>;

struct Load {
  enum class Layout {
    own_files,   // each client has a file of its own
    strided,     // one file, request k of client c is number k * clients + c
    sequential,  // one file, each client goes through a part of its own
  };
  bool write = true;
  uint64_t request = 8_MiB;
  int clients = 1;
  unsigned in_flight = 1;  // of each client
  Layout layout = Layout::own_files;
  bool fresh = false;        // writes only
  uint64_t bytes = 256_MiB;  // of all files, gone through again and again; fresh ones once at most
  double seconds = 0.6;
  double warm = 0;  // seconds before, not measured

  uint64_t requests_of_client() const;
  uint64_t place(int client, uint64_t k) const;
  std::string file(int client) const;
  std::string text() const;  // "32 clients, 4 KiB writes strided in one file, 8 in flight each"
};

std::string size_text(uint64_t bytes);  // "4 KiB", "1 MiB"

// Writes all files of the load in full. Fresh ones are removed again: a virtual machine pays dearly
// for memory that it has never used, and the first side would pay for both.
void prepare(const Load& load, const std::string& directory, uint64_t salt);
void remove_files(const Load& load, const std::string& directory);

// One client's part: fills Shared, with operations as what was done.
Worker client_of(const Load& load, uint64_t salt, pid_t server, const OpenDoor& open);

// Does everything that was written hold what belongs there? `done`: requests of each client.
bool holds(const Load& load, const std::string& directory, uint64_t salt,
           const std::vector<uint64_t>& done);

}  // namespace forebay::bench
