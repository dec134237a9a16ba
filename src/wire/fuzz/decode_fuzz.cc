// The fuzz target over the decoders (README.md). Under AFL++ (afl-g++-fast defines __AFL_LOOP) it
// takes inputs from the fuzzer in one long-lived process; otherwise it is a program that replays
// them.
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>

#include "core/testing.h"
#include "wire/testing.h"

#ifdef __AFL_FUZZ_TESTCASE_LEN
__AFL_FUZZ_INIT();
#endif

namespace forebay::wire {
namespace {

constexpr const char* kUsage =
    "usage: decode_fuzz FILE|DIRECTORY...      replay these inputs\n"
    "       decode_fuzz -                      replay standard input\n"
    "       decode_fuzz --make-corpus DIR      write valid frames, to begin fuzzing from\n"
    "       decode_fuzz --self-check           make a corpus, replay it, remove it\n";

void run_one(Bytes input) {
  if (input.size() < kHeaderSize) return;
  const Bytes head = input.first(kHeaderSize), rest = input.subspan(kHeaderSize);
  // A copy of its own, so that a sanitizer sees the first byte read beyond the message.
  const auto copy = std::make_unique_for_overwrite<std::byte[]>(rest.size());
  if (!rest.empty()) std::memcpy(copy.get(), rest.data(), rest.size());
  const Bytes message(copy.get(), rest.size());

  if (const auto header = decode_header(head.first<kHeaderSize>())) {
    std::array<std::byte, kHeaderSize> again;
    encode(*header, again);
    FOREBAY_ASSERT(std::equal(again.begin(), again.end(), head.begin()), "a header changed");
  }
  for (int type = 1; type <= static_cast<int>(kLastFrameType); ++type)
    decode_and_back(static_cast<FrameType>(type), message);
  decode_blocks(message);
}

void make_corpus(const std::filesystem::path& folder) {
  constexpr int kRounds = 8;
  constexpr size_t kMaxSeed = 1024;  // AFL++ mutates short inputs far better than long ones
  std::filesystem::create_directories(folder);
  RandomMessages random(1);
  for (int round = 0; round < kRounds; ++round) {
    int type = 0;
    for (const std::string& head : one_of_each(random)) {
      ++type;
      if (head.size() > kMaxSeed) continue;
      std::ofstream file(folder / ("type-" + std::to_string(type) + "-" + std::to_string(round)),
                         std::ios::binary);
      file.write(head.data(), static_cast<std::streamsize>(head.size()));
    }
  }
}

void run_stream(std::istream& in) {
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  run_one(bytes_of(text));
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

int run_program(int argc, char** argv) {
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
    return std::cerr << kUsage, 2;
  }
  std::cout << n << " inputs replayed\n";
  return n > 0 ? 0 : 1;
}

#ifdef __AFL_FUZZ_TESTCASE_LEN
void run_under_afl() {
  __AFL_INIT();
  const unsigned char* input = __AFL_FUZZ_TESTCASE_BUF;
  while (__AFL_LOOP(10000)) {
    const auto size = static_cast<size_t>(__AFL_FUZZ_TESTCASE_LEN);
    run_one({reinterpret_cast<const std::byte*>(input), size});
  }
}
#endif

}  // namespace
}  // namespace forebay::wire

int main(int argc, char** argv) {
#ifdef __AFL_FUZZ_TESTCASE_LEN
  if (argc == 1) return forebay::wire::run_under_afl(), 0;
#endif
  try {
    return forebay::wire::run_program(argc, argv);
  } catch (const std::exception& e) {
    std::cerr << "decode_fuzz: " << e.what() << '\n';
    return 2;
  }
}
