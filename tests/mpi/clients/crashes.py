#!/usr/bin/python3
"""Jobs that crash, servers that die, disks that are full: errors on every rank, no hang, nothing left
behind. See README.md."""

import os
import re
import sys
import unittest

sys.dont_write_bytecode = True  # the tree stays clean
from job import MPIS, ROOT, SOON, JobCase, main, wait_for

MIB = 1 << 20
RANKS = 3


class Crash(JobCase):
    def each(self, work):
        for mpi in MPIS:
            with self.subTest(mpi):
                self.need(mpi)
                os.mkdir(os.path.join(self.data, mpi))
                work(mpi, os.path.join(self.data, mpi))

    def crash(self, mpi, mode, folder, before=()):
        return self.begin_job(mpi, RANKS, [self.program(f"crash_{mpi}"), mode,
                                           os.path.join(folder, "file")], before)

    def outcomes(self, result):
        """What each rank got: of a collective write, of a write alone, of close."""
        found = dict(re.findall(r"^rank (\d+): (.*)$", result.out, re.M))
        self.assertEqual(sorted(found), [str(rank) for rank in range(RANKS)], f"{result}")
        return [found[str(rank)].split() for rank in range(RANKS)]

    def nothing_left(self, folder):
        wait_for("the end of the job's processes", lambda: not self.job_processes())
        self.assertEqual(os.listdir(folder), ["file"])


class Abort(Crash):
    def own_shm(self):
        """A /dev/shm of the job's own, to see what stays in it; needs root."""
        if not ROOT:
            return None, ()
        shm = self.path("shm")
        os.makedirs(shm, exist_ok=True)
        return shm, ("unshare", "-m", "sh", "-c", 'mount --bind "$0" /dev/shm && exec "$@"', shm)

    def end_by(self, mode):
        def work(mpi, folder):
            shm, before = self.own_shm()
            result = self.finish_job(self.crash(mpi, mode, folder, before))
            self.assertNotEqual(result.code, 0, f"{result}")
            self.nothing_left(folder)
            if shm:
                self.assertEqual(os.listdir(shm), [])
        self.each(work)

    def nobody_is_connected(self):
        wait_for("the end of the sessions", lambda: not self.status()["sessions"])

    def test_abort(self):
        self.end_by("abort")

    def test_kill(self):
        self.end_by("kill")

    # A client that is lost may come back within the grace.
    def test_abort_served(self):
        self.serve("--set", "server.grace=1s")
        self.end_by("abort")
        self.nobody_is_connected()

    def test_kill_served(self):
        self.serve("--set", "server.grace=1s")
        self.end_by("kill")
        self.nobody_is_connected()


class ServerKilled(Crash):
    def test_every_rank_gets_an_error(self):
        # Shorter than a site's, so that the test is.
        self.env["FOREBAY_CLIENT_RETRY_FOR"] = "2s"

        def work(mpi, folder):
            self.serve()
            job = self.crash(mpi, "errors", folder)
            line = job.stdout.readline()
            self.assertEqual(line, b"writing\n")
            self.kill_server()
            result = self.finish_job(job)
            for collective, alone, _ in self.outcomes(result):
                self.assertEqual((collective, alone), ("io", "io"), f"{result}")
            self.nothing_left(folder)
        self.each(work)

    def test_one_that_comes_back_is_used_again(self):
        def work(mpi, folder):
            self.serve()
            job = self.crash(mpi, "errors", folder)
            self.assertEqual(job.stdout.readline(), b"writing\n")
            self.kill_server()
            self.serve()
            before = self.moved()[0]
            wait_for("more bytes", lambda: self.moved()[0] > before + 10 * MIB)
            self.assertIsNone(job.poll())
            self.end_job()
            self.finish_job(job)
            self.good("stop")
        self.each(work)

    def test_one_that_is_not_there_at_the_beginning(self):
        self.env["FOREBAY_CLIENT_SERVER"] = self.run_dir

        def work(mpi, folder):
            result = self.finish_job(self.crash(mpi, "errors", folder))
            self.assertNotEqual(result.code, 0)
            self.assertIn("open: ", result.err)
            self.assertEqual(os.listdir(folder), [])
        self.each(work)


@unittest.skipUnless(ROOT, "loop devices need root")
class DiskFull(Crash):
    def setUp(self):
        super().setUp()
        self.mount_small_disk(48 * MIB)
        self.addCleanup(self.end_job)  # before the disk goes

    def fill(self):
        def work(mpi, folder):
            result = self.finish_job(self.crash(mpi, "errors", folder))
            for collective, alone, _ in self.outcomes(result):
                self.assertEqual((collective, alone), ("no-space", "no-space"), f"{result}")
            self.nothing_left(folder)
            # Room for the next, even if the server has not let go of it yet.
            os.truncate(os.path.join(folder, "file"), 0)
        self.each(work)

    def test_local(self):
        self.fill()

    def test_served(self):
        self.serve()
        self.fill()


class LeftOpen(Crash):
    def leave_open(self):
        def work(mpi, folder):
            result = self.finish_job(self.crash(mpi, "open", folder))
            self.assertEqual(result.code, 0, f"{result}")
            self.assertIn("was still open at MPI_Finalize", result.err)
            with open(os.path.join(folder, "file"), "rb") as file:
                self.assertTrue(file.read() == b"a" * MIB + b"b" * MIB + b"c" * MIB)
            self.nothing_left(folder)
        self.each(work)

    def close_late(self):
        def work(mpi, folder):
            result = self.finish_job(self.crash(mpi, "late", folder))
            self.assertEqual(result.code, 0, f"{result}")
            self.assertNotIn("still open", result.err)
            with open(os.path.join(folder, "file"), "rb") as file:
                self.assertTrue(file.read() == b"a" * MIB + b"b" * MIB + b"c" * MIB + b"end")
            self.nothing_left(folder)
        self.each(work)

    def test_local(self):
        self.leave_open()

    def test_served(self):
        self.serve()
        self.leave_open()

    def test_closed_by_finalize(self):
        self.close_late()

    def test_closed_by_finalize_served(self):
        self.serve()
        self.close_late()


if __name__ == "__main__":
    main()
