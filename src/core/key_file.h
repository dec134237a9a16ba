// A secret in a file of its own: random bytes, open to its owner only. What is done with it is the
// business of whoever reads it (store/sealed.h, transport/auth_key.h). Any thread.
#pragma once

#include <cstddef>
#include <string>

#include "core/result.h"

namespace forebay {

inline constexpr size_t kKeyFileBytes = 32;  // of the keys that we make

// The bytes of the file. An error says what is wrong with it (not there, open to other users,
// another user's, shorter than `least` or longer than `most`) and what to do.
Result<std::string> read_key_file(const std::string& path, size_t least = kKeyFileBytes,
                                  size_t most = kKeyFileBytes);

// Makes it, with random bytes and mode 0600, whole or not at all; EEXIST if something has the name.
Result<void> make_key_file(const std::string& path);

}  // namespace forebay
