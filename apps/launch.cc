#include "launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

namespace forebay {
namespace {

constexpr std::string_view kReady = "ready\n";
constexpr std::string_view kFailed = "failed ";

void say(int fd, std::string_view text) {
  if (fd < 0) return;
  // The starter may be gone; then nobody needs to know.
  (void)!::write(fd, text.data(), text.size());
  ::close(fd);
}

std::string server_program() {
  std::error_code failed;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", failed);
  const std::string beside = (self.parent_path() / "forebayd").string();
  return !failed && ::access(beside.c_str(), X_OK) == 0 ? beside : "forebayd";
}

// In the child, between fork and exec: system calls only.
[[noreturn]] void become_server(char* const* arguments, int ready, const char* log,
                                Background how) {
  if (how == Background::child) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::setsid();
  const int null = ::open("/dev/null", O_RDWR);
  const int out = ::open(log, O_WRONLY | O_CREAT | O_APPEND, 0644);
  ::dup2(null, STDIN_FILENO);
  ::dup2(out >= 0 ? out : null, STDOUT_FILENO);
  ::dup2(out >= 0 ? out : null, STDERR_FILENO);
  ::fcntl(ready, F_SETFD, 0);
  ::execvp(arguments[0], arguments);
  char text[128] = "failed cannot run forebayd: ";
  std::strncat(text, strerrordesc_np(errno), sizeof text - std::strlen(text) - 1);
  (void)!::write(ready, text, std::strlen(text));
  ::_exit(127);
}

std::string read_to_end(int fd) {
  std::string text;
  char buffer[4096];
  while (true) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    text.append(buffer, static_cast<size_t>(n));
  }
}

std::string how_it_ended(int pid, const std::string& log) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  const std::string how = WIFSIGNALED(status)
                              ? fmt::format("was ended by signal {}", WTERMSIG(status))
                              : fmt::format("ended with code {}", WEXITSTATUS(status));
  return fmt::format("the server {} before it was ready; see {}", how, log);
}

}  // namespace

void say_ready(int fd) {
  say(fd, kReady);
}

void say_failed(int fd, std::string_view why) {
  say(fd, fmt::format("{}{}", kFailed, why));
}

Result<Launched> launch_server(const std::vector<std::string>& arguments, const std::string& log,
                               Background how) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error(errno, "pipe");
  std::vector<std::string> all = {server_program(), "--ready-fd", std::to_string(ends[1])};
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::vector<char*> raw;
  for (std::string& one : all) raw.push_back(one.data());
  raw.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) become_server(raw.data(), ends[1], log.c_str(), how);
  ::close(ends[1]);
  const std::string said = pid < 0 ? std::string() : read_to_end(ends[0]);
  ::close(ends[0]);
  if (pid < 0) return Error(errno, "fork");
  if (said == kReady) return Launched{pid};
  const std::string ended = how_it_ended(pid, log);
  return Error(ECHILD, said.starts_with(kFailed) ? said.substr(kFailed.size()) : ended);
}

}  // namespace forebay
