// Opening, closing, and what is done to a whole file.
#include <fcntl.h>
#include <fmt/format.h>

#include "capi/attributes.h"
#include "capi/error.h"
#include "capi/hints.h"
#include "store/open_path.h"

using namespace forebay;
using namespace forebay::capi;

namespace {

Result<void> check_flags(int flags) {
  constexpr int kKnown =
      O_ACCMODE | O_CREAT | O_EXCL | O_TRUNC | O_NOFOLLOW | O_CLOEXEC | O_LARGEFILE;
  if (flags & O_APPEND) return Error(ENOTSUP, "O_APPEND");
  if (flags & ~kKnown) return Error(EINVAL, fmt::format("flags {:#o}", flags & ~kKnown));
  if ((flags & O_ACCMODE) == O_ACCMODE) return Error(EINVAL, "flags: no access is 3");
  if ((flags & O_TRUNC) && (flags & O_ACCMODE) == O_RDONLY)
    return Error(EINVAL, "O_TRUNC needs O_WRONLY or O_RDWR");
  return {};
}

// A file's memory until it is open; back where it came from if it never is.
class Opening {
 public:
  explicit Opening(fb_store& store) : file_(take_place(store)) { file_->open_flags = 0; }
  Opening(const Opening&) = delete;
  ~Opening() {
    if (file_) give_place(file_, *file_->owner.lives.now());
  }
  fb_file& file() { return *file_; }
  fb_file* open(Opened opened) {
    const Life& life = *file_->owner.lives.now();
    file_->handle = std::move(opened.handle);
    file_->right = std::move(opened.right);
    file_->opened_in = life.number;
    file_->owner.open.fetch_add(1);
    file_->uses.open(life);
    return std::exchange(file_, nullptr);
  }

 private:
  fb_file* file_;
};

Result<Reply> call(fb_file* file, Op op, uint32_t flags = 0) {
  auto use = Use::begin(file);
  if (!use) return use.error();
  return use->store().call(use->request(op, flags));
}

}  // namespace

int fb_open(fb_store* store, const char* path, int flags, unsigned mode, const char* const* hints,
            fb_file** file) {
  return status({"fb_open", path}, [&]() -> Result<void> {
    if (auto ok = given({store, path, file}); !ok) return ok;
    *file = nullptr;
    if (auto ok = check_flags(flags); !ok) return ok;
    Opening opening(*store);
    if (auto ok = set_hints(opening.file(), hints); !ok) return ok;
    const uint32_t bits = flags & O_CREAT ? masked(mode) : 0;
    auto opened =
        open_path(*store->store, store->caller, path, {flags, bits, opening.file().open_flags});
    if (!opened) return opened.error();
    *file = opening.open(std::move(*opened));
    return {};
  });
}

int fb_close(fb_file* file) {
  return status({"fb_close"}, [&]() -> Result<void> {
    if (!file) return Error(EBADF, "the file is NULL");
    fb_store& store = file->owner;
    const LifeRef life = store.lives.now();
    if (!file->uses.close(*life)) return Error(EBADF, "the file is closed");
    Result<void> closed;
    if (file->locked.exchange(false)) {
      (void)store.call({.op = Op::unlock, .handle = file->handle, .cookie = file->lock_owner()});
    }
    // What a parent opened is the parent's to close at the server.
    if (file->opened_in == life->number)
      closed = without_value(
          store.call({.op = Op::close, .handle = file->handle, .right = file->right}));
    store.open.fetch_sub(1);
    give_place(file, *life);
    return closed;
  });
}

int fb_fstat(fb_file* file, fb_attr* attr) {
  return status({"fb_fstat"}, [&]() -> Result<void> {
    if (auto ok = given({attr}); !ok) return ok;
    auto use = Use::begin(file);
    if (!use) return use.error();
    Request request = use->request(Op::getattr);
    request.right = {};
    auto reply = use->store().call(std::move(request));
    if (reply) *attr = to_c(reply->attr);
    return without_value(reply);
  });
}

int fb_ftruncate(fb_file* file, uint64_t size) {
  return status({"fb_ftruncate"}, [&]() -> Result<void> {
    auto use = Use::begin(file);
    if (!use) return use.error();
    Request request = use->request(Op::resize);
    request.length = Length(size);
    return without_value(use->store().call(std::move(request)));
  });
}

int fb_fallocate(fb_file* file, int mode, uint64_t offset, uint64_t length) {
  return status({"fb_fallocate"}, [&]() -> Result<void> {
    if (mode & ~(FB_KEEP_SIZE | FB_PUNCH_HOLE | FB_ZERO_RANGE))
      return Error(EINVAL, fmt::format("mode {:#x}", mode));
    auto use = Use::begin(file);
    if (!use) return use.error();
    Request request = use->request(Op::fallocate, (mode & FB_KEEP_SIZE ? kFlagKeepSize : 0u) |
                                                      (mode & FB_PUNCH_HOLE ? kFlagPunchHole : 0u) |
                                                      (mode & FB_ZERO_RANGE ? kFlagZeroRange : 0u));
    request.offset = Offset(offset);
    request.length = Length(length);
    return without_value(use->store().call(std::move(request)));
  });
}

int fb_fsync(fb_file* file) {
  return status({"fb_fsync"}, [&] { return without_value(call(file, Op::commit)); });
}

int fb_fdatasync(fb_file* file) {
  return status({"fb_fdatasync"},
                [&] { return without_value(call(file, Op::commit, kFlagDataOnly)); });
}
