// Random programs of a hostile client (shared_world.h), in every kind of build.
#include <gtest/gtest.h>

#include <random>

#include "shared_world.h"

namespace forebay::fuzz {
namespace {

// Steps that keep a conversation going more often than those that end it.
Step any_step(std::mt19937_64& random) {
  constexpr Step common[] = {
      Step::write,         Step::read,          Step::answer,        Step::take,   Step::honest,
      Step::scribble_area, Step::scribble_lent, Step::scribble_ring, Step::cancel, Step::box};
  if (random() % 4) return common[random() % std::size(common)];
  return static_cast<Step>(random() % static_cast<uint8_t>(Step::count));
}

// Numbers that mean something, more often than any.
std::string any_program(std::mt19937_64& random) {
  std::string program;
  const auto add = [&](uint64_t byte) { program += static_cast<char>(byte); };
  add(random());
  add(random() % 3 ? random() % 3 : random());
  for (uint64_t n = 5 + random() % 40; n > 0; --n) {
    const Step what = any_step(random);
    add(static_cast<uint8_t>(what));
    const bool break_rules = random() % 4 == 0;
    add(break_rules ? random() : random() % 3 == 0 ? 1 : 64);
    for (int i = 0; i < 4; ++i) add(random() % 3 ? random() % 100 : random());
  }
  return program;
}

TEST(HostileClient, HurtsNobody) {
  const uint64_t seed = test_seed();
  const char* given = std::getenv("FOREBAY_SEEDS");
  const uint64_t programs = given ? std::strtoull(given, nullptr, 10) : 100;
  for (uint64_t i = 0; i < programs; ++i) {
    std::mt19937_64 random(seed + i);
    const std::string program = any_program(random);
    play_shared(std::as_bytes(std::span(program)));
  }
}

}  // namespace
}  // namespace forebay::fuzz
