#include "core/op.h"

#include <grp.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace forebay {
namespace {

constexpr uint32_t kWhere = kHandle | kName, kRange = kOffset | kLength;
constexpr bool kChanges = true, kKeeps = false;
constexpr bool kAgain = true, kOnce = false;

constexpr std::array<OpInfo, kOpCount> kOps = {{
    {Op::lookup, "lookup", OpKind::path, kKeeps, kAgain, kWhere, 0, 0},
    {Op::open, "open", OpKind::session, kKeeps, kAgain, kHandle | kAccess, kFlags, kFlagDirect},
    {Op::close, "close", OpKind::session, kKeeps, kAgain, kHandle | kRight, 0, 0},
    {Op::create, "create", OpKind::path, kChanges, kAgain, kWhere, kMode | kAccess | kFlags,
     kFlagExclusive | kFlagTruncate | kFlagDirect},
    {Op::remove, "remove", OpKind::path, kChanges, kOnce, kWhere, kFlags, kFlagDirectory},
    {Op::rename, "rename", OpKind::path, kChanges, kOnce, kWhere | kHandle2 | kName2, kFlags,
     kFlagNoReplace | kFlagExchange},
    {Op::link, "link", OpKind::path, kChanges, kOnce, kHandle | kHandle2 | kName2, 0, 0},
    {Op::symlink, "symlink", OpKind::path, kChanges, kOnce, kWhere | kData, 0, 0},
    {Op::readlink, "readlink", OpKind::path, kKeeps, kAgain, kHandle, 0, 0},
    {Op::mkdir, "mkdir", OpKind::path, kChanges, kOnce, kWhere, kMode, 0},
    {Op::readdir, "readdir", OpKind::path, kKeeps, kAgain, kHandle, kCookie | kLength | kFlags,
     kFlagPlus},
    {Op::getattr, "getattr", OpKind::path, kKeeps, kAgain, kHandle, 0, 0},
    {Op::setattr, "setattr", OpKind::path, kChanges, kAgain, kHandle | kSet, kRight, 0},
    {Op::resize, "resize", OpKind::data, kChanges, kAgain, kHandle, kLength | kRight, 0},
    {Op::fallocate, "fallocate", OpKind::data, kChanges, kAgain, kHandle | kRight | kLength,
     kOffset | kFlags, kFlagKeepSize | kFlagPunchHole | kFlagZeroRange | kFlagFill},
    {Op::commit, "commit", OpKind::data, kChanges, kAgain, kHandle, kRight | kFlags, kFlagDataOnly},
    {Op::statfs, "statfs", OpKind::path, kKeeps, kAgain, kHandle, 0, 0},
    {Op::read, "read", OpKind::data, kKeeps, kAgain, kHandle | kRight, kFile, 0},
    {Op::write, "write", OpKind::data, kChanges, kAgain, kHandle | kRight,
     kFile | kFlags | kLength | kCookie,
     kFlagBehind | kFlagStable | kFlagSieve | kFlagNoSieve | kFlagAppend},
    {Op::layout, "layout", OpKind::path, kKeeps, kAgain, kHandle, 0, 0},
    {Op::xattr_get, "xattr_get", OpKind::path, kKeeps, kAgain, kWhere, 0, 0},
    {Op::xattr_set, "xattr_set", OpKind::path, kChanges, kAgain, kWhere, kData | kFlags,
     kFlagCreate | kFlagReplace},
    {Op::xattr_list, "xattr_list", OpKind::path, kKeeps, kAgain, kHandle, 0, 0},
    {Op::xattr_remove, "xattr_remove", OpKind::path, kChanges, kOnce, kWhere, 0, 0},
    {Op::lock, "lock", OpKind::session, kKeeps, kAgain, kHandle | kRight,
     kRange | kCookie | kFlags | kValue | kExpected,
     kFlagShared | kFlagWhole | kFlagWait | kFlagReclaim | kFlagHolds},
    {Op::unlock, "unlock", OpKind::session, kKeeps, kAgain, kHandle, kRange | kCookie | kFlags,
     kFlagWhole},
    {Op::lock_test, "lock_test", OpKind::path, kKeeps, kAgain, kHandle, kRange | kCookie | kFlags,
     kFlagShared | kFlagWhole},
    {Op::attr_create, "attr_create", OpKind::shared, kChanges, kOnce, kWhere | kRight, kValue, 0},
    {Op::attr_remove, "attr_remove", OpKind::shared, kChanges, kOnce, kWhere | kRight, 0, 0},
    {Op::attr_get, "attr_get", OpKind::shared, kKeeps, kAgain, kWhere | kRight, 0, 0},
    {Op::attr_set, "attr_set", OpKind::shared, kChanges, kAgain, kWhere | kRight, kValue, 0},
    {Op::attr_fetch_add, "attr_fetch_add", OpKind::shared, kChanges, kOnce, kWhere | kRight, kValue,
     0},
    {Op::attr_cas, "attr_cas", OpKind::shared, kChanges, kOnce, kWhere | kRight, kValue | kExpected,
     0},
    {Op::attr_list, "attr_list", OpKind::shared, kKeeps, kAgain, kHandle | kRight, kFlags,
     kFlagPlus},
    {Op::lease, "lease", OpKind::shared, kKeeps, kAgain, kHandle | kRight, kCookie | kFlags,
     kFlagShared | kFlagReclaim},
    {Op::shortcut, "shortcut", OpKind::shared, kKeeps, kAgain, kHandle | kRight, kFlags | kValue,
     kFlagShared},
    {Op::lock_waits, "lock_waits", OpKind::shared, kKeeps, kAgain, kHandle | kData, kValue, 0},
}};

constexpr bool rows_are_in_order() {
  for (int i = 0; i < kOpCount; ++i) {
    if (static_cast<int>(kOps[static_cast<size_t>(i)].op) != i) return false;
  }
  return true;
}
static_assert(rows_are_in_order());

}  // namespace

