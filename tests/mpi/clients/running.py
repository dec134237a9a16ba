#!/usr/bin/python3
"""What `forebay run`, and the library that it preloads, say to jobs that cannot work so. See README.md."""

import os
import sys

sys.dont_write_bytecode = True  # the tree stays clean
from job import MPIS, JobCase, main


class Running(JobCase):
    """A line that says what to do instead."""

    def run_job(self, mpi, *words, said=()):
        self.need(mpi)
        return self.forebay("run", *said, "--", f"mpiexec.{mpi}", "-n", "1", *words)

    def test_a_program_of_the_other_mpi(self):
        for mpi, other in (MPIS, MPIS[::-1]):
            with self.subTest(mpi):
                program = self.program(f"crash_{mpi}")
                told = self.run_job(mpi, program, "open", self.path("file"), said=("--mpi", other))
                self.assertEqual(told.code, 2, told)
                self.assertRegex(told.err, f"^forebay: run: {program} is a program of {mpi} .*: say --mpi {mpi} "
                                           f"instead of --mpi {other}, or neither\n$")
                told = self.run_job(other, program, "open", self.path("file"))
                self.assertEqual(told.code, 2, told)
                self.assertRegex(told.err, rf"is a program of {mpi} .*: start it with .*\(mpiexec\.{mpi}\)")
                self.assertFalse(os.path.exists(self.path("file")))

    def test_a_file_that_only_posix_calls_know(self):
        self.serve()
        self.env.update(FOREBAY_CLIENT_PRELOAD="/forebay", FOREBAY_EXPLAIN="1")
        for mpi in MPIS:
            with self.subTest(mpi):
                told = self.run_job(mpi, self.program(f"crash_{mpi}"), "errors", "/forebay/sub/file")
                self.assertNotEqual(told.code, 0, told)
                self.assertIn(f"name it {os.path.realpath(self.data)}/sub/file, or set client.prefix=/forebay", told.err)
                self.assertIn("no-such-file", told.err)

    def test_a_profiler_sees_the_calls_and_we_serve_them(self):
        for mpi in MPIS:
            with self.subTest(mpi):
                self.need(mpi)
                tool = os.path.join(os.path.dirname(self.program(f"profiled_{mpi}")), "..", "..", "..", "lib",
                                    f"libforebay-test-tool-{mpi}.so")
                self.env.update(LD_PRELOAD=os.path.realpath(tool), FOREBAY_EXPLAIN="1")
                told = self.run_job(mpi, self.program(f"profiled_{mpi}"), self.path(mpi))
                self.assertEqual(told.code, 0, told)
                self.assertIn("the tool saw 1 opens and 1 waits", told.err)
                self.assertRegex(told.err, "forebay: .*: local: no server is configured")


if __name__ == "__main__":
    main()
