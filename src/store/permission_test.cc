#include "store/permission.h"

#include <gtest/gtest.h>

namespace forebay::permission {
namespace {

const Caller kRoot{0, 0, {}, {}};
const Caller kOwner{10, 100, {}, {}};
const Caller kMember{20, 200, {100}, {}};
const Caller kOther{30, 300, {}, {}};

Attr attr(FileType type, uint32_t mode) {
  Attr a;
  a.type = type;
  a.mode = mode;
  a.uid = 10;
  a.gid = 100;
  return a;
}

int code(const Result<void>& r) {
  return r ? 0 : r.error().code();
}
int code(const Result<Attr>& r) {
  return r ? 0 : r.error().code();
}

TEST(Permission, TheFirstClassThatFitsDecides) {
  const Attr file = attr(FileType::file, 0046);
  EXPECT_FALSE(may(kOwner, file, kRead)) << "the owner has no bits, whatever others have";
  EXPECT_TRUE(may(kMember, file, kRead));
  EXPECT_FALSE(may(kMember, file, kWrite));
  EXPECT_TRUE(may(kOther, file, kRead | kWrite));
  EXPECT_TRUE(may(kRoot, file, kRead | kWrite));
  EXPECT_FALSE(may(kRoot, file, kExecute));
  EXPECT_TRUE(may(kRoot, attr(FileType::directory, 0), kExecute));
}

TEST(Permission, StickyDirectories) {
  const Attr dir = [] {
    Attr a = attr(FileType::directory, 01777);
    a.uid = 0;
    return a;
  }();
  const Attr file = attr(FileType::file, 0666);
  EXPECT_EQ(code(may_unlink(kOwner, dir, file)), 0);
  EXPECT_EQ(code(may_unlink(kRoot, dir, file)), 0);
  EXPECT_EQ(code(may_unlink(kOther, dir, file)), EPERM);
  EXPECT_EQ(code(may_unlink(kOther, attr(FileType::directory, 0755), file)), EACCES);
}

TEST(Permission, SetGroupDirectoriesPassTheirGroupOn) {
  Attr made = attr(FileType::directory, 0755);
  inherit(kOther, attr(FileType::directory, 02775), made);
  EXPECT_EQ(made.uid, 30u);
  EXPECT_EQ(made.gid, 100u);
  EXPECT_EQ(made.mode, 02755u);
  made = attr(FileType::file, 02755);
  inherit(kOther, attr(FileType::directory, 02775), made);
  EXPECT_EQ(made.mode, 0755u) << "not a member of the group";
  made = attr(FileType::file, 0644);
  inherit(kOther, attr(FileType::directory, 0775), made);
  EXPECT_EQ(made.gid, 300u);
}

SetAttr set(uint32_t what, uint32_t mode = 0, uint32_t uid = 0, uint32_t gid = 0) {
  SetAttr s;
  s.what = what;
  s.mode = mode;
  s.uid = uid;
  s.gid = gid;
  return s;
}

TEST(Permission, OnlyTheOwnerChangesTheMode) {
  const Attr file = attr(FileType::file, 0644);
  EXPECT_EQ(apply(kOwner, file, set(SetAttr::kMode, 0600), {})->mode, 0600u);
  EXPECT_EQ(apply(kRoot, file, set(SetAttr::kMode, 06755), {})->mode, 06755u);
  EXPECT_EQ(code(apply(kMember, file, set(SetAttr::kMode, 0666), {})), EPERM);
}

TEST(Permission, ChangeOfOwner) {
  const Attr file = attr(FileType::file, 06755);
  EXPECT_EQ(code(apply(kOwner, file, set(SetAttr::kUid, 0, 30), {})), EPERM);
  EXPECT_EQ(code(apply(kOwner, file, set(SetAttr::kGid, 0, 0, 300), {})), EPERM);
  const Attr given = *apply(kRoot, file, set(SetAttr::kUid, 0, 30), {});
  EXPECT_EQ(given.uid, 30u);
  EXPECT_EQ(given.mode, 0755u) << "set-id bits go";
}

TEST(Permission, Times) {
  const Attr file = attr(FileType::file, 0666);
  const uint32_t now = SetAttr::kAtimeNow | SetAttr::kMtimeNow;
  EXPECT_EQ(apply(kOther, file, set(now), {5, 0})->mtime.seconds, 5);
  EXPECT_EQ(code(apply(kOther, attr(FileType::file, 0644), set(now), {})), EACCES);
  EXPECT_EQ(code(apply(kOther, file, set(SetAttr::kMtime), {})), EPERM);
}

}  // namespace
}  // namespace forebay::permission
