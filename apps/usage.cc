#include "usage.h"

#include <fmt/format.h>

#include "assembly/units.h"
#include "printable.h"

namespace forebay {
namespace {

bool is_option(const std::string& text) {
  return text.size() > 1 && text.front() == '-' && text != "--";
}

std::string unknown(const char* kind, const std::string& wrong,
                    const std::vector<std::string>& known) {
  const std::string near = nearest(wrong, known);
  return fmt::format("unknown {} '{}'{}", kind, printable(wrong),
                     near.empty() ? "" : fmt::format("; did you mean '{}'?", near));
}

std::vector<std::string> options_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) continue;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

}  // namespace

std::string unknown_verb(const CLI::App& app, const std::string& wrong) {
  std::vector<std::string> verbs;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    verbs.push_back(sub->get_name());
  return unknown("verb", wrong, verbs);
}

std::string what_is_wrong(const CLI::App& app, const CLI::ParseError& e) {
  const auto chosen = app.get_subcommands();
  const CLI::App* verb = chosen.empty() ? nullptr : chosen.front();
  const bool has_verbs = !app.get_subcommands([](const CLI::App*) { return true; }).empty();
  const std::string at = verb ? verb->get_name() + ": " : "";
  auto left = app.remaining(true);
  std::erase(left, "--");  // it stands there even if what follows it has its place
  for (const std::string& one : left) {
    if (!is_option(one)) continue;
    auto known = options_of(app);
    if (verb) {
      const auto more = options_of(*verb);
      known.insert(known.begin(), more.begin(), more.end());
    }
    return at + unknown("option", one.substr(0, one.find('=')), known);
  }
  if (!left.empty() && has_verbs && !verb) return unknown_verb(app, left.front());
  if (!left.empty()) return fmt::format("{}unexpected argument '{}'", at, printable(left.front()));
  return at + printable(e.what());
}

}  // namespace forebay
