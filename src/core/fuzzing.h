// The program around a fuzz target, header only: tools/fuzz says what it must be able to do. Under
// AFL++ (its compilers define __AFL_LOOP and the rest) it takes inputs from the fuzzer in one
// long-lived process; otherwise it replays files, which is how a corpus or a crash is looked at
// under a debugger or a sanitizer.
//
// Included by one source of a program only, the one with main(). Not part of forebay_core.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>

#include "core/testing.h"

#ifdef __AFL_FUZZ_TESTCASE_LEN
__AFL_FUZZ_INIT();
#endif

namespace forebay {

struct FuzzTarget {
  const char* name;
  void (*run_one)(std::span<const std::byte> input);
  void (*make_corpus)(const std::filesystem::path& folder);  // in a folder that exists
};

// For make_corpus.
inline void write_seed(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

class FuzzProgram {
 public:
  explicit FuzzProgram(const FuzzTarget& target) : target_(target) {}

  int main(int argc, char** argv) {
#ifdef __AFL_FUZZ_TESTCASE_LEN
    if (argc == 1) return run_under_afl(), 0;
#endif
    try {
      return run(argc, argv);
    } catch (const std::exception& e) {
      std::cerr << target_.name << ": " << e.what() << '\n';
      return 2;
    }
  }

 private:
  int run(int argc, char** argv) {
    const std::string first = argc > 1 ? argv[1] : "";
    if (first == "-") return run_stream(std::cin), 0;
    if (first == "--make-corpus" && argc == 3) return make_corpus(argv[2]), 0;
    size_t n = 0;
    if (first == "--self-check") {
      const TempDir folder;
      make_corpus(folder.path());
      n = replay(folder.path());
    } else if (argc > 1 && first[0] != '-') {
      for (int i = 1; i < argc; ++i) n += replay(argv[i]);
    } else {
      return usage();
    }
    std::cout << n << " inputs replayed\n";
    return n > 0 ? 0 : 1;
  }

  int usage() const {
    std::cerr << "usage: " << target_.name << " FILE|DIRECTORY...      replay these inputs\n"
              << "       " << target_.name << " -                      replay standard input\n"
              << "       " << target_.name << " --make-corpus DIR      write seeds, to fuzz from\n"
              << "       " << target_.name
              << " --self-check           make them, and replay them\n";
    return 2;
  }

  void make_corpus(const std::filesystem::path& folder) {
    std::filesystem::create_directories(folder);
    target_.make_corpus(folder);
  }

  void run_stream(std::istream& in) {
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    target_.run_one(std::as_bytes(std::span(text)));
  }

  // Replays a file, or every file of a folder; returns how many.
  size_t replay(const std::filesystem::path& path) {
    if (std::filesystem::is_directory(path)) {
      size_t n = 0;
      for (const auto& entry : std::filesystem::directory_iterator(path)) n += replay(entry.path());
      return n;
    }
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot read " + path.string());
    run_stream(file);
    return 1;
  }

#ifdef __AFL_FUZZ_TESTCASE_LEN
  void run_under_afl() {
    __AFL_INIT();
    const unsigned char* input = __AFL_FUZZ_TESTCASE_BUF;
    while (__AFL_LOOP(10000)) {
      const auto size = static_cast<size_t>(__AFL_FUZZ_TESTCASE_LEN);
      target_.run_one({reinterpret_cast<const std::byte*>(input), size});
    }
  }
#endif

  const FuzzTarget target_;
};

}  // namespace forebay
