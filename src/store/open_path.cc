#include "store/open_path.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <fstream>
#include <string>

namespace forebay {
namespace {

Result<Opened> create_at(Store& store, const CallerRef& caller, const Place& place, OpenHow how) {
  auto made = store.call({.op = Op::create,
                          .flags = (how.flags & O_EXCL ? kFlagExclusive : 0u) |
                                   (how.flags & O_TRUNC ? kFlagTruncate : 0u) | how.hinted,
                          .caller = caller,
                          .handle = place.directory,
                          .name = place.name,
                          .access = access_of(how.flags),
                          .mode = how.mode});
  if (!made) return made.error();
  return Opened{std::move(made->handle), std::move(made->right), made->attr};
}

Result<Opened> create(Store& store, const CallerRef& caller, std::string_view path, OpenHow how) {
  if (path.ends_with('/')) return Error(EISDIR);
  auto place = name_in(store, caller, path, EISDIR);
  if (!place) return place.error();
  auto opened = create_at(store, caller, *place, how);
  if (opened || opened.error().code() != ELOOP || how.flags & (O_EXCL | O_NOFOLLOW)) return opened;
  place = locate(store, caller, path);  // a symbolic link, dangling perhaps
  if (!place) return place.error();
  if (place->name.empty()) return Error(EISDIR);
  return create_at(store, caller, *place, how);
}

Result<Opened> open_existing(Store& store, const CallerRef& caller, std::string_view path,
                             OpenHow how) {
  auto found = find_path(store, caller, path, how.flags & O_NOFOLLOW ? Follow::no : Follow::yes);
  if (!found) return found.error();
  auto opened = store.call({.op = Op::open,
                            .flags = how.hinted,
                            .caller = caller,
                            .handle = found->handle,
                            .access = access_of(how.flags)});
  if (!opened) return opened.error();
  Opened file{std::move(found->handle), std::move(opened->right), opened->attr};
  if (!(how.flags & O_TRUNC)) return file;
  auto cut =
      store.call({.op = Op::resize, .caller = caller, .handle = file.handle, .right = file.right});
  if (cut) return file;
  (void)store.call({.op = Op::close, .caller = caller, .handle = file.handle, .right = file.right});
  return cut.error();
}

// umask(2) can only be asked by setting it, which other threads would see.
mode_t umask_now() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("Umask:"))
      return static_cast<mode_t>(std::stoul(line.substr(sizeof "Umask:" - 1), nullptr, 8));
  const mode_t mask = ::umask(077);  // no /proc: for a moment, the careful one
  ::umask(mask);
  return mask;
}

}  // namespace

uint32_t masked(unsigned mode) {
  return mode & 07777 & ~umask_now();
}

Access access_of(int flags) {
  switch (flags & O_ACCMODE) {
    case O_RDONLY:
      return Access::read;
    case O_WRONLY:
      return Access::write;
    default:
      return Access::both;
  }
}

Result<Opened> open_path(Store& store, const CallerRef& caller, std::string_view path,
                         OpenHow how) {
  return how.flags & O_CREAT ? create(store, caller, path, how)
                             : open_existing(store, caller, path, how);
}

Result<Place> name_in(Store& store, const CallerRef& caller, std::string_view path, int root) {
  while (path.ends_with('/')) path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  const std::string_view name = slash == path.npos ? path : path.substr(slash + 1);
  const std::string_view above = slash == path.npos ? std::string_view() : path.substr(0, slash);
  if (name.empty()) return Error(root, "this is the export itself");
  if (name == "." || name == "..") return Error(EINVAL, "the last component is . or ..");
  if (above.find_first_not_of('/') == above.npos) {
    auto top = store.root();
    if (!top) return top.error();
    return Place{std::move(*top), std::string(name), std::nullopt};
  }
  auto directory = find_path(store, caller, above);
  if (!directory) return directory.error();
  if (directory->attr.type != FileType::directory) return Error(ENOTDIR);
  return Place{std::move(directory->handle), std::string(name), std::nullopt};
}

}  // namespace forebay
