#include "serve_options.h"

#include <algorithm>
#include <filesystem>

namespace forebay {
namespace {

std::string has_equals(const std::string& text) {
  return text.find('=') == std::string::npos ? "'" + text + "' has no '='" : "";
}

Override split(const std::string& text) {
  const size_t equals = text.find('=');
  return {text.substr(0, equals), text.substr(equals + 1)};
}

}  // namespace

std::vector<Override> ServeOptions::overrides() const {
  std::vector<Override> all;
  auto add = [&](const std::string& name, const std::string& path) {
    all.emplace_back("export." + name + ".path", std::filesystem::absolute(path).string());
  };
  if (!directory.empty()) add("data", directory);
  for (const std::string& one : exports) add(split(one).first, split(one).second);
  return all;
}

std::shared_ptr<ServeOptions> add_serve_options(CLI::App& to) {
  auto options = std::make_shared<ServeOptions>();
  to.add_option("directory", options->directory, "what to serve, as the export \"data\"");
  to.add_option("--export", options->exports, "serve a directory under a name; may be repeated")
      ->option_text("NAME=DIRECTORY")
      ->check(has_equals)
      ->allow_extra_args(false);
  return options;
}

void add_keys(CLI::App& to, const std::string& section, const std::vector<Key>& keys,
              std::vector<Override>& into) {
  for (const Key& key : keys) {
    std::string option = "--" + std::string(key.name);
    std::replace(option.begin(), option.end(), '_', '-');
    std::string help(key.help);
    std::erase(help, '`');
    const std::string path = section + "." + std::string(key.name), usual = value_text(key);
    to.add_option_function<std::string>(
          option, [&into, path](const std::string& value) { into.emplace_back(path, value); }, help)
        ->option_text(usual.empty() ? "TEXT" : "[" + usual + "]")
        ->group("Keys of [" + section + "]");
  }
}

void add_config_options(CLI::App& to, ConfigSources& into) {
  to.add_option("--config", into.file,
                "the configuration (default: $FOREBAY_CONFIG, ~/.config/forebay.toml, "
                "/etc/forebay.toml)")
      ->option_text("FILE");
  to.add_option_function<std::vector<std::string>>(
        "--set",
        [&into](const std::vector<std::string>& all) {
          for (const std::string& one : all) into.overrides.push_back(split(one));
        },
        "override any key, as in --set export.data.pool=128MiB")
      ->option_text("KEY=VALUE")
      ->check(has_equals)
      ->allow_extra_args(false);
}

}  // namespace forebay
