#!/usr/bin/env python3
"""The same random operations on a mount and on a plain folder, compared call by call."""

import multiprocessing
import os
import random
import sys
import threading
import traceback
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rig
from world import World

OPERATIONS = int(os.environ.get("FOREBAY_MOUNT_OPERATIONS", "6000"))
SEED = int(os.environ.get("FOREBAY_SEED", random.randrange(1 << 32)))
USERS = [(1000, 1000, [1000, 2000]), (1001, 1001, [1001, 2000]), (1002, 2000, [])]


def play(view, plain, name, seed, operations, identities=None):
    """One world in folders of its own. Returns what went wrong, or None."""
    # Two deep, because links lead one up, where nobody else may be.
    sides = [os.path.join(top, name, "in") for top in (view, plain)]
    try:
        for side in sides:
            for folder in (os.path.dirname(side), side):
                os.mkdir(folder)
                os.chmod(folder, 0o777)
        World(*sides, seed, identities).run(operations)
        return None
    except BaseException:  # pylint: disable=broad-except
        return "".join(traceback.format_exc().splitlines(True)[-22:])


def play_to(queue, *arguments):
    queue.put(play(*arguments))


class Conformance:
    """Run over each kind of mount below."""

    def one(self, operations, identities=None):
        wrong = play(self.view, self.plain, "one", SEED, operations, identities)
        self.all_well([wrong])

    def test_one_program(self):
        self.one(OPERATIONS)

    @unittest.skipUnless(rig.ROOT, "needs root to act as several users")
    def test_users(self):
        def child(queue):
            os.umask(0o022)
            play_to(queue, self.view, self.plain, "users", SEED, OPERATIONS // 2, USERS)
        self.in_processes([child])

    def in_processes(self, children):
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        processes = [context.Process(target=child, args=(queue,)) for child in children]
        for process in processes:
            process.start()
        wrong = [queue.get(timeout=rig.SOON * 4) for _ in processes]
        for process in processes:
            process.join(rig.SOON)
        self.all_well(wrong)

    def all_well(self, wrong):
        wrong = [w for w in wrong if w]
        if wrong:
            self.fail(f"{len(wrong)} went wrong; the first: {wrong[0]}")

    def test_many_processes(self):
        self.in_processes([
            lambda queue, i=i: play_to(queue, self.view, self.plain, f"p{i}", SEED + i, OPERATIONS // 8)
            for i in range(8)])

    def test_many_threads(self):
        wrong = [None] * 8

        def work(i):
            wrong[i] = play(self.view, self.plain, f"t{i}", SEED + i, OPERATIONS // 8)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.all_well(wrong)

    def test_appends_of_many_processes(self):
        path = os.path.join(self.view, "log")
        lines = 200

        def child(i):
            def work(queue):
                fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
                for n in range(lines):
                    line = b"%d %d " % (i, n) + b"x" * (n * 37 % 500) + b"\n"
                    assert os.write(fd, line) == len(line)
                os.close(fd)
                queue.put(None)
            return work
        self.in_processes([child(i) for i in range(6)])
        with open(path, "rb") as file:
            seen = [tuple(map(int, line.split()[:2])) for line in file.read().splitlines()]
        self.assertEqual(len(seen), 6 * lines)
        for i in range(6):
            self.assertEqual([n for who, n in seen if who == i], list(range(lines)))


class Directory(Conformance, rig.MountCase):
    """Over a directory, in the mount's own process."""


class Server(Conformance, rig.MountCase):
    """Through a server."""
    server = True


class Pages(Conformance, rig.MountCase):
    """With the kernel's page cache between."""
    options = rig.MountCase.options + (",cache=pages" if rig.ROOT else "cache=pages")


class Leases(Conformance, rig.MountCase):
    """The same, under leases."""
    server = True
    options = rig.MountCase.options + (",cache=lease" if rig.ROOT else "cache=lease")


class WriteBack(Conformance, rig.MountCase):
    """And small writes are kept."""
    server = True
    options = rig.MountCase.options + (",cache=writeback" if rig.ROOT else "cache=writeback")


if __name__ == "__main__":
    print(f"seed {SEED}", file=sys.stderr)
    rig.main()
