// The words of `-o`, as people write them in /etc/fstab:
// "ro,allow_other,server=tcp:h:1,retry_for=5s".
//
// Each word is one of the kernel's (ro, nosuid), one of libfuse's (allow_other), one that only
// mount(8) means (noauto, _netdev, x-systemd...), which is left alone, one of ours, or a key of the
// client's configuration with a value, which is handed back. Values only. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"

namespace forebay::fuse {

// What the kernel may keep of a file's data.
enum class Cache {
  none,       // nothing: every read and write reaches the Store
  pages,      // pages, looked at again at every open, and dropped when size or time have changed
  lease,      // pages, while the Store says who else changes the file (file_leases.h)
  writeback,  // as lease, and small writes as well (write_back.h)
};

struct MountOptions {
  std::string source;  // what a list of mounts shows
  std::string mount_point;
  std::vector<std::string> kernel;             // words for the kernel and libfuse
  double attr_timeout = 0, entry_timeout = 0;  // seconds that the kernel may believe what it knows
  Cache cache = Cache::lease;
};

struct MountWords {
  MountOptions options;
  std::vector<std::pair<std::string, std::string>> settings;  // key=value, of the client
};

// EINVAL with a text that names the word.
Result<MountWords> parse_mount_words(const std::vector<std::string>& lists);

}  // namespace forebay::fuse
