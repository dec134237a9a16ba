#include "fuse/mount.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <mutex>
#include <sstream>

#include "fuse/door.h"
#include "fuse/workers.h"

namespace forebay::fuse {

namespace {

constexpr const char* kType = "forebay";  // fuse.forebay, to the kernel

// What libfuse says while it is told to mount is why it could not.
class Said {
 public:
  Said() {
    text().clear();
    fuse_set_log_func([](fuse_log_level, const char* format, va_list arguments) {
      char line[1024];
      std::vsnprintf(line, sizeof line, format, arguments);
      text() += line;
    });
  }
  ~Said() { fuse_set_log_func(nullptr); }
  Said(const Said&) = delete;
  static std::string& text() {
    static std::string said;
    return said;
  }
};

class Mounted final : public Mount {
 public:
  Mounted(Store& store, const Found& root, const MountOptions& options)
      : store_(store), door_(store, root, options), ended_(::eventfd(0, EFD_CLOEXEC)) {}
  ~Mounted() override {
    workers_.reset();
    door_.stop_pending();
    if (session_) {
      fuse_session_unmount(session_);  // of what is left: its descriptor
      fuse_session_destroy(session_);
    }
    ::close(ended_);
  }

  int ended() const override { return ended_; }
  Result<void> mount(const MountOptions& options);

 private:
  Store& store_;
  Door door_;
  const int ended_;
  fuse_session* session_ = nullptr;
  std::unique_ptr<Workers> workers_;
};

// In the words of libfuse, which end at a comma.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == ',' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

Result<void> Mounted::mount(const MountOptions& options) {
  std::string words = fmt::format("fsname={},subtype={}", escaped(options.source), kType);
  for (const std::string& word : options.kernel) words += "," + word;
  std::string program = "forebay", flag = "-o";
  char* raw[] = {program.data(), flag.data(), words.data(), nullptr};
  fuse_args arguments = {3, raw, 0};
  const Said said;
  const auto failed = [&](int code) {
    std::string why = Said::text().substr(0, Said::text().find('\n'));
    if (why.starts_with("fuse: ")) why.erase(0, 6);
    return Error(code, why.empty() ? "libfuse does not say why" : why);
  };
  session_ = fuse_session_new(&arguments, &Door::operations(), sizeof(fuse_lowlevel_ops), &door_);
  if (!session_) return failed(EINVAL);
  errno = 0;
  if (fuse_session_mount(session_, options.mount_point.c_str()) != 0)
    return failed(errno ? errno : EPERM);
  if (const int code = door_.kernel().attach(session_); code != 0) return failed(-code);
  door_.start(session_);
  workers_ = std::make_unique<Workers>(session_, store_, [fd = ended_] {
    const uint64_t one = 1;
    (void)!::write(fd, &one, sizeof one);
  });
  workers_->start();
  return {};
}

Result<void> check_mount_point(const std::string& path) {
  struct stat st;
  if (::stat(path.c_str(), &st) != 0) {
    if (errno == ENOTCONN)
      return Error(ENOTCONN, path + " is a mount whose server is gone: forebay umount it first");
    return Error(errno, path);
  }
  if (!S_ISDIR(st.st_mode)) return Error(ENOTDIR, path);
  if (is_mounted(path)) return Error(EBUSY, path + " is a mount of forebay already");
  return {};
}

// A user's mounts are fusermount3's to undo.
Result<void> run_fusermount(const std::string& mount_point, Unmount how) {
  const pid_t pid = ::fork();
  if (pid < 0) return Error(errno, "fork");
  if (pid == 0) {
    ::execlp("fusermount3", "fusermount3", how == Unmount::now ? "-u" : "-uz", "--",
             mount_point.c_str(), nullptr);
    ::_exit(127);
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) return Error(ENOENT, "fusermount3");
  return Error(EBUSY, mount_point);
}

// mountinfo writes blanks and the like in octal.
std::string unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      out +=
          static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + text[i + 3] - '0');
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

Result<std::unique_ptr<Mount>> Mount::start(Store& store, const MountOptions& options) {
  if (auto good = check_mount_point(options.mount_point); !good) return good.error();
  const Result<Found> root = find_path(store, this_process_caller(), "/");
  if (!root) return Error(root.error()).at(options.source);
  auto mounted = std::make_unique<Mounted>(store, *root, options);
  if (auto done = mounted->mount(options); !done)
    return std::move(done).error().at(options.mount_point);
  return std::unique_ptr<Mount>(std::move(mounted));
}

bool is_mounted(const std::string& mount_point) {
  std::ifstream table("/proc/self/mountinfo");
  bool ours = false;  // what was mounted last is on top
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::string id, parent, device, root, where, word, type;
    words >> id >> parent >> device >> root >> where;
    while (words >> word && word != "-") {
    }
    words >> type;
    if (unescaped(where) == mount_point) ours = type == std::string("fuse.") + kType;
  }
  return ours;
}

Result<void> unmount(const std::string& mount_point, Unmount how) {
  if (!is_mounted(mount_point)) return Error(EINVAL, mount_point + " is not a mount of forebay");
  const int flags = UMOUNT_NOFOLLOW | (how == Unmount::lazily ? MNT_DETACH : 0);
  if (::umount2(mount_point.c_str(), flags) == 0) return {};
  if (errno != EPERM) return Error(errno, mount_point);
  return run_fusermount(mount_point, how);
}

}  // namespace forebay::fuse
