// Whereabouts: in which Store a file lies that a program names by a path.
//
// Without a server in the configuration every file is local: a PosixStore on its folder, in this
// process, as this process. With one, files below the prefix that the server's export has (the
// export's own directory, or `client.prefix`) are the server's, and all others are local. Prefixes
// of the name that ROMIO's users write ("ufs:", "nfs:" and the like) are taken off.
//
// The configuration is read once, when the first file is opened. Any thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "assembly/build.h"
#include "store/path.h"
#include "store/posix.h"

namespace forebay::mpiio {

struct Whereabouts {
  std::shared_ptr<Store> store;
  const PosixStore* posix = nullptr;  // which it is, if it is one
  std::string path;                   // in the store
  bool served = false;
  bool local = false;   // a file system of this machine, in its page cache
  std::string why;      // for a person: "local: no server is configured"
  uint64_t device = 0;  // of the folder, if it is not served
};

class Places {
 public:
  // A symbolic link at the end of the name is followed by who opens, not by who removes.
  Result<Whereabouts> find(const std::string& name, Follow follow = Follow::yes);
  // Says goodbye to the server, once no file is open. The next find() connects again.
  void leave();

 private:
  Result<void> read_configuration();
  Result<std::string> find_prefix();
  Result<std::shared_ptr<Store>> server();
  Result<std::shared_ptr<PosixStore>> local(const std::string& folder);

  std::mutex mutex_;
  std::optional<Config> config_;
  std::string prefix_;  // of what the server serves; empty: not known yet
  std::shared_ptr<Store> server_;
  Surroundings around_;
  struct Local {
    std::weak_ptr<PosixStore> store;
    uint64_t device = 0, inode = 0;  // of the folder: another one may have its name by now
    bool local = false;
  };
  std::map<std::string, Local> locals_;
  std::shared_ptr<PosixStore> recent_;  // kept: programs open one file after the other in a folder
};

// The name without a prefix such as "ufs:".
std::string_view without_prefix(std::string_view name);

}  // namespace forebay::mpiio
