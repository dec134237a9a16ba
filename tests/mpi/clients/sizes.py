#!/usr/bin/python3
"""Data calls beyond 2^31 bytes, and places beyond 2^40. See README.md."""

import os
import shutil
import sys
import tempfile

sys.dont_write_bytecode = True  # the tree stays clean
from job import MPIS, JobCase, main


class Sizes(JobCase):
    def each(self, how, folder):
        for mpi in MPIS:
            with self.subTest(mpi):
                self.need(mpi)
                path = os.path.join(folder, mpi)
                self.job(mpi, 2, [self.program(f"sizes_{mpi}"), path, how], limit=500)
                if os.path.exists(path):
                    os.unlink(path)

    def test_every_call(self):
        self.each("short", self.data)

    def test_far_away(self):
        self.each("far", self.data)

    def test_far_away_served(self):
        self.serve()
        self.each("far", self.data)

    def in_memory(self, how):
        # Which the program frees as it goes: a disk would take minutes.
        free = os.statvfs("/dev/shm")
        if free.f_bavail * free.f_frsize < 4 << 30:
            self.skipTest("less than 4 GiB free in /dev/shm")
        folder = tempfile.mkdtemp(prefix="forebay-sizes-", dir="/dev/shm")
        self.addCleanup(shutil.rmtree, folder)
        self.each(how, folder)

    def test_all_bytes(self):
        self.in_memory("full")

    def test_registered(self):
        with open("/proc/meminfo") as lines:
            available = next(int(line.split()[1]) for line in lines if "MemAvailable" in line)
        if available < 6 << 20:
            self.skipTest("less than 6 GiB of memory: what is converted is held twice")
        self.in_memory("registered")

    def test_served(self):
        # Nothing is stored, so that it costs no disk.
        self.good("start", "--set", "export.all.store=null")
        self.env.update(FOREBAY_CLIENT_SERVER=self.run_dir, FOREBAY_CLIENT_PREFIX=self.data)
        self.each("forgotten", self.data)
        for moved in self.moved():
            self.assertGreaterEqual(moved, 5 << 30)


if __name__ == "__main__":
    main()
