// A client's process on this node, by the number that the kernel gave with its connection.
#pragma once

#include <cstdint>

namespace forebay::server {

// Has it ended, but for being waited for? If nobody can tell, as of number 0: no. Nor if the number
// is another process's by now.
bool process_is_gone(uint32_t pid);

}  // namespace forebay::server
