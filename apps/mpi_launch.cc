#include "mpi_launch.h"

#include <elf.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "elf_file.h"

namespace forebay {
namespace {

namespace fs = std::filesystem;

// The MPI library that a file needs; empty: none, or it is no program.
std::string library_needed_by(const std::string& file) {
  if (std::error_code ignored; !fs::is_regular_file(file, ignored)) return {};
  std::ifstream in(file, std::ios::binary);
  std::string bytes(SELFMAG, '\0');
  if (!in.read(bytes.data(), SELFMAG) || bytes != ELFMAG) return {};
  bytes.append(std::istreambuf_iterator<char>(in), {});
  for (std::string& library : read_elf(bytes).needed)
    if (library.starts_with("libmpich.so") || library.starts_with("libmpi.so"))
      return std::move(library);
  return {};
}

// libmpi.so.12 was Open MPI's once, and is that of MPICH and its relatives where it is not
// Debian's.
bool is_certain(const std::string& library) {
  return !library.starts_with("libmpi.so.12");
}

}  // namespace

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
  const auto program = find_program(command);
  return program ? std::optional(program->mpi) : std::nullopt;
}

std::optional<MpiProgram> find_program(const std::vector<std::string>& command) {
  for (const std::string& word : command) {
    std::string library = library_needed_by(found_in_path(word));
    if (library.empty()) continue;
    const Mpi mpi = library.starts_with("libmpich") ? Mpi::mpich : Mpi::openmpi;
    const bool certain = is_certain(library);
    return MpiProgram{word, std::move(library), mpi, certain};
  }
  return std::nullopt;
}

namespace {

bool preloads(const std::vector<std::string>& command, size_t i) {
  return (command[i] == "-x" && i + 1 < command.size() &&
          command[i + 1].starts_with("LD_PRELOAD=")) ||
         ((command[i] == "-genv" || command[i] == "-env") && i + 2 < command.size() &&
          command[i + 1] == "LD_PRELOAD");
}

// The launcher's options that set a variable.
std::vector<std::string> options_for(Launcher launcher, const std::string& variable) {
  const size_t equals = variable.find('=');
  if (launcher == Launcher::openmpi) return {"-x", variable};
  return {"-genv", variable.substr(0, equals), variable.substr(equals + 1)};
}

// Ours comes after what is preloaded already: a profiler that is there sees the program's calls
// first, and passes them on to us by the PMPI names.
std::string joined(std::string_view already, const std::string& library) {
  return already.empty() ? library : fmt::format("{}:{}", already, library);
}

// What the command itself preloads is kept; otherwise the last option would win and ours be gone.
bool join_preloads(std::vector<std::string>& command, const std::string& library) {
  bool found = false;
  for (size_t i = 0; i < command.size(); ++i) {
    if (!preloads(command, i)) continue;
    found = true;
    constexpr std::string_view kName = "LD_PRELOAD=";
    if (command[i] == "-x")
      command[i + 1] = std::string(kName) +
                       joined(std::string_view(command[i + 1]).substr(kName.size()), library);
    else
      command[i + 2] = joined(command[i + 2], library);
  }
  return found;
}

}  // namespace

Prepared prepare(std::vector<std::string> command, Launcher launcher, const std::string& library,
                 const std::vector<std::string>& variables, std::string_view preloaded_already) {
  const std::string preload = "LD_PRELOAD=" + joined(preloaded_already, library);
  std::vector<std::string> all = variables;
  if (launcher == Launcher::none || !join_preloads(command, library)) all.push_back(preload);
  if (launcher == Launcher::none) return {std::move(command), std::move(all)};
  std::vector<std::string> options;
  for (const std::string& one : all)
    for (std::string& word : options_for(launcher, one)) options.push_back(std::move(word));
  // Open MPI's options are of one program of several, those of MPICH are of all.
  for (size_t i = command.size(); i-- > 0;)
    if (i == 0 || (command[i] == ":" && launcher == Launcher::openmpi))
      command.insert(command.begin() + static_cast<std::ptrdiff_t>(i) + 1, options.begin(),
                     options.end());
  return {std::move(command), {}};
}

}  // namespace forebay
