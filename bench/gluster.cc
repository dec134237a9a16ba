#include "bench/gluster.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

namespace forebay::bench {

namespace {

// Beside the sources of this build; an installed program has none.
Result<std::string> find_script() {
  std::error_code none;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", none);
  const auto script = self.parent_path() / "../../tools/gluster";
  if (!std::filesystem::exists(script, none)) {
    return Error(ENOENT, "tools/gluster is not there; run the program from its build folder");
  }
  return std::filesystem::canonical(script).string();
}

std::string read_line(int fd) {
  std::string line;
  for (char c; read(fd, &c, 1) == 1 && c != '\n';) line += c;
  return line;
}

}  // namespace

Result<GlusterVolume> GlusterVolume::start(const std::string& folder) {
  const Result<std::string> script = find_script();
  if (!script) return script.error();
  int in[2], out[2];
  if (pipe(in) != 0 || pipe(out) != 0) return Error(errno, "no pipe");
  const pid_t keeper = fork();
  if (keeper == 0) {
    dup2(in[0], 0);
    dup2(out[1], 1);
    for (const int fd : {in[0], in[1], out[0], out[1]}) close(fd);
    execl(script->c_str(), script->c_str(), "run", folder.c_str(), nullptr);
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  GlusterVolume volume(keeper, in[1]);
  const std::string answer = read_line(out[0]);
  close(out[0]);
  constexpr std::string_view kReady = "ready ";
  if (!answer.starts_with(kReady))
    return Error(ENOTSUP, answer.empty() ? "it did not start" : answer);
  volume.mount_ = answer.substr(kReady.size());
  return volume;
}

GlusterVolume::GlusterVolume(GlusterVolume&& other) noexcept
    : keeper_(std::exchange(other.keeper_, -1)),
      hold_(std::exchange(other.hold_, -1)),
      mount_(std::move(other.mount_)) {}

GlusterVolume::~GlusterVolume() {
  if (keeper_ < 0) return;
  close(hold_);
  waitpid(keeper_, nullptr, 0);
}

}  // namespace forebay::bench
