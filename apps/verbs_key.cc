#include <fmt/format.h>

#include "core/key_file.h"
#include "transport/auth_key.h"
#include "verbs.h"

namespace forebay {
namespace {

struct KeyOptions {
  std::string what, file;
};

int run_key(const Cli& cli, const KeyOptions& options) {
  if (options.what == "check") {
    const auto key = AuthKey::load(options.file);
    if (!key) return cli.complain(key.error()), kExitFailed;
    fmt::print("{}: a key that servers and clients take\n", options.file);
    return kExitOk;
  }
  if (auto made = make_key_file(options.file); !made) {
    return cli.complain(made.error()), kExitFailed;
  }
  fmt::print(
      "{}: made. Copy it to every node of its servers and clients, readable for its owner only, "
      "and "
      "name it there: key_file in [server] and [client].\n",
      options.file);
  return kExitOk;
}

}  // namespace

void add_key_verbs(Cli& cli) {
  auto options = std::make_shared<KeyOptions>();
  CLI::App* sub = cli.add("key", "make or check a key for servers and clients on several nodes",
                          [options](Cli& c) { return run_key(c, *options); });
  sub->add_option("what", options->what, "make: a new one, in a file that is not there; check")
      ->required()
      ->check(CLI::IsMember({"make", "check"}));
  sub->add_option("file", options->file, "the file")->required();
  sub->footer("Example:\n  forebay key make ~/.forebay-key");
}

}  // namespace forebay
