#include "store/posix_handles.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <climits>
#include <cstring>

namespace forebay::posix {

namespace {

enum Kind : char { kKernelKind = 1, kPathKind = 2 };

template <class T>
void put(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i)
    out.push_back(static_cast<char>(static_cast<std::make_unsigned_t<T>>(value) >> (8 * i)));
}

// Bytes of a body that was sealed by us, so its shape is known: too short is only possible for a
// body of another version.
template <class T>
bool take(std::string_view& in, T& value) {
  if (in.size() < sizeof(T)) return false;
  std::make_unsigned_t<T> v = 0;
  for (size_t i = 0; i < sizeof(T); ++i)
    v |= static_cast<std::make_unsigned_t<T>>(static_cast<unsigned char>(in[i])) << (8 * i);
  value = static_cast<T>(v);
  in.remove_prefix(sizeof(T));
  return true;
}

// struct file_handle ends in a flexible array; this gives it room.
union KernelHandle {
  struct file_handle head;
  char space[sizeof(struct file_handle) + MAX_HANDLE_SZ];
};

bool kernel_handle_of(int fd, KernelHandle& out) {
  int mount = 0;
  out.head.handle_bytes = MAX_HANDLE_SZ;
  return ::name_to_handle_at(fd, "", &out.head, &mount, AT_EMPTY_PATH) == 0;
}

// The file system's own word for which inode this is, generation included: birth times are coarse,
// and an inode number may be used again within one tick. Needs no privilege; 0 where there is none.
uint64_t fingerprint_of(int fd) {
  KernelHandle handle;
  if (!kernel_handle_of(fd, handle)) return 0;
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  const char* bytes = handle.space + offsetof(struct file_handle, f_handle);
  for (unsigned i = 0; i < handle.head.handle_bytes; ++i)
    hash = (hash ^ static_cast<unsigned char>(bytes[i])) * 0x100000001b3u;
  return hash;
}

Fd open_kernel(int top, KernelHandle& handle) {
  return Fd(::open_by_handle_at(top, &handle.head, O_PATH | O_NOFOLLOW | O_CLOEXEC));
}

Error damaged() {
  return Error(EBADF, "not a handle of this export, or a damaged one");
}

Error stale() {
  return Error(ESTALE, "the file was removed, or moved where its handle cannot follow");
}

Result<std::string> link_text(int fd) {
  char text[PATH_MAX];
  const ssize_t n = ::readlink(ProcPath(fd).c_str(), text, sizeof text);
  if (n < 0) return failed("path of a descriptor");
  if (static_cast<size_t>(n) == sizeof text) return Error(ENAMETOOLONG, "path of a descriptor");
  return std::string(text, static_cast<size_t>(n));
}

}  // namespace

std::string unlinked_name(uint64_t inode, FileTime birth) {
  return fmt::format("{:x}-{:x}.{}", inode, static_cast<uint64_t>(birth.seconds),
                     birth.nanoseconds);
}

Handles::Handles(SealKey key, uint64_t export_id, int top, FsKind fs, bool kernel, Mounts mounts)
    : key_(std::move(key)),
      export_id_(export_id),
      top_(top),
      kernel_(kernel),
      fuse_(fs.fuse),
      mounts_(mounts) {}

bool Handles::kernel_handles_work(int top, FsKind fs) {
  if (fs.fuse) return false;
  KernelHandle handle;
  return kernel_handle_of(top, handle) && open_kernel(top, handle);
}

std::string_view Handles::identity(const Handle& handle) {
  constexpr size_t kBeforePath = 1 + sizeof(uint64_t) + sizeof(InodeId::inode) +
                                 sizeof(FileTime::seconds) + sizeof(FileTime::nanoseconds) +
                                 sizeof(uint64_t);
  const std::string_view bytes = handle.bytes;
  const bool path = !bytes.empty() && bytes.front() == kPathKind;
  return path ? bytes.substr(0, kBeforePath) : bytes;
}

Result<Handle> Handles::make(int fd, const InodeId& id) const {
  if (!kernel_) {
    Result<std::string> path = path_of(fd);
    if (!path) return std::move(path).error();
    return make_path(fd, id, *path);
  }
  std::string body;
  body.push_back(kKernelKind);
  put(body, export_id_);
  KernelHandle handle;
  if (!kernel_handle_of(fd, handle)) return failed("name_to_handle_at");
  put(body, static_cast<int32_t>(handle.head.handle_type));
  body.append(reinterpret_cast<const char*>(handle.head.f_handle), handle.head.handle_bytes);
  return Handle{key_.seal(SealDomain::handle, body)};
}

Result<Handle> Handles::make_top(const InodeId& id) const {
  return kernel_ ? make(top_, id) : make_path(top_, id, "");
}

Handle Handles::make_path(int fd, const InodeId& id, const std::string& path) const {
  std::string body;
  body.push_back(kPathKind);
  put(body, export_id_);
  put(body, id.inode);
  put(body, id.birth.seconds);
  put(body, id.birth.nanoseconds);
  put(body, fuse_ ? 0 : fingerprint_of(fd));
  body += path;
  return Handle{key_.seal(SealDomain::handle, body)};
}

