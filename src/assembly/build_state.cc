// Where a server keeps what clients share, and how it is noticed that it is gone.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <fstream>

#include "assembly/build.h"
#include "core/log.h"
#include "store/posix.h"

namespace forebay {
namespace {

Result<void> make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return Error(errno, fmt::format("cannot make the state directory {}", path));
  }
  struct stat st = {};
  if (::stat(path.c_str(), &st) != 0) return Error(errno, path);
  if (S_ISDIR(st.st_mode) && st.st_uid == ::geteuid() && (st.st_mode & 022) == 0) return {};
  return Error(EPERM, fmt::format("the state directory {} must be a directory of the server's user "
                                  "that nobody else can write to",
                                  path));
}

// The number in the file; 0: there is none.
Result<uint64_t> read_number(const std::string& path) {
  std::ifstream in(path);
  if (!in) return errno == ENOENT ? Result<uint64_t>(uint64_t{0}) : Error(errno, path);
  std::string text;
  std::getline(in, text);
  uint64_t number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  if (failed != std::errc() || end != text.data() + text.size() || number == 0) {
    return Error(EBADMSG, fmt::format("{} does not name a journal", path));
  }
  return number;
}

Result<void> write_number(const std::string& path, uint64_t number) {
  const std::string text = fmt::format("{:016x}\n", number);
  const std::string fresh = path + ".new";
  const int fd = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return Error(errno, fresh);
  const bool good = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                    ::fsync(fd) == 0;
  ::close(fd);
  if (!good || ::rename(fresh.c_str(), path.c_str()) != 0) return Error(errno, path);
  return {};
}

// The export's own folder names the journal that belongs to it, so that a state directory that was
// lost, or swapped, is not taken for one in which there is nothing.
Result<void> vouch_for(const std::string& marker, const std::string& folder, uint64_t id,
                       bool made) {
  auto known = read_number(marker);
  if (!known) return known.error();
  if (*known == 0) return write_number(marker, id);
  if (*known == id) return {};
  return Error(
      EXDEV, fmt::format(
                 "what clients share is in journal {:016x}, and {} has {}: give it back, or, if it "
                 "is lost, remove {} to begin with nothing",
                 *known, folder, made ? "none" : fmt::format("{:016x}", id), marker));
}

std::string server_name(const ServerConfig& config) {
  std::string name = server_options(config).name;
  for (char& c : name) {
    if (c == '/') c = '_';
  }
  return name;
}

}  // namespace

Result<StateOptions> state_options(const ServerConfig& config, const ExportConfig& exported,
                                   const std::string& run_dir) {
  StateOptions options;
  if (exported.store != "posix") return options;  // what it holds ends with the server, too
  options.folder = config.state_dir.empty() ? run_dir + "/state" : config.state_dir;
  options.sync = config.state_sync;
  if (auto made = make_folder(options.folder); !made) return made.error();
  // In the run directory it is no loss to speak of, and it may go with every start of the machine.
  if (config.state_dir.empty() || !exported.key_file.empty()) return options;
  const std::string marker =
      fmt::format("{}/{}/state.{}", exported.path, kOwnFolder, server_name(config));
  options.vouch = [marker, folder = options.folder](uint64_t id, bool made) {
    return vouch_for(marker, folder, id, made);
  };
  return options;
}

}  // namespace forebay
