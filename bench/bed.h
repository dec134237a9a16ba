// A test bed for benchmarks: a real forebayd process with one export, and clients of it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "assembly/config.h"
#include "bench/bare.h"
#include "bench/fleet.h"
#include "store/store.h"

namespace forebay::bench {

class Bed {
 public:
  // `store` is "posix" or "null". Throws with the reason if the server does not start.
  // `shared`: clients on Unix sockets share memory with it, as they do by default.
  // `settings`: keys of [server] and [export.bench], as on a command line. The export's path is
  // made if absent; without one it is a folder in `scratch`.
  Bed(const std::string& scratch, const std::string& store, uint64_t pool, bool shared = false,
      const std::vector<Override>& settings = {});
  ~Bed();  // stops the server
  Bed(const Bed&) = delete;

  const std::string& scratch() const { return scratch_; }
  const std::string& directory() const { return directory_; }  // the export's
  bool keeps_data() const { return keeps_data_; }
  pid_t server() const { return server_; }
  const std::string& run_dir() const { return run_; }
  // The most anonymous memory that the server had resident so far, looked at 50 times a second.
  double peak_memory() const { return *peak_; }
  Result<std::unique_ptr<Store>> connect(Socket kind) const;

 private:
  std::string scratch_, directory_, run_;
  bool keeps_data_;
  bool shared_;
  pid_t server_ = -1;
  double* peak_;  // in memory shared with the watch
  std::unique_ptr<Child> watch_;
};

// A file open for reading and writing through a Store, made if absent.
class OpenFile {
 public:
  OpenFile(Store& store, Handle handle, Right right)
      : store_(&store), handle_(std::move(handle)), right_(std::move(right)) {}

  Result<uint64_t> write(uint64_t at, std::span<const std::byte> bytes);
  Result<uint64_t> read(uint64_t at, std::span<std::byte> bytes);
  Result<uint64_t> read(Extents where, std::span<std::byte> bytes);
  void submit_write(uint64_t at, std::span<const std::byte> bytes, Completion done);
  void submit_read(uint64_t at, std::span<std::byte> bytes, Completion done);
  Result<void> close();

 private:
  Request request(Op op, uint64_t at, Memory memory) const;
  Result<uint64_t> move(Request request);

  Store* store_;
  Handle handle_;
  Right right_;
  CallerRef caller_ = this_process_caller();
};

Result<OpenFile> open_file(Store& store, const std::string& name);

// "ext4", "tmpfs" and so on, for the report.
std::string file_system_of(const std::string& path);

double anonymous_bytes(pid_t pid);  // resident, of a process

}  // namespace forebay::bench
