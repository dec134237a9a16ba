#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "assembly/build.h"
#include "assembly/units.h"
#include "verbs.h"

#ifdef FOREBAY_FUSE
#include "fuse/mount.h"
#endif

namespace forebay {
namespace {

struct MountArguments {
  std::string source, mount_point;
  std::vector<std::string> words;
  bool foreground = false;
};

struct UmountArguments {
  std::string mount_point;
  bool lazy = false;
};

#ifdef FOREBAY_FUSE

// Whoever still uses a mount when we are told to end has so long to close its files.
constexpr int kLingerSeconds = 10;

// Absolute and without links, and without touching the mount itself, which may be dead.
std::string place_of(const std::string& mount_point) {
  std::error_code failed;
  auto path = std::filesystem::absolute(mount_point).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  const auto whole = std::filesystem::canonical(path, failed);
  if (!failed) return whole.string();
  const auto above = std::filesystem::canonical(path.parent_path(), failed);
  return failed ? path.string() : (above / path.filename()).string();
}

bool is_directory_source(const std::string& source) {
  return source.starts_with('/') || source.starts_with('.');
}

// key=value of -o are the client's; SOURCE is its export.
Result<void> set_client(Cli& cli, const std::string& source,
                        const std::vector<std::pair<std::string, std::string>>& settings) {
  ClientConfig client;
  std::vector<std::string> known;
  for (const Key& key : describe(client)) known.emplace_back(key.name);
  for (const auto& [key, value] : settings) {
    if (std::ranges::find(known, key) == known.end()) {
      const std::string near = nearest(key, known);
      return Error(EINVAL, fmt::format("-o {}: no such option{}", key,
                                       near.empty() ? "" : "; did you mean " + near + "?"));
    }
    cli.sources().overrides.emplace_back("client." + key, value);
  }
  if (!is_directory_source(source)) cli.sources().overrides.emplace_back("client.export", source);
  return {};
}

void raise_descriptors() {
  rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// Serves a mount until it is unmounted, or a signal asks us to unmount it.
class MountDaemon {
 public:
  explicit MountDaemon(Cli& cli) : cli_(cli) {
    // Before there are threads, which inherit what is blocked.
    sigset_t set;
    ::sigemptyset(&set);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&set, signal);
    ::sigprocmask(SIG_BLOCK, &set, nullptr);
    signals_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    ::signal(SIGPIPE, SIG_IGN);
    ::umask(0);  // the kernel has applied the program's
    raise_descriptors();
  }

  // Mounted, and `ready` called, or what is wrong.
  int run(const fuse::MountOptions& options, const std::function<void()>& ready) {
    Store* store = nullptr;
    if (is_directory_source(options.source)) {
      auto opened = open_directory(options.source, around_);
      if (!opened) return cli_.complain(opened.error()), kExitFailed;
      own_ = std::move(*opened);
      store = own_.get();
    } else {
      store = &cli_.store();
    }
    auto mounted = fuse::Mount::start(*store, options);
    if (!mounted) return cli_.complain(mounted.error()), kExitFailed;
    ready();
    return serve(**mounted, options.mount_point);
  }

 private:
  // Does it end, within so many milliseconds (-1: whenever), before a signal comes?
  bool ends(const fuse::Mount& mount, int milliseconds) const {
    pollfd events[] = {{mount.ended(), POLLIN, 0}, {signals_, POLLIN, 0}};
    while (::poll(events, 2, milliseconds) < 0 && errno == EINTR) {
    }
    if (events[0].revents == 0 && events[1].revents != 0) {
      signalfd_siginfo one;
      (void)!::read(signals_, &one, sizeof one);
    }
    return events[0].revents != 0;
  }

  int serve(const fuse::Mount& mount, const std::string& mount_point) const {
    if (ends(mount, -1)) return kExitOk;
    auto done = fuse::unmount(mount_point, fuse::Unmount::now);
    if (!done && done.error().code() == EBUSY) {
      cli_.complain(fmt::format("{} is in use: it is out of sight, and ends in {} s", mount_point,
                                kLingerSeconds));
      done = fuse::unmount(mount_point, fuse::Unmount::lazily);
    }
    if (!done && fuse::is_mounted(mount_point)) cli_.complain(done.error());
    if (ends(mount, kLingerSeconds * 1000)) return kExitOk;
    ::_exit(kExitFailed);  // the kernel ends what is still open with errors
  }

  Cli& cli_;
  int signals_ = -1;
  Surroundings around_;
  std::unique_ptr<Store> own_;
};

// A child that has nothing of the terminal once it is ready.
int in_background(Cli& cli, const fuse::MountOptions& options) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return cli.complain(Error(errno, "pipe")), kExitFailed;
  const pid_t pid = ::fork();
  if (pid < 0) return cli.complain(Error(errno, "fork")), kExitFailed;
  if (pid == 0) {
    ::setsid();
    (void)!::chdir("/");
    return MountDaemon(cli).run(options, [&] {
      const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
      for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, fd);
      (void)!::write(ends[1], "r", 1);
      ::close(ends[1]);
    });
  }
  ::close(ends[1]);
  char said = 0;
  while (::read(ends[0], &said, 1) < 0 && errno == EINTR) {
  }
  if (said == 'r') return kExitOk;
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0) return WEXITSTATUS(status);  // it said why
  cli.complain("ended before it was mounted");
  return kExitFailed;
}

