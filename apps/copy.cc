#include "copy.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <random>

#include "store/path.h"

namespace forebay {
namespace {

// The file under its hidden name, until renamed() or removed.
class Partial {
 public:
  static Result<Partial> create(Store& store, const CallerRef& caller, const Place& place,
                                uint32_t mode) {
    std::string name = partial_name(place.name);
    auto made = store.call({.op = Op::create,
                            .flags = kFlagExclusive,
                            .caller = caller,
                            .handle = place.directory,
                            .name = name,
                            .access = Access::write,
                            .mode = mode});
    if (!made) return made.error();
    return Partial(store, caller, place.directory, std::move(name),
                   {std::move(made->handle), std::move(made->right)});
  }
  Partial(Partial&& other) noexcept
      : store_(other.store_),
        caller_(other.caller_),
        directory_(std::move(other.directory_)),
        name_(std::exchange(other.name_, {})),
        file_(std::move(other.file_)) {}
  Partial& operator=(Partial&&) = delete;
  ~Partial() {
    if (name_.empty()) return;
    close_file(store_, caller_, file_);
    (void)store_.call({.op = Op::remove, .caller = caller_, .handle = directory_, .name = name_});
  }

  const OpenFile& file() const { return file_; }

  Result<void> check_size(uint64_t bytes) {
    auto attr = store_.call({.op = Op::getattr, .caller = caller_, .handle = file_.handle});
    if (!attr) return attr.error();
    if (attr->attr.size == bytes) return {};
    return Error(EIO, fmt::format("the server holds {} bytes of {}", attr->attr.size, bytes));
  }

  // Before it has its name: with write-behind this is where an error may show.
  Result<void> close() {
    auto closed = store_.call(
        {.op = Op::close, .caller = caller_, .handle = file_.handle, .right = file_.right});
    return closed ? Result<void>() : Result<void>(closed.error());
  }

  Result<void> rename_to(const Place& place) {
    auto renamed = store_.call({.op = Op::rename,
                                .caller = caller_,
                                .handle = directory_,
                                .handle2 = place.directory,
                                .name = name_,
                                .name2 = place.name});
    if (!renamed) return renamed.error();
    name_.clear();
    return {};
  }

 private:
  Partial(Store& store, const CallerRef& caller, Handle directory, std::string name, OpenFile file)
      : store_(store),
        caller_(caller),
        directory_(std::move(directory)),
        name_(std::move(name)),
        file_(std::move(file)) {}

  Store& store_;
  const CallerRef& caller_;
  Handle directory_;
  std::string name_;
  OpenFile file_;
};

// Permissions of the local file `to` when it is written: its own if it is there.
mode_t mode_at(const std::string& to, uint32_t source) {
  struct stat st;
  if (::stat(to.c_str(), &st) == 0 && S_ISREG(st.st_mode)) return st.st_mode & 0777;
  return source & 0777 & ~umask_now();
}

}  // namespace

Result<uint64_t> put_file(Store& store, const CallerRef& caller, int from, uint32_t mode,
                          const std::string& path, const Watch& watch) {
  auto place = locate(store, caller, path);
  if (!place) return place.error();
  if (place->name.empty() || (place->found && place->found->attr.type == FileType::directory))
    return Error(EISDIR);
  const bool replaces = place->found && place->found->attr.type == FileType::file;
  auto partial =
      Partial::create(store, caller, *place, replaces ? place->found->attr.mode & 0777 : mode);
  if (!partial) return partial.error();
  auto bytes = write_file(store, caller, partial->file(), from, watch);
  if (!bytes) return bytes;
  if (auto right = partial->check_size(*bytes); !right) return right.error();
  if (auto closed = partial->close(); !closed) return closed.error();
  if (watch.give_up()) return Error(EINTR);
  if (auto renamed = partial->rename_to(*place); !renamed) return renamed.error();
  return bytes;
}

Result<OpenedCopy> open_file(Store& store, const CallerRef& caller, const std::string& path) {
  auto found = find_path(store, caller, path);
  if (!found) return found.error();
  if (found->attr.type == FileType::directory) return Error(EISDIR);
  auto opened = store.call(
      {.op = Op::open, .caller = caller, .handle = found->handle, .access = Access::read});
  if (!opened) return opened.error();
  return OpenedCopy{{std::move(found->handle), std::move(opened->right)}, opened->attr};
}

void close_file(Store& store, const CallerRef& caller, const OpenFile& file) {
  (void)store.call({.op = Op::close, .caller = caller, .handle = file.handle, .right = file.right});
}

Result<void> get_file(Store& store, const CallerRef& caller, const OpenedCopy& opened,
                      const std::string& to, const Watch& watch) {
  const size_t slash = to.rfind('/');
  const size_t name_at = slash == std::string::npos ? 0 : slash + 1;
  const std::string partial = to.substr(0, name_at) + partial_name(to.substr(name_at));
  const int fd = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return Error(errno, to);
  auto copied = read_file(store, caller, opened.file, opened.attr.size, fd, watch);
  if (copied && ::fchmod(fd, mode_at(to, opened.attr.mode)) != 0) copied = Error(errno, to);
  if (::close(fd) != 0 && copied) copied = Error(errno, to);
  if (copied && ::rename(partial.c_str(), to.c_str()) != 0) copied = Error(errno, to);
  if (!copied) ::unlink(partial.c_str());
  return copied;
}

uint32_t umask_now() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return mask;
}

std::string partial_name(const std::string& name) {
  // Beyond this a name is cut: the rest of it carries no meaning here.
  constexpr size_t kKept = 200;
  return fmt::format(".{}.partial-{:08x}", name.substr(0, kKept), std::random_device{}());
}

}  // namespace forebay
