#!/usr/bin/python3
"""Data calls beyond 2^31 bytes, and places beyond 2^40. See README.md."""

import os
import sys

sys.dont_write_bytecode = True  # the tree stays clean
from job import MPIS, JobCase, main


class Sizes(JobCase):
    def each(self, how, folder):
        for mpi in MPIS:
            with self.subTest(mpi):
                self.need(mpi)
                path = os.path.join(folder, mpi)
                self.job(mpi, 2, [self.program(f"sizes_{mpi}"), path, how], limit=240)
                if os.path.exists(path):
                    os.unlink(path)

    def test_every_call(self):
        self.each("short", self.data)

    def test_all_bytes(self):
        self.each("full", self.data)

    def test_served(self):
        # Nothing is stored, so that it costs no disk.
        self.good("start", "--set", "export.all.store=null")
        self.env.update(FOREBAY_CLIENT_SERVER=self.run_dir, FOREBAY_CLIENT_PREFIX=self.data)
        self.each("forgotten", self.data)
        for moved in self.moved():
            self.assertGreater(moved, 20 << 30)


if __name__ == "__main__":
    main()
