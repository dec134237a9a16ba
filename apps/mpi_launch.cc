#include "mpi_launch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace forebay {
namespace {

namespace fs = std::filesystem;

std::string found_in_path(const std::string& program) {
  if (program.find('/') != program.npos) return program;
  const char* path = std::getenv("PATH");
  std::string_view rest = path ? path : "/usr/bin:/bin";
  while (!rest.empty()) {
    const size_t colon = rest.find(':');
    const std::string candidate = fmt::format("{}/{}", rest.substr(0, colon), program);
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    rest = colon == rest.npos ? std::string_view() : rest.substr(colon + 1);
  }
  return program;
}

// A program names the libraries that it needs in its string table. Whether the name stands there is
// all that is asked, so a search of the file's bytes will do.
std::optional<Mpi> needed_by(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::string start(4, '\0');
  if (!in.read(start.data(), 4) || start != "\177ELF") return std::nullopt;
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (bytes.find("libmpich.so") != bytes.npos) return Mpi::mpich;
  if (bytes.find("libmpi.so") != bytes.npos) return Mpi::openmpi;
  return std::nullopt;
}

}  // namespace

std::string_view name_of(Mpi mpi) {
  return mpi == Mpi::mpich ? "mpich" : "openmpi";
}

Launcher launcher_of(const std::string& program) {
  std::error_code error;
  const fs::path real = fs::canonical(found_in_path(program), error);
  const std::string name = error ? program : real.filename().string();
  for (const char* one :
       {"mpiexec.hydra", "mpirun.hydra", "mpiexec.mpich", "mpirun.mpich", "mpiexec.gforker"})
    if (name == one) return Launcher::mpich;
  for (const char* one : {"orterun", "mpiexec.openmpi", "mpirun.openmpi", "prterun"})
    if (name == one) return Launcher::openmpi;
  return Launcher::none;
}

std::optional<Mpi> find_mpi(const std::vector<std::string>& command) {
  if (command.empty()) return std::nullopt;
  switch (launcher_of(command[0])) {
    case Launcher::mpich:
      return Mpi::mpich;
    case Launcher::openmpi:
      return Mpi::openmpi;
    case Launcher::none:
      break;
  }
  for (const std::string& word : command)
    if (auto mpi = needed_by(found_in_path(word))) return mpi;
  return std::nullopt;
}

Prepared prepare(std::vector<std::string> command, Launcher launcher, const std::string& library,
                 const std::vector<std::string>& variables, std::string_view preloaded_already) {
  std::string preload = "LD_PRELOAD=" + library;
  if (!preloaded_already.empty()) preload += fmt::format(":{}", preloaded_already);
  std::vector<std::string> all = variables;
  all.push_back(std::move(preload));
  if (launcher == Launcher::none) return {std::move(command), std::move(all)};
  std::vector<std::string> options;
  for (const std::string& one : all) {
    const size_t equals = one.find('=');
    if (launcher == Launcher::openmpi)
      options.insert(options.end(), {"-x", one});
    else
      options.insert(options.end(), {"-genv", one.substr(0, equals), one.substr(equals + 1)});
  }
  command.insert(command.begin() + 1, options.begin(), options.end());
  return {std::move(command), {}};
}

}  // namespace forebay
