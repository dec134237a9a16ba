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


if __name__ == "__main__":
    main()
