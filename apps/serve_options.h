// The options that `forebayd` and `forebay start` share: what to serve, and every key of [server].
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "assembly/config.h"

namespace forebay {

struct ServeOptions {
  std::string directory;             // served as "data"
  std::vector<std::string> exports;  // NAME=DIRECTORY

  // As overrides of the configuration. Paths become absolute.
  std::vector<Override> overrides() const;
};

std::shared_ptr<ServeOptions> add_serve_options(CLI::App& to);
// Every key of a section as an option: "--run-dir" sets server.run_dir.
void add_keys(CLI::App& to, const std::string& section, const std::vector<Key>& keys,
              std::vector<Override>& into);
// --config and --set.
void add_config_options(CLI::App& to, ConfigSources& into);

}  // namespace forebay
