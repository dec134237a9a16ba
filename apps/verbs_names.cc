#include <fmt/format.h>
#include <grp.h>

#include <charconv>

#include "assembly/units.h"
#include "copy.h"
#include "names.h"
#include "verbs.h"

namespace forebay {
namespace {

std::string group_name(uint32_t gid) {
  const struct group* group = ::getgrgid(gid);
  return group ? group->gr_name : std::to_string(gid);
}

// ---- ls ----

struct LsOptions {
  std::vector<std::string> paths;
  bool details = false, all = false, json = false;
};

struct Listed {
  std::string name;
  Attr attr;
  std::string target;  // of a link
};

class Ls {
 public:
  Ls(Cli& cli, const LsOptions& options) : cli_(cli), options_(options) {}

  int run() {
    Json::Array lists;
    int code = kExitOk;
    for (size_t i = 0; i < options_.paths.size(); ++i) {
      const std::string& path = options_.paths[i];
      auto listed = list(path);
      if (!listed) {
        cli_.complain(listed.error(), path);
        code = kExitFailed;
      } else if (options_.json) {
        lists.emplace_back(as_json(path, *listed));
      } else {
        if (options_.paths.size() > 1) fmt::print("{}{}:\n", i > 0 ? "\n" : "", printable(path));
        show(*listed);
      }
    }
    if (options_.json) print_json(lists);
    return code;
  }

 private:
  Result<std::vector<Listed>> list(const std::string& path) {
    Store& store = cli_.store();
    auto found = find_path(store, cli_.caller(), path, options_.details ? Follow::no : Follow::yes);
    if (!found) return found.error();
    std::vector<Listed> out;
    if (found->attr.type != FileType::directory) {
      out.push_back({path, found->attr, target(found->handle, found->attr)});
      return out;
    }
    auto entries = list_directory(store, cli_.caller(), found->handle);
    if (!entries) return entries.error();
    for (const Entry& entry : *entries)
      if (options_.all || !entry.name.starts_with('.'))
        out.push_back({entry.name, entry.attr, target(entry.handle, entry.attr)});
    return out;
  }

  std::string target(const Handle& handle, const Attr& attr) {
    if (attr.type != FileType::symlink || !(options_.details || options_.json)) return {};
    auto text = read_link(cli_.store(), cli_.caller(), handle);
    return text ? *text : "?";
  }

  static Json as_json(const std::string& path, const std::vector<Listed>& listed) {
    Json::Array entries;
    for (const Listed& one : listed) {
      Json::Object entry = attr_json(one.name, one.attr).object();
      if (!one.target.empty()) entry.emplace_back("target", one.target);
      entries.emplace_back(std::move(entry));
    }
    return Json::Object{{"path", path}, {"entries", std::move(entries)}};
  }

  void show(const std::vector<Listed>& listed) const {
    std::vector<std::vector<std::string>> rows;
    for (const Listed& one : listed) {
      std::string name = printable(one.name);
      if (!one.target.empty()) name.append(" -> ").append(printable(one.target));
      if (!options_.details)
        fmt::print("{}\n", name);
      else
        rows.push_back({mode_text(one.attr), std::to_string(one.attr.links),
                        user_name(one.attr.uid), group_name(one.attr.gid),
                        std::to_string(one.attr.size), time_text(one.attr.mtime, "%Y-%m-%d %H:%M"),
                        name});
    }
    fmt::print("{}", columns(rows, "<><<><<"));
  }

