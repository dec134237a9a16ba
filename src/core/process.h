// A process on this node, by its number.
#pragma once

#include <cstdint>

namespace forebay {

// Has it ended, but for being waited for? If nobody can tell, as of number 0: no. Nor if the number
// is another process's by now.
bool process_is_gone(uint32_t pid);

// Has it ended, and been waited for? Cheap.
bool process_is_forgotten(uint32_t pid);

// Is it stopped, by a signal or a debugger? If nobody can tell: yes.
bool process_is_stopped(uint32_t pid);

}  // namespace forebay
