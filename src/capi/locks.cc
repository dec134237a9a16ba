// Advisory locks. Their owner is the open file: two of one process exclude each other, as the open
// file descriptions of F_OFD_SETLK do.
#include "capi/error.h"
#include "capi/store.h"

using namespace forebay;
using namespace forebay::capi;

namespace {

Result<uint32_t> flags_of(int how) {
  const int mode = how & (FB_SHARED | FB_EXCLUSIVE);
  if ((how & ~(FB_SHARED | FB_EXCLUSIVE | FB_WAIT)) != 0 || mode == 0 ||
      mode == (FB_SHARED | FB_EXCLUSIVE)) {
    return Error(EINVAL, "how: FB_SHARED or FB_EXCLUSIVE, and FB_WAIT if you like");
  }
  return (how & FB_SHARED ? kFlagShared : 0u) | (how & FB_WAIT ? kFlagWait : 0u);
}

Result<Reply> call(const Use& use, Op op, uint32_t flags, uint64_t offset, uint64_t length) {
  Request request = use.request(op, flags);
  if (op != Op::lock) request.right = {};
  request.offset = Offset(offset);
  request.length = Length(length);
  request.cookie = use.file().lock_owner();
  return use.store().call(std::move(request));
}

}  // namespace

int fb_lock(fb_file* file, int how, uint64_t offset, uint64_t length) {
  return status({"fb_lock"}, [&]() -> Result<void> {
    const auto flags = flags_of(how);
    if (!flags) return flags.error();
    auto use = Use::begin(file);
    if (!use) return use.error();
    file->locked.store(true);
    return without_value(call(*use, Op::lock, *flags, offset, length));
  });
}

int fb_unlock(fb_file* file, uint64_t offset, uint64_t length) {
  return status({"fb_unlock"}, [&]() -> Result<void> {
    auto use = Use::begin(file);
    if (!use) return use.error();
    return without_value(call(*use, Op::unlock, 0, offset, length));
  });
}

int fb_lock_test(fb_file* file, int how, uint64_t offset, uint64_t length, fb_lock_held* held) {
  int found = 0;
  const int good = status({"fb_lock_test"}, [&]() -> Result<void> {
    const auto flags = flags_of(how & ~FB_WAIT);
    if (!flags) return flags.error();
    auto use = Use::begin(file);
    if (!use) return use.error();
    const auto reply = call(*use, Op::lock_test, *flags, offset, length);
    if (!reply) return reply.error();
    found = reply->count != 0;
    const Locked& lock = reply->locked;
    if (found && held) {
      *held = {lock.offset.value, lock.length.value, lock.shared ? FB_SHARED : FB_EXCLUSIVE,
               lock.pid};
    }
    return {};
  });
  return good == 0 ? found : good;
}
