#include "mpi_launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
              ElementsAre("mpirun", "-x", "A=1", "-x", "LD_PRELOAD=/l/x.so:y.so", "a.out"));
}

TEST(MpiLaunchTest, EveryProgramOfAJobGetsThem) {
  const auto both =
      prepare({"mpiexec", "-n", "1", "a", ":", "-n", "1", "b"}, Launcher::openmpi, "x.so", {}, "");
  EXPECT_THAT(both.command, ElementsAre("mpiexec", "-x", "LD_PRELOAD=x.so", "-n", "1", "a", ":",
                                        "-x", "LD_PRELOAD=x.so", "-n", "1", "b"));
}

TEST(MpiLaunchTest, WhatTheCommandPreloadsComesAfterOurs) {
  EXPECT_THAT(
      prepare({"mpiexec", "-x", "LD_PRELOAD=tool.so", "a"}, Launcher::openmpi, "x.so", {}, "")
          .command,
      ElementsAre("mpiexec", "-x", "LD_PRELOAD=x.so:tool.so", "a"));
  EXPECT_THAT(
      prepare({"mpiexec", "-genv", "LD_PRELOAD", "tool.so", "a"}, Launcher::mpich, "x.so", {}, "")
          .command,
      ElementsAre("mpiexec", "-genv", "LD_PRELOAD", "x.so:tool.so", "a"));
}

TEST(MpiLaunchTest, AnythingElseIsStartedWithThem) {
  const auto run = prepare({"srun", "a.out"}, Launcher::none, "/l/x.so", {}, "y.so");
  EXPECT_THAT(run.command, ElementsAre("srun", "a.out"));
  EXPECT_THAT(run.environment, ElementsAre("LD_PRELOAD=/l/x.so:y.so"));
}

TEST(MpiLaunchTest, WhatIsNoProgramOfMpiTellsNothing) {
  EXPECT_EQ(find_mpi({}), std::nullopt);
  EXPECT_EQ(find_mpi({"/bin/true", "/etc/passwd", "no such thing"}), std::nullopt);
  EXPECT_EQ(launcher_of("/bin/sh"), Launcher::none);
}

}  // namespace
}  // namespace forebay