Result<std::string_view> Handles::unseal(const Handle& handle) const {
  std::optional<std::string_view> body = key_.unseal(SealDomain::handle, handle.bytes);
  if (!body || body->empty()) return damaged();
  std::string_view rest = body->substr(1);
  uint64_t export_id = 0;
  if (!take(rest, export_id) || export_id != export_id_) return damaged();
  return *body;
}

Result<void> Handles::verify(const Handle& handle) const {
  Result<std::string_view> body = unseal(handle);
  if (!body) return std::move(body).error();
  return {};
}

Result<Fd> Handles::resolve(const Handle& handle) const {
  Result<std::string_view> body = unseal(handle);
  if (!body) return std::move(body).error();
  const char kind = body->front();
  const std::string_view rest = body->substr(1 + sizeof(uint64_t));
  if (kind == kKernelKind) return resolve_kernel(rest);
  if (kind == kPathKind) return resolve_path(rest);
  return damaged();
}

Result<Fd> Handles::resolve_kernel(std::string_view body) const {
  KernelHandle handle;
  int32_t type = 0;
  if (!take(body, type) || body.size() > MAX_HANDLE_SZ) return damaged();
  handle.head.handle_type = type;
  handle.head.handle_bytes = static_cast<unsigned>(body.size());
  std::memcpy(handle.head.f_handle, body.data(), body.size());
  Fd fd = open_kernel(top_, handle);
  // ext4 says ENOMEM for an inode whose number is just being given to a new file: for a moment.
  for (int tries = 0; !fd && errno == ENOMEM && tries < 100; ++tries) {
    ::sched_yield();
    fd = open_kernel(top_, handle);
  }
  if (fd) return fd;
  if (errno == ESTALE) return stale();
  if (errno == EPERM)
    return Error(EPERM, "a handle made by a privileged server needs a privileged server");
  return failed("open_by_handle_at");
}

Result<Fd> Handles::resolve_path(std::string_view body) const {
  InodeId want;
  uint64_t fingerprint = 0;
  if (!take(body, want.inode) || !take(body, want.birth.seconds) ||
      !take(body, want.birth.nanoseconds) || !take(body, fingerprint))
    return damaged();
  const std::string path(body);
  // The top's own path is empty; no other comes near these.
  std::vector<std::string> places = {path.empty() ? "." : path};
  places.push_back(std::string(kUnlinkedFolder) + "/" + unlinked_name(want.inode, want.birth));
  for (std::string& p : moved_to(path)) places.push_back(std::move(p));
  for (const std::string& place : places) {
    Result<Fd> fd = open_path(top_, place, mounts_);
    if (!fd) {
      if (out_of_descriptors(fd.error())) return fd;
      continue;
    }
    Result<FileStat> found = stat_of(fd->get());
    if (found && found->id.inode == want.inode && found->id.birth == want.birth &&
        (fingerprint == 0 || fingerprint == fingerprint_of(fd->get())))
      return fd;
  }
  return stale();
}

Result<std::string> Handles::path_of(int fd) const {
  Result<std::string> top = link_text(top_);
  if (!top) return top;
  Result<std::string> path = link_text(fd);
  if (!path) return path;
  if (*path == *top) return std::string();
  if (*top == "/") top->clear();
  if (path->size() <= top->size() + 1 || path->compare(0, top->size(), *top) != 0 ||
      (*path)[top->size()] != '/')
    return stale();
  path->erase(0, top->size() + 1);
  if (path->size() > kMaxPath)
    return Error(ENAMETOOLONG, "this server names files by path, and this one is too deep");
  return path;
}

void Handles::renamed(std::string from, std::string to, bool exchange) {
  if (kernel_) return;
  std::lock_guard lock(mutex_);
  if (moves_.size() == kRemembered) moves_.pop_front();
  moves_.push_back({std::move(from), std::move(to), exchange});
}

// Where a file known by `path` may be now. A name may have been used again, so each rename of it
// may be the one: the latest first, each followed through the renames after it. The inode decides.
std::vector<std::string> Handles::moved_to(const std::string& path) const {
  const auto replace = [](std::string& p, const std::string& from, const std::string& to) {
    const bool hit =
        p.compare(0, from.size(), from) == 0 && (p.size() == from.size() || p[from.size()] == '/');
    if (hit) p.replace(0, from.size(), to);
    return hit;
  };
  const auto move = [&](std::string& p, const Move& m) {
    return replace(p, m.from, m.to) || (m.exchange && replace(p, m.to, m.from));
  };
  constexpr size_t kTries = 16;
  std::vector<std::string> places;
  std::lock_guard lock(mutex_);
  for (size_t first = moves_.size(); first-- > 0 && places.size() < kTries;) {
    std::string p = path;
    if (!move(p, moves_[first])) continue;
    for (size_t i = first + 1; i < moves_.size(); ++i) move(p, moves_[i]);
    places.push_back(std::move(p));
  }
  return places;
}

}  // namespace forebay::posix
