#include "store/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "store/memory.h"

namespace forebay {
namespace {

using ::testing::MatchesRegex;

Request request(Op op) {
  Request r;
  r.op = op;
  r.handle = {"some handle"};
  auto caller = std::make_shared<Caller>();
  caller->uid = 1000;
  r.caller = caller;
  return r;
}

TEST(Trace, FormatsARequest) {
  Request r = request(Op::write);
  r.right = {"secret"};
  r.file = *Extents::make({{Offset(0), Length(8)}, {Offset(100), Length(4)}});
  EXPECT_EQ(format(r), "write b9232605 file=2 pieces, 12 B in [0, 104) uid=1000");
}

TEST(Trace, EscapesNames) {
  Request r = request(Op::lookup);
  r.name = "a\n\"b\"\\\xff";
  EXPECT_EQ(format(r), "lookup b9232605 \"a\\x0a\\\"b\\\"\\\\\\xff\" uid=1000");
}

TEST(Trace, FormatsBothNamesOfARename) {
  Request r = request(Op::rename);
  r.name = "x";
  r.handle2 = {"some handle"};
  r.name2 = "y";
  r.flags = kFlagNoReplace;
  EXPECT_EQ(format(r), "rename b9232605 \"x\" b9232605 \"y\" flags=0x8 uid=1000");
}

TEST(Trace, FormatsResults) {
  Reply reply;
  reply.count = 4096;
  EXPECT_EQ(format(Op::read, reply, Duration(1500)), "4096 B, 1.5 us");
  EXPECT_EQ(format(Op::close, Reply{}, Duration(0)), "ok, 0.0 us");
  EXPECT_EQ(format(Op::lookup, Error(ENOENT), Duration(2000)), "ENOENT, 2.0 us");
  EXPECT_EQ(format(Op::write, Error(ENOSPC).with_done(7), Duration(2000)),
            "ENOSPC after 7 B, 2.0 us");
  EXPECT_EQ(format(Op::write, Error(EIO).with_unknown_outcome(), Duration(0)),
            "EIO (outcome unknown), 0.0 us");
  reply.end = true;
  reply.entries.resize(2);
  EXPECT_EQ(format(Op::readdir, reply, Duration(0)), "2 entries, end, 0.0 us");
}

TEST(Trace, WritesOneLineForEachRequest) {
  ManualClock clock;
  std::vector<std::string> lines;
  TraceStore store(std::make_unique<MemoryStore>(), clock,
                   [&](std::string_view line) { lines.emplace_back(line); });
  Request r = request(Op::lookup);
  r.handle = *store.root();
  r.name = "missing";
  EXPECT_EQ(store.call(std::move(r)).error().code(), ENOENT);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], MatchesRegex("lookup [0-9a-f]+ \"missing\" uid=1000 -> ENOENT, 0.0 us"));
}

}  // namespace
}  // namespace forebay
