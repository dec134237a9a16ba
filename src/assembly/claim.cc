#include "assembly/claim.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "core/log.h"
#include "plan/homes.h"
#include "store/posix.h"

namespace forebay {
namespace {

using namespace std::chrono_literals;

// A server that was killed a moment ago may still be ending.
constexpr auto kPatience = 1s;

std::string own_folder(const ExportConfig& config) {
  return fmt::format("{}/{}", config.path, kOwnFolder);
}

// ---- The lock ----

// Byte 0 of the file is who serves; those behind it are the members of the list, one each.
// False: others hold it; an error: there are no locks here.
Result<bool> try_lock(int fd, short type, off_t byte = 0) {
  struct flock one = {};
  one.l_type = type;
  one.l_whence = SEEK_SET;
  one.l_start = byte;
  one.l_len = 1;
  while (::fcntl(fd, F_OFD_SETLK, &one) != 0) {
    if (errno == EAGAIN || errno == EACCES) return false;
    if (errno != EINTR) return Error(errno);
  }
  return true;
}

std::string line_in(int fd) {
  std::string all;
  char text[4096];
  for (ssize_t n; (n = ::pread(fd, text, sizeof text, static_cast<off_t>(all.size()))) > 0;) {
    all.append(text, static_cast<size_t>(n));
  }
  return all.substr(0, all.find('\n'));
}

Result<void> write_line(int fd, const std::string& line) {
  const std::string text = line + "\n";
  const bool good = ::ftruncate(fd, 0) == 0 &&
                    ::pwrite(fd, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  return good ? Result<void>() : Error(errno != 0 ? errno : EIO);
}

// In a folder of ours, because whoever can open the file can hold the lock.
Result<Fd> open_lock(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return Error(errno);
  const Fd dir(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat st = {};
  if (!dir || ::fstat(dir.get(), &st) != 0) return Error(errno);
  if (st.st_uid != ::geteuid() || (st.st_mode & 022) != 0) return Error(EPERM);
  Fd file(::openat(dir.get(), "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return Error(errno);
  return file;
}

// Takes the lock, and says so in it; false: others have it. One who shares it does so with those
// who have written the same line, and is the only one with its name.
Result<bool> lock_alone(int fd, const std::string& line) {
  auto got = try_lock(fd, F_WRLCK);
  if (!got || !*got) return got;
  if (auto written = write_line(fd, line); !written) return written.error();
  return true;
}

Result<bool> lock_together(int fd, const std::string& line, off_t member) {
  const auto first = lock_alone(fd, line);
  if (!first) return first;
  const auto with_others = try_lock(fd, F_RDLCK);
  if (!with_others || !*with_others) return with_others;
  if (line_in(fd) == line) {
    auto as_itself = try_lock(fd, F_WRLCK, member);
    if (!as_itself || *as_itself) return as_itself;
  }
  (void)try_lock(fd, F_UNLCK);
  return false;
}

std::string host_name_here() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

// ---- What is written down ----

Result<std::string> read_record(const std::string& path) {
  std::ifstream in(path);
  if (!in) return Error(errno, path);
  std::string line;
  std::getline(in, line);
  return line;
}

// Whole or not at all; EEXIST if another server was faster.
Result<void> write_record(const std::string& path, const std::string& text) {
  const std::string aside = fmt::format("{}.{}", path, ::getpid());
  {
    std::ofstream out(aside, std::ios::trunc);
    out << text << '\n';
    if (!out.flush()) return Error(errno != 0 ? errno : EIO, aside);
  }
  const int failed = ::link(aside.c_str(), path.c_str()) == 0 ? 0 : errno;
  ::unlink(aside.c_str());
  return failed == 0 ? Result<void>() : Error(failed, path);
}

// A server that keeps what clients share has left its name in the export's folder (build_state.cc).
// One that is not of the new list would leave the attributes of its files behind.
Result<void> nobody_left_out(const ExportConfig& config, const std::vector<std::string>& servers) {
  constexpr std::string_view kKept = "state.";
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(own_folder(config), failed)) {
    const std::string file = entry.path().filename();
    if (!file.starts_with(kKept) || file.ends_with(".new")) continue;
    const std::string name = file.substr(kKept.size());
    if (std::ranges::find(servers, name) != servers.end()) continue;
    return Error(
        EBUSY, fmt::format("export {}: what clients share about its files is kept at "
                           "server '{}', too, which is none of {}; if that is not needed "
                           "any more, remove {}",
                           config.name, name, plan::Homes(servers).text(), entry.path().string()));
  }
  return {};
}

std::string record_of(const ExportConfig& config) {
  return own_folder(config) + "/servers";
}

// Is the list that is written down ours, if there is one? ENOENT: there is none.
Result<void> agree_on_list(const ExportConfig& config, const std::vector<std::string>& servers) {
  const std::string path = record_of(config);
  const auto record = read_record(path);
  // Another user's folder, beside a key_file elsewhere: such servers share nothing with us.
  if (!record && record.error().code() == EACCES && servers.empty()) return {};
  if (!record) return record.error();
  const std::string ours = servers.empty() ? std::string() : plan::Homes(servers).text();
  if (*record == ours) return {};
  return Error(
      EBUSY, fmt::format("export {}: its files live at the servers {} ({}), but this one {}; stop "
                         "all of those, remove that file, and start the new ones",
                         config.name, *record, path,
                         ours.empty() ? "is alone (cluster.servers)" : "belongs to " + ours));
}

bool absent(const Result<void>& record) {
  return !record && record.error().code() == ENOENT;
}

}  // namespace

Claims::Claims(std::string server, std::vector<std::string> servers)
    : server_(std::move(server)), servers_(std::move(servers)) {
  std::ranges::sort(servers_);  // as the others have them
}

Result<void> Claims::take(const ExportConfig& config) {
  if (config.store != "posix") return {};
  // First, because it says more than the lock; and again, because only now nobody changes it.
  if (auto agreed = agree_on_list(config, servers_); !agreed && !absent(agreed)) return agreed;
  if (auto locked = config.claim ? lock(config) : Result<void>(); !locked) return locked;
  auto agreed = agree_on_list(config, servers_);
  if (!absent(agreed)) return agreed;
  if (servers_.empty()) return {};
  if (auto all = nobody_left_out(config, servers_); !all) return all;
  auto written = write_record(record_of(config), plan::Homes(servers_).text());
  if (!written && written.error().code() != EEXIST) return written;
  return agree_on_list(config, servers_);
}

Error Claims::taken(const ExportConfig& config, const std::string& them,
                    const std::string& us) const {
  if (them == us) {
    return Error(EBUSY, fmt::format("export {}: {} is served by another server '{}' already; each "
                                    "of {} runs once: stop that one, or give this one its own "
                                    "server.name",
                                    config.name, config.path, server_, us));
  }
  return Error(EBUSY, fmt::format("export {}: {} is served by {} already, and two that do not know "
                                  "of each other would give its clients the same places and locks; "
                                  "stop what runs there, or serve it together (cluster.servers)",
                                  config.name, config.path, them));
}

Result<void> Claims::lock(const ExportConfig& config) {
  const std::string folder = own_folder(config);
  const auto without = [&](const Error& error) -> Result<void> {
    log::warn(
        "export '{}': cannot lock {}/lock ({}), so a server that does not know of this one would "
        "not be noticed: see to it that none serves this directory",
        config.name, folder, std::strerror(error.code()));
    return {};
  };
  auto file = open_lock(folder);
  if (!file) return without(file.error());
  struct stat st = {};
  if (::fstat(file->get(), &st) != 0) return without(Error(errno));
  for (const Held& other : held_) {
    if (other.device != st.st_dev || other.inode != st.st_ino) continue;
    log::warn(
        "exports '{}' and '{}' are the same directory: clients of one share nothing (locks, places "
        "of appends, attributes) with those of the other",
        other.name, config.name);
    return {};
  }
  const std::string us =
      servers_.empty()
          ? fmt::format("server '{}' (pid {} on {})", server_, ::getpid(), host_name_here())
          : fmt::format("the servers {}", plan::Homes(servers_).text());
  const off_t member = 1 + (std::ranges::find(servers_, server_) - servers_.begin());
  const auto until = std::chrono::steady_clock::now() + kPatience;
  std::minstd_rand random(static_cast<unsigned>(::getpid()));
  for (;;) {
    const auto got =
        servers_.empty() ? lock_alone(file->get(), us) : lock_together(file->get(), us, member);
    if (!got) return without(got.error());
    if (*got) break;
    if (std::chrono::steady_clock::now() > until) return taken(config, line_in(file->get()), us);
    // Not in step with others that try.
    std::this_thread::sleep_for(std::chrono::milliseconds(10 + random() % 40));
  }
  held_.push_back({st.st_dev, st.st_ino, config.name, std::move(*file)});
  return {};
}

}  // namespace forebay
