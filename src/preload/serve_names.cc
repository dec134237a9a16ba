// Names and directories.
#include <linux/fs.h>

#include <cstring>

#include "preload/serve.h"
#include "store/listing.h"
#include "store/open_path.h"

namespace forebay::preload {

int rename(const Target& from, const Target& to, unsigned flags) {
  return static_cast<int>(run([&]() -> Result<int64_t> {
    if (flags & ~unsigned{RENAME_NOREPLACE | RENAME_EXCHANGE}) return Error(EINVAL);
    if ((flags & RENAME_NOREPLACE) && (flags & RENAME_EXCHANGE)) return Error(EINVAL);
    auto old = name_of(from, EBUSY);
    if (!old) return std::move(old).error();
    auto into = name_of(to, EBUSY);
    if (!into) return std::move(into).error();
    return done(Connection::get().call({.op = Op::rename,
                                        .flags = (flags & RENAME_NOREPLACE ? kFlagNoReplace : 0u) |
                                                 (flags & RENAME_EXCHANGE ? kFlagExchange : 0u),
                                        .caller = Connection::get().caller(),
                                        .handle = std::move(old->directory),
                                        .handle2 = std::move(into->directory),
                                        .name = std::move(old->name),
                                        .name2 = std::move(into->name)}));
  }));
}

int link(const Target& from, const Target& to) {
  return static_cast<int>(run([&]() -> Result<int64_t> {
    auto file = find(from);
    if (!file) return std::move(file).error();
    auto place = name_of(to, EEXIST);
    if (!place) return std::move(place).error();
    return done(Connection::get().call({.op = Op::link,
                                        .caller = file->caller,
                                        .handle = std::move(file->handle),
                                        .handle2 = std::move(place->directory),
                                        .name2 = std::move(place->name)}));
  }));
}

int symlink(const char* text, const Target& target) {
  return static_cast<int>(run([&]() -> Result<int64_t> {
    if (!*text) return Error(ENOENT);
    auto place = name_of(target, EEXIST);
    if (!place) return std::move(place).error();
    return done(Connection::get().call({.op = Op::symlink,
                                        .caller = Connection::get().caller(),
                                        .handle = std::move(place->directory),
                                        .name = std::move(place->name),
                                        .data = text}));
  }));
}

ssize_t readlink(const Target& target, char* to, size_t room) {
  return run([&]() -> Result<int64_t> {
    auto found = find(target);
    if (!found) return std::move(found).error();
    if (found->attr.type != FileType::symlink || room == 0) return Error(EINVAL);
    auto reply = Connection::get().call(
        {.op = Op::readlink, .caller = found->caller, .handle = std::move(found->handle)});
    if (!reply) return std::move(reply).error();
    const size_t size = std::min(room, reply->data.size());
    std::memcpy(to, reply->data.data(), size);
    return static_cast<int64_t>(size);
  });
}

int remove(const Target& target, bool directory) {
  return static_cast<int>(run([&]() -> Result<int64_t> {
    auto place = name_of(target, directory ? EBUSY : EISDIR);
    if (!place) return std::move(place).error();
    return done(Connection::get().call({.op = Op::remove,
                                        .flags = directory ? kFlagDirectory : 0u,
                                        .caller = Connection::get().caller(),
                                        .handle = std::move(place->directory),
                                        .name = std::move(place->name)}));
  }));
}

int mkdir(const Target& target, mode_t mode) {
  return static_cast<int>(run([&]() -> Result<int64_t> {
    auto place = name_of(target, EEXIST);
    if (!place) return std::move(place).error();
    return done(Connection::get().call({.op = Op::mkdir,
                                        .caller = Connection::get().caller(),
                                        .handle = std::move(place->directory),
                                        .name = std::move(place->name),
                                        .mode = masked(mode & 01777)}));
  }));
}

int make_file(const Target& target, mode_t mode) {
  return static_cast<int>(run([&]() -> Result<int64_t> {
    auto place = name_of(target, EEXIST);
    if (!place) return std::move(place).error();
    return done(Connection::get().call({.op = Op::create,
                                        .flags = kFlagExclusive,
                                        .caller = Connection::get().caller(),
                                        .handle = std::move(place->directory),
                                        .name = std::move(place->name),
                                        .mode = masked(mode)}));
  }));
}

// ---- Directories ----

namespace {

struct Reader {
  Handle handle;
  CallerRef caller;
  Listing entries;
  uint64_t cookie = 0;
};

unsigned char kind_of(FileType type) {
  constexpr unsigned char kKinds[] = {DT_UNKNOWN, DT_REG,  DT_DIR, DT_LNK,
                                      DT_FIFO,    DT_SOCK, DT_BLK, DT_CHR};
  return kKinds[static_cast<size_t>(type)];
}

void fill(dirent64* to, const Entry& entry) {
  to->d_ino = entry.file_id;
  to->d_off = static_cast<off64_t>(entry.cookie);
  to->d_type = kind_of(entry.type);
  const size_t size = std::min(entry.name.size(), sizeof to->d_name - 1);
  std::memcpy(to->d_name, entry.name.data(), size);
  to->d_name[size] = '\0';
  to->d_reclen = static_cast<unsigned short>((offsetof(dirent64, d_name) + size + 8) & ~size_t{7});
}

}  // namespace

void* list(int fd) {
  Reader* reader = nullptr;
  run([&]() -> Result<int64_t> {
    const FileUse file(fd);
    if (!file) return Error(EBADF);
    if (!file->shared->directory) return Error(ENOTDIR);
    auto attr = Connection::get().call(file->request(Op::getattr));
    const uint64_t file_id = attr ? attr->attr.file_id : 0;
    reader = new Reader{file->handle, file->caller, Listing(file_id), 0};
    return 0;
  });
  return reader;
}

int next_entry(void* listing, dirent64* to) {
  return static_cast<int>(run([&]() -> Result<int64_t> {
    auto& reader = *static_cast<Reader*>(listing);
    bool given = false;
    const auto fetch = [&](uint64_t cookie) {
      return Connection::get().call({.op = Op::readdir,
                                     .caller = reader.caller,
                                     .handle = reader.handle,
                                     .length = Length(kMaxReaddirBytes / 8),
                                     .cookie = cookie});
    };
    auto read = reader.entries.read(reader.cookie, fetch, [&](Entry& entry) {
      if (given) return false;
      fill(to, entry);
      reader.cookie = entry.cookie;
      return given = true;
    });
    if (!read) return std::move(read).error();
    return given ? 1 : 0;
  }));
}

void seek_entry(void* listing, long cookie) {
  static_cast<Reader*>(listing)->cookie = static_cast<uint64_t>(cookie);
}

void end_list(void* listing) {
  delete static_cast<Reader*>(listing);
}

}  // namespace forebay::preload
