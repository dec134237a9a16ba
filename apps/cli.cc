#include "cli.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstring>

#include "assembly/build.h"
#include "assembly/version.h"
#include "core/log.h"
#include "progress.h"
#include "serve_options.h"
#include "usage.h"

namespace forebay {
namespace {

// Thrown by config() and store() to leave a verb whose ground is missing; nobody else sees it.
struct Leave {
  int code;
};

Error without_text(const Error& error) {
  Error bare = Error(error.code()).with_done(error.done());
  return error.is_outcome_unknown() ? std::move(bare).with_unknown_outcome() : bare;
}

}  // namespace

Cli::Cli()
    : app_("Forebay gathers a parallel application's I/O before it enters the file system.") {
  app_.name("forebay");
  app_.require_subcommand(0, 1);  // none, or an unknown one, is told in our words
  app_.fallthrough();
  app_.set_help_flag("-h,--help", "say how to use this");
  app_.set_version_flag("--version", std::string("forebay ") + kVersionText, "show the version");
  app_.get_formatter()->label("SUBCOMMAND", "VERB");
  app_.get_formatter()->label("Subcommands", "Verbs");
  add_config_options(app_, sources_);
  ClientConfig client;
  add_keys(app_, "client", describe(client), sources_.overrides);
  add_help();
}

CLI::App* Cli::add(const std::string& name, const std::string& help, Verb verb) {
  CLI::App* sub = app_.add_subcommand(name, help);
  sub->callback([this, name, verb = std::move(verb)] {
    verb_name_ = name;
    verb_ = verb;
  });
  return sub;
}

int Cli::run(int argc, char** argv) {
  (void)log::init(log::Level::warn);  // to standard error: cannot fail
  try {
    app_.parse(argc, argv);
    if (!verb_) {
      fmt::print("{}", app_.help());
      return kExitUsage;
    }
    const int code = verb_(*this);
    if (std::fflush(stdout) != 0 || std::ferror(stdout)) {
      complain(Error(errno ? errno : EIO, "standard output"));
      return kExitFailed;
    }
    return interrupted() ? 128 + interrupted_by() : code;
  } catch (const CLI::Success& e) {
    return app_.exit(e);
  } catch (const CLI::ParseError& e) {
    const auto chosen = app_.get_subcommands();
    fmt::print(stderr, "forebay: {}\nTry `forebay help{}`.\n", what_is_wrong(app_, e),
               chosen.empty() ? "" : " " + chosen.front()->get_name());
    return kExitUsage;
  } catch (const Leave& leaving) {
    return leaving.code;
  }
}

// `forebay help VERB`, for those who try it before --help.
void Cli::add_help() {
  auto about = std::make_shared<std::string>();
  CLI::App* sub = add("help", "say how to use a verb", [about](Cli& c) {
    const auto named =
        c.app_.get_subcommands([&](const CLI::App* one) { return one->get_name() == *about; });
    const CLI::App* found = about->empty() ? &c.app_ : named.empty() ? nullptr : named.front();
    if (!found) return c.complain(unknown_verb(c.app_, *about)), int{kExitUsage};
    // Not found->help(), which would be that of the verb in use: this one.
    const std::string name = about->empty() ? "forebay" : "forebay " + *about;
    fmt::print("{}", found->get_formatter()->make_help(found, name, CLI::AppFormatMode::Normal));
    return int{kExitOk};
  });
  sub->add_option("verb", *about, "the verb (default: all of them, in short)");
}

void Cli::leave(int code, const Error& error) {
  // Configuration and connection errors are whole sentences already.
  complain(error.what().empty() ? error_text(error) : error.what());
  throw Leave{code};
}

const Config& Cli::config() {
  if (!config_) {
    auto loaded = load_config(sources_);
    if (!loaded) leave(kExitUsage, loaded.error());
    config_ = std::make_unique<Config>(std::move(*loaded));
  }
  return *config_;
}

Store& Cli::store() {
  if (!store_) {
    auto connected = connect(config(), "forebay " + verb_name_);
    // EINVAL: an address or an export that was not well said.
    if (!connected) {
      const bool misused = connected.error().code() == EINVAL;
      leave(misused ? kExitUsage : kExitUnreachable, connected.error());
    }
    store_ = std::move(*connected);
  }
  return *store_;
}

void Cli::complain(const Error& error, const std::string& where) const {
  if (where.empty()) return complain(printable(error_text(error)));
  // A store's error often is about a name that stands in the path already: once is enough.
  const bool twice = !error.what().empty() && where.find(error.what()) != std::string::npos;
  complain(
      printable(fmt::format("{}: {}", where, error_text(twice ? without_text(error) : error))));
}

void Cli::complain(const std::string& text) const {
  fmt::print(stderr, "forebay: {}{}{}\n", verb_name_, verb_name_.empty() ? "" : ": ",
             printable_text(text));
}

std::string error_text(const Error& error) {
  // Some say what the system said already, in the middle of a sentence of their own.
  const char* description = strerrordesc_np(error.code());
  const bool told = description && error.what().ends_with(description);
  return fmt::format("{} ({})", told ? error.what() : error.message(), errno_name(error.code()));
}

void print_json(const Json& json) {
  fmt::print("{}\n", json.dump(2));
}

std::string columns(const std::vector<std::vector<std::string>>& rows, std::string_view align) {
  std::vector<size_t> widths(align.size());
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const size_t pad = widths[i] - row[i].size();
      if (i > 0) line += "  ";
      if (align[i] == '>') line += std::string(pad, ' ');
      line += row[i];
      if (align[i] != '>') line += std::string(pad, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

}  // namespace forebay
