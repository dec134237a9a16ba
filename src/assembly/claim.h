// Claims: which exports are this server's to serve. What is kept about a file beside the file
// system (its locks, the places of its appends, its attributes) has one owner, so two servers that
// do not know of each other must not serve one directory.
//
// Two things in an export's own folder see to that:
//  1. `.forebay/lock`, which a server holds locked as long as it lives: one that is alone for
//     itself, those of one list together, each once. The file says who: it is only written by one
//     that holds it alone, so whoever holds it with others reads what all of them have read. The
//     kernel lets it go however a server ends, on a shared file system also for servers of other
//     nodes.
//  2. `.forebay/servers`, the list, written down by the first of several servers. It stays when
//     they end: one that starts with another list, or alone, is refused, because it would take
//     some files for its own that live elsewhere. To change the list all of them stop, and whoever
//     does that removes the file.
//
// Where nothing can be locked (a folder of another user's, beside a key_file elsewhere; a file
// system that is read-only or has no locks) that is logged, and the export is served all the same.
//
// Destroying it lets go. One thread.
#pragma once

#include <sys/stat.h>

#include <string>
#include <vector>

#include "assembly/config.h"
#include "core/fd.h"
#include "core/result.h"

namespace forebay {

class Claims {
 public:
  // `servers` is empty for one that is alone.
  Claims(std::string server, std::vector<std::string> servers);

  // EBUSY says who has it, and what to do.
  Result<void> take(const ExportConfig& config);

 private:
  struct Held {
    dev_t device;
    ino_t inode;
    std::string name;  // of the export
    Fd lock;
  };
  Result<void> lock(const ExportConfig& config);
  Error taken(const ExportConfig& config, const std::string& them, const std::string& us) const;

  const std::string server_;
  std::vector<std::string> servers_;
  std::vector<Held> held_;
};

}  // namespace forebay
