#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <optional>

#include "store/open_path.h"
#include "verbs.h"

namespace forebay {
namespace {

struct LockOptions {
  std::string path;
  bool shared = false, once = false;
  std::vector<std::string> command;
};

// While the command runs, the server is asked so often whether it is still the same: a restarted
// one lets us have the lock again.
constexpr int kStillThere = 1000;  // ms

class Locking {
 public:
  Locking(Cli& cli, const LockOptions& options) : cli_(cli), options_(options) {}

  int run() {
    const int access = options_.shared ? O_RDONLY : O_RDWR;
    auto opened =
        open_path(cli_.store(), cli_.caller(), options_.path, {access | O_CREAT, 0644, 0});
    if (!opened) return cli_.complain(opened.error(), options_.path), kExitFailed;
    file_ = std::move(*opened);
    uint32_t flags = options_.once ? 0u : uint32_t{kFlagWait};
    if (options_.shared) flags |= kFlagShared;
    int code = kExitFailed;
    if (auto locked = call(Op::lock, flags); !locked) {
      const bool taken = locked.error().code() == EAGAIN;
      taken ? cli_.complain(fmt::format("{} is locked by somebody else", options_.path))
            : cli_.complain(locked.error(), options_.path);
    } else {
      code = command();
      if (auto freed = call(Op::unlock, 0); !freed) lost_ = freed.error();
      if (lost_) {
        cli_.complain(*lost_, options_.path);
        if (code == kExitOk) code = kExitFailed;
      }
    }
    (void)cli_.store().call(
        {.op = Op::close, .caller = cli_.caller(), .handle = file_.handle, .right = file_.right});
    return code;
  }

 private:
  Result<Reply> call(Op op, uint32_t flags) {
    Request r{.op = op, .flags = flags | kFlagWhole, .caller = cli_.caller()};
    r.handle = file_.handle;
    if (op == Op::lock) r.right = file_.right;
    return cli_.store().call(std::move(r));
  }

  int command() {
    const pid_t child = ::fork();
    if (child < 0) return cli_.complain(Error(errno, "fork")), kExitFailed;
    if (child == 0) {
      std::vector<char*> words;
      for (const std::string& word : options_.command)
        words.push_back(const_cast<char*>(word.c_str()));  // execvp's way of saying const
      words.push_back(nullptr);
      ::execvp(words[0], words.data());
      fmt::print(stderr, "forebay lock: {}: {}\n", words[0], std::strerror(errno));
      ::_exit(errno == ENOENT ? 127 : 126);
    }
    // Woken by its end; meanwhile the server is asked from time to time.
    pollfd ends{static_cast<int>(::syscall(SYS_pidfd_open, child, 0)), POLLIN, 0};
    while (ends.fd >= 0 && ::poll(&ends, 1, kStillThere) == 0) {
      if (const auto still = call(Op::lock_test, 0); !still && still.error().code() == EIO) {
        lost_ = still.error();
      }
    }
    if (ends.fd >= 0) ::close(ends.fd);
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  Cli& cli_;
  const LockOptions& options_;
  Opened file_;
  std::optional<Error> lost_;  // the lock, while the command ran
};

}  // namespace

void add_lock_verbs(Cli& cli) {
  auto options = std::make_shared<LockOptions>();
  CLI::App* sub = cli.add("lock", "run a command while a file is locked", [options](Cli& c) {
    if (options->command.empty()) {
      c.complain("nothing to run: forebay lock /file -- command");
      return static_cast<int>(kExitUsage);
    }
    return Locking(c, *options).run();
  });
  sub->add_option("file", options->path, "the file, which is made if it is not there")->required();
  sub->add_option("command", options->command, "the command and its arguments");
  sub->add_flag("--shared", options->shared, "others may have a shared lock too");
  sub->add_flag("--try", options->once, "fail at once if it is locked, instead of waiting");
  sub->footer(
      "The lock excludes all clients of the server, on any node. It ends with the command, and if\n"
      "this program dies. The exit code is the command's.\n\nExamples:\n"
      "  forebay lock /run1/index -- ./update-index\n"
      "  forebay lock --try /jobs/nightly -- ./nightly || echo it runs already");
}

}  // namespace forebay
