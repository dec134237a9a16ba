#include "server/process.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace forebay::server {

namespace {

// What is mounted there may be the processes of a namespace around ours, which have other numbers.
bool proc_is_ours() {
  std::error_code none;
  return std::filesystem::read_symlink("/proc/self", none) == std::to_string(::getpid());
}

}  // namespace

bool process_is_gone(uint32_t pid) {
  if (pid == 0) return false;
  if (::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) return true;
  if (!proc_is_ours()) return false;
  std::string text;
  std::getline(std::ifstream(fmt::format("/proc/{}/stat", pid)), text);
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return false;
  // proc(5): the state is the third field, the number of threads the twentieth.
  std::istringstream fields(text.substr(name_end + 1));
  std::string state, threads;
  fields >> state;
  for (int i = 4; i <= 20; ++i) fields >> threads;
  return (state == "Z" || state == "X") && (threads == "0" || threads == "1");
}

}  // namespace forebay::server
