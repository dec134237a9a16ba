#include "assembly/build.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <random>

#include "assembly/json.h"
#include "assembly/run_dir.h"
#include "core/log.h"
#include "loop/epoll_loop.h"
#include "store/memory.h"
#include "store/null.h"
#include "store/posix.h"
#include "store/trace.h"
#include "transport/socket_transport.h"

namespace forebay {
namespace {

// The same on every server that serves an export of this name (FNV-1a).
uint64_t export_id(std::string_view name) {
  uint64_t hash = 14695981039346656037u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

// Where the key is unless the configuration says otherwise: in the store's own folder, which
// clients cannot name. Whoever could put a folder there of his own would know the key, so the
// folder that was examined is held open, and the key is reached through it whatever its name leads
// to meanwhile.
class KeyFolder {
 public:
  explicit KeyFolder(const std::string& directory)
      : name_(fmt::format("{}/{}", directory, kOwnFolder)) {}
  KeyFolder(const KeyFolder&) = delete;
  ~KeyFolder() {
    if (fd_ >= 0) ::close(fd_);
  }

  Result<void> open() {
    if (::mkdir(name_.c_str(), 0700) != 0 && errno != EEXIST)
      return Error(errno, fmt::format("cannot make {} for the key; set key_file to keep it "
                                      "elsewhere",
                                      name_));
    fd_ = ::open(name_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const bool other = fd_ < 0 && (errno == ENOTDIR || errno == ELOOP || errno == EACCES);
    if (fd_ < 0 && !other) return Error(errno, name_);
    struct stat st = {};
    if (fd_ >= 0 && ::fstat(fd_, &st) != 0) return Error(errno, name_);
    if (!other && st.st_uid == ::geteuid() && (st.st_mode & 077) == 0) return {};
    return Error(EPERM, fmt::format("{} must be a directory of the server's user with mode 0700, "
                                    "because it holds the key; set key_file to keep it elsewhere",
                                    name_));
  }
  std::string key() const { return fmt::format("/proc/self/fd/{}/key", fd_); }
  // An error that names key(), as people know it.
  Error named(const Error& error) const {
    std::string text = error.what();
    if (const size_t at = text.find(key()); at != std::string::npos)
      text.replace(at, key().size(), name_ + "/key");
    return Error(error.code(), text);
  }

 private:
  const std::string name_;
  int fd_ = -1;
};

Result<std::unique_ptr<Store>> build_backend(const ExportConfig& config, Surroundings& around) {
  if (config.store == "memory")
    return std::unique_ptr<Store>(
        std::make_unique<MemoryStore>(MemoryOptions{.fs_id = export_id(config.name)}));
  if (config.store == "null") return std::unique_ptr<Store>(std::make_unique<NullStore>());
  struct stat st;
  if (::stat(config.path.c_str(), &st) != 0) return Error(errno, config.path);
  if (!S_ISDIR(st.st_mode)) return Error(ENOTDIR, config.path);
  KeyFolder folder(config.path);
  PosixOptions options;
  options.directory = config.path;
  options.key_file = config.key_file;
  if (config.key_file.empty()) {
    if (auto opened = folder.open(); !opened) return opened.error();
    options.key_file = folder.key();
  }
  options.export_id = export_id(config.name);
  options.threads = config.threads;
  options.direct = config.direct;
  options.direct_depth = config.direct_depth;
  auto store = PosixStore::open(std::move(options), around.counters);
  if (!store) return folder.named(store.error());
  return std::unique_ptr<Store>(std::move(*store));
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 && name[0] ? name : "forebayd";
}

uint64_t random_number() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

bool is_address(std::string_view text) {
  return text.starts_with("unix:") || text.starts_with("tcp:");
}

Result<Address> choose(const Published& published, std::string_view transport) {
  for (const std::string& text : published.addresses) {
    if (transport != "any" && !text.starts_with(fmt::format("{}:", transport))) continue;
    if (auto address = Address::parse(text)) return address;
  }
  return Error(ENOENT,
               fmt::format("server {} (pid {}) has no {} address; it listens on {}", published.name,
                           published.pid, transport, fmt::join(published.addresses, ", ")));
}

// What a server reached by address exports; one in a run directory has published it.
Result<std::vector<std::string>> export_names(const Config& config) {
  std::vector<std::string> names;
  if (!is_address(config.client.server)) {
    auto published = read_published(client_run_dir(config));
    if (!published) return published.error();
    for (const Published::Export& e : published->exports) names.push_back(e.name);
    return names;
  }
  auto address = server_address(config);
  if (!address) return address.error();
  auto status = ask_server(config, *address, "status");
  if (!status) return status.error();
  auto json = Json::parse(*status);
  if (!json) return json.error();
  for (const Json& e : (*json)["exports"].array()) names.push_back(e["name"].text());
  return names;
}

Result<std::string> only_export(const Config& config) {
  auto names = export_names(config);
  if (!names) return names.error();
  if (names->size() == 1) return names->front();
  return Error(EINVAL, fmt::format("the server has {} exports ({}): choose one with --export",
                                   names->size(), fmt::join(*names, ", ")));
}

}  // namespace

Result<std::unique_ptr<Store>> build_store(const ExportConfig& config, Surroundings& around) {
  auto store = build_backend(config, around);
  if (!store) return std::move(store).error().at(fmt::format("export {}", config.name));
  if (config.trace)
    store = std::unique_ptr<Store>(std::make_unique<TraceStore>(
        std::move(*store), around.clock,
        [name = config.name](std::string_view line) { log::info("{}: {}", name, line); }));
  return store;
}

Result<std::unique_ptr<Store>> open_directory(const std::string& path, Surroundings& around) {
  PosixOptions options;
  options.directory = path;
  options.export_id = export_id(path);
  options.descriptors = 16384;  // it shares the process with nobody
  auto store = PosixStore::open(std::move(options), around.counters);
  if (!store) return std::move(store).error();
  return std::unique_ptr<Store>(std::move(*store));
}

ServerOptions server_options(const ServerConfig& config) {
  ServerOptions options;
  options.name = config.name.empty() ? host_name() : config.name;
  options.boot = random_number() >> 1;  // fits the integers of every JSON reader
  options.slots = static_cast<uint16_t>(config.slots);
  options.sessions = config.sessions;
  options.sessions_per_user = config.sessions_per_user;
  options.eager_max = static_cast<uint32_t>(config.eager);
  options.grace = config.grace;
  options.stall = config.stall;
  options.deadline = config.deadline;
  options.only_this_user = ::geteuid() != 0;
  return options;
}

ExportOptions export_options(const ExportConfig& config) {
  ExportOptions options;
  options.name = config.name;
  options.what = config.store == "posix" ? "posix " + config.path : config.store;
  options.pool = config.pool;
  options.chunk = config.chunk;
  options.in_flight = config.in_flight;
  options.pipeline = config.pipeline == "none"     ? Pipeline::none
                     : config.pipeline == "serial" ? Pipeline::serial
                                                   : Pipeline::parallel;
  using Policy = SchedulerOptions::Policy;
  options.scheduler.policy = config.scheduler == "fifo"   ? Policy::fifo
                             : config.scheduler == "hbrr" ? Policy::hbrr
                                                          : Policy::automatic;
  options.scheduler.quantum = config.quantum;
  options.scheduler.brute_force = config.merger == "brute";
  // To a store in memory a call is nothing, and a copy is all there is.
  options.sieve.reads = config.sieve == "auto" && config.store == "posix";
  options.sieve.writes = config.store != "posix"         ? When::never
                         : config.sieve_writes == "true" ? When::always
                         : config.sieve_writes == "hint" ? When::asked
                                                         : When::never;
  options.write_behind.when = config.write_behind == "on"    ? When::always
                              : config.write_behind == "off" ? When::never
                                                             : When::asked;
  options.write_behind.memory = config.write_behind_memory;
  options.write_behind.age = config.write_behind_age;
  options.shortcuts = config.shortcuts;
  return options;
}

Result<std::vector<Address>> listen_addresses(const ServerConfig& config,
                                              const std::string& run_dir) {
  std::vector<Address> addresses;
  for (const std::string& text : config.listen) {
    auto address = text == "unix"  ? Address::parse(fmt::format("unix:{}/socket", run_dir))
                   : text == "tcp" ? Address::parse("tcp:127.0.0.1:0")
                                   : Address::parse(text);
    if (!address) return std::move(address).error().at("server.listen");
    addresses.push_back(*address);
  }
  return addresses;
}

Result<Address> server_address(const Config& config) {
  const std::string& server = config.client.server;
  if (is_address(server)) return Address::parse(server);
  auto published = read_published(client_run_dir(config));
  if (!published) return published.error();
  return choose(*published, config.client.transport);
}

Result<AuthKeyRef> load_key(const std::string& key_file) {
  if (key_file.empty()) return AuthKeyRef();
  return AuthKey::load(key_file);
}

RemoteRuntime real_runtime(const AuthKeyRef& key, uint64_t shared_memory, uint64_t lent) {
  RemoteRuntime runtime;
  if (shared_memory > 0) runtime.lent = lent;
  runtime.make_loop = [] {
    auto loop = std::make_unique<EpollLoop>();
    loop->guard();
    return loop;
  };
  SocketOptions options;
  options.shared_area = shared_memory / 4_KiB * 4_KiB;
  options.key = key;
  runtime.make_transport = [options](Loop&) { return std::make_unique<SocketTransport>(options); };
  return runtime;
}

Result<std::string> ask_server(const Config& config, const Address& address,
                               std::string_view verb) {
  auto key = load_key(config.client.key_file);
  if (!key) return key.error();
  return control(address, verb, config.client.connect_timeout, real_runtime(*key));
}

Result<std::unique_ptr<RemoteStore>> connect(const Config& config, const std::string& program) {
  if (is_address(config.client.server)) {
    if (auto good = server_address(config); !good) return good.error();
  }
  auto key = load_key(config.client.key_file);
  if (!key) return key.error();
  RemoteOptions options;
  options.address = [config] { return server_address(config); };
  options.export_name = config.client.export_name;
  options.connect_timeout = config.client.connect_timeout;
  options.retry_for = config.client.retry_for;
  options.program = program;
  options.chunk = static_cast<uint32_t>(config.client.chunk);
  options.job = config.client.job;
  const char* const slurm = std::getenv("SLURM_JOB_ID");
  if (options.job.empty() && slurm) options.job = slurm;
  if (options.export_name.empty()) {
    auto only = only_export(config);
    if (!only) return only.error();
    options.export_name = *only;
  }
  return RemoteStore::connect(std::move(options), real_runtime(*key, config.client.shared_memory,
                                                               config.client.alloc_memory));
}

}  // namespace forebay
