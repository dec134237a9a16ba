// Random programs of a hostile client (shared_world.h), in every kind of build.
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

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

// It is lent the file of an honest client (server/shortcuts.h), and does not play by the rules:
// that one and the next wait for it for a while, and no longer.
TEST(HostileClient, IsLentAFile) {
  using Steps = std::vector<std::array<unsigned, 4>>;  // of Step::shortcut: what, how, a, b
  constexpr auto s = static_cast<unsigned>(Step::shortcut);
  const std::vector<Steps> ways = {
      {{s, 3}},                                       // in, and never out
      {{s, 3}, {s, 5}, {s, 5}},                       // out twice
      {{s, 5}, {s, 3}},                               // out before it was in
      {{s, 15, 0, 63}, {s, 3}},                       // the word is scribbled on
      {{s, 3}, {s, 64}, {s, 3, 1, 1}, {s, 5, 0, 0}},  // and again
      {{s, 3}, {static_cast<unsigned>(Step::connect)}, {s, 3}},
  };
  unsigned lent = 0;
  for (size_t way = 0; way < ways.size(); ++way) {
    SCOPED_TRACE(way);
    std::string program;
    const auto add = [&](const std::array<unsigned, 4>& x) {
      for (const unsigned byte : {x[0], x[1], x[2] & 255, x[2] >> 8, x[3] & 255, x[3] >> 8}) {
        program += static_cast<char>(byte);
      }
    };
    const auto answered = [&] {  // most likely
      for (int i = 0; i < 4; ++i) add({static_cast<unsigned>(Step::wait)});
    };
    add({static_cast<unsigned>(Step::open_honest), 1});
    answered();
    add({s, 64});
    answered();
    for (const auto& step : ways[way]) add(step);
    for (unsigned i = 0; i < 6; ++i) add({static_cast<unsigned>(Step::honest), i, 100 * i, 5000});
    add({s, 64});
    SharedWorld world(kPosix);
    world.begin(0);
    world.play(std::as_bytes(std::span(program)));
    lent += world.hostile().files_lent();
    world.end();
  }
  EXPECT_GE(lent, 1u);
}

}  // namespace
}  // namespace forebay::fuzz
