#include <fmt/format.h>

#include "assembly/version.h"
#include "verbs.h"
#include "wire/codec.h"

namespace forebay {
namespace {

Json section_json(const std::vector<Key>& keys) {
  Json::Object members;
  for (const Key& key : keys) {
    Json value = value_text(key);
    if (const auto* list = std::get_if<std::vector<std::string>*>(&key.target))
      value = Json::Array((*list)->begin(), (*list)->end());
    if (const auto* n = std::get_if<unsigned*>(&key.target)) value = **n;
    if (const auto* flag = std::get_if<bool*>(&key.target)) value = **flag;
    members.emplace_back(std::string(key.name), std::move(value));
  }
  return members;
}

Json config_json(Config config) {
  Json::Object exports;
  for (ExportConfig& e : config.exports) exports.emplace_back(e.name, section_json(describe(e)));
  return Json::Object{{"file", config.file.empty() ? Json() : Json(config.file)},
                      {"server", section_json(describe(config.server))},
                      {"export", std::move(exports)},
                      {"cluster", section_json(describe(config.cluster))},
                      {"client", section_json(describe(config.client))}};
}

void add_config(Cli& cli) {
  struct Options {
    bool json = false, reference = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* sub = cli.add("config", "show the configuration in effect", [options](Cli& c) {
    if (options->reference)
      fmt::print("{}", config_reference());
    else if (options->json)
      print_json(config_json(c.config()));
    else
      fmt::print("{}", config_text(c.config()));
    return kExitOk;
  });
  sub->add_flag("--reference", options->reference, "every key, its default and what it does");
  sub->add_flag("--json", options->json, "for programs");
  sub->footer(
      "What it prints is a configuration file, with the environment in it: forebay config > "
      "new.toml");
}

void add_version(Cli& cli) {
  auto json = std::make_shared<bool>(false);
  CLI::App* sub = cli.add("version", "show the version", [json](Cli&) {
    if (*json)
      print_json(Json::Object{{"version", kVersionText},
                              {"protocol_min", unsigned{wire::kProtocolMin}},
                              {"protocol_max", unsigned{wire::kProtocolMax}}});
    else
      fmt::print("forebay {} (protocol {})\n", kVersionText, wire::kProtocolMax);
    return kExitOk;
  });
  sub->add_flag("--json", *json, "for programs");
}

}  // namespace

void add_about_verbs(Cli& cli) {
  add_config(cli);
  add_version(cli);
}

}  // namespace forebay
