#include "mpi_launch.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "core/testing.h"

namespace forebay {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(MpiLaunchTest, ALauncherSetsVariablesForWhatItStarts) {
  const auto mpich =
      prepare({"mpiexec", "-n", "4", "a.out"}, Launcher::mpich, "/l/x.so", {"A=1"}, "");
  EXPECT_THAT(mpich.command, ElementsAre("mpiexec", "-genv", "A", "1", "-genv", "LD_PRELOAD",
                                         "/l/x.so", "-n", "4", "a.out"));
  EXPECT_THAT(mpich.environment, IsEmpty());
  const auto openmpi = prepare({"mpirun", "a.out"}, Launcher::openmpi, "/l/x.so", {"A=1"}, "y.so");
  EXPECT_THAT(openmpi.command,
              ElementsAre("mpirun", "-x", "A=1", "-x", "LD_PRELOAD=y.so:/l/x.so", "a.out"));
}

TEST(MpiLaunchTest, EveryProgramOfAJobGetsThem) {
  const auto both =
      prepare({"mpiexec", "-n", "1", "a", ":", "-n", "1", "b"}, Launcher::openmpi, "x.so", {}, "");
  EXPECT_THAT(both.command, ElementsAre("mpiexec", "-x", "LD_PRELOAD=x.so", "-n", "1", "a", ":",
                                        "-x", "LD_PRELOAD=x.so", "-n", "1", "b"));
}

TEST(MpiLaunchTest, WhatTheCommandPreloadsComesBeforeOurs) {
  EXPECT_THAT(
      prepare({"mpiexec", "-x", "LD_PRELOAD=tool.so", "a"}, Launcher::openmpi, "x.so", {}, "")
          .command,
      ElementsAre("mpiexec", "-x", "LD_PRELOAD=tool.so:x.so", "a"));
  EXPECT_THAT(
      prepare({"mpiexec", "-genv", "LD_PRELOAD", "tool.so", "a"}, Launcher::mpich, "x.so", {}, "")
          .command,
      ElementsAre("mpiexec", "-genv", "LD_PRELOAD", "tool.so:x.so", "a"));
}

TEST(MpiLaunchTest, AnythingElseIsStartedWithThem) {
  const auto run = prepare({"srun", "a.out"}, Launcher::none, "/l/x.so", {}, "y.so");
  EXPECT_THAT(run.command, ElementsAre("srun", "a.out"));
  EXPECT_THAT(run.environment, ElementsAre("LD_PRELOAD=y.so:/l/x.so"));
}

TEST(MpiLaunchTest, WhatIsNoProgramOfMpiTellsNothing) {
  EXPECT_EQ(find_mpi({}), std::nullopt);
  EXPECT_EQ(find_mpi({"/bin/true", "/etc/passwd", "no such thing"}), std::nullopt);
  EXPECT_EQ(launcher_of("/bin/sh"), Launcher::none);
}

// The file of a program that is loaded as it stands there, from address 0 on, and needs one
// library.
std::string program_of(const std::string& library) {
  std::string bytes(512, '\0');
  const auto put = [&](size_t at, const auto& what) {
    std::memcpy(bytes.data() + at, &what, sizeof what);
  };
  Elf64_Ehdr header = {};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_phoff = 64;
  header.e_phnum = 2;
  put(0, header);
  Elf64_Phdr part = {};
  part.p_type = PT_LOAD, part.p_filesz = bytes.size();
  put(64, part);
  part.p_type = PT_DYNAMIC, part.p_offset = 256, part.p_filesz = 48;
  put(64 + sizeof part, part);
  const Elf64_Dyn entries[] = {{DT_NEEDED, {1}}, {DT_STRTAB, {320}}, {DT_NULL, {0}}};
  put(256, entries);
  return bytes.replace(321, library.size(), library);
}

TEST(MpiLaunchTest, AProgramTellsItsMpiByTheLibraryThatItNeeds) {
  const TempDir dir;
  const auto found = [&](const std::string& library) {
    const std::string path = dir / "program";
    std::ofstream(path, std::ios::binary) << program_of(library);
    return find_program({"mpiexec", "-n", "2", path, "/bin/true"});
  };
  EXPECT_FALSE(find_program({"mpiexec", "/bin/true"}));
  EXPECT_FALSE(found("libc.so.6"));
  const auto openmpi = found("libmpi.so.40"), mpich = found("libmpich.so.12");
  ASSERT_TRUE(openmpi && mpich);
  EXPECT_EQ(openmpi->library, "libmpi.so.40");
  EXPECT_EQ(openmpi->word, dir / "program");
  EXPECT_TRUE(openmpi->mpi == Mpi::openmpi && openmpi->certain);
  EXPECT_TRUE(mpich->mpi == Mpi::mpich && mpich->certain);
  EXPECT_FALSE(found("libmpi.so.12")->certain) << "two MPIs have had that name";
}

TEST(MpiLaunchTest, ADamagedProgramTellsNothing) {
  const TempDir dir;
  const std::string whole = program_of("libmpi.so.40"), path = dir / "program";
  for (size_t size = 0; size < 334; ++size) {
    std::ofstream(path, std::ios::binary) << whole.substr(0, size);
    const auto found = find_program({path});
    EXPECT_TRUE(!found || size > 320) << size;
  }
}

}  // namespace
}  // namespace forebay
