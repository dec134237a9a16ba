// The run directory: where a server leaves its socket, lock, log and `server.json`, and where
// clients find it. The file `lock` holds the pid, and is locked while the server lives: the kernel
// lets go of it however the server dies, so a stale `server.json` never fools anybody.
//
// A run directory must belong to whoever runs the server and be writable by nobody else, or another
// user could pose as the server; clients trust one of their own or root's. Any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "assembly/config.h"
#include "core/result.h"

namespace forebay {

// What a running server tells the world, in `server.json`.
struct Published {
  std::string name, version;
  int pid = 0;
  uint64_t boot = 0;
  std::vector<std::string> addresses;
  struct Export {
    std::string name, what;
    std::string path;  // of what it holds, in the name space of this machine; empty: none
  };
  std::vector<Export> exports;
};

// /run/forebay for root; $XDG_RUNTIME_DIR/forebay or /tmp/forebay-<uid> for a user.
std::string default_run_dir();

// Makes it, if it is not there; its parent must be.
Result<void> make_run_dir(const std::string& path);

// The server's side: owns the directory as long as it lives. Destroying it removes `server.json`
// and lets the lock go.
class RunDir {
 public:
  // As make_run_dir(), and EBUSY if a server lives in it.
  static Result<RunDir> claim(const std::string& path);
  RunDir(RunDir&& other) noexcept;
  RunDir& operator=(RunDir&&) = delete;
  ~RunDir();

  Result<void> publish(const Published& published);  // all at once: never seen half-written
  void withdraw();
  const std::string& path() const { return path_; }

 private:
  RunDir(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}
  std::string path_;
  int lock_;
};

// The clients' side.
// The pid of the server that lives there; nothing if none does, or if it is another user's.
std::optional<int> server_in(const std::string& run_dir);
// ENOENT, with a text that says how to start one, if no server is there.
Result<Published> read_published(const std::string& run_dir);
// Where a client looks: the run directory that the configuration means, or the first of the usual
// ones where a server lives.
std::string client_run_dir(const Config& config);

}  // namespace forebay
