#include <fmt/format.h>

#include "doctor.h"
#include "verbs.h"

namespace forebay {
namespace {

int doctor(Cli& cli, const std::string& program) {
  const auto found = diagnose(program);
  if (!found) return cli.complain(found.error()), kExitFailed;
  const std::string what =
      found->path == program ? program : fmt::format("{} ({})", program, found->path);
  for (const std::string& why : found->not_served) fmt::print("{}: not served: {}\n", what, why);
  for (const std::string& why : found->partly) fmt::print("{}: in part: {}\n", what, why);
  if (found->covered()) fmt::print("{}: served\n", what);
  return found->covered() ? kExitOk : kExitFailed;
}

}  // namespace

void add_doctor_verbs(Cli& cli) {
  auto program = std::make_shared<std::string>();
  CLI::App* sub = cli.add("doctor", "can the preload serve a program?",
                          [program](Cli& c) { return doctor(c, *program); });
  sub->add_option("program", *program, "a path, or a name in PATH")->required();
  sub->footer(
      "Looks at the file and runs nothing. Ends with 0 if all its calls are served, else 1.");
}

}  // namespace forebay