int run_mount(Cli& cli, const MountArguments& arguments) {
  auto words = fuse::parse_mount_words(arguments.words);
  if (!words) return cli.complain(words.error().what()), kExitUsage;
  if (auto set = set_client(cli, arguments.source, words->settings); !set)
    return cli.complain(set.error().what()), kExitUsage;
  (void)cli.config();  // what is wrong there is said before anything is done
  fuse::MountOptions& options = words->options;
  options.source = is_directory_source(arguments.source)
                       ? std::filesystem::absolute(arguments.source).lexically_normal().string()
                       : arguments.source;
  options.mount_point = place_of(arguments.mount_point);
  if (!arguments.foreground) return in_background(cli, options);
  return MountDaemon(cli).run(options, [&] {
    fmt::print("{} is mounted on {}\n", options.source, options.mount_point);
    std::fflush(stdout);
  });
}

int run_umount(Cli& cli, const UmountArguments& arguments) {
  const auto done = fuse::unmount(place_of(arguments.mount_point),
                                  arguments.lazy ? fuse::Unmount::lazily : fuse::Unmount::now);
  if (done) return kExitOk;
  return cli.complain(done.error()), kExitFailed;
}

#else

int left_out(Cli& cli) {
  cli.complain("this forebay was built without libfuse 3: install libfuse3-dev and build again");
  return kExitFailed;
}
int run_mount(Cli& cli, const MountArguments&) {
  return left_out(cli);
}
int run_umount(Cli& cli, const UmountArguments&) {
  return left_out(cli);
}

#endif

void add_mount(Cli& cli) {
  auto arguments = std::make_shared<MountArguments>();
  CLI::App* sub = cli.add("mount", "mount an export, or a directory, as a file system",
                          [arguments](Cli& c) { return run_mount(c, *arguments); });
  sub->add_option("source", arguments->source,
                  "the name of an export of the server, or a directory (/a/b, ./b), which this "
                  "process then serves itself")
      ->required();
  sub->add_option("mountpoint", arguments->mount_point, "an empty directory")->required();
  sub->add_option("-o", arguments->words, "options, as in /etc/fstab: a,b=c (docs/mount.md)")
      ->option_text("OPTIONS");
  sub->add_flag("-f,--foreground", arguments->foreground, "stay in the foreground");
  sub->footer(
      "Returns when it is mounted, or says why it cannot be. SIGTERM and SIGINT unmount it, as "
      "does umount.\n\nExamples:\n"
      "  forebay mount data /mnt/data\n"
      "  forebay mount -o ro,allow_other,server=tcp:node7:7000 data /mnt/data\n"
      "  forebay mount -f ./scratch ./view\n"
      "  forebay umount /mnt/data");
}

void add_umount(Cli& cli) {
  auto arguments = std::make_shared<UmountArguments>();
  CLI::App* sub = cli.add("umount", "unmount what forebay mount has mounted",
                          [arguments](Cli& c) { return run_umount(c, *arguments); });
  sub->add_option("mountpoint", arguments->mount_point, "where it is mounted")->required();
  sub->add_flag("-l,--lazy", arguments->lazy,
                "out of sight now, gone when nobody uses it any more");
}

}  // namespace

void add_mount_verbs(Cli& cli) {
  add_mount(cli);
  add_umount(cli);
}

}  // namespace forebay
