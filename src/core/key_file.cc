#include "core/key_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>

#include "core/assert.h"
#include "core/fd.h"

namespace forebay {
namespace {

Error key_error(int code, const std::string& path, std::string_view what) {
  return Error(code, fmt::format("key file {}: {}", path, what));
}

void fill_random(void* to, size_t size) {
  // Never short for so few bytes.
  FOREBAY_ASSERT(::getrandom(to, size, 0) == static_cast<ssize_t>(size), "getrandom");
}

std::string expected(size_t least, size_t most) {
  return least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most);
}

Result<void> examine(const struct stat& st, const std::string& path, size_t least, size_t most) {
  if (!S_ISREG(st.st_mode)) return key_error(EINVAL, path, "is not a regular file");
  if (st.st_uid != 0 && st.st_uid != ::geteuid()) {
    return key_error(EPERM, path, fmt::format("belongs to user {}, not to us", st.st_uid));
  }
  if ((st.st_mode & 077) != 0) {
    return key_error(EPERM, path, "is open to other users; use chmod 600");
  }
  const auto size = static_cast<uint64_t>(st.st_size);
  if (size >= least && size <= most) return {};
  return key_error(EINVAL, path,
                   fmt::format("has {} bytes instead of {}", size, expected(least, most)));
}

// Moves `from` to `to` unless that exists; a file system without hard links can still do it by
// name.
int place_new(const std::string& from, const std::string& to) {
  if (::link(from.c_str(), to.c_str()) == 0) return 0;
  if (errno != EPERM && errno != EOPNOTSUPP) return errno;
  return ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0 ? 0
                                                                                          : errno;
}

void sync_parent(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string parent = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const Fd dir(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (dir.get() >= 0) ::fsync(dir.get());
}

}  // namespace

Result<std::string> read_key_file(const std::string& path, size_t least, size_t most) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.get() < 0) return key_error(errno, path, "cannot be opened");
  struct stat st;
  if (::fstat(file.get(), &st) != 0) return key_error(errno, path, "cannot be examined");
  if (auto good = examine(st, path, least, most); !good) return good.error();
  std::string key(static_cast<size_t>(st.st_size), '\0');
  if (::pread(file.get(), key.data(), key.size(), 0) != static_cast<ssize_t>(key.size())) {
    return key_error(EIO, path, "cannot be read");
  }
  return key;
}

Result<void> make_key_file(const std::string& path) {
  uint64_t nonce;
  fill_random(&nonce, sizeof nonce);
  const std::string aside = fmt::format("{}.{:016x}", path, nonce);
  std::array<uint8_t, kKeyFileBytes> key;
  fill_random(key.data(), key.size());
  int failed = 0;
  {
    const Fd file(::open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (file.get() < 0) return key_error(errno, path, "cannot be made");
    errno = EIO;
    if (::write(file.get(), key.data(), key.size()) != static_cast<ssize_t>(key.size()) ||
        ::fsync(file.get()) != 0) {
      failed = errno;
    }
  }
  ::explicit_bzero(key.data(), key.size());
  if (failed == 0) failed = place_new(aside, path);
  ::unlink(aside.c_str());
  if (failed == EEXIST) return key_error(EEXIST, path, "is there already");
  if (failed != 0) return key_error(failed, path, "cannot be made");
  sync_parent(path);
  return {};
}

}  // namespace forebay
