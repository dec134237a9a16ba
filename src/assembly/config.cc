#include "assembly/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>

#include "assembly/units.h"
#include "transport/transport.h"

namespace forebay {
namespace {

std::vector<std::string> names(const std::vector<Key>& keys) {
  std::vector<std::string> all;
  for (const Key& key : keys) all.emplace_back(key.name);
  return all;
}

std::string did_you_mean(std::string_view wrong, const std::vector<std::string>& known) {
  const std::string near = nearest(wrong, known);
  if (!near.empty()) return fmt::format("; did you mean '{}'?", near);
  return fmt::format("; known are: {}", fmt::join(known, ", "));
}

const Key* find(const std::vector<Key>& keys, std::string_view name) {
  const auto key =
      std::find_if(keys.begin(), keys.end(), [&](const Key& k) { return k.name == name; });
  return key == keys.end() ? nullptr : &*key;
}

bool good_export_name(std::string_view name) {
  return !name.empty() && name.size() <= 64 &&
         std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_'; });
}

Result<ExportConfig*> find_or_add_export(Config& config, std::string_view name) {
  if (ExportConfig* known = config.find_export(name)) return known;
  if (!good_export_name(name))
    return Error(EINVAL, fmt::format("'{}' cannot name an export: use at most 64 letters, digits, "
                                     "'-' and '_'",
                                     name));
  config.exports.push_back({});
  config.exports.back().name = name;
  return &config.exports.back();
}

// ---- TOML ----

// A value of the file as the text that assign() reads; nothing if its type cannot be meant.
std::optional<std::string> as_text(const toml::node& node, const Key& key) {
  const bool list = std::holds_alternative<std::vector<std::string>*>(key.target);
  if (const auto* array = node.as_array(); array && list) {
    std::vector<std::string> items;
    for (const toml::node& item : *array) {
      if (!item.is_string()) return std::nullopt;
      items.push_back(**item.as_string());
    }
    return fmt::format("{}", fmt::join(items, ","));
  }
  if (const auto* text = node.as_string()) return **text;
  if (const auto* number = node.as_integer()) return std::to_string(**number);
  if (const auto* flag = node.as_boolean()) return **flag ? "true" : "false";
  return std::nullopt;
}

class TomlReader {
 public:
  TomlReader(Config& config, const std::string& file) : config_(config), file_(file) {}

  Result<void> read(const toml::table& top) {
    for (const auto& [title, node] : top) {
      const auto read_it = section(title.str(), title.source(), node);
      if (!read_it) return read_it;
    }
    return {};
  }

 private:
  Error at(const toml::source_region& where, const std::string& what) const {
    return Error(EINVAL, fmt::format("{}:{}: {}", file_, where.begin.line, what));
  }

  Result<void> section(std::string_view title, const toml::source_region& where,
                       const toml::node& node) {
    const toml::table* table = node.as_table();
    if (title != "server" && title != "export" && title != "cluster" && title != "client")
      return at(where,
                table ? fmt::format("unknown section [{}]{}", title,
                                    did_you_mean(title, {"server", "export", "cluster", "client"}))
                      : fmt::format("'{}' stands outside of a section: keys belong in "
                                    "[server], [export.NAME], [cluster] or [client]",
                                    title));
    if (!table) return at(where, fmt::format("'{}' must be a section: [{}]", title, title));
    if (title == "server") return keys("server", describe(config_.server), *table);
    if (title == "client") return keys("client", describe(config_.client), *table);
    if (title == "cluster") return keys("cluster", describe(config_.cluster), *table);
    return exports(*table);
  }

  Result<void> exports(const toml::table& table) {
    for (const auto& [name, node] : table) {
      if (!node.is_table())
        return at(
            name.source(),
            fmt::format("an export needs a name: write [export.NAME] above '{}'", name.str()));
      const auto exported = find_or_add_export(config_, name.str());
      if (!exported) return at(name.source(), exported.error().what());
      const auto title = fmt::format("export.{}", name.str());
      const auto read_it = keys(title, describe(**exported), *node.as_table());
      if (!read_it) return read_it;
    }
    return {};
  }

  Result<void> keys(const std::string& section, const std::vector<Key>& known,
                    const toml::table& table) {
    for (const auto& [name, node] : table) {
      const Key* key = find(known, name.str());
      if (!key)
        return at(name.source(), fmt::format("unknown key '{}' in [{}]{}", name.str(), section,
                                             did_you_mean(name.str(), names(known))));
      const auto text = as_text(node, *key);
      if (!text)
        return at(node.source(),
                  fmt::format("{}.{} must be a {}", section, key->name, type_text(*key)));
      if (const auto set = assign(*key, *text); !set)
        return at(node.source(), fmt::format("{}.{}: {}", section, key->name, set.error().what()));
    }
    return {};
  }

