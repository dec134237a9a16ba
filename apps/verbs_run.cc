#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>

#include "assembly/run_dir.h"
#include "doctor.h"
#include "mpi_launch.h"
#include "verbs.h"

namespace forebay {
namespace {

struct RunOptions {
  std::string mpi = "auto";
  bool local = false;
  std::string report;
  std::vector<std::string> command;
};

// Beside this program, as it was built or as it was installed.
Result<std::string> library_for(std::string_view what) {
  const std::string file = fmt::format("libforebay-{}.so", what);
  std::error_code failed;
  const auto prefix = std::filesystem::read_symlink("/proc/self/exe", failed).parent_path() / "..";
  for (const char* folder : {"lib", FOREBAY_LIBDIR}) {
    const auto path = std::filesystem::weakly_canonical(prefix / folder / file, failed);
    if (!failed && ::access(path.c_str(), R_OK) == 0) return path.string();
  }
  return Error(ENOENT,
               fmt::format("{} is not here: it was built without {}; install its development "
                           "package and build again",
                           file, what));
}

// The variables by which the job finds its server: the configured one, or one that lives in the
// usual place. None: files are written by the job itself.
std::vector<std::string> server_variables(const Config& config, bool local) {
  if (local) return {"FOREBAY_CLIENT_SERVER="};
  if (!config.client.server.empty()) return {"FOREBAY_CLIENT_SERVER=" + config.client.server};
  const std::string run_dir = client_run_dir(config);
  if (!server_in(run_dir)) return {};
  return {"FOREBAY_CLIENT_SERVER=" + run_dir};
}

std::optional<Mpi> chosen(const RunOptions& options) {
  if (options.mpi == "mpich") return Mpi::mpich;
  if (options.mpi == "openmpi") return Mpi::openmpi;
  return find_mpi(options.command);
}

// What is preloaded, joined by colons: MPI-IO for an MPI program, and POSIX calls where the
// configuration names paths to be served.
Result<std::string> libraries(const RunOptions& options, const Config& config) {
  std::string all;
  if (!config.client.preload.empty() && !options.local) {
    auto library = library_for("preload");
    if (!library) return library;
    all = *library;
  }
  const auto mpi = chosen(options);
  if (!mpi) return all;
  auto library = library_for(name_of(*mpi));
  if (!library) return library;
  return all.empty() ? *library : *library + ":" + all;
}

// What the job would not find out by itself: what the command line says, and the file that it
// names.
std::vector<std::string> variables(const RunOptions& options, Config config) {
  std::vector<std::string> all = server_variables(config, options.local);
  Config found = load_config(ConfigSources::of_process()).value_or(Config());
  const std::vector<Key> wanted = describe(config.client), known = describe(found.client);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const std::string value = value_text(wanted[i]);
    if (wanted[i].name == "server" || value == value_text(known[i])) continue;
    std::string name(wanted[i].name);
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
    all.push_back(fmt::format("FOREBAY_CLIENT_{}={}", name, value));
  }
  if (!options.report.empty()) all.push_back("FOREBAY_REPORT=" + options.report);
  return all;
}

// Paths that the library would not take are said here, once, and not by every process.
Result<void> check_prefixes(const Config& config) {
  for (const std::string& one : config.client.preload) {
    const std::string path = one.substr(0, one.find('='));
    if (path.size() < 2 || path[0] != '/')
      return Error(EINVAL, fmt::format("client.preload: '{}' is no path to be served", one));
  }
  return {};
}

// A static program and the like runs as it would without us: that is said, not silent.
void say_if_not_served(const Cli& cli, const std::string& program) {
  const auto found = diagnose(program);
  if (!found) return;  // whoever starts it says why it cannot be
  for (const std::string& why : found->not_served)
    cli.complain(fmt::format("{} runs, and is not served: {}", program, why));
}

// Both MPIs in one process end in a crash that explains nothing.
Result<void> check_mpi(const RunOptions& options) {
  const auto mpi = chosen(options);
  const auto program = find_program(options.command);
  if (!mpi || !program || !program->certain || program->mpi == *mpi) return {};
  // Said, and the launcher's: then the program that was found is none that is started.
  if (options.mpi != "auto" && find_mpi({options.command[0]}) == mpi) return {};
  const std::string_view theirs = name_of(program->mpi);
  const std::string advice =
      options.mpi == "auto"
          ? fmt::format(
                "start it with the launcher of that MPI (mpiexec.{}), which {} is not; if "
                "it is not what is started, say --mpi {}",
                theirs, options.command[0], name_of(*mpi))
          : fmt::format("say --mpi {} instead of --mpi {}, or neither", theirs, options.mpi);
  return Error(EINVAL, fmt::format("{} is a program of {} (it needs {}): {}", program->word, theirs,
                                   program->library, advice));
}

int run(Cli& cli, const RunOptions& options) {
  if (options.command.empty()) {
    cli.complain("nothing to run: forebay run -- mpiexec -n 8 ./program");
    return kExitUsage;
  }
  if (auto ok = check_prefixes(cli.config()); !ok) return cli.complain(ok.error()), kExitUsage;
  if (auto ok = check_mpi(options); !ok) return cli.complain(ok.error().what()), kExitUsage;
  const auto library = libraries(options, cli.config());
  if (!library) return cli.complain(library.error()), kExitFailed;
  if (library->empty()) {
    cli.complain(
        fmt::format("cannot tell which MPI {} uses: say --mpi mpich or --mpi openmpi; for "
                    "other programs, name the paths to be served: forebay --preload /forebay run",
                    options.command[0]));
    return kExitUsage;
  }
  if (!cli.config().client.preload.empty() && !options.local)
    say_if_not_served(cli, options.command[0]);
  const char* already = std::getenv("LD_PRELOAD");
  auto prepared = prepare(options.command, launcher_of(options.command[0]), *library,
                          variables(options, cli.config()), already ? already : "");
  for (std::string& one : prepared.environment) ::putenv(one.data());
  std::vector<char*> words;
  for (std::string& word : prepared.command) words.push_back(word.data());
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  const int code = errno;
  cli.complain(Error(code, words[0]));
  return code == ENOENT ? 127 : 126;
}

}  // namespace

void add_run_verbs(Cli& cli) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* sub = cli.add("run", "run a program, unchanged, over Forebay",
                          [options](Cli& c) { return run(c, *options); });
  sub->add_option("--mpi", options->mpi, "which MPI the program uses")
      ->check(CLI::IsMember({"auto", "mpich", "openmpi"}))
      ->capture_default_str();
  sub->add_flag("--local", options->local, "without a server, even if one is running");
  sub->add_option("--report", options->report,
                  "a file to which every served process adds a line at its end; 1: standard error");
  sub->add_option("command", options->command, "the launcher, or the program, and its arguments");
  sub->footer(
      "An MPI program's MPI_File functions are Forebay's: files below the directory that a "
      "running\n"
      "server exports go through that server, all others straight to the file system. Any "
      "program's\n"
      "POSIX calls are, for paths that client.preload names (see docs/preload.md).\n"
      "FOREBAY_EXPLAIN=1 says, file by file, what was done.\n\nExamples:\n"
      "  forebay run -- mpiexec -n 8 ./simulation input.nml\n"
      "  forebay run --mpi mpich -- srun -n 64 ./simulation\n"
      "  forebay run --local -- mpirun -np 4 python3 write.py\n"
      "  forebay --preload /forebay run -- bash -c 'tar xf a.tar -C /forebay'");
}

}  // namespace forebay
