#include "attr/record.h"

#include <gtest/gtest.h>

#include <vector>

namespace forebay::attr {
namespace {

using Kind = Command::Kind;

struct Kept {
  Command command;
  std::string name, handle;
};

struct Log {
  std::string bytes;
  std::vector<size_t> ends{0};
};

Log a_log() {
  Log log;
  uint64_t number = 41;
  for (const Command& c :
       std::vector<Command>{{.kind = Kind::life, .value = 1},
                            {.kind = Kind::file, .file = 1, .name = "key", .handle = "handle"},
                            {.kind = Kind::create, .file = 1, .value = 5, .name = "pointer"},
                            {Kind::add, 1, 3, 0, {11, 12, 13, 14}, "pointer"},
                            {Kind::append, 1, 100, 50, {11, 12, 14, 14}, {}},
                            {Kind::wrote, 1, 100, 0, {11, 12, 14, 14}, {}}}) {
    append_record(log.bytes, number++, c);
    log.ends.push_back(log.bytes.size());
  }
  return log;
}

Result<Replayed> replayed(std::string_view bytes, std::vector<Kept>* out = nullptr) {
  return replay(bytes, 41, [&](const Command& c) -> Result<void> {
    if (out) out->push_back({c, std::string(c.name), std::string(c.handle)});
    return {};
  });
}

TEST(Record, GoesThereAndBack) {
  std::vector<Kept> got;
  const auto all = replayed(a_log().bytes, &got);
  ASSERT_TRUE(all);
  EXPECT_EQ(all->next, 47u);
  EXPECT_EQ(all->torn, 0u);
  ASSERT_EQ(got.size(), 6u);
  EXPECT_EQ(got[1].name, "key");
  EXPECT_EQ(got[1].handle, "handle");
  EXPECT_EQ(got[3].command.once, (Once{11, 12, 13, 14}));
  EXPECT_EQ(got[3].command.value, 3u);
  EXPECT_EQ(got[4].command.extra, 50u);
}

// The bytes that docs/state-journal.md shows.
TEST(Record, HasTheBytesOfTheDocument) {
  std::string bytes;
  append_record(bytes, 2, {Kind::add, 1, 3, 0, {0x11, 0x22, 4, 5}, "n"});
  std::string hex;
  for (const unsigned char c : bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    hex += kDigits[c >> 4];
    hex += kDigits[c & 15];
  }
  EXPECT_EQ(hex,
            "33000000"
            "151b118c"
            "0200000000000000"
            "07"
            "03"
            "01000000"
            "0300000000000000"
            "1100000000000000"
            "2200000000000000"
            "0400000000000000"
            "0500"
            "01006e");
}

// A process that is killed at every byte of a write.
TEST(Record, ACutAnywhereLosesOnlyWhatWasCut) {
  const Log log = a_log();
  for (size_t cut = 0; cut <= log.bytes.size(); ++cut) {
    std::vector<Kept> got;
    const auto some = replayed(std::string_view(log.bytes).substr(0, cut), &got);
    ASSERT_TRUE(some) << cut << ": " << some.error().message();
    const auto whole =
        static_cast<size_t>(std::ranges::upper_bound(log.ends, cut) - log.ends.begin() - 1);
    EXPECT_EQ(got.size(), whole) << cut;
    EXPECT_EQ(some->good, log.ends[whole]) << cut;
    EXPECT_EQ(some->torn, cut - log.ends[whole]) << cut;
    EXPECT_EQ(some->next, 41 + whole) << cut;
  }
}

// As file systems may leave it after a power loss.
TEST(Record, ATailOfZerosIsCutOff) {
  const Log log = a_log();
  const auto some = replayed(log.bytes + std::string(5000, '\0'));
  ASSERT_TRUE(some);
  EXPECT_EQ(some->good, log.bytes.size());
  EXPECT_EQ(some->torn, 5000u);
}

TEST(Record, DamageInTheMiddleIsRefused) {
  const Log log = a_log();
  const size_t last = log.ends[log.ends.size() - 2];
  for (size_t at = 0; at < log.bytes.size(); ++at) {
    std::string bytes = log.bytes;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    const auto result = replayed(bytes);
    if (at < last) {
      ASSERT_FALSE(result) << at;
      EXPECT_EQ(result.error().code(), EBADMSG);
    } else {
      ASSERT_TRUE(result) << at << ": that of the last record is not told from a cut";
      EXPECT_EQ(result->good, last);
    }
  }
}

TEST(Record, AMissingOneIsRefused) {
  const Log log = a_log();
  const auto result = replayed(log.bytes.substr(0, log.ends[2]) + log.bytes.substr(log.ends[3]));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), EBADMSG);
}

TEST(Record, AnIntentComesBackAsItWas) {
  const Intent intent{Op::rename, {std::string(kMaxHandle, 'd')}, {"e"},
                      "from",     std::string(kMaxName, 't'),     std::string("i\0j", 3)};
  const std::string packed = pack(intent);
  EXPECT_EQ(unpack(packed), intent);
  EXPECT_EQ(unpack(pack(Intent{})), Intent{});
  const Intent elsewhere{.op = Op::remove, .name = "n", .identity = "i", .home = "b"};
  EXPECT_EQ(unpack(pack(elsewhere)), elsewhere);
  for (size_t size = 0; size < packed.size(); size += 97) {
    EXPECT_FALSE(unpack(std::string_view(packed).substr(0, size)));
  }
  EXPECT_FALSE(unpack(packed + "x"));
  EXPECT_FALSE(unpack("\xff" + packed.substr(1)));
  std::string journal;
  append_record(journal, 1, {.kind = Command::Kind::intend, .once = {1, 2, 3, 4}, .name = packed});
  const auto read = replay(journal, 1, [&](const Command& c) -> Result<void> {
    EXPECT_EQ(unpack(c.name), intent);
    return {};
  });
  EXPECT_EQ(read.value().next, 2u);
}

}  // namespace
}  // namespace forebay::attr
