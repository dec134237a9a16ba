#include "doctor.h"

#include <elf.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "elf_file.h"
#include "mpi_launch.h"

namespace forebay {
namespace {

constexpr int kMostInterpreters = 4;  // as the kernel's

void look_at_elf(const std::string& bytes, Diagnosis& found) {
  const Elf elf = read_elf(bytes);
  if (bytes[EI_CLASS] != ELFCLASS64)
    found.not_served.emplace_back("it is a 32-bit program, and the library a 64-bit one");
  else if (elf.interpreter.empty())
    found.not_served.emplace_back("it is statically linked: no library can be preloaded");
  else if (elf.interpreter.find("ld-linux") == std::string::npos)
    found.not_served.push_back(fmt::format("its C library is not glibc ({})", elf.interpreter));
  if (bytes.find("Go buildinf:") != std::string::npos)
    found.partly.emplace_back("it is written in Go, which calls the kernel itself");
  if (bytes.find("liburing.so") != std::string::npos ||
      bytes.find("io_uring_setup") != std::string::npos)
    found.partly.emplace_back("it uses io_uring, whose requests go to the kernel");
  if (bytes.find("libaio.so") != std::string::npos)
    found.partly.emplace_back("it uses libaio, whose requests go to the kernel");
}

void look_at_rights(const std::string& path, Diagnosis& found) {
  struct stat st = {};
  if (::stat(path.c_str(), &st) != 0) return;
  if (st.st_mode & (S_ISUID | S_ISGID))
    found.not_served.emplace_back("it is set-uid or set-gid: the loader ignores preloads");
  else if (::getxattr(path.c_str(), "security.capability", nullptr, 0) > 0)
    found.not_served.emplace_back("it has file capabilities: the loader ignores preloads");
}

}  // namespace

Result<Diagnosis> diagnose(const std::string& program) {
  Diagnosis found;
  found.path = found_in_path(program);
  for (int depth = 0; depth <= kMostInterpreters; ++depth) {
    std::ifstream in(found.path, std::ios::binary);
    if (!in) return Error(ENOENT, found.path);
    if (std::error_code ignored; std::filesystem::is_directory(found.path, ignored))
      return Error(EISDIR, found.path);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    if (bytes.starts_with(ELFMAG)) {
      look_at_elf(bytes, found);
      look_at_rights(found.path, found);
      return found;
    }
    if (!bytes.starts_with("#!")) return Error(ENOEXEC, found.path);
    const size_t from = bytes.find_first_not_of(" \t", 2);
    const size_t to = bytes.find_first_of(" \t\n", from);
    if (from == bytes.npos) return Error(ENOEXEC, found.path);
    std::string interpreter = bytes.substr(from, to - from);
    if (interpreter.ends_with("/env") && to != bytes.npos && bytes[to] != '\n') {
      const size_t name = bytes.find_first_not_of(" \t", to);
      interpreter = found_in_path(bytes.substr(name, bytes.find_first_of(" \t\n", name) - name));
    }
    found.path = interpreter;
  }
  return Error(ELOOP, program);
}

}  // namespace forebay
