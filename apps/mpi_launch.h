// What `forebay run` does to a command: which MPI it is for, and how a library is preloaded into
// the program that it starts. Functions of their arguments, but for those that find something,
// which look at files.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace forebay {

enum class Mpi { mpich, openmpi };
enum class Launcher { none, mpich, openmpi };  // whose mpiexec it is

std::string_view name_of(Mpi mpi);

// By the launcher that is the command's first word, links followed; by a program among its words
// that needs an MPI library; nothing if neither tells.
std::optional<Mpi> find_mpi(const std::vector<std::string>& command);
// The first of the words that is a program of MPI.
struct MpiProgram {
  std::string word, library;  // the library by which it is one
  Mpi mpi;
  bool certain;  // no other MPI has a library of that name
};
std::optional<MpiProgram> find_program(const std::vector<std::string>& command);
Launcher launcher_of(const std::string& program);
// The file of a program, by PATH if it is a name only; the name itself if there is none.
std::string found_in_path(const std::string& program);

struct Prepared {
  std::vector<std::string> command;
  std::vector<std::string> environment;  // NAME=VALUE, to be added
};
// A launcher is told to set the variables for what it starts, and stays free of the library itself;
// anything else is started with them.
Prepared prepare(std::vector<std::string> command, Launcher launcher, const std::string& library,
                 const std::vector<std::string>& variables, std::string_view preloaded_already);

}  // namespace forebay
