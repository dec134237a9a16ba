#include "store/posix_identity.h"

#include <fmt/format.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <optional>

namespace forebay::posix {

namespace {

// What the kernel holds for one thread, as far as we changed it.
struct Credentials {
  uint32_t uid = 0;
  uint32_t gid = 0;
  std::vector<uint32_t> groups;
};

enum class Capabilities : uint8_t { unknown, full, reduced };

struct ThreadState {
  std::optional<Credentials> original;  // read before the first change
  Credentials now;
  Capabilities capabilities = Capabilities::unknown;  // inherited from whoever started it
};

// The kernel's state is per thread, so its memory must be too.
thread_local ThreadState thread_state;

constexpr uint32_t kAsk = UINT32_MAX;  // an invalid id: the calls return the present one

uint32_t set_uid(uint32_t uid) {
  return static_cast<uint32_t>(::syscall(SYS_setfsuid, uid));
}
uint32_t set_gid(uint32_t gid) {
  return static_cast<uint32_t>(::syscall(SYS_setfsgid, gid));
}

bool set_groups(const std::vector<uint32_t>& groups) {
  return ::syscall(SYS_setgroups, groups.size(), groups.data()) == 0;
}

std::vector<uint32_t> get_groups() {
  const int n = ::getgroups(0, nullptr);
  std::vector<uint32_t> groups(n > 0 ? static_cast<size_t>(n) : 0);
  if (n > 0 && ::getgroups(n, groups.data()) < 0) groups.clear();
  return groups;
}

ThreadState& state() {
  ThreadState& s = thread_state;
  if (!s.original) {
    s.now = {set_uid(kAsk), set_gid(kAsk), get_groups()};
    s.original = s.now;
  }
  return s;
}

// The kernel takes file system capabilities out of effect when fsuid leaves 0, and puts all that
// the thread may have back when it returns, those that we took included.
void change_uid(ThreadState& s, uint32_t uid) {
  set_uid(uid);
  if ((s.now.uid == 0) != (uid == 0)) s.capabilities = Capabilities::unknown;
  s.now.uid = set_uid(kAsk);
}

bool change(ThreadState& s, uint32_t uid, uint32_t gid, const std::vector<uint32_t>& groups) {
  Credentials& now = s.now;
  if (now.groups != groups) {
    if (!set_groups(groups)) return false;
    now.groups = groups;
  }
  if (now.gid != gid) {
    set_gid(gid);
    now.gid = set_gid(kAsk);
  }
  if (now.uid != uid) change_uid(s, uid);
  return now.gid == gid && now.uid == uid;
}

bool capability_call(long number, __user_cap_data_struct (&data)[2]) {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  return ::syscall(number, &header, data) == 0;
}

void set_capabilities(ThreadState& s, Capabilities want) {
  if (s.capabilities == want) return;
  constexpr uint32_t kFsetid = 1u << CAP_FSETID, kResource = 1u << CAP_SYS_RESOURCE;
  static_assert(CAP_FSETID < 32 && CAP_SYS_RESOURCE < 32);
  __user_cap_data_struct data[2] = {};
  if (!capability_call(SYS_capget, data)) return;
  const uint32_t before = data[0].effective;
  if (want == Capabilities::reduced) {
    data[0].effective &= ~(kFsetid | kResource);
  } else {
    data[0].effective |= data[0].permitted & (kResource | (s.now.uid == 0 ? kFsetid : 0));
  }
  if (data[0].effective == before || capability_call(SYS_capset, data)) s.capabilities = want;
}

}  // namespace

Identity Identity::probe() {
  Identity identity;
  identity.own_uid_ = ::geteuid();
  if (identity.own_uid_ != 0) return identity;
  ThreadState& s = state();
  constexpr uint32_t kNobody = 65534;
  identity.privileged_ = change(s, kNobody, kNobody, {kNobody});
  const bool back = change(s, s.original->uid, s.original->gid, s.original->groups);
  FOREBAY_ASSERT(back);
  return identity;
}

Identity Identity::of_application() {
  Identity identity;
  identity.own_uid_ = ::geteuid();
  identity.application_ = true;
  return identity;
}

Result<void> Identity::serves(const Caller& caller) const {
  if (privileged_ || caller.uid == own_uid_) return {};
  return Error(EPERM, fmt::format("the server runs as uid {} and serves that user only, not uid {}",
                                  own_uid_, caller.uid));
}

Result<void> Identity::become(const Caller& caller) const {
  if (!privileged_) return serves(caller);
  ThreadState& s = state();
  if (change(s, caller.uid, caller.gid, caller.groups)) return {};
  return Error(EPERM, fmt::format("cannot act as uid {} gid {} with {} groups", caller.uid,
                                  caller.gid, caller.groups.size()));
}

void Identity::become_server() const {
  if (!privileged_) return;
  // The capabilities that come with fsuid 0 override every mode, whatever the groups are.
  ThreadState& s = state();
  if (s.now.uid != own_uid_) change_uid(s, own_uid_);
}

void Identity::leave_root(const Caller& caller) const {
  if (!privileged_ || caller.uid == 0) return;
  ThreadState& s = state();
  if (s.now.uid == 0) change_uid(s, caller.uid);
}

void Identity::reduce() const {
  if (!application_) set_capabilities(state(), Capabilities::reduced);
}

void Identity::reduce_unless_root(const Caller& caller) const {
  if (application_) return;
  set_capabilities(state(), caller.uid == 0 ? Capabilities::full : Capabilities::reduced);
}

BorrowedThread::BorrowedThread(const Identity& identity) : changes_(identity.privileged()) {
  if (changes_) state();  // remembers who the thread is
}

BorrowedThread::~BorrowedThread() {
  if (!changes_) return;
  ThreadState& s = state();
  const bool back = change(s, s.original->uid, s.original->gid, s.original->groups);
  FOREBAY_ASSERT(back);
}

}  // namespace forebay::posix
