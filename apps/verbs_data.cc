#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "copy.h"
#include "names.h"
#include "progress.h"
#include "store/path.h"
#include "verbs.h"

namespace forebay {
namespace {

struct CopyOptions {
  std::string from, to;
  bool progress = false;
};

Progress::When when(const CopyOptions& options) {
  return options.progress ? Progress::When::always : Progress::When::on_terminal;
}

Watch watch_of(Progress& progress) {
  return {.moved = [&progress](uint64_t bytes) { progress.moved(bytes); }, .give_up = interrupted};
}

class LocalFile {
 public:
  explicit LocalFile(const std::string& path)
      : fd_(path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ >= 0 && ::fstat(fd_, &stat_) != 0) stat_ = {};
  }
  ~LocalFile() {
    if (fd_ > STDIN_FILENO) ::close(fd_);
  }
  LocalFile(const LocalFile&) = delete;
  int fd() const { return fd_; }
  const struct stat& status() const { return stat_; }

 private:
  int fd_;
  struct stat stat_ = {};
};

// Permissions of a new copy: as cp's, the file's own without what the umask takes away. The umask
// is ours to apply: a server has none.
uint32_t mode_for(const LocalFile& file) {
  return (S_ISREG(file.status().st_mode) ? file.status().st_mode & 0777 : 0666) & ~umask_now();
}

// "put a.dat" and "put a.dat /folder" go to a file of the same name there.
Result<std::string> put_target(Cli& cli, const CopyOptions& options) {
  const std::string name = options.from == "-" ? "" : base_name(options.from);
  if (options.to.empty()) return name;
  auto found = find_path(cli.store(), cli.caller(), options.to);
  if (found && found->attr.type == FileType::directory && !name.empty())
    return options.to + (options.to.ends_with('/') ? "" : "/") + name;
  if (found && found->attr.type != FileType::file && found->attr.type != FileType::directory)
    return Error(EINVAL, "is not a regular file, and a put would replace it");
  if (found && found->attr.type == FileType::directory) return Error(EISDIR);
  if (options.to.ends_with('/') && !found && found.error().code() == ENOENT)
    return Error(ENOENT, "there is no such directory to put it in");
  if (options.to.ends_with('/') && !found) return found.error();
  return options.to;
}

int run_put(Cli& cli, const CopyOptions& options) {
  if (options.from == "-" && options.to.empty()) {
    cli.complain("data from standard input needs a name: forebay put - NAME");
    return kExitUsage;
  }
  const LocalFile file(options.from);
  if (file.fd() < 0) return cli.complain(Error(errno), options.from), kExitFailed;
  if (S_ISDIR(file.status().st_mode)) return cli.complain(Error(EISDIR), options.from), kExitFailed;
  auto target = put_target(cli, options);
  if (!target) return cli.complain(target.error(), options.to), kExitFailed;
  catch_interrupts();
  const uint64_t size =
      S_ISREG(file.status().st_mode) ? static_cast<uint64_t>(file.status().st_size) : 0;
  Result<uint64_t> copied = uint64_t{0};
  {
    Progress progress(base_name(*target), size, when(options));
    copied =
        put_file(cli.store(), cli.caller(), file.fd(), mode_for(file), *target, watch_of(progress));
  }
  if (copied) return kExitOk;
  cli.complain(copied.error(), *target);
  return kExitFailed;
}

// The local path of a get: a directory takes the file under its own name, a symbolic link is
// followed.
std::string get_target(const CopyOptions& options) {
  const std::string name = base_name(options.from);
  if (options.to.empty()) return name;
  struct stat st;
  if (::stat(options.to.c_str(), &st) != 0) return options.to;
  if (S_ISDIR(st.st_mode)) return options.to + "/" + name;
  char real[PATH_MAX];
  return ::realpath(options.to.c_str(), real) ? real : options.to;
}

// A device, a fifo or the like, which takes the bytes and stays what it is: its descriptor, or -1
// if it cannot be opened. Nothing for a regular file, or none.
std::optional<int> open_special(const std::string& path) {
  if (path == "-") return ::dup(STDOUT_FILENO);
  struct stat st;
  if (::stat(path.c_str(), &st) != 0 || S_ISREG(st.st_mode)) return std::nullopt;
  return ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
}

int run_get(Cli& cli, const CopyOptions& options) {
  catch_interrupts();
  auto opened = open_file(cli.store(), cli.caller(), options.from);
  if (!opened) return cli.complain(opened.error(), options.from), kExitFailed;
  const std::string to = get_target(options);
  Result<void> copied;
  {
    Progress progress(base_name(options.from), opened->attr.size, when(options));
    const Watch watch = watch_of(progress);
    if (const auto special = open_special(to); special && *special < 0) {
      copied = Error(errno, to);
    } else if (special) {
      copied =
          read_file(cli.store(), cli.caller(), opened->file, opened->attr.size, *special, watch);
      ::close(*special);
    } else {
      copied = get_file(cli.store(), cli.caller(), *opened, to, watch);
    }
  }
  close_file(cli.store(), cli.caller(), opened->file);
  if (copied) return kExitOk;
  cli.complain(copied.error(), options.from);
  return kExitFailed;
}

int run_cat(Cli& cli, const std::vector<std::string>& paths) {
  catch_interrupts();
  int code = kExitOk;
  for (const std::string& path : paths) {
    if (interrupted()) break;
    auto opened = open_file(cli.store(), cli.caller(), path);
    Result<void> copied;
    if (opened) {
      copied = read_file(cli.store(), cli.caller(), opened->file, opened->attr.size, STDOUT_FILENO,
                         {.give_up = interrupted});
      close_file(cli.store(), cli.caller(), opened->file);
    }
    if (opened && copied) continue;
    cli.complain(opened ? copied.error() : opened.error(), path);
    code = kExitFailed;
  }
  return code;
}

void add_put(Cli& cli) {
  auto options = std::make_shared<CopyOptions>();
  CLI::App* sub = cli.add("put", "copy a local file into the export",
                          [options](Cli& c) { return run_put(c, *options); });
  sub->add_option("local", options->from, "the file to copy; - for standard input")->required();
  sub->add_option("path", options->to, "its name in the export, or a directory (default: its own)");
  sub->add_flag("--progress", options->progress, "show progress from the start, also in a log");
  sub->footer(
      "The file appears under its name when it is complete; a failed or interrupted put "
      "leaves nothing.\n\nExamples:\n  forebay mkdir /run7\n  forebay put results.h5 /run7/\n"
      "  tar c folder | forebay put - /folder.tar");
}

void add_get(Cli& cli) {
  auto options = std::make_shared<CopyOptions>();
  CLI::App* sub = cli.add("get", "copy a file of the export to a local one",
                          [options](Cli& c) { return run_get(c, *options); });
  sub->add_option("path", options->from, "the file in the export")->required();
  sub->add_option("local", options->to,
                  "the local name, a directory, or - for standard output (default: its own name)");
  sub->add_flag("--progress", options->progress, "show progress from the start, also in a log");
  sub->footer("Examples:\n  forebay get /run7/results.h5\n  forebay get /folder.tar - | tar x");
}

void add_cat(Cli& cli) {
  auto paths = std::make_shared<std::vector<std::string>>();
  CLI::App* sub = cli.add("cat", "write files to standard output",
                          [paths](Cli& c) { return run_cat(c, *paths); });
  sub->add_option("path", *paths, "in the export")->required();
}

}  // namespace

void add_data_verbs(Cli& cli) {
  add_cat(cli);
  add_put(cli);
  add_get(cli);
}

}  // namespace forebay
