#include "bench/base.h"
#include "bench/forward.h"
#include "bench/ibcs.h"
#include "bench/mpi_rows.h"
#include "bench/posix.h"
#include "bench/state.h"
#include "progress.h"
#include "verbs.h"

namespace forebay {

namespace {

Result<void> run_suite(const std::string& suite, bench::BenchOptions options) {
  if (suite == "base") return bench::run_bench_base(options);
  if (suite == "forward") return bench::run_bench_forward(options);
  if (suite == "state") return bench::run_bench_state(options);
  if (suite == "ibcs") return bench::run_bench_ibcs(options);
  if (suite == "posix") return bench::run_bench_posix(options);
  return bench::run_bench_mpi(options);
}

int run(Cli& cli, const std::string& suite, bench::BenchOptions options) {
  catch_interrupts();
  options.give_up = interrupted;
  const Result<void> result = run_suite(suite, std::move(options));
  if (result) return kExitOk;
  if (result.error().code() == EINVAL) return cli.complain(result.error().what()), kExitUsage;
  if (!interrupted()) cli.complain(result.error());
  return kExitFailed;
}

}  // namespace

void add_bench_verbs(Cli& cli) {
  auto options = std::make_shared<bench::BenchOptions>();
  auto suite = std::make_shared<std::string>();
  CLI::App* sub = cli.add("bench", "measure it beside its physical limit",
                          [options, suite](Cli& c) { return run(c, *suite, *options); });
  sub->add_option(
         "suite", *suite,
         "base: round trips, streams and memory against bare sockets; forward: streams, small "
         "requests, schedulers and scaling against the clients' own calls; mpi: MPI-IO against "
         "that of the MPIs; posix: unmodified programs, on a mount and under the preload; ibcs: "
         "orders of collective I/O "
         "on a simulated cluster; state: numbers and appends that clients share")
      ->required()
      ->check(CLI::IsMember({"base", "forward", "mpi", "posix", "ibcs", "state"}));
  sub->add_flag("--json", options->json, "for programs");
  sub->add_option("--dir,--store", options->directory,
                  "where to make the scratch folder [/var/tmp]");
  sub->add_option("--only", options->only, "rows to measure, by id or by its first parts")
      ->delimiter(',');
  sub->add_option("--rounds", options->rounds, "rounds of each, interleaved; medians are shown")
      ->check(CLI::Range(1, 1000));
  sub->add_option("--seconds", options->seconds, "of one measurement")
      ->check(CLI::Range(0.05, 60.0));
  sub->add_option("--mpi", options->mpis, "of mpi: which [all that are here]")
      ->check(CLI::IsMember({"mpich", "openmpi"}))
      ->delimiter(',');
  sub->add_flag("--gluster", options->gluster, "of mpi: on a GlusterFS volume of its own");
  sub->add_flag("--quick", options->quick, "one short round of each, to see that it works");
  sub->add_option("--save", options->save, "also write the JSON to this file");
  sub->footer("It runs a server of its own in a scratch folder, and leaves nothing behind.");
}

}  // namespace forebay
