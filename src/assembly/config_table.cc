// Every key of the configuration, once.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "assembly/config.h"
#include "assembly/units.h"

namespace forebay {

std::vector<Key> describe(ServerConfig& c) {
  return {
      {"name", &c.name, "how the server calls itself in status and logs; empty: the host's name"},
      {"run_dir", &c.run_dir,
       "folder of its socket, lock, log and `server.json`; empty: `/run/forebay` for root, "
       "`$XDG_RUNTIME_DIR/forebay` or `/tmp/forebay-<uid>` for a user"},
      {"listen", &c.listen,
       "where to listen: `unix` (a socket in run_dir), `tcp` (a free port on 127.0.0.1), or "
       "addresses such as `unix:/path` and `tcp:127.0.0.1:4711`; with a key_file also of other "
       "nodes, as `tcp:0.0.0.0:4711`"},
      {"key_file", &c.key_file,
       "the key that clients on other nodes, and other servers, prove to this one, and it to them; "
       "`forebay key make FILE` makes one, to be copied to every node; see [keys](#keys); empty: "
       "none, and TCP on this machine only"},
      {"workers", &c.workers, "threads that serve sessions; 0: one per core", {}, 0, 1024},
      {"log_level", &c.log_level, "the least that is logged", "debug|info|warn|error|off"},
      {"log_file", &c.log_file,
       "where lines go; empty: standard error, or `forebayd.log` in run_dir after `forebay start`"},
      {"sessions",
       &c.sessions,
       "clients at the same time, at most; those whose process has ended do not count",
       {},
       1,
       1u << 20},
      {"sessions_per_user",
       &c.sessions_per_user,
       "of these, for one user of a server that serves several; 0: no limit",
       {},
       0,
       1u << 20},
      {"slots", &c.slots, "requests that one client may have under way", {}, 1, 4096},
      {"eager",
       &c.eager,
       "requests up to this size carry their data with them; larger data is pulled by the server",
       {},
       0,
       64_KiB},
      {"grace", &c.grace,
       "how long a client that lost its connection may come back to its session, unless its "
       "process is known to be gone, and how long after a restart locks may be reclaimed"},
      {"lease_time", &c.lease_time,
       "how long a change waits at most for a client that has copies of the file and does not "
       "answer, and anybody for one that keeps writes of it"},
      {"stall", &c.stall, "a client that owes data, or takes none, is cut off after this long"},
      {"deadline", &c.deadline,
       "a request that the file system has not answered by then fails with ETIMEDOUT"},
      {"drain", &c.drain, "how long a stopping server waits for requests under way"},
      {"state_dir", &c.state_dir,
       "folder of the journals that keep [what clients share](shared-state.md) (attributes, places "
       "of appends) across the end of the server; empty: `state` in run_dir, which may not outlive "
       "the machine"},
      {"state_sync", &c.state_sync,
       "journals are on the disk before a change is answered, so that it survives a power loss as "
       "well; each change costs a sync, shared by all that come meanwhile"},
  };
}

std::vector<Key> describe(ExportConfig& c) {
  return {
      {"store", &c.store,
       "what holds the bytes: a directory (`posix`), the server's memory (`memory`), or nothing at "
       "all (`null`, for measuring)",
       "posix|memory|null"},
      {"path", &c.path, "the directory to serve; nothing outside it can be reached"},
      {"pool",
       &c.pool,
       "memory for bulk data; beside it and write_behind_memory the server uses little",
       {},
       1_MiB,
       uint64_t(1) << 40},
      {"chunk",
       &c.chunk,
       "bulk data moves in pieces of this size; pool must hold at least four",
       {},
       4_KiB,
       16_MiB},
      {"in_flight",
       &c.in_flight,
       "pieces of one request that may be under way at once, in a serial or parallel pipeline",
       {},
       1,
       64},
      {"pipeline", &c.pipeline,
       "whether the pieces of one request overlap: each is stored while others are transferred, in "
       "any order (`parallel`) or one after the other (`serial`), or nothing is stored before all "
       "is transferred, or all that the pool holds (`none`)",
       "none|serial|parallel"},
      {"threads", &c.threads, "threads for file system calls that may wait", {}, 1, 1024},
      {"direct", &c.direct,
       "data of a `posix` export goes around the page cache (O_DIRECT), where its file system can; "
       "see [direct I/O](direct.md)"},
      {"direct_depth",
       &c.direct_depth,
       "direct reads and writes that the kernel may have in hand at once",
       {},
       1,
       4096},
      {"scheduler", &c.scheduler,
       "how reads and writes reach the file system: in the order of arrival (`fifo`), merged and "
       "in "
       "the order of the file (`hbrr`), or whichever serves the load better (`auto`)",
       "auto|fifo|hbrr"},
      {"quantum",
       &c.quantum,
       "requests of one file that `hbrr` serves before it is another's turn",
       {},
       1,
       1u << 20},
      {"merger", &c.merger,
       "how requests to merge are found: by an ordered tree, or by comparing all with all "
       "(`brute`), "
       "which is as fast for a few",
       "tree|brute"},
      {"sieve", &c.sieve,
       "scattered reads of a `posix` export: read over small holes where that is cheaper than a "
       "call for each piece (`auto`), or always piece by piece (`off`)",
       "auto|off"},
      {"sieve_writes", &c.sieve_writes,
       "the same for writes: of none (`false`), of clients that ask for it (`hint`), or of all "
       "(`true`); what lies between the pieces is read and written back, so only for files that "
       "nobody writes to but through this server; it waits for others that use the same part of "
       "the file, and fills the holes of a sparse file",
       "false|hint|true"},
      {"write_behind", &c.write_behind,
       "which writes are acknowledged when they are in the server's memory and written later, "
       "merged: none (`off`), those of clients that ask for it (`hint`), or all (`on`), but for "
       "clients on this node where the file system is local, whose page cache does it; commit and "
       "close wait for them, and report what could not be written",
       "off|hint|on"},
      {"write_behind_memory",
       &c.write_behind_memory,
       "memory for such writes, beside pool; those that find none left are written at once",
       {},
       64_KiB,
       uint64_t(1) << 40},
      {"write_behind_age", &c.write_behind_age, "how long such a write may wait"},
      {"shortcuts", &c.shortcuts,
       "programs on the server's node read and write files of a local file system themselves while "
       "they are alone with them; `false`: everything goes through the server, where it is "
       "counted, ordered and merged; see [shortcuts](consistency.md#shortcuts)"},
      {"key_file", &c.key_file,
       "the secret that makes handles unforgeable, made if absent and shared by all servers of the "
       "export; empty: `.forebay/key` in path"},
      {"trace", &c.trace, "log every request and its result"},
  };
}

std::vector<Key> describe(ClusterConfig& c) {
  return {
      {"servers", &c.servers,
       "the servers that serve the same exports together, each as `NAME=ADDRESS`, where NAME is "
       "its "
       "server.name; the same on all of them, and each needs a key_file; see "
       "[several servers](#several-servers); empty: this server is alone"},
      {"patience", &c.patience,
       "how long a server tries to reach the one where a file lives, before requests of its "
       "clients "
       "fail with EHOSTDOWN"},
  };
}

std::vector<Key> describe(ClientConfig& c) {
  return {
      {"server", &c.server,
       "an address (`unix:/path`, `tcp:127.0.0.1:4711`), or a server's run_dir; empty: [server] "
       "run_dir, then your own default run_dir, then `/run/forebay`"},
      {"key_file", &c.key_file,
       "the key of a server on another node, the same as its own; it is proved to every server "
       "that "
       "is reached by TCP; empty: none"},
      {"transport", &c.transport, "which of the addresses in run_dir to use", "any|unix|tcp"},
      {"shared_memory",
       &c.shared_memory,
       "memory that a client shares with a server on its node, so that bulk data is copied once "
       "instead of through a socket; it holds whole chunks; 0: none",
       {},
       0,
       1_GiB},
      {"alloc_memory",
       &c.alloc_memory,
       "memory that a program can get from `fb_alloc`, which a server on its node reaches "
       "without a copy; pages count when they are used; beyond it, and without `shared_memory`, "
       "`fb_alloc` "
       "gives ordinary memory",
       {},
       0,
       1_GiB},
      {"chunk",
       &c.chunk,
       "bulk data moves in pieces of at most this size, in steps of 4 KiB; 0: of the size that the "
       "server has",
       {},
       0,
       16_MiB},
      {"export", &c.export_name, "which export to use; empty: the server's only one"},
      {"prefix", &c.prefix,
       "the path that the export has in the names that programs use (MPI-IO): files below it are "
       "the server's; empty: the directory that the server exports, if it is on this machine"},
      {"preload", &c.preload,
       "paths below which `forebay run` serves programs that are no MPI programs, each as `PATH` "
       "or `PATH=FOLDER` (a folder of the export; without it, the whole of it); empty: none"},
      {"job", &c.job,
       "the job that the client belongs to, as `forebay status` shows it, up to 255 bytes; empty: "
       "`$SLURM_JOB_ID`"},
      {"connect_timeout", &c.connect_timeout, "how long one attempt to connect may take"},
      {"retry_for", &c.retry_for,
       "how long to keep trying after a connection is lost, before requests fail"},
  };
}

namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

Result<uint64_t> parse_number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size())
    return Error(EINVAL, fmt::format("'{}' is not a whole number", text));
  return value;
}

