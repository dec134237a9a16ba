// Listing directories, a few hundred entries to a request.
#include "capi/attributes.h"
#include "capi/error.h"
#include "capi/store.h"
#include "store/path.h"

using namespace forebay;
using namespace forebay::capi;

struct fb_dir {
  fb_store& owner;
  const Handle handle;
  std::mutex mutex = {};  // guards the rest
  uint64_t cookie = 0;
  std::vector<Entry> entries = {};
  size_t next = 0;
  bool end = false;
};

namespace {

Result<void> refill(fb_dir& dir) {
  auto reply = dir.owner.call({.op = Op::readdir, .handle = dir.handle, .cookie = dir.cookie});
  if (!reply) return reply.error();
  dir.entries = std::move(reply->entries);
  dir.next = 0;
  dir.end = reply->end || dir.entries.empty();
  if (!dir.entries.empty()) dir.cookie = dir.entries.back().cookie;
  return {};
}

void put(const Entry& entry, fb_dirent& out) {
  out.file_id = entry.file_id;
  out.type = type_bits(entry.type);
  out.name[entry.name.copy(out.name, sizeof out.name - 1)] = '\0';
}

}  // namespace

int fb_opendir(fb_store* store, const char* path, fb_dir** dir) {
  return status({"fb_opendir", path}, [&]() -> Result<void> {
    if (auto ok = given({store, path, dir}); !ok) return ok;
    *dir = nullptr;
    auto found = find_path(*store->store, store->caller, path);
    if (!found) return found.error();
    if (found->attr.type != FileType::directory) return Error(ENOTDIR);
    *dir = new fb_dir{*store, std::move(found->handle)};
    store->open.fetch_add(1);
    return {};
  });
}

int fb_readdir(fb_dir* dir, fb_dirent* entry) {
  const int64_t got = count({"fb_readdir"}, [&]() -> Result<uint64_t> {
    if (auto ok = given({dir, entry}); !ok) return ok.error();
    std::lock_guard lock(dir->mutex);
    while (dir->next == dir->entries.size()) {
      if (dir->end) return 0;
      if (auto ok = refill(*dir); !ok) return ok.error();
    }
    put(dir->entries[dir->next++], *entry);
    return 1;
  });
  return static_cast<int>(got);
}

int fb_closedir(fb_dir* dir) {
  return status({"fb_closedir"}, [&]() -> Result<void> {
    if (auto ok = given({dir}); !ok) return ok;
    dir->owner.open.fetch_sub(1);
    delete dir;
    return {};
  });
}
