// What the file of a program says of how it is loaded: what of it `forebay run` and `forebay
// doctor` look at. Functions of the bytes.
#pragma once

#include <string>
#include <vector>

namespace forebay {

struct Elf {
  std::string interpreter;          // empty: it is statically linked
  std::vector<std::string> needed;  // libraries, by their names
};

// Of a 64-bit program; nothing of what is none, or is damaged.
Elf read_elf(const std::string& bytes);

}  // namespace forebay
