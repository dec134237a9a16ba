// Starting forebayd in the background, and the pipe on which it says that it is ready.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace forebay {

// ---- In forebayd ----
// Tells whoever started us, once, that we can be reached, or why we cannot.
void say_ready(int fd);
void say_failed(int fd, std::string_view why);

// ---- In forebay ----
struct Launched {
  int pid = 0;
};
enum class Background { detached, child };  // outlives us, or dies with us

// Runs the forebayd that stands beside this program (or in PATH) with these arguments, and returns
// when it is ready. An error's what() is what the server said. `log` gets its standard error.
Result<Launched> launch_server(const std::vector<std::string>& arguments, const std::string& log,
                               Background how);

}  // namespace forebay
