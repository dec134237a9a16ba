#!/usr/bin/env python3
"""Calls of libc, one by one, on served files and in a plain folder (calls.c): the same outcomes."""

import difflib
import os
import random
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rig

# Served: EBADF, ENOENT or a wrong answer would be silent; a line and an errno are not.
REFUSED = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <wordexp.h>
int main(int count, char** words) {
  char pattern[5000];
  wordexp_t found;
  snprintf(pattern, sizeof pattern, "%s/*", words[1]);
  printf("wordexp %s\n", wordexp(pattern, &found, 0) == 0 ? "done" : strerrorname_np(errno));
  printf("inotify %s\n", inotify_add_watch(inotify_init(), words[1], IN_CREATE) > 0
                             ? "done" : strerrorname_np(errno));
  struct sockaddr_un name = {AF_UNIX};
  snprintf(name.sun_path, sizeof name.sun_path, "%s/s", words[1]);
  printf("bind %s\n", bind(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr*)&name, sizeof name) == 0
                          ? "done" : strerrorname_np(errno));
  FILE* const file = fopen("/dev/null", "r");
  printf("freopen %s\n", freopen(words[1], "r", file) ? "done" : strerrorname_np(errno));
  return 0;
}
"""


SEED = int(os.environ.get("FOREBAY_SEED", random.randrange(1 << 20)))


class Compiled(rig.PreloadCase):
    """Programs of our own."""

    def compile(self, *words, **more):
        compiler = shutil.which("gcc")
        if not compiler:
            self.skipTest("no compiler")
        program = self.path("calls")
        done = subprocess.run([compiler, "-O1", "-w", "-std=gnu2x", "-o", program, *words, "-lpthread"],
                              timeout=rig.SOON, capture_output=True, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return program


class Calls(Compiled):
    """calls.c has a letter for each kind of call."""

    def compare(self, *options):
        program = self.compile(*options, os.path.join(rig.HERE, "calls.c"))
        for kind in "dsflnwprt":
            ours = self.served(program, self.view, kind, timeout=rig.SOON)
            theirs = subprocess.run([program, self.plain, kind], env=self.env, capture_output=True,
                                    timeout=rig.SOON)
            self.assertEqual((ours.returncode, ours.stderr), (0, b""), kind)
            self.assertIn(b"\nend\n", theirs.stdout)
            self.assertEqual([], list(difflib.unified_diff(
                theirs.stdout.decode().splitlines(), ours.stdout.decode().splitlines(),
                "kernel", "served", n=0, lineterm="")), kind)

    def test_calls(self):
        self.compare()

    def test_checked_calls(self):  # the __open_2 and __read_chk of what distributions build
        self.compare("-D_FORTIFY_SOURCE=2")

    def test_refused(self):
        program = self.compile("-x", "c", "-", input=REFUSED.encode())
        done = self.served(program, self.view)
        self.assertEqual(dict(line.split() for line in done.stdout.decode().splitlines()), {
            "wordexp": "EOPNOTSUPP", "inotify": "ENOSPC",
            "bind": "EPERM", "freopen": "EOPNOTSUPP"}, done)
        self.assertEqual(len(done.stderr.splitlines()), 4, done)


class Races(Compiled):
    """Threads, children and signals at once (races.c)."""

    def test_races(self):
        program = self.compile(os.path.join(rig.HERE, "races.c"))
        done = self.served(program, self.view, str(SEED), "5", timeout=2 * rig.SOON)
        self.assertEqual((done.returncode, done.stderr), (0, b""), f"seed {SEED}: {done}")

    def test_fork_while_loading(self):
        """At every fifth allocation of the first call, by which the library is loaded (loading.c)."""
        program = self.compile(os.path.join(rig.HERE, "loading.c"))
        for n in range(1 + SEED % 5, 2000, 5):
            done = self.served(program, self.view, str(n), timeout=rig.SOON)
            if done.returncode == 2:
                break
            self.assertEqual((done.returncode, done.stderr), (0, b""), f"allocation {n}: {done}")
        self.assertGreater(n, 50)

    def test_fork_while_flushing(self):
        program = self.compile(os.path.join(rig.HERE, "flushing.c"))
        self.assertEqual(self.shell(f"{program} > {self.view}/out && cat {self.view}/out", timeout=rig.SOON), "text\n")


if __name__ == "__main__":
    print(f"seed {SEED}", file=sys.stderr)
    rig.main()
