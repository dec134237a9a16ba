// What every verb of `forebay` shares: its configuration, its connection, how it reports errors,
// and exit codes.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>

#include "assembly/config.h"
#include "assembly/json.h"
#include "core/op.h"
#include "printable.h"
#include "store/store.h"

namespace forebay {

enum Exit : int {
  kExitOk = 0,
  kExitFailed = 1,       // the operation failed
  kExitUsage = 2,        // the command line or the configuration is wrong
  kExitUnreachable = 3,  // no server, or it cannot be reached
  // 128 + signal when interrupted
};

class Cli;
using Verb = std::function<int(Cli&)>;

class Cli {
 public:
  Cli();
  CLI::App& app() { return app_; }
  int run(int argc, char** argv);

  // Adds a verb; the subcommand is for its options. `verb` runs after the whole command line is
  // read.
  CLI::App* add(const std::string& name, const std::string& help, Verb verb);

  ConfigSources& sources() { return sources_; }

  // ---- For verbs ----
  // Prints what is wrong and leaves the program if there is none to be had.
  const Config& config();
  Store& store();
  const CallerRef& caller() const { return caller_; }

  // "forebay: put: /a/b: No space left on device (ENOSPC)", on standard error, always one line.
  void complain(const Error& error, const std::string& where = {}) const;
  void complain(const std::string& text) const;

 private:
  void add_help();
  [[noreturn]] void leave(int code, const Error& error);

  CLI::App app_;
  ConfigSources sources_ = ConfigSources::of_process();
  std::string verb_name_;
  Verb verb_;
  std::unique_ptr<Config> config_;
  std::unique_ptr<Store> store_;
  CallerRef caller_ = this_process_caller();
};

// The text of an error for a person: what, the system's description, and the errno's name.
std::string error_text(const Error& error);
// To standard output; a program that reads gets one object and a newline.
void print_json(const Json& json);
// Rows as aligned columns; '>' in `align` sets a column right.
std::string columns(const std::vector<std::vector<std::string>>& rows, std::string_view align);

}  // namespace forebay
