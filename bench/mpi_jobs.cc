#include "bench/mpi_jobs.h"

#include <fmt/format.h>
#include <stdio.h>
#include <sys/wait.h>

#include <filesystem>
#include <sstream>
#include <stdexcept>

#include "assembly/json.h"

namespace forebay::bench {

namespace {

constexpr int kLimit = 300;  // seconds of one run

// As it was built: bin/ and lib/ beside each other.
std::string built(const std::string& path) {
  std::error_code none;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", none);
  return (self.parent_path().parent_path() / path).string();
}

std::string program(const std::string& mpi) {
  return built("bin/mpi_io_bench_" + mpi);
}
std::string library(const std::string& name) {
  return built("lib/libforebay-" + name + ".so");
}

bool in_path(const std::string& name) {
  std::istringstream folders(getenv("PATH") ? getenv("PATH") : "");
  std::error_code none;
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (std::filesystem::exists(folder + "/" + name, none)) return true;
  }
  return false;
}

// MPICH spins while it waits, and there are more ranks than cores: both sides get a library that
// makes it yield.
std::string preloads(const MpiSide& side) {
  std::string all = side.mpi == "mpich" ? library("test-yield") : "";
  if (side.ours) all += (all.empty() ? "" : ":") + library(side.mpi);
  return all;
}

std::vector<std::string> launcher(const MpiSide& side, int ranks) {
  std::vector<std::string> words{"timeout", std::to_string(kLimit), "mpiexec." + side.mpi, "-n",
                                 std::to_string(ranks)};
  if (side.mpi == "openmpi") words.push_back("--oversubscribe");
  words.insert(words.end(), side.words.begin(), side.words.end());
  std::vector<std::string> variables = side.variables;
  if (const std::string all = preloads(side); !all.empty())
    variables.push_back("LD_PRELOAD=" + all);
  for (const std::string& one : variables) {
    const size_t equals = one.find('=');
    if (side.mpi == "mpich")
      words.insert(words.end(), {"-genv", one.substr(0, equals), one.substr(equals + 1)});
    else
      words.insert(words.end(), {"-x", one});
  }
  words.push_back(program(side.mpi));
  return words;
}

std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::string key(const MpiSide& side, const std::string& workload, const std::string& way) {
  return fmt::format("{} {} {} {}", side.mpi, side.name, workload, way);
}

void append(std::vector<double>& all, const Json& list) {
  for (const Json& one : list.array()) all.push_back(one.number());
}

}  // namespace

std::optional<std::string> MpiJobs::missing(const std::string& mpi) {
  if (!in_path("mpiexec." + mpi))
    return fmt::format("mpiexec.{} is not here: tools/install_packages mpi", mpi);
  std::vector<std::string> files{program(mpi), library(mpi)};
  if (mpi == "mpich") files.push_back(library("test-yield"));
  std::error_code none;
  for (const std::string& file : files) {
    if (!std::filesystem::exists(file, none))
      return file + " is not there: run the program from its build folder, after `make build`";
  }
  return std::nullopt;
}

void MpiJobs::run(const MpiSide& side, int ranks, const std::vector<std::string>& arguments) {
  std::string command = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 exec";
  for (const std::string& word : launcher(side, ranks)) command += " " + quoted(word);
  for (const std::string& word : arguments) command += " " + quoted(word);
  FILE* out = popen((command + " </dev/null").c_str(), "re");
  if (!out) throw std::runtime_error("cannot start mpiexec");
  std::string line;
  for (int c; (c = fgetc(out)) != EOF;) {
    if (c != '\n') {
      line += static_cast<char>(c);
      continue;
    }
    if (line.starts_with('{')) keep(side, line);
    line.clear();
  }
  const int status = pclose(out);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  throw std::runtime_error(fmt::format("mpi_io_bench ended with {}",
                                       WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status)));
}

void MpiJobs::keep(const MpiSide& side, const std::string& line) {
  const Result<Json> said = Json::parse(line);
  if (!said) throw std::runtime_error("mpi_io_bench printed something else: " + line);
  const auto take = [&](const std::string& way, const char* unit, const char* cpu_unit) {
    if ((*said)[way + unit].is_null()) return;
    MpiFigures& figures = figures_[key(side, (*said)["workload"].text(), way)];
    append(figures.figures, (*said)[way + unit]);
    append(figures.cpu, (*said)[way + cpu_unit]);
    figures.verified = figures.verified && (*said)["verified"].boolean();
  };
  for (const char* way : {"write", "read", "limit_write", "limit_read"})
    take(way, "_mb_s", "_cpu_s_gb");
  take("open", "_us", "_cpu_us");
}

const MpiFigures* MpiJobs::find(const MpiSide& side, const std::string& workload,
                                const std::string& way) const {
  const auto found = figures_.find(key(side, workload, way));
  return found == figures_.end() || found->second.figures.empty() ? nullptr : &found->second;
}

}  // namespace forebay::bench