const OpInfo& op_info(Op op) {
  const auto i = static_cast<size_t>(op);
  FOREBAY_ASSERT(i < kOps.size());
  return kOps[i];
}

const OpInfo* op_by_name(std::string_view name) {
  const auto found =
      std::find_if(kOps.begin(), kOps.end(), [&](const OpInfo& info) { return info.name == name; });
  return found == kOps.end() ? nullptr : &*found;
}

bool repeatable(const Request& request) {
  constexpr uint32_t kOnceFlags =
      kFlagExclusive | kFlagTruncate | kFlagCreate | kFlagReplace | kFlagAppend;
  return op_info(request.op).repeatable && (request.flags & kOnceFlags) == 0;
}

bool takes_once(const Request& request) {
  const OpInfo& info = op_info(request.op);
  switch (request.op) {
    case Op::write:
      return (request.flags & kFlagAppend) != 0;
    case Op::create:
      return (request.flags & kFlagExclusive) != 0;
    case Op::mkdir:
    case Op::symlink:
    case Op::link:
    case Op::rename:
    case Op::remove:
      return true;
    default:
      return info.kind == OpKind::shared && info.changes;
  }
}

CallerRef this_process_caller() {
  auto caller = std::make_shared<Caller>();
  caller->uid = ::geteuid();
  caller->gid = ::getegid();
  // Another thread may change the groups between the two calls: ask until the size fits.
  int n = ::getgroups(0, nullptr);
  while (n > 0) {
    std::vector<gid_t> groups(static_cast<size_t>(n));
    if (const int got = ::getgroups(n, groups.data()); got >= 0) {
      caller->groups.assign(groups.begin(), groups.begin() + got);
      break;
    }
    n = ::getgroups(0, nullptr);
  }
  std::sort(caller->groups.begin(), caller->groups.end());
  return caller;
}

}  // namespace forebay
