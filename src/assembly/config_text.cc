// The configuration for people: the reference tables, and what is in effect.
#include <fmt/format.h>

#include "assembly/config.h"

namespace forebay {
namespace {

std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

// As a TOML value.
std::string toml_value(const Key& key) {
  if (const auto* list = std::get_if<std::vector<std::string>*>(&key.target)) {
    std::string out;
    for (const std::string& item : **list) out += (out.empty() ? "" : ", ") + in_quotes(item);
    return "[" + out + "]";
  }
  const bool bare =
      std::holds_alternative<unsigned*>(key.target) || std::holds_alternative<bool*>(key.target);
  return bare ? value_text(key) : in_quotes(value_text(key));
}

std::string table(const std::string& title, const std::vector<Key>& keys) {
  std::string out =
      fmt::format("## [{}]\n| key | type | default | what it does |\n|---|---|---|---|\n", title);
  for (const Key& key : keys)
    out += fmt::format("| `{}` | {} | `{}` | {} |\n", key.name, type_text(key), toml_value(key),
                       key.help);
  return out;
}

std::string section(const std::string& title, const std::vector<Key>& keys) {
  std::string out = fmt::format("\n[{}]\n", title);
  for (const Key& key : keys) out += fmt::format("{} = {}\n", key.name, toml_value(key));
  return out;
}

}  // namespace

std::string config_reference() {
  Config defaults;
  ExportConfig one;
  return table("server", describe(defaults.server)) + "\n" + table("export.NAME", describe(one)) +
         "\n" + table("cluster", describe(defaults.cluster)) + "\n" +
         table("client", describe(defaults.client));
}

std::string config_text(const Config& config) {
  Config copy = config;  // describe() binds to values that may be set
  std::string out = fmt::format("# from {}, the environment and the command line\n",
                                copy.file.empty() ? "no file" : copy.file);
  out += section("server", describe(copy.server));
  for (ExportConfig& e : copy.exports)
    out += section(fmt::format("export.{}", e.name), describe(e));
  out += section("cluster", describe(copy.cluster));
  return out + section("client", describe(copy.client));
}

}  // namespace forebay