  Config& config_;
  const std::string& file_;
};

Result<std::string> read_whole(const std::string& file) {
  std::ifstream in(file);
  std::ostringstream text;
  // A directory opens and then fails to read.
  if (!in || !(text << in.rdbuf() || in.peek() == EOF) || in.bad()) {
    const int code = errno != 0 ? errno : EIO;
    return Error(code,
                 fmt::format("cannot read the configuration {}: {}", file, std::strerror(code)));
  }
  return text.str();
}

// ---- Environment ----

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    c = std::isalnum(static_cast<unsigned char>(c))
            ? static_cast<char>(std::toupper(static_cast<unsigned char>(c)))
            : '_';
  return out;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// Every name that the environment may hold, for suggestions.
std::vector<std::string> environment_names(Config& config) {
  std::vector<std::string> all = {"FOREBAY_CONFIG"};
  auto add = [&](const std::string& section, const std::vector<Key>& keys) {
    for (const Key& key : keys)
      all.push_back(fmt::format("FOREBAY_{}_{}", section, upper(key.name)));
  };
  add("SERVER", describe(config.server));
  add("CLIENT", describe(config.client));
  add("CLUSTER", describe(config.cluster));
  for (ExportConfig& e : config.exports) add("EXPORT_" + upper(e.name), describe(e));
  return all;
}

// Not configuration: tests and tools have variables of their own.
bool is_ours_to_read(std::string_view name) {
  // Those of the MPI-IO libraries are of one job, not of a site: no keys of the configuration.
  return name.starts_with("FOREBAY_") && name != "FOREBAY_CONFIG" && name != "FOREBAY_SEED" &&
         name != "FOREBAY_HINTS" && name != "FOREBAY_EXPLAIN" && name != "FOREBAY_REPORT" &&
         !name.starts_with("FOREBAY_TEST_") && !name.starts_with("FOREBAY_FUZZ_");
}

// "SCRATCH_KEY_FILE" -> the export "scratch" (or the known one so spelled) and its key. The longest
// key that fits wins, because names of exports may hold '_' too.
std::optional<std::string> export_key(Config& config, std::string_view rest) {
  ExportConfig any;
  const std::vector<Key> keys = describe(any);
  const Key* best = nullptr;
  for (const Key& key : keys)
    if (rest.size() > key.name.size() + 1 && rest.ends_with(fmt::format("_{}", upper(key.name))) &&
        (!best || key.name.size() > best->name.size()))
      best = &key;
  if (!best) return std::nullopt;
  const std::string_view name = rest.substr(0, rest.size() - best->name.size() - 1);
  for (const ExportConfig& e : config.exports)
    if (upper(e.name) == name) return fmt::format("export.{}.{}", e.name, best->name);
  return fmt::format("export.{}.{}", lower(name), best->name);
}

// FOREBAY_SERVER_GRACE -> "server.grace"; nothing for a name that we do not know.
std::optional<std::string> key_of_variable(Config& config, std::string_view variable) {
  std::string_view rest = variable.substr(std::strlen("FOREBAY_"));
  auto in = [&](std::string_view section,
                const std::vector<Key>& keys) -> std::optional<std::string> {
    for (const Key& key : keys)
      if (upper(key.name) == rest) return fmt::format("{}.{}", section, key.name);
    return std::nullopt;
  };
  auto strip = [&](std::string_view prefix) {
    return rest.starts_with(prefix) ? (rest.remove_prefix(prefix.size()), true) : false;
  };
  if (strip("SERVER_")) return in("server", describe(config.server));
  if (strip("CLIENT_")) return in("client", describe(config.client));
  if (strip("CLUSTER_")) return in("cluster", describe(config.cluster));
  if (strip("EXPORT_")) return export_key(config, rest);
  return std::nullopt;
}

// ---- Putting it together ----

std::string variable(const std::vector<std::string>& environment, std::string_view name) {
  for (const std::string& entry : environment)
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=')
      return entry.substr(name.size() + 1);
  return {};
}

// The usual places; empty if there is no file in any. A file that exists but cannot be read is an
// error, so its name is returned.
std::string find_file(const std::vector<std::string>& environment) {
  std::string home = variable(environment, "XDG_CONFIG_HOME");
  if (home.empty() && !variable(environment, "HOME").empty())
    home = variable(environment, "HOME") + "/.config";
  std::vector<std::string> places;
  if (!home.empty()) places.push_back(home + "/forebay.toml");
  places.push_back("/etc/forebay.toml");
  for (const std::string& place : places)
    if (::access(place.c_str(), F_OK) == 0) return place;
  return {};
}

Result<void> check_whole(const Config& config) {
  for (const ExportConfig& e : config.exports) {
    if (e.store == "posix" && e.path.empty())
      return Error(EINVAL, fmt::format("[export.{}] needs a path: the directory to serve", e.name));
    if (e.pool / 4 < e.chunk)
      return Error(EINVAL, fmt::format("[export.{}] pool ({}) must hold at least four chunks of {}",
                                       e.name, size_text(e.pool), size_text(e.chunk)));
  }
  for (const std::string& text : config.server.listen) {
    if (text == "unix" || text == "tcp") continue;
    if (auto address = Address::parse(text); !address)
      return std::move(address).error().at("server.listen");
  }
  if (config.server.listen.empty())
    return Error(EINVAL, "server.listen is empty: nobody could reach the server");
  return {};
}

}  // namespace

ExportConfig* Config::find_export(std::string_view name) {
  const auto found = std::find_if(exports.begin(), exports.end(),
                                  [&](const ExportConfig& e) { return e.name == name; });
  return found == exports.end() ? nullptr : &*found;
}

ConfigSources ConfigSources::of_process() {
  ConfigSources sources;
  for (char** entry = environ; entry && *entry; ++entry) sources.environment.emplace_back(*entry);
  return sources;
}

Result<void> read_toml(Config& config, std::string_view text, const std::string& file) {
  try {
    return TomlReader(config, file).read(toml::parse(text, file));
  } catch (const toml::parse_error& e) {
    return Error(EINVAL, fmt::format("{}:{}: {}", file, e.source().begin.line, e.description()));
  }
}

Result<void> read_environment(Config& config, const std::vector<std::string>& environment) {
  for (const std::string& entry : environment) {
    const std::string name = entry.substr(0, entry.find('='));
    if (!is_ours_to_read(name) || name.size() == entry.size()) continue;
    const auto key = key_of_variable(config, name);
    if (!key)
      return Error(EINVAL, fmt::format("unknown variable {} in the environment{}", name,
                                       did_you_mean(name, environment_names(config))));
    if (const auto set = apply(config, {*key, entry.substr(name.size() + 1)}); !set)
      return Error(EINVAL, fmt::format("{} in the environment: {}", name, set.error().what()));
  }
  return {};
}

Result<void> apply(Config& config, const Override& override_) {
  const std::string& path = override_.first;
  const size_t dot = path.rfind('.');
  const std::string section = dot == std::string::npos ? path : path.substr(0, dot);
  const std::string name = dot == std::string::npos ? std::string() : path.substr(dot + 1);
  std::vector<Key> keys;
  if (section == "server") {
    keys = describe(config.server);
  } else if (section == "client") {
    keys = describe(config.client);
  } else if (section == "cluster") {
    keys = describe(config.cluster);
  } else if (section.starts_with("export.")) {
    const auto exported = find_or_add_export(config, section.substr(std::strlen("export.")));
    if (!exported) return exported.error();
    keys = describe(**exported);
  } else {
    return Error(EINVAL,
                 fmt::format("'{}' is not a key: write server.KEY, client.KEY, cluster.KEY or "
                             "export.NAME.KEY",
                             path));
  }
  const Key* key = find(keys, name);
  if (!key)
    return Error(EINVAL, fmt::format("unknown key '{}' in [{}]{}", name, section,
                                     did_you_mean(name, names(keys))));
  if (const auto set = assign(*key, override_.second); !set)
    return Error(EINVAL, fmt::format("{}: {}", path, set.error().what()));
  return {};
}

Result<Config> load_config(const ConfigSources& sources) {
  Config config;
  config.file =
      !sources.file.empty() ? sources.file : variable(sources.environment, "FOREBAY_CONFIG");
  if (config.file.empty()) config.file = find_file(sources.environment);
  if (!config.file.empty()) {
    const auto text = read_whole(config.file);
    if (!text) return text.error();
    if (const auto read_it = read_toml(config, *text, config.file); !read_it)
      return read_it.error();
  }
  if (const auto read_it = read_environment(config, sources.environment); !read_it)
    return read_it.error();
  for (const Override& one : sources.overrides)
    if (const auto set = apply(config, one); !set) return set.error();
  if (const auto whole = check_whole(config); !whole) return whole.error();
  return config;
}

}  // namespace forebay
