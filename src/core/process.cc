#include "core/process.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace forebay {

namespace {

// What is mounted there may be the processes of a namespace around ours, which have other numbers.
bool proc_is_ours() {
  std::error_code none;
  return std::filesystem::read_symlink("/proc/self", none) == std::to_string(::getpid());
}

struct State {
  std::string state, threads;  // empty: nobody can tell
};

// proc(5): the state is the third field, the number of threads the twentieth.
State state_of(uint32_t pid) {
  State at;
  if (!proc_is_ours()) return at;
  std::string text;
  std::getline(std::ifstream(fmt::format("/proc/{}/stat", pid)), text);
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return at;
  std::istringstream fields(text.substr(name_end + 1));
  fields >> at.state;
  for (int i = 4; i <= 20; ++i) fields >> at.threads;
  return at;
}

}  // namespace

bool process_is_gone(uint32_t pid) {
  if (pid == 0) return false;
  if (process_is_forgotten(pid)) return true;
  const State at = state_of(pid);
  return (at.state == "Z" || at.state == "X") && (at.threads == "0" || at.threads == "1");
}

bool process_is_forgotten(uint32_t pid) {
  return pid != 0 && ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH;
}

bool process_is_stopped(uint32_t pid) {
  const std::string state = state_of(pid).state;
  return state.empty() || state == "T" || state == "t";
}

}  // namespace forebay
