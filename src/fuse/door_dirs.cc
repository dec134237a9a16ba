// Directories, read from a cookie on.
#include "fuse/door.h"
#include "fuse/worker.h"

namespace forebay::fuse {

namespace {

// The kernel's reply as it fills.
class Page {
 public:
  Page(fuse_req_t req, size_t size)
      : req_(req), room_(Worker::here().reply().first(std::min(size, kMostData))) {}

  // The size of an entry is asked with no room for it.
  bool add(const Entry& entry) {
    struct stat st = {};
    st.st_ino = entry.file_id;
    st.st_mode = type_of(entry.type);
    return took(fuse_add_direntry(req_, at(), left(), entry.name.c_str(), &st,
                                  static_cast<off_t>(entry.cookie)));
  }
  bool add(const std::string& name, const fuse_entry_param& entry, uint64_t cookie) {
    return took(fuse_add_direntry_plus(req_, at(), left(), name.c_str(), &entry,
                                       static_cast<off_t>(cookie)));
  }
  void send() { fuse_reply_buf(req_, reinterpret_cast<const char*>(room_.data()), used_); }

 private:
  static mode_t type_of(FileType type) {
    constexpr mode_t kTypes[] = {0, S_IFREG, S_IFDIR, S_IFLNK, S_IFIFO, S_IFSOCK, S_IFBLK, S_IFCHR};
    return kTypes[static_cast<size_t>(type)];
  }
  char* at() { return reinterpret_cast<char*>(room_.data()) + used_; }
  size_t left() const { return room_.size() - used_; }
  bool took(size_t bytes) {
    if (bytes > left()) return false;
    used_ += bytes;
    return true;
  }

  const fuse_req_t req_;
  const std::span<std::byte> room_;
  size_t used_ = 0;
};

}  // namespace

// Whoever may not read it hears so now, as from open(2).
void Door::opendir(fuse_req_t req, fuse_ino_t node, fuse_file_info* info) {
  const Result<Reply> may = ask(
      req,
      {.op = Op::readdir, .caller = caller(req), .handle = at(node).handle(), .length = Length(1)});
  if (!may) return fail(req, may.error());
  auto* const directory = new OpenDirectory{{}, Listing(at(node).file_id())};
  info->fh = reinterpret_cast<uint64_t>(directory);
  if (fuse_reply_open(req, info) != 0) delete directory;
}

void Door::releasedir(fuse_req_t req, fuse_ino_t, fuse_file_info* info) {
  delete &directory_of(info);
  fuse_reply_err(req, 0);
}

void Door::fsyncdir(fuse_req_t req, fuse_ino_t node, int data_only, fuse_file_info*) {
  answer(req, ask(req, {.op = Op::commit,
                        .flags = data_only ? kFlagDataOnly : 0u,
                        .caller = caller(req),
                        .handle = at(node).handle()}));
}

// Gives the listing's entries to `take`. Under its lock, and without it before the reply goes: by
// then the kernel may close the directory.
Result<void> Door::list(fuse_req_t req, Node& node, const fuse_file_info* info, ListFrom from,
                        const Listing::Take& take) {
  OpenDirectory& directory = directory_of(info);
  const std::lock_guard alone(directory.mutex);
  const auto fetch = [&](uint64_t cookie) {
    const uint64_t room = std::clamp<uint64_t>(from.size, 4096, kMaxReaddirBytes);
    return ask(req, {.op = Op::readdir,
                     .flags = from.flags,
                     .caller = caller(req),
                     .handle = node.handle(),
                     .length = Length(room),
                     .cookie = cookie});
  };
  return directory.listing.read(from.cookie, fetch, take);
}

void Door::readdir(fuse_req_t req, fuse_ino_t node, size_t size, off_t cookie,
                   fuse_file_info* info) {
  Page page(req, size);
  const Result<void> read = list(req, at(node), info, {static_cast<uint64_t>(cookie), size, 0},
                                 [&](const Entry& entry) { return page.add(entry); });
  if (!read) return fail(req, read.error());
  page.send();
}

// Every entry that has attributes counts as looked up.
void Door::readdirplus(fuse_req_t req, fuse_ino_t node, size_t size, off_t cookie,
                       fuse_file_info* info) {
  Page page(req, size);
  const auto take = [&](const Entry& entry) {
    fuse_entry_param param = {};
    param.attr.st_ino = entry.file_id;
    if (entry.handle.empty()) return page.add(entry.name, param, entry.cookie);
    Node& found = nodes_.remember(entry.handle, entry.attr);
    if (page.add(entry.name, entry_of(found, settled(req, found, entry.attr)), entry.cookie))
      return true;
    nodes_.forget(found, 1);
    return false;
  };
  const Result<void> read =
      list(req, at(node), info, {static_cast<uint64_t>(cookie), size, kFlagPlus}, take);
  if (!read) return fail(req, read.error());
  page.send();
}

}  // namespace forebay::fuse
