#include "mpiio/whereabouts.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "assembly/run_dir.h"

namespace forebay::mpiio {
namespace {

namespace fs = std::filesystem;

// Absolute, and with the symbolic links of what exists of it resolved; the last one only if it is
// to be followed, and then also if it leads to nothing yet.
Result<fs::path> resolved(std::string_view name, Follow follow = Follow::yes) {
  std::error_code error;
  fs::path path = fs::absolute(fs::path(name), error);
  if (error) return Error(error.value(), std::string(name));
  std::error_code no_link;
  for (int i = 0; i < 40 && follow == Follow::yes && fs::is_symlink(path, no_link); ++i)
    path = path.parent_path() / fs::read_symlink(path, no_link);
  const fs::path last = path.filename();
  auto whole = follow == Follow::yes ? fs::weakly_canonical(path, error)
                                     : fs::weakly_canonical(path.parent_path(), error) / last;
  if (error) return Error(error.value(), std::string(name));
  return whole;
}

// The part of `path` below `prefix`, if it is below.
std::optional<std::string> below(const fs::path& path, const fs::path& prefix) {
  auto [in_prefix, in_path] = std::mismatch(prefix.begin(), prefix.end(), path.begin(), path.end());
  if (in_prefix != prefix.end()) return std::nullopt;
  fs::path rest;
  for (; in_path != path.end(); ++in_path) rest /= *in_path;
  return rest.string();
}

// What a file is that lies below a path of client.preload (PATH or PATH=FOLDER): the server's to
// POSIX calls, and nowhere to us. `prefix`: where the export is.
std::optional<Error> preloaded(const fs::path& path, const std::string& one,
                               const fs::path& prefix) {
  const size_t equals = one.find('=');
  fs::path served = fs::path(one.substr(0, equals)).lexically_normal();
  if (!served.has_filename()) served = served.parent_path();
  const auto rest = below(path, served);
  if (!rest) return std::nullopt;
  const std::string folder = equals == one.npos ? "" : one.substr(equals + 1);
  const fs::path there = prefix / fs::path(folder).relative_path() / *rest;
  // In short: MPI_Error_string has 255 characters.
  std::string advice =
      "for POSIX calls only (client.preload): name it " + there.lexically_normal().string();
  if (folder.empty()) advice += ", or set client.prefix=" + served.string();
  return Error(ENOENT, std::move(advice));
}

}  // namespace

std::string_view without_prefix(std::string_view name) {
  constexpr std::array<std::string_view, 15> kKnown = {
      "ufs",   "nfs",   "xfs", "lustre", "pvfs2",   "testfs",     "gpfs",   "daos",
      "panfs", "piofs", "sfs", "hfs",    "gridftp", "bglockless", "forebay"};
  const size_t colon = name.find(':');
  if (colon == name.npos) return name;
  return std::find(kKnown.begin(), kKnown.end(), name.substr(0, colon)) == kKnown.end()
             ? name
             : name.substr(colon + 1);
}

Result<void> Places::read_configuration() {
  if (config_) return {};
  auto config = load_config(ConfigSources::of_process());
  if (!config) return config.error();
  config_ = std::move(*config);
  return {};
}

Result<std::string> Places::find_prefix() {
  if (!prefix_.empty()) return prefix_;
  std::string prefix = config_->client.prefix;
  if (prefix.empty()) {
    auto published = read_published(client_run_dir(*config_));
    if (!published)
      return Error(ENOTCONN,
                   fmt::format("client.prefix is not set, and the server does not tell what "
                               "it exports: {}",
                               published.error().what()));
    for (const auto& one : published->exports)
      if (config_->client.export_name.empty() || one.name == config_->client.export_name)
        prefix = one.path;
  }
  if (prefix.empty())
    return Error(EINVAL, "the server's export is no directory of this machine: set client.prefix");
  auto whole = resolved(prefix);
  if (!whole) return whole.error();
  return prefix_ = whole->string();
}

Result<std::shared_ptr<Store>> Places::server() {
  if (server_) return server_;
  auto store = connect(*config_, "mpi-io");
  if (!store) return store.error();
  return server_ = std::move(*store);
}

Result<std::shared_ptr<PosixStore>> Places::local(const std::string& folder) {
  struct stat now = {};
  (void)::stat(folder.c_str(), &now);  // what is wrong with it, the store says
  auto& known = locals_[folder];
  auto store = known.store.lock();
  if (store && known.device == now.st_dev && known.inode == now.st_ino) return recent_ = store;
  PosixOptions options;
  options.directory = folder;
  options.in_application = true;
  options.forgets_closed = true;  // ranks open by name
  options.mapped = true;
  options.mapped_piece = 4096;  // ranks write one file at the same time
  auto made = PosixStore::open(options, around_.counters);
  if (!made) return made.error();
  const bool on_local = (*made)->local();
  recent_ = store = std::move(*made);
  known = {store, now.st_dev, now.st_ino, on_local};
  std::erase_if(locals_, [](const auto& one) { return one.second.store.expired(); });
  return store;
}

void Places::leave() {
  std::lock_guard lock(mutex_);
  server_.reset();
}

Result<Whereabouts> Places::find(const std::string& name, Follow follow) {
  std::lock_guard lock(mutex_);
  if (auto ok = read_configuration(); !ok) return ok.error();
  auto path = resolved(without_prefix(name), follow);
  if (!path) return path.error();
  std::string why = "local: no server is configured";
  if (!config_->client.server.empty()) {
    auto prefix = find_prefix();
    if (!prefix) return prefix.error();
    if (auto rest = below(*path, *prefix)) {
      auto store = server();
      if (!store) return store.error();
      return Whereabouts{.store = std::move(*store),
                         .path = *rest,
                         .served = true,
                         .why = fmt::format("served: below {}", *prefix)};
    }
    for (const std::string& one : config_->client.preload)
      if (auto error = preloaded(*path, one, *prefix)) return std::move(*error);
    why = fmt::format("local: not below {}, which is what the server exports", *prefix);
  }
  auto store = local(path->parent_path().string());
  if (!store) return store.error();
  const Local& folder = locals_[path->parent_path().string()];
  return Whereabouts{.store = *store,
                     .posix = store->get(),
                     .path = path->filename().string(),
                     .local = folder.local,
                     .why = std::move(why),
                     .device = folder.device};
}

}  // namespace forebay::mpiio
