#include "core/op.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>

namespace forebay {
namespace {

// The smallest valid request of each operation.
Request minimal(Op op) {
  const uint32_t needs = op_info(op).needs;
  Request r;
  r.op = op;
  r.caller = this_process_caller();
  if (needs & kHandle) r.handle.bytes = "h";
  if (needs & kHandle2) r.handle2.bytes = "h2";
  if (needs & kName) r.name = "name";
  if (needs & kName2) r.name2 = "name2";
  if (needs & kRight) r.right.bytes = "right";
  if (needs & kAccess) r.access = Access::read;
  if (needs & kSet) r.set.what = SetAttr::kMode;
  if (needs & kLength) r.length = Length(1);
  if (needs & kData) r.data = "data";
  return r;
}

int code_of(const Request& r) {
  const Result<void> ok = check(r);
  return ok ? 0 : ok.error().code();
}

int code_with(Op op, const std::function<void(Request&)>& change) {
  Request r = minimal(op);
  change(r);
  return code_of(r);
}

void for_each_op(const std::function<void(const OpInfo&)>& fn) {
  for (int i = 0; i < kOpCount; ++i) fn(op_info(static_cast<Op>(i)));
}

TEST(Op, TheTableIsCompleteAndNamed) {
  for_each_op([](const OpInfo& info) {
    EXPECT_EQ(op_by_name(info.name), &info);
    EXPECT_EQ(info.needs & info.may, 0u) << info.name;
    EXPECT_EQ((info.may & kFlags) != 0, info.flags != 0) << info.name;
    EXPECT_TRUE(info.needs & kHandle) << info.name;
  });
  EXPECT_EQ(op_by_name("format"), nullptr);
}

TEST(Op, MinimalRequestsAreWellFormed) {
  for_each_op([](const OpInfo& info) { EXPECT_TRUE(check(minimal(info.op))) << info.name; });
}

struct Part {
  Field field;
  const char* name;
  std::function<void(Request&)> set, clear;
};

const std::vector<Part>& parts() {
  static const std::vector<Part> all = {
      {kHandle, "handle", [](auto& r) { r.handle.bytes = "h"; }, [](auto& r) { r.handle = {}; }},
      {kHandle2, "handle2", [](auto& r) { r.handle2.bytes = "h"; },
       [](auto& r) { r.handle2 = {}; }},
      {kName, "name", [](auto& r) { r.name = "n"; }, [](auto& r) { r.name = {}; }},
      {kName2, "name2", [](auto& r) { r.name2 = "n"; }, [](auto& r) { r.name2 = {}; }},
      {kRight, "right", [](auto& r) { r.right.bytes = "r"; }, [](auto& r) { r.right = {}; }},
      {kAccess, "access", [](auto& r) { r.access = Access::read; },
       [](auto& r) { r.access = Access::none; }},
      {kMode, "mode", [](auto& r) { r.mode = 0644; }, [](auto& r) { r.mode = 0; }},
      {kSet, "set", [](auto& r) { r.set.what = SetAttr::kUid; }, [](auto& r) { r.set = {}; }},
      {kOffset, "offset", [](auto& r) { r.offset = Offset(1); }, [](auto& r) { r.offset = {}; }},
      {kLength, "length", [](auto& r) { r.length = Length(1); }, [](auto& r) { r.length = {}; }},
      {kCookie, "cookie", [](auto& r) { r.cookie = 1; }, [](auto& r) { r.cookie = 0; }},
      {kData, "data", [](auto& r) { r.data = "d"; }, [](auto& r) { r.data = {}; }},
      {kValue, "value", [](auto& r) { r.value = 1; }, [](auto& r) { r.value = 0; }},
      {kExpected, "expected", [](auto& r) { r.expected = 1; }, [](auto& r) { r.expected = 0; }},
      {kFile, "file",
       [](auto& r) {
         r.file = r.memory.shape = Extents({Offset(0), Length(1)});
       },
       [](auto& r) { r.file = r.memory.shape = {}; }},
  };
  return all;
}

TEST(OpCheck, AsksForItsFieldsAndNoOthers) {
  for_each_op([](const OpInfo& info) {
    for (const Part& part : parts()) {
      Request r = minimal(info.op);
      if (info.needs & part.field) {
        part.clear(r);
      } else {
        part.set(r);
      }
      const Result<void> ok = check(r);
      const bool fine = (info.may & part.field) != 0;
      ASSERT_EQ(ok.has_value(), fine) << info.name << " " << part.name;
      if (fine) continue;
      EXPECT_EQ(ok.error().code(), EINVAL);
      EXPECT_EQ(ok.error().what().find(std::string(info.name) + ": " + part.name + ": "), 0u)
          << ok.error().what();
    }
  });
}

TEST(OpCheck, FlagsAreThoseOfTheOperation) {
  for_each_op([](const OpInfo& info) {
    for (uint32_t bit = 0; bit < 32; ++bit) {
      Request r = minimal(info.op);
      r.flags = 1u << bit;
      EXPECT_EQ(code_of(r), info.flags & r.flags ? 0 : EINVAL) << info.name << " bit " << bit;
    }
  });
  const auto flags = [](uint32_t f) { return [f](Request& r) { r.flags = f; }; };
  EXPECT_EQ(code_with(Op::rename, flags(kFlagNoReplace | kFlagExchange)), EINVAL);
  EXPECT_EQ(code_with(Op::fallocate, flags(kFlagPunchHole | kFlagZeroRange)), EINVAL);
  EXPECT_EQ(code_with(Op::fallocate, flags(kFlagPunchHole | kFlagKeepSize)), 0);
  for (uint32_t other : {kFlagKeepSize, kFlagPunchHole, kFlagZeroRange})
    EXPECT_EQ(code_with(Op::fallocate, flags(kFlagFill | other)), EINVAL);
  EXPECT_EQ(code_with(Op::xattr_set, flags(kFlagCreate | kFlagReplace)), EINVAL);
  EXPECT_EQ(code_with(Op::write, flags(kFlagSieve | kFlagNoSieve)), EINVAL);
  EXPECT_EQ(code_with(Op::write, flags(kFlagSieve | kFlagStable)), 0);
}

TEST(OpCheck, NamesAreOneComponent) {
  const auto code = [](std::string name) {
    const int first = code_with(Op::mkdir, [&](Request& r) { r.name = name; });
    EXPECT_EQ(code_with(Op::rename, [&](Request& r) { r.name2 = name; }), first);
    EXPECT_EQ(code_with(Op::link, [&](Request& r) { r.name2 = name; }), first);
    return first;
  };
  EXPECT_EQ(code(std::string(255, 'x')), 0);
  EXPECT_EQ(code(std::string(256, 'x')), ENAMETOOLONG);
  EXPECT_EQ(code("..."), 0);
  EXPECT_EQ(code(".hidden"), 0);
  for (const char* bad : {"", ".", "..", "a/b", "/", "a/"}) EXPECT_EQ(code(bad), EINVAL) << bad;
  EXPECT_EQ(code(std::string("a\0b", 3)), EINVAL);
}

TEST(OpCheck, LookupTakesRelativePaths) {
  const auto code = [](std::string path) {
    return code_with(Op::lookup, [&](Request& r) { r.name = path; });
  };
  EXPECT_EQ(code("a/b/c"), 0);
  for (const char* bad : {"", "/", "/a", "a/", "a//b", "a/./b", "a/../b", "..", ".", "a/.."}) {
    EXPECT_EQ(code(bad), EINVAL) << bad;
  }
  EXPECT_EQ(code(std::string("a/b\0c", 5)), EINVAL);
  std::string longest;
  for (int i = 0; i < 15; ++i) longest += std::string(255, 'x') + "/";
  longest += std::string(255, 'x');
  EXPECT_EQ(longest.size(), 4095u);
  EXPECT_EQ(code(longest), 0);
  EXPECT_EQ(code("a/" + std::string(256, 'x')), ENAMETOOLONG);
  EXPECT_EQ(code("a/" + longest), ENAMETOOLONG);
}

TEST(OpCheck, XattrNamesAndValues) {
  const auto name = [](std::string n) {
    return code_with(Op::xattr_get, [&](Request& r) { r.name = n; });
  };
  EXPECT_EQ(name("user.a/b"), 0);
  EXPECT_EQ(name(std::string(255, 'x')), 0);
  EXPECT_EQ(name(std::string(256, 'x')), ERANGE);
  EXPECT_EQ(name(std::string("user.\0", 6)), EINVAL);
  const auto value = [](size_t n) {
    return code_with(Op::xattr_set, [&](Request& r) { r.data.assign(n, 'v'); });
  };
  EXPECT_EQ(value(0), 0);
  EXPECT_EQ(value(kMaxXattr), 0);
  EXPECT_EQ(value(kMaxXattr + 1), E2BIG);
}

TEST(OpCheck, Sizes) {
  EXPECT_EQ(code_with(Op::symlink, [](auto& r) { r.data.assign(4095, 'x'); }), 0);
  EXPECT_EQ(code_with(Op::symlink, [](auto& r) { r.data.assign(4096, 'x'); }), ENAMETOOLONG);
  EXPECT_EQ(code_with(Op::symlink, [](auto& r) { r.data.assign(3, '\0'); }), EINVAL);
  EXPECT_EQ(code_with(Op::getattr, [](auto& r) { r.handle.bytes.assign(kMaxHandle, 'x'); }), 0);
  EXPECT_EQ(code_with(Op::getattr, [](auto& r) { r.handle.bytes.assign(kMaxHandle + 1, 'x'); }),
            EINVAL);
  EXPECT_EQ(code_with(Op::read, [](auto& r) { r.right.bytes.assign(kMaxRight + 1, 'x'); }), EINVAL);
  EXPECT_EQ(code_with(Op::readdir, [](auto& r) { r.length = Length(kMaxReaddirBytes); }), 0);
  EXPECT_EQ(code_with(Op::readdir, [](auto& r) { r.length = Length(kMaxReaddirBytes + 1); }),
            EINVAL);
}

TEST(OpCheck, Numbers) {
  EXPECT_EQ(code_with(Op::mkdir, [](auto& r) { r.mode = 07777; }), 0);
  EXPECT_EQ(code_with(Op::mkdir, [](auto& r) { r.mode = 010000; }), EINVAL);
  EXPECT_EQ(code_with(Op::open, [](auto& r) { r.access = static_cast<Access>(4); }), EINVAL);
  EXPECT_EQ(code_with(Op::resize, [](auto& r) { r.length = Length(kMaxOffset); }), 0);
  EXPECT_EQ(code_with(Op::resize, [](auto& r) { r.length = Length(kMaxOffset + 1); }), EINVAL);
  const auto range = [](uint64_t offset, uint64_t length) {
    return code_with(Op::fallocate, [&](Request& r) {
      r.offset = Offset(offset);
      r.length = Length(length);
    });
  };
  EXPECT_EQ(range(kMaxOffset - 5, 5), 0);
  EXPECT_EQ(range(kMaxOffset - 5, 6), EINVAL);
  EXPECT_EQ(range(UINT64_MAX, 2), EINVAL);
  EXPECT_EQ(range(5, UINT64_MAX), EINVAL);
}

TEST(OpCheck, AttributesToSet) {
  const auto set = [](SetAttr s) { return code_with(Op::setattr, [&](Request& r) { r.set = s; }); };
  EXPECT_EQ(set({.what = SetAttr::kMode, .mode = 07777}), 0);
  EXPECT_EQ(set({.what = SetAttr::kMode, .mode = 010000}), EINVAL);
  EXPECT_EQ(set({.what = 0, .mode = 0644}), EINVAL);
  EXPECT_EQ(set({.what = 128}), EINVAL);
  EXPECT_EQ(set({.what = SetAttr::kAtime | SetAttr::kAtimeNow}), EINVAL);
  EXPECT_EQ(set({.what = SetAttr::kAtimeNow | SetAttr::kMtimeNow}), 0);
  EXPECT_EQ(set({.what = SetAttr::kMtime, .mtime = {-5, 999'999'999}}), 0);
  EXPECT_EQ(set({.what = SetAttr::kMtime, .mtime = {0, 1'000'000'000}}), EINVAL);
}

TEST(OpCheck, BothSidesAreOfOneLengthInAStore) {
  Request r = minimal(Op::write);
  r.file = Extents({Offset(0), Length(10)});
  EXPECT_TRUE(check_arguments(r));
  EXPECT_EQ(code_of(r), EINVAL);
  r.memory.shape = Extents({Offset(0), Length(9)});
  EXPECT_EQ(code_of(r), EINVAL);
  r.memory.shape = Extents({Offset(0), Length(10)});
  EXPECT_EQ(code_of(r), 0);
  r.caller = nullptr;
  EXPECT_TRUE(check_arguments(r));
  EXPECT_EQ(code_of(r), EINVAL);
}

TEST(OpCheck, AnAppendDoesNotSayWhere) {
  const auto at = [](uint64_t offset) {
    return code_with(Op::write, [&](Request& r) {
      r.flags = kFlagAppend;
      r.file = Extents({Offset(offset), Length(4)});
      r.memory.shape = Extents({Offset(0), Length(4)});
    });
  };
  EXPECT_EQ(at(0), 0);
  EXPECT_EQ(at(1), EINVAL);
}

TEST(OpCheck, OnlyWhatIsDoneOnceHasAOnce) {
  const auto with = [](Op op, Once once) { return code_with(op, [&](auto& r) { r.once = once; }); };
  EXPECT_EQ(with(Op::attr_fetch_add, {1, 2, 3, 4}), 0);
  EXPECT_EQ(with(Op::attr_fetch_add, {1, 2, 3, kMaxLanes}), EINVAL);
  EXPECT_EQ(with(Op::attr_fetch_add, {1, 2, 0, 4}), EINVAL);
  EXPECT_EQ(with(Op::attr_get, {1, 2, 3, 4}), EINVAL);
  EXPECT_EQ(with(Op::getattr, {1, 2, 3, 4}), EINVAL);
  EXPECT_EQ(with(Op::write, {1, 2, 3, 4}), EINVAL);
}

TEST(OpCheck, BackEndsKnowNoSharedState) {
  for_each_op([](const OpInfo& info) {
    const bool shared = info.kind == OpKind::shared;
    const Result<void> good = check_at_back_end(minimal(info.op));
    EXPECT_EQ(good ? 0 : good.error().code(), shared ? EOPNOTSUPP : 0) << info.name;
  });
  Request append = minimal(Op::write);
  append.flags = kFlagAppend;
  EXPECT_EQ(check_at_back_end(append).error().code(), EOPNOTSUPP);
}

TEST(OpCheck, UnknownOperation) {
  Request r;
  r.op = static_cast<Op>(kOpCount);
  EXPECT_EQ(check_arguments(r).error().code(), EINVAL);
}

TEST(Op, RepeatableDependsOnFlags) {
  const auto with = [](Op op, uint32_t flags) {
    Request r = minimal(op);
    r.flags = flags;
    return repeatable(r);
  };
  EXPECT_TRUE(with(Op::create, 0));
  EXPECT_FALSE(with(Op::create, kFlagExclusive));
  EXPECT_FALSE(with(Op::create, kFlagTruncate));
  EXPECT_TRUE(with(Op::xattr_set, 0));
  EXPECT_FALSE(with(Op::xattr_set, kFlagCreate));
  EXPECT_FALSE(with(Op::xattr_set, kFlagReplace));
  EXPECT_TRUE(with(Op::fallocate, kFlagPunchHole | kFlagKeepSize));
  EXPECT_TRUE(with(Op::write, 0));
  EXPECT_FALSE(with(Op::write, kFlagAppend));
  EXPECT_FALSE(with(Op::attr_fetch_add, 0));
  EXPECT_TRUE(with(Op::attr_set, 0));
  for (const Op op : {Op::remove, Op::rename, Op::link, Op::symlink, Op::mkdir, Op::xattr_remove}) {
    EXPECT_FALSE(with(op, 0)) << op_info(op).name;
  }
  for_each_op(
      [](const OpInfo& info) { EXPECT_TRUE(info.changes || info.repeatable) << info.name; });
}

TEST(Op, ThisProcessIsACaller) {
  const CallerRef caller = this_process_caller();
  EXPECT_EQ(caller->uid, ::geteuid());
  EXPECT_EQ(caller->gid, ::getegid());
  EXPECT_TRUE(caller->same_identity(*this_process_caller()));
}

}  // namespace
}  // namespace forebay