std::vector<std::string> split(std::string_view text, char by) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(by), text.size());
    std::string_view part = text.substr(0, end);
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    if (!part.empty()) parts.emplace_back(part);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

Result<void> check_range(const Key& key, uint64_t value, bool size) {
  if (value >= key.least && value <= key.most) return {};
  auto show = [&](uint64_t v) { return size ? size_text(v) : std::to_string(v); };
  return Error(EINVAL, fmt::format("{} is out of range: from {} to {}", show(value),
                                   show(key.least), show(key.most)));
}

Result<void> check_choice(const Key& key, std::string_view text) {
  if (key.choices.empty()) return {};
  const auto choices = split(key.choices, '|');
  if (std::find(choices.begin(), choices.end(), text) != choices.end()) return {};
  const std::string near = nearest(text, choices);
  return Error(EINVAL, fmt::format("'{}' is not one of {}{}", text, fmt::join(choices, ", "),
                                   near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
}

template <class T>
Result<void> keep_checked(const Key& key, T* value, Result<uint64_t> parsed, bool size) {
  if (!parsed) return parsed.error();
  if (auto in_range = check_range(key, *parsed, size); !in_range) return in_range;
  *value = static_cast<T>(*parsed);
  return {};
}

Result<void> assign_text(const Key& key, std::string* value, std::string_view text) {
  if (auto allowed = check_choice(key, text); !allowed) return allowed;
  *value = text;
  return {};
}

Result<void> assign_duration(Duration* value, std::string_view text) {
  const auto parsed = parse_duration(text);
  if (!parsed) return parsed.error();
  *value = *parsed;
  return {};
}

Result<void> assign_flag(bool* value, std::string_view text) {
  if (text == "true" || text == "yes" || text == "1") return *value = true, Result<void>();
  if (text == "false" || text == "no" || text == "0") return *value = false, Result<void>();
  return Error(EINVAL, fmt::format("'{}' is neither true nor false", text));
}

}  // namespace

Result<void> assign(const Key& key, std::string_view text) {
  return std::visit(
      Overloaded{
          [&](std::string* v) { return assign_text(key, v, text); },
          [&](std::vector<std::string>* v) { return *v = split(text, ','), Result<void>(); },
          [&](uint64_t* v) { return keep_checked(key, v, parse_size(text), true); },
          [&](unsigned* v) { return keep_checked(key, v, parse_number(text), false); },
          [&](Duration* v) { return assign_duration(v, text); },
          [&](bool* v) { return assign_flag(v, text); },
      },
      key.target);
}

std::string value_text(const Key& key) {
  return std::visit(
      Overloaded{
          [](const std::string* v) { return *v; },
          [](const std::vector<std::string>* v) { return fmt::format("{}", fmt::join(*v, ",")); },
          [](const uint64_t* v) { return size_text(*v); },
          [](const unsigned* v) { return std::to_string(*v); },
          [](const Duration* v) { return duration_text(*v); },
          [](const bool* v) { return std::string(*v ? "true" : "false"); },
      },
      key.target);
}

std::string type_text(const Key& key) {
  if (!key.choices.empty()) return fmt::format("{}", fmt::join(split(key.choices, '|'), ", "));
  constexpr const char* kNames[] = {"text", "list", "size", "number", "duration", "true or false"};
  return kNames[key.target.index()];
}

}  // namespace forebay
