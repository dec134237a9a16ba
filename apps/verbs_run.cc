#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "assembly/run_dir.h"
#include "mpi_launch.h"
#include "verbs.h"

namespace forebay {
namespace {

struct RunOptions {
  std::string mpi = "auto";
  bool local = false;
  std::vector<std::string> command;
};

// Beside this program, as it was built or as it was installed.
Result<std::string> library_for(Mpi mpi) {
  const std::string file = fmt::format("libforebay-{}.so", name_of(mpi));
  std::error_code failed;
  const auto prefix = std::filesystem::read_symlink("/proc/self/exe", failed).parent_path() / "..";
  for (const char* folder : {"lib", FOREBAY_LIBDIR}) {
    const auto path = std::filesystem::weakly_canonical(prefix / folder / file, failed);
    if (!failed && ::access(path.c_str(), R_OK) == 0) return path.string();
  }
  return Error(ENOENT,
               fmt::format("{} is not here: it was built without {}; install its development "
                           "package and build again",
                           file, name_of(mpi)));
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

int run(Cli& cli, const RunOptions& options) {
  if (options.command.empty()) {
    cli.complain("nothing to run: forebay run -- mpiexec -n 8 ./program");
    return kExitUsage;
  }
  const auto mpi = chosen(options);
  if (!mpi) {
    cli.complain(fmt::format("cannot tell which MPI {} uses: say --mpi mpich or --mpi openmpi",
                             options.command[0]));
    return kExitUsage;
  }
  const auto library = library_for(*mpi);
  if (!library) return cli.complain(library.error()), kExitFailed;
  const char* already = std::getenv("LD_PRELOAD");
  auto prepared = prepare(options.command, launcher_of(options.command[0]), *library,
                          server_variables(cli.config(), options.local), already ? already : "");
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
  CLI::App* sub = cli.add("run", "run an MPI program with Forebay's MPI-IO",
                          [options](Cli& c) { return run(c, *options); });
  sub->add_option("--mpi", options->mpi, "which MPI the program uses")
      ->check(CLI::IsMember({"auto", "mpich", "openmpi"}))
      ->capture_default_str();
  sub->add_flag("--local", options->local, "without a server, even if one is running");
  sub->add_option("command", options->command, "the launcher, or the program, and its arguments");
  sub->footer(
      "The program needs no change: its MPI_File functions are Forebay's. Files below the "
      "directory\n"
      "that a running server exports go through that server, all others straight to the file "
      "system.\n"
      "FOREBAY_EXPLAIN=1 says, file by file, what was done.\n\nExamples:\n"
      "  forebay run -- mpiexec -n 8 ./simulation input.nml\n"
      "  forebay run --mpi mpich -- srun -n 64 ./simulation\n"
      "  forebay run --local -- mpirun -np 4 python3 write.py");
}

}  // namespace forebay