  Cli& cli_;
  const LsOptions& options_;
};

void add_ls(Cli& cli) {
  auto options = std::make_shared<LsOptions>();
  CLI::App* sub = cli.add("ls", "list directories", [options](Cli& c) {
    if (options->paths.empty()) options->paths = {"/"};
    return Ls(c, *options).run();
  });
  sub->add_option("path", options->paths, "in the export (default: its root)");
  sub->add_flag("-l", options->details, "with mode, owner, size and time");
  sub->add_flag("-a,--all", options->all, "also names that begin with '.'");
  sub->add_flag("--json", options->json, "for programs");
}

// ---- stat ----

struct StatOptions {
  std::vector<std::string> paths;
  bool follow = false, json = false;
};

void show_stat(const std::string& path, const Attr& attr, const std::string& target) {
  const char* format = "%Y-%m-%d %H:%M:%S %z";
  fmt::print("{}{}{}\n", printable(path), target.empty() ? "" : " -> ", printable(target));
  std::vector<std::vector<std::string>> rows = {
      {"  type", type_name(attr.type)},
      {"  size", fmt::format("{} bytes ({} allocated)", attr.size, attr.allocated)},
      {"  mode", fmt::format("{:04o} {}", attr.mode, mode_text(attr))},
      {"  owner", fmt::format("{} ({}), group {} ({})", user_name(attr.uid), attr.uid,
                              group_name(attr.gid), attr.gid)},
      {"  links", std::to_string(attr.links)},
      {"  file id", std::to_string(attr.file_id)},
      {"  modified", time_text(attr.mtime, format)},
      {"  accessed", time_text(attr.atime, format)},
      {"  changed", time_text(attr.ctime, format)}};
  if (attr.btime.seconds != 0) rows.push_back({"  born", time_text(attr.btime, format)});
  fmt::print("{}", columns(rows, "<<"));
}

int run_stat(Cli& cli, const StatOptions& options) {
  int code = kExitOk;
  Json::Array all;
  for (const std::string& path : options.paths) {
    auto found =
        find_path(cli.store(), cli.caller(), path, options.follow ? Follow::yes : Follow::no);
    if (!found) {
      cli.complain(found.error(), path);
      code = kExitFailed;
      continue;
    }
    std::string target;
    if (found->attr.type == FileType::symlink)
      target = read_link(cli.store(), cli.caller(), found->handle).value_or("?");
    Json::Object json = attr_json(path, found->attr).object();
    if (!target.empty()) json.emplace_back("target", target);
    if (options.json)
      all.emplace_back(std::move(json));
    else
      show_stat(path, found->attr, target);
  }
  if (options.json) print_json(all);
  return code;
}

void add_stat(Cli& cli) {
  auto options = std::make_shared<StatOptions>();
  CLI::App* sub = cli.add("stat", "show what is known of a file",
                          [options](Cli& c) { return run_stat(c, *options); });
  sub->add_option("path", options->paths, "in the export")->required();
  sub->add_flag("-L,--follow", options->follow, "of what a symbolic link points at");
  sub->add_flag("--json", options->json, "for programs");
}

// ---- rm, mkdir, mv, ln ----

struct RmOptions {
  std::vector<std::string> paths;
  bool recursive = false, force = false;
};

Result<void> remove_one(Cli& cli, const std::string& path, const RmOptions& options) {
  auto place = locate(cli.store(), cli.caller(), path, Follow::no);
  if (!place) {
    if (options.force && place.error().code() == ENOENT) return {};
    return place.error();
  }
  if (place->name.empty()) return Error(EBUSY, "the export itself cannot be removed");
  if (!place->found) return options.force ? Result<void>() : Result<void>(Error(ENOENT));
  if (options.recursive) {
    auto removed = remove_tree(cli.store(), cli.caller(), *place);
    return removed;
  }
  if (place->found->attr.type == FileType::directory)
    return Error(EISDIR, "use -r to remove a directory and what is in it");
  auto removed = cli.store().call(
      {.op = Op::remove, .caller = cli.caller(), .handle = place->directory, .name = place->name});
  return removed ? Result<void>() : Result<void>(removed.error());
}

// Does it for every operand; the ones that fail do not keep the others from being done.
template <class Fn>
int for_each(Cli& cli, const std::vector<std::string>& paths, Fn&& fn) {
  int code = kExitOk;
  for (const std::string& path : paths) {
    if (auto done = fn(path); !done) {
      cli.complain(done.error(), path);
      code = kExitFailed;
    }
  }
  return code;
}

void add_rm(Cli& cli) {
  auto options = std::make_shared<RmOptions>();
  CLI::App* sub = cli.add("rm", "remove files", [options](Cli& c) {
    return for_each(c, options->paths,
                    [&](const std::string& path) { return remove_one(c, path, *options); });
  });
  sub->add_option("path", options->paths, "in the export")->required();
  sub->add_flag("-r,--recursive", options->recursive, "directories and what is in them too");
  sub->add_flag("-f,--force", options->force, "do not mind what is not there");
}

struct MkdirOptions {
  std::vector<std::string> paths;
  bool parents = false;
  std::string mode;
};

Result<void> make_one(Cli& cli, const std::string& path, bool parents, uint32_t mode) {
  if (parents) return make_path(cli.store(), cli.caller(), path, mode);
  auto place = locate(cli.store(), cli.caller(), path);
  if (!place) return place.error();
  if (place->found) return Error(EEXIST);
  auto made = cli.store().call({.op = Op::mkdir,
                                .caller = cli.caller(),
                                .handle = place->directory,
                                .name = place->name,
                                .mode = mode});
  return made ? Result<void>() : Result<void>(made.error());
}

int run_mkdir(Cli& cli, const MkdirOptions& options) {
  // A server creates with exactly the mode that it is told: the umask is ours to apply.
  uint32_t mode = 0777 & ~umask_now();
  if (!options.mode.empty()) {
    const char* end = options.mode.data() + options.mode.size();
    const auto [at, failed] = std::from_chars(options.mode.data(), end, mode, 8);
    if (failed != std::errc() || at != end || mode > 07777) {
      cli.complain(
          fmt::format("'{}' is not a mode: write an octal number such as 755", options.mode));
      return kExitUsage;
    }
  }
  return for_each(cli, options.paths, [&](const std::string& path) {
    return make_one(cli, path, options.parents, mode);
  });
}

void add_mkdir(Cli& cli) {
  auto options = std::make_shared<MkdirOptions>();
  CLI::App* sub =
      cli.add("mkdir", "make directories", [options](Cli& c) { return run_mkdir(c, *options); });
  sub->add_option("path", options->paths, "in the export")->required();
  sub->add_flag("-p,--parents", options->parents, "also those above; fine if it is there already");
  sub->add_option("-m,--mode", options->mode, "permissions, such as 755")->option_text("MODE");
}

// Where `to` means: itself, or inside of it if it is a directory. "name/" is a directory, and one
// that is not there can only become the new name of a directory.
Result<Place> target_place(Cli& cli, const std::string& from, const std::string& to,
                           FileType type) {
  auto place = locate(cli.store(), cli.caller(), to, Follow::yes);
  if (place && !place->found && to.ends_with('/') && type != FileType::directory)
    return Error(ENOENT, "there is no such directory to put it in");
  if (place && place->found && place->found->attr.type == FileType::directory)
    return locate(cli.store(), cli.caller(), to + "/" + base_name(from), Follow::no);
  return locate(cli.store(), cli.caller(), to, Follow::no);
}

struct TwoPaths {
  std::string from, to;
  bool flag = false;
};

int run_mv(Cli& cli, const TwoPaths& options) {
  auto from = locate(cli.store(), cli.caller(), options.from, Follow::no);
  if (from && !from->found) from = Error(ENOENT);
  if (!from) return cli.complain(from.error(), options.from), kExitFailed;
  auto to = target_place(cli, options.from, options.to, from->found->attr.type);
  if (!to) return cli.complain(to.error(), options.to), kExitFailed;
  if (from->name.empty() || to->name.empty())
    return cli.complain(Error(EBUSY, "the export itself cannot be moved")), kExitFailed;
  auto moved = cli.store().call({.op = Op::rename,
                                 .flags = options.flag ? uint32_t{kFlagNoReplace} : 0,
                                 .caller = cli.caller(),
                                 .handle = from->directory,
                                 .handle2 = to->directory,
                                 .name = from->name,
                                 .name2 = to->name});
  if (moved) return kExitOk;
  cli.complain(moved.error(), options.from + " to " + options.to);
  return kExitFailed;
}

void add_mv(Cli& cli) {
  auto options = std::make_shared<TwoPaths>();
  CLI::App* sub = cli.add("mv", "rename, or move to another directory of the export",
                          [options](Cli& c) { return run_mv(c, *options); });
  sub->add_option("from", options->from, "what to move")->required();
  sub->add_option("to", options->to, "its new name, or a directory")->required();
  sub->add_flag("-n,--no-clobber", options->flag, "never replace what is there");
}

Result<void> hard_link(Cli& cli, const std::string& target, const Place& place) {
  auto found = find_path(cli.store(), cli.caller(), target, Follow::no);
  if (!found) return found.error();
  auto made = cli.store().call({.op = Op::link,
                                .caller = cli.caller(),
                                .handle = found->handle,
                                .handle2 = place.directory,
                                .name2 = place.name});
  return made ? Result<void>() : Result<void>(made.error());
}

Result<void> symbolic_link(Cli& cli, const std::string& target, const Place& place) {
  auto made = cli.store().call({.op = Op::symlink,
                                .caller = cli.caller(),
                                .handle = place.directory,
                                .name = place.name,
                                .data = target});
  return made ? Result<void>() : Result<void>(made.error());
}

int run_ln(Cli& cli, const TwoPaths& options) {
  auto place = target_place(cli, options.from, options.to, FileType::file);
  if (place && place->found) place = Error(EEXIST);
  if (!place) return cli.complain(place.error(), options.to), kExitFailed;
  auto made = options.flag ? symbolic_link(cli, options.from, *place)
                           : hard_link(cli, options.from, *place);
  if (made) return kExitOk;
  cli.complain(made.error(), options.from + " as " + options.to);
  return kExitFailed;
}

void add_ln(Cli& cli) {
  auto options = std::make_shared<TwoPaths>();
  CLI::App* sub =
      cli.add("ln", "give a file another name", [options](Cli& c) { return run_ln(c, *options); });
  sub->add_option("target", options->from, "the file; with -s, any text")->required();
  sub->add_option("name", options->to, "the new name, or a directory")->required();
  sub->add_flag("-s,--symbolic", options->flag,
                "a symbolic link; it never leads out of the export: '/' is the export's root");
}

}  // namespace

void add_name_verbs(Cli& cli) {
  add_ls(cli);
  add_stat(cli);
  add_rm(cli);
  add_mkdir(cli);
  add_mv(cli);
  add_ln(cli);
}

}  // namespace forebay
