// The configuration of servers and clients, as values, and where they come from: one TOML file,
// then FOREBAY_<SECTION>_<KEY> in the environment, then the command line, each overriding the one
// before.
//
// Every key is described once, by describe(): parsing, environment names, command-line options,
// error texts and docs/configuration.md all come from that table. What nobody should change is not
// a key but a constant where it is used.
//
// Values only: nothing here opens a Store or a socket. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/clock.h"
#include "core/result.h"
#include "core/types.h"

namespace forebay {

struct ServerConfig {
  std::string name;
  std::string run_dir;
  std::vector<std::string> listen = {"unix", "tcp"};
  std::string key_file;
  unsigned workers = 0;
  std::string log_level = "info";
  std::string log_file;
  unsigned sessions = 4096;
  unsigned sessions_per_user = 1024;
  unsigned slots = 64;
  uint64_t eager = 32_KiB;
  Duration grace = std::chrono::seconds(30);
  Duration lease_time = std::chrono::seconds(5);
  Duration stall = std::chrono::seconds(30);
  Duration deadline = std::chrono::seconds(60);
  Duration drain = std::chrono::seconds(30);
  std::string state_dir;
  bool state_sync = false;
};

struct ExportConfig {
  std::string name;  // from the section's title, not a key
  std::string store = "posix";
  std::string path;
  uint64_t pool = 64_MiB;
  uint64_t chunk = 1_MiB;
  unsigned in_flight = 4;
  std::string pipeline = "parallel";
  unsigned threads = 8;
  bool direct = false;
  unsigned direct_depth = 32;
  std::string scheduler = "auto";
  unsigned quantum = 256;
  std::string merger = "tree";
  std::string sieve = "auto";
  std::string sieve_writes = "hint";
  std::string write_behind = "hint";
  uint64_t write_behind_memory = 32_MiB;
  Duration write_behind_age = std::chrono::seconds(1);
  bool shortcuts = true;
  std::string key_file;
  bool trace = false;
  // Not a key: false for servers of a benchmark, which serve one directory in turn (claim.h).
  bool claim = true;
};

// The servers that serve the same exports together.
struct ClusterConfig {
  std::vector<std::string> servers;  // NAME=ADDRESS
  Duration patience = std::chrono::seconds(5);
};

struct ClientConfig {
  std::string server;
  std::string key_file;
  std::string transport = "any";
  uint64_t shared_memory = 4_MiB;
  uint64_t alloc_memory = 1_GiB;
  uint64_t chunk = 0;
  std::string export_name;
  std::string prefix;
  std::vector<std::string> preload;
  std::string job;
  Duration connect_timeout = std::chrono::seconds(5);
  Duration retry_for = std::chrono::seconds(60);
};

struct Config {
  ServerConfig server;
  std::vector<ExportConfig> exports;
  ClusterConfig cluster;
  ClientConfig client;
  std::string file;  // what was read; empty: no file

  ExportConfig* find_export(std::string_view name);
};

// One key of one section, bound to the value that it sets.
struct Key {
  using Target = std::variant<std::string*, std::vector<std::string>*, uint64_t*, unsigned*,
                              Duration*, bool*>;  // text, list, size, number, duration, yes or no
  std::string_view name;
  Target target;
  std::string_view help;
  std::string_view choices = {};  // "a|b|c": nothing else is allowed
  uint64_t least = 0;             // of a size or number
  uint64_t most = UINT64_MAX;
};

std::vector<Key> describe(ServerConfig& config);
std::vector<Key> describe(ExportConfig& config);
std::vector<Key> describe(ClusterConfig& config);
std::vector<Key> describe(ClientConfig& config);

std::string type_text(const Key& key);
std::string value_text(const Key& key);  // as assign() reads it
Result<void> assign(const Key& key, std::string_view text);

// "server.grace" and its value: how the command line, and `--set`, override.
using Override = std::pair<std::string, std::string>;

struct ConfigSources {
  std::string file;                      // --config; empty: FOREBAY_CONFIG, then the usual places
  std::vector<std::string> environment;  // NAME=VALUE
  std::vector<Override> overrides;

  static ConfigSources of_process();  // with this process's environment
};

// The error's what() is the whole text for a person: where, what, and the nearest known name.
Result<Config> load_config(const ConfigSources& sources);
Result<void> read_toml(Config& config, std::string_view text, const std::string& file);
Result<void> read_environment(Config& config, const std::vector<std::string>& environment);
Result<void> apply(Config& config, const Override& override_);

// The tables of docs/configuration.md, and the effective configuration as a TOML text.
std::string config_reference();
std::string config_text(const Config& config);

}  // namespace forebay
