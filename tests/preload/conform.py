#!/usr/bin/env python3
"""The same random operations on served files and in a plain folder, compared call by call."""

import os
import random
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rig

OPERATIONS = int(os.environ.get("FOREBAY_TEST_OPERATIONS", "6000"))
SEED = int(os.environ.get("FOREBAY_SEED", random.randrange(1 << 32)))
WORLDS = os.path.join(rig.HERE, "worlds.py")


class Conformance(rig.PreloadCase):
    """One program, many processes, many threads, several users."""

    def play(self, how, operations):
        done = self.served(rig.PYTHON, WORLDS, self.view, self.plain, str(SEED), str(operations), how)
        self.assertEqual((done.returncode, done.stderr), (0, b""),
                         done.stdout.decode(errors="replace") + done.stderr.decode(errors="replace"))

    def test_one_program(self):
        self.play("one", OPERATIONS)

    def test_many_processes(self):
        self.play("processes", OPERATIONS)

    def test_many_threads(self):
        self.play("threads", OPERATIONS)

    @unittest.skipUnless(rig.ROOT, "needs root to act as several users")
    def test_users(self):
        self.play("users", OPERATIONS // 2)


if __name__ == "__main__":
    print(f"seed {SEED}", file=sys.stderr)
    rig.main()
