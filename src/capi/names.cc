// What is done by path.
#include "capi/attributes.h"
#include "capi/error.h"
#include "capi/store.h"
#include "store/open_path.h"

using namespace forebay;
using namespace forebay::capi;

namespace {

bool wants_directory(std::string_view path) {
  return path.ends_with('/');
}

Result<void> stat_into(fb_store* store, const char* path, Follow follow, fb_attr* attr) {
  if (auto ok = given({store, path, attr}); !ok) return ok;
  auto found = find_path(*store->store, store->caller, path, follow);
  if (!found) return found.error();
  *attr = to_c(found->attr);
  return {};
}

Result<void> remove(fb_store* store, const char* path, bool directory) {
  if (auto ok = given({store, path}); !ok) return ok;
  if (!directory && wants_directory(path)) {  // ENOTDIR, or what a directory is
    auto found = find_path(*store->store, store->caller, path, Follow::no);
    return found ? Error(EISDIR) : found.error();
  }
  auto place = name_in(*store->store, store->caller, path, EBUSY);
  if (!place) return place.error();
  return without_value(store->call({.op = Op::remove,
                                    .flags = directory ? uint32_t{kFlagDirectory} : 0,
                                    .handle = place->directory,
                                    .name = place->name}));
}

// A new or renamed thing whose path ends in '/' has to be a directory.
Result<void> check_slash(fb_store& store, const char* from, const char* to) {
  if (!wants_directory(from) && !wants_directory(to)) return {};
  auto found = find_path(*store.store, store.caller, from, Follow::no);
  if (!found) return found.error();
  return found->attr.type == FileType::directory ? Result<void>() : Result<void>(Error(ENOTDIR));
}

}  // namespace

int fb_stat(fb_store* store, const char* path, fb_attr* attr) {
  return status({"fb_stat", path}, [&] { return stat_into(store, path, Follow::yes, attr); });
}

int fb_lstat(fb_store* store, const char* path, fb_attr* attr) {
  return status({"fb_lstat", path}, [&] { return stat_into(store, path, Follow::no, attr); });
}

int fb_mkdir(fb_store* store, const char* path, unsigned mode) {
  return status({"fb_mkdir", path}, [&]() -> Result<void> {
    if (auto ok = given({store, path}); !ok) return ok;
    auto place = name_in(*store->store, store->caller, path, EEXIST);
    if (!place) return place.error();
    return without_value(store->call(
        {.op = Op::mkdir, .handle = place->directory, .name = place->name, .mode = masked(mode)}));
  });
}

int fb_unlink(fb_store* store, const char* path) {
  return status({"fb_unlink", path}, [&] { return remove(store, path, false); });
}

int fb_rmdir(fb_store* store, const char* path) {
  return status({"fb_rmdir", path}, [&] { return remove(store, path, true); });
}

int fb_rename(fb_store* store, const char* from, const char* to) {
  return status({"fb_rename", from}, [&]() -> Result<void> {
    if (auto ok = given({store, from, to}); !ok) return ok;
    if (auto ok = check_slash(*store, from, to); !ok) return ok;
    auto old_place = name_in(*store->store, store->caller, from, EBUSY);
    if (!old_place) return old_place.error();
    auto new_place = name_in(*store->store, store->caller, to, EBUSY);
    if (!new_place) return std::move(new_place).error().at(to);
    return without_value(store->call({.op = Op::rename,
                                      .handle = old_place->directory,
                                      .handle2 = new_place->directory,
                                      .name = old_place->name,
                                      .name2 = new_place->name}));
  });
}

int fb_link(fb_store* store, const char* file, const char* name) {
  return status({"fb_link", name}, [&]() -> Result<void> {
    if (auto ok = given({store, file, name}); !ok) return ok;
    auto found = find_path(*store->store, store->caller, file, Follow::no);
    if (!found) return std::move(found).error().at(file);
    auto place = name_in(*store->store, store->caller, name, EEXIST);
    if (!place) return place.error();
    if (wants_directory(name)) return Error(ENOENT, "a link is no directory");
    return without_value(store->call({.op = Op::link,
                                      .handle = found->handle,
                                      .handle2 = place->directory,
                                      .name2 = place->name}));
  });
}

int fb_symlink(fb_store* store, const char* target, const char* name) {
  return status({"fb_symlink", name}, [&]() -> Result<void> {
    if (auto ok = given({store, target, name}); !ok) return ok;
    if (!*target) return Error(ENOENT, "the target is empty");
    auto place = name_in(*store->store, store->caller, name, EEXIST);
    if (!place) return place.error();
    if (wants_directory(name)) return Error(ENOENT, "a link is no directory");
    return without_value(store->call(
        {.op = Op::symlink, .handle = place->directory, .name = place->name, .data = target}));
  });
}

int64_t fb_readlink(fb_store* store, const char* path, char* text, size_t size) {
  return count({"fb_readlink", path}, [&]() -> Result<uint64_t> {
    if (auto ok = given({store, path, text}); !ok) return ok.error();
    auto found = find_path(*store->store, store->caller, path, Follow::no);
    if (!found) return found.error();
    if (found->attr.type != FileType::symlink) return Error(EINVAL, "not a symbolic link");
    auto reply = store->call({.op = Op::readlink, .handle = found->handle});
    if (!reply) return reply.error();
    return reply->data.copy(text, size);
  });
}

int fb_truncate(fb_store* store, const char* path, uint64_t size) {
  return status({"fb_truncate", path}, [&]() -> Result<void> {
    if (auto ok = given({store, path}); !ok) return ok;
    auto found = find_path(*store->store, store->caller, path);
    if (!found) return found.error();
    return without_value(
        store->call({.op = Op::resize, .handle = found->handle, .length = Length(size)}));
  });
}

int fb_statfs(fb_store* store, const char* path, fb_fs* fs) {
  return status({"fb_statfs", path}, [&]() -> Result<void> {
    if (auto ok = given({store, path, fs}); !ok) return ok;
    auto found = find_path(*store->store, store->caller, path);
    if (!found) return found.error();
    auto reply = store->call({.op = Op::statfs, .handle = found->handle});
    if (!reply) return reply.error();
    const FsStatus& s = reply->statfs;
    *fs = {s.block_size, s.blocks,     s.blocks_free, s.blocks_available,
           s.files,      s.files_free, s.name_max};
    return {};
  });
}
