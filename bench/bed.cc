#include "bench/bed.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "assembly/build.h"
#include "assembly/host.h"
#include "core/log.h"

namespace forebay::bench {

namespace {

// Serves until killed; tells through the pipe that it is ready, or why it is not.
[[noreturn]] void serve(const Config& config, int ready) {
  become_child();
  umask(0);
  (void)log::init(log::Level::warn);  // standard error cannot fail
  const auto host = ServerHost::start(config, [] {});
  become_child();  // again: the kernel forgets it when a thread changes its identity
  const std::string text = host ? "" : host.error().message();
  if (write(ready, text.data(), text.size()) < 0) _exit(1);
  close(ready);
  for (;;) pause();
}

std::string read_all(int fd) {
  std::string text;
  std::array<char, 512> part;
  for (ssize_t n; (n = read(fd, part.data(), part.size())) > 0;) {
    text.append(part.data(), static_cast<size_t>(n));
  }
  return text;
}

Config bed_config(const std::string& run_dir, const std::string& store, uint64_t pool,
                  const std::vector<Override>& settings) {
  Config config;
  config.server.name = "bench";
  config.server.run_dir = run_dir;
  ExportConfig exported;
  exported.name = "bench";
  exported.store = store;
  exported.pool = pool;
  exported.claim = false;  // contestants have the same directory, in turn
  config.exports.push_back(exported);
  for (const Override& one : settings) {
    if (const auto applied = apply(config, one); !applied) {
      throw std::runtime_error(applied.error().message());
    }
  }
  return config;
}

double* shared_double() {
  void* p =
      mmap(nullptr, sizeof(double), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::runtime_error("no memory");
  return new (p) double(0);
}

}  // namespace

Bed::Bed(const std::string& scratch, const std::string& store, uint64_t pool, bool shared,
         const std::vector<Override>& settings)
    : scratch_(scratch),
      run_(scratch + "/run"),
      keeps_data_(store == "posix"),
      shared_(shared),
      peak_(shared_double()) {
  Config config = bed_config(run_, store, pool, settings);
  std::string& path = config.exports.front().path;
  if (keeps_data_ && path.empty()) path = scratch + "/export";
  directory_ = path;
  std::filesystem::create_directories(scratch);
  if (keeps_data_) std::filesystem::create_directories(directory_);
  int ready[2];
  if (pipe(ready) != 0) throw std::runtime_error("no pipe");
  server_ = fork();
  if (server_ == 0) {
    close(ready[0]);
    serve(config, ready[1]);
  }
  close(ready[1]);
  const std::string problem = read_all(ready[0]);
  close(ready[0]);
  if (!problem.empty()) throw std::runtime_error(problem);
  watch_ = std::make_unique<Child>([this] {
    for (;; usleep(20000)) *peak_ = std::max(*peak_, anonymous_bytes(server_));
  });
}

Bed::~Bed() {
  watch_.reset();
  kill(server_, SIGKILL);
  waitpid(server_, nullptr, 0);
  munmap(peak_, sizeof *peak_);
}

Result<std::unique_ptr<Store>> Bed::connect(Socket kind) const {
  Config config;
  config.client.server = run_;
  config.client.transport = kind == Socket::tcp ? "tcp" : "unix";
  config.client.export_name = "bench";
  config.client.shared_memory = shared_ ? 4_MiB : 0;
  auto store = forebay::connect(config, "bench");
  if (!store) return std::move(store).error();
  return std::unique_ptr<Store>(std::move(*store));
}

Request OpenFile::request(Op op, uint64_t at, Memory memory) const {
  Request request;
  request.op = op;
  request.caller = caller_;
  request.handle = handle_;
  request.right = right_;
  request.file = Extents({Offset(at), memory.shape.total()});
  request.memory = std::move(memory);
  return request;
}

Result<uint64_t> OpenFile::move(Request request) {
  Result<Reply> reply = store_->call(std::move(request));
  if (!reply) return std::move(reply).error();
  return reply->count;
}

Result<uint64_t> OpenFile::write(uint64_t at, std::span<const std::byte> bytes) {
  return move(request(Op::write, at, Memory::of(bytes)));
}

void OpenFile::submit_write(uint64_t at, std::span<const std::byte> bytes, Completion done) {
  store_->submit(request(Op::write, at, Memory::of(bytes)), std::move(done));
}

void OpenFile::submit_read(uint64_t at, std::span<std::byte> bytes, Completion done) {
  store_->submit(request(Op::read, at, Memory::of(bytes)), std::move(done));
}

Result<void> OpenFile::close() {
  Request request;
  request.op = Op::close;
  request.caller = caller_;
  request.handle = handle_;
  request.right = right_;
  const Result<Reply> reply = store_->call(std::move(request));
  if (!reply) return reply.error();
  return {};
}

Result<uint64_t> OpenFile::read(uint64_t at, std::span<std::byte> bytes) {
  return move(request(Op::read, at, Memory::of(bytes)));
}

Result<uint64_t> OpenFile::read(Extents where, std::span<std::byte> bytes) {
  Request scattered = request(Op::read, 0, Memory::of(bytes));
  scattered.file = std::move(where);
  return move(std::move(scattered));
}

Result<OpenFile> open_file(Store& store, const std::string& name) {
  Result<Handle> root = store.root();
  if (!root) return std::move(root).error();
  Request request;
  request.op = Op::create;
  request.caller = this_process_caller();
  request.handle = std::move(*root);
  request.name = name;
  request.mode = 0600;
  request.access = Access::both;
  Result<Reply> reply = store.call(std::move(request));
  if (!reply) return std::move(reply).error();
  return OpenFile(store, std::move(reply->handle), std::move(reply->right));
}

namespace {

// Which one: the mount with the longest name that the path begins with.
std::string fuse_of(const std::string& path) {
  std::ifstream mounts("/proc/mounts");
  std::string kind = "FUSE", longest;
  for (std::string device, place, type, rest; mounts >> device >> place >> type;) {
    std::getline(mounts, rest);
    if ((path + "/").starts_with(place + "/") && place.size() >= longest.size())
      longest = place, kind = type;
  }
  return kind == "fuse.glusterfs" ? "GlusterFS" : kind;
}

}  // namespace

std::string file_system_of(const std::string& path) {
  struct statfs fs {};
  if (statfs(path.c_str(), &fs) != 0) return "unknown file system";
  switch (static_cast<uint32_t>(fs.f_type)) {
    case 0xEF53:
      return "ext4";
    case 0x58465342:
      return "xfs";
    case 0x9123683E:
      return "btrfs";
    case 0x01021994:
      return "tmpfs";
    case 0x65735546:
      return fuse_of(path);
    default:
      return fmt::format("file system type {:#x}", static_cast<uint32_t>(fs.f_type));
  }
}

double anonymous_bytes(pid_t pid) {
  std::ifstream in(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("RssAnon:")) return std::stod(line.substr(8)) * 1024;
  }
  return 0;
}

}  // namespace forebay::bench
