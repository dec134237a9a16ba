// forebay: the command for people.
#include <cstdlib>
#include <string_view>
#include <vector>

#include "verbs.h"

namespace {

// As mount(8) calls its helper for a line of /etc/fstab:
// mount.forebay SOURCE MOUNTPOINT [-sfnv] [-o OPTIONS], where f means to do nothing.
std::vector<char*> as_verb(int argc, char** argv) {
  static char program[] = "forebay", verb[] = "mount";
  std::vector<char*> words = {program, verb};
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const bool flags =
        word.size() > 1 && word[0] == '-' && word.find_first_not_of("-sfnv") == word.npos;
    if (flags && word.find('f') != word.npos) std::exit(0);
    if (!flags) words.push_back(argv[i]);
  }
  return words;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace forebay;
  Cli cli;
  add_server_verbs(cli);
  add_data_verbs(cli);
  add_name_verbs(cli);
  add_about_verbs(cli);
  add_run_verbs(cli);
  add_doctor_verbs(cli);
  add_lock_verbs(cli);
  add_attr_verbs(cli);
  add_key_verbs(cli);
  add_mount_verbs(cli);
  add_demo_verbs(cli);
#ifdef FOREBAY_BENCH
  add_bench_verbs(cli);
#endif
  cli.app().footer(
      "Examples:\n"
      "  forebay start /scratch          serve a directory, in the background\n"
      "  forebay mkdir /run7\n"
      "  forebay put results.h5 /run7/   copy a file into it, through the server\n"
      "  forebay ls -l /run7\n"
      "  forebay stop\n\n"
      "Paths are those of the export: /a/b and a/b are the same.\n"
      "Exit codes: 0 done, 1 it failed, 2 wrong command line or configuration, 3 no server, or it "
      "does not take you.");
  if (std::string_view(argv[0]).ends_with("mount.forebay")) {
    std::vector<char*> words = as_verb(argc, argv);
    return cli.run(static_cast<int>(words.size()), words.data());
  }
  return cli.run(argc, argv);
}
