// forebay: the command for people.
#include "verbs.h"

int main(int argc, char** argv) {
  using namespace forebay;
  Cli cli;
  add_server_verbs(cli);
  add_data_verbs(cli);
  add_name_verbs(cli);
  add_about_verbs(cli);
  add_run_verbs(cli);
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
  return cli.run(argc, argv);
}
