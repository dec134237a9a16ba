// The fuzz target over the decoders (README.md).
#include <cstring>
#include <memory>

#include "core/fuzzing.h"
#include "wire/testing.h"

namespace forebay::wire {
namespace {

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
  RandomMessages random(1);
  for (int round = 0; round < kRounds; ++round) {
    int type = 0;
    for (const std::string& head : one_of_each(random)) {
      ++type;
      if (head.size() > kMaxSeed) continue;
      write_seed(folder / ("type-" + std::to_string(type) + "-" + std::to_string(round)), head);
    }
  }
}

}  // namespace
}  // namespace forebay::wire

int main(int argc, char** argv) {
  using namespace forebay;
  return FuzzProgram({"decode_fuzz", wire::run_one, wire::make_corpus}).main(argc, argv);
}
