#include "assembly/run_dir.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "assembly/json.h"
#include "core/fd.h"

namespace forebay {
namespace {

Error because(const std::string& what) {
  const int code = errno;
  return Error(code, fmt::format("{}: {}", what, std::strerror(code)));
}

Result<void> check_ours(const std::string& path) {
  struct stat st;
  if (::lstat(path.c_str(), &st) != 0)
    return because(fmt::format("cannot use the run directory {}", path));
  if (!S_ISDIR(st.st_mode))
    return Error(ENOTDIR, fmt::format("the run directory {} is not a directory", path));
  if (st.st_uid != ::geteuid())
    return Error(EPERM, fmt::format("the run directory {} belongs to user {}, not to you; choose "
                                    "another with --run-dir",
                                    path, st.st_uid));
  if (st.st_mode & 022)
    return Error(EPERM, fmt::format("the run directory {} can be written by others, who could then "
                                    "pose as the server: chmod go-w {}",
                                    path, path));
  return {};
}

struct flock whole_file() {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

// Is there a server that holds the lock? Only looks: taking it, however briefly, would be in the
// way of a server that starts at that moment. Whoever may not look (the lock is for its owner's
// eyes, because a reader could hold it too) has to try and connect.
enum class Life { gone, alive, unknown };

struct Holder {
  Life life = Life::gone;
  int pid = 0;
};

std::string read_all(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = ::read(fd, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(n));
  return text;
}

Result<void> write_all(int fd, std::string_view text, const std::string& name) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return because("cannot write " + name);
    text.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

Holder holder_of(const std::string& run_dir) {
  Fd file(::open((run_dir + "/lock").c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (file.get() < 0) return {errno == EACCES ? Life::unknown : Life::gone};
  struct flock all = whole_file();
  if (::fcntl(file.get(), F_OFD_GETLK, &all) != 0 || all.l_type == F_UNLCK) return {};
  const std::string text = read_all(file.get());
  int pid = 0;
  std::from_chars(text.data(), text.data() + text.size(), pid);
  return {pid > 0 ? Life::alive : Life::unknown, pid};
}

Json to_json(const Published& p) {
  Json::Array addresses, exports;
  for (const std::string& a : p.addresses) addresses.emplace_back(a);
  for (const Published::Export& e : p.exports)
    exports.emplace_back(Json::Object{{"name", e.name}, {"what", e.what}, {"path", e.path}});
  // The boot number as text: programs that read numbers as doubles would round it.
  return Json::Object{{"name", p.name},         {"version", p.version},
                      {"pid", p.pid},           {"boot", fmt::format("{:016x}", p.boot)},
                      {"addresses", addresses}, {"exports", exports}};
}

Published from_json(const Json& json) {
  Published p;
  p.name = json["name"].text();
  p.version = json["version"].text();
  p.pid = static_cast<int>(json["pid"].integer());
  const std::string& boot = json["boot"].text();
  std::from_chars(boot.data(), boot.data() + boot.size(), p.boot, 16);
  for (const Json& a : json["addresses"].array()) p.addresses.push_back(a.text());
  for (const Json& e : json["exports"].array())
    p.exports.push_back({e["name"].text(), e["what"].text(), e["path"].text()});
  return p;
}

// Could somebody else have put it there to pose as our server?
bool trusted(int fd) {
  struct stat st;
  return ::fstat(fd, &st) == 0 && (st.st_uid == ::geteuid() || st.st_uid == 0);
}

Error no_server(const std::string& run_dir) {
  return Error(ENOENT, fmt::format("no server is running in {}: start one with `forebay start "
                                   "DIRECTORY`, or name another with --server",
                                   run_dir));
}

}  // namespace

std::string default_run_dir() {
  if (::geteuid() == 0) return "/run/forebay";
  if (const char* xdg = std::getenv("XDG_RUNTIME_DIR"); xdg && *xdg)
    return std::string(xdg) + "/forebay";
  return fmt::format("/tmp/forebay-{}", ::geteuid());
}

Result<void> make_run_dir(const std::string& path) {
  // Others reach root's server through its socket here; a user's server serves that user only.
  const mode_t mode = ::geteuid() == 0 ? 0755 : 0700;
  if (::mkdir(path.c_str(), mode) == 0) {
    ::chmod(path.c_str(), mode);  // whatever the umask
    return {};
  }
  if (errno == EEXIST) return check_ours(path);
  return because(fmt::format("cannot make the run directory {}", path));
}

Result<RunDir> RunDir::claim(const std::string& path) {
  if (auto made = make_run_dir(path); !made) return made.error();
  const std::string name = path + "/lock";
  Fd lock(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (lock.get() < 0) return because("cannot open " + name);
  struct flock all = whole_file();
  if (::fcntl(lock.get(), F_OFD_SETLK, &all) != 0)
    return Error(EBUSY, fmt::format("a server (pid {}) is already running in {}: stop it with "
                                    "`forebay stop --run-dir {}`, or choose another run directory",
                                    read_all(lock.get()), path, path));
  if (::ftruncate(lock.get(), 0) != 0) return because("cannot write " + name);
  if (auto written = write_all(lock.get(), std::to_string(::getpid()), name); !written)
    return written.error();
  ::unlink((path + "/server.json").c_str());  // of a server that was killed
  return RunDir(path, lock.release());
}

RunDir::RunDir(RunDir&& other) noexcept
    : path_(std::move(other.path_)), lock_(std::exchange(other.lock_, -1)) {}

RunDir::~RunDir() {
  if (lock_ < 0) return;
  withdraw();
  ::close(lock_);  // the file stays: removing it would let two servers lock two files
}

void RunDir::withdraw() {
  ::unlink((path_ + "/server.json").c_str());
}

Result<void> RunDir::publish(const Published& published) {
  const std::string name = path_ + "/server.json", fresh = name + ".new";
  {
    Fd file(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (file.get() < 0) return because("cannot write " + fresh);
    ::fchmod(file.get(), 0644);
    auto written = write_all(file.get(), to_json(published).dump(2) + "\n", fresh);
    if (!written) return written;
  }
  if (::rename(fresh.c_str(), name.c_str()) != 0) return because("cannot write " + name);
  return {};
}

std::optional<int> server_in(const std::string& run_dir) {
  const Holder holder = holder_of(run_dir);
  return holder.life == Life::alive ? std::optional<int>(holder.pid) : std::nullopt;
}

Result<Published> read_published(const std::string& run_dir) {
  const std::string name = run_dir + "/server.json";
  Fd file(::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (file.get() < 0 && errno != ENOENT && errno != ENOTDIR) return because("cannot read " + name);
  if (file.get() < 0 || holder_of(run_dir).life == Life::gone) return no_server(run_dir);
  if (!trusted(file.get()))
    return Error(EPERM, fmt::format("{} belongs neither to you nor to root: not trusted", name));
  auto json = Json::parse(read_all(file.get()));
  if (!json) return std::move(json).error().at(name);
  return from_json(*json);
}

std::string client_run_dir(const Config& config) {
  if (!config.client.server.empty()) return config.client.server;
  if (!config.server.run_dir.empty()) return config.server.run_dir;
  const std::string own = default_run_dir(), of_root = "/run/forebay";
  return !read_published(own) && read_published(of_root) ? of_root : own;
}

}  // namespace forebay
