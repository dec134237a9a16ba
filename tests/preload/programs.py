#!/usr/bin/env python3
"""Real programs under the preload and on a plain folder: what they print and leave must be the same."""

import importlib.util
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rig

rig.MountCase = rig.PreloadCase  # what the mount's cases stand on
_spec = importlib.util.spec_from_file_location(
    "mount_programs", os.path.join(rig.HERE, "../mount/programs.py"))
mount = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(mount)

NUMPY = r"""
import numpy
a = numpy.arange(150000, dtype="f8").reshape(300, 500)
a.tofile("array")
print(numpy.fromfile("array").sum())
numpy.save("saved.npy", a[::3])
print(numpy.load("saved.npy", mmap_mode="r")[2, 3], numpy.array_equal(numpy.load("saved.npy"), a[::3]))
numpy.savez("many.npz", a=a, b=a[7])
print(sorted(numpy.load("many.npz")), numpy.load("many.npz")["b"].sum())
"""


class Programs(mount.Programs, rig.PreloadCase):
    """The mount's cases, and what a preload has of its own."""

    def both(self, command, **more):
        env = dict(self.env, **more.get("env", {}))
        ours = self.served("/bin/bash", "-c", f"cd {self.view} && {command}", env=env)
        theirs = subprocess.run(["/bin/bash", "-c", f"cd {self.plain} && {command}"], env=env,
                                capture_output=True, timeout=200)
        outcomes = [(d.returncode, d.stdout, d.stderr.replace(os.fsencode(folder), b"HERE"))
                    for d, folder in ((ours, self.view), (theirs, self.plain))]
        self.assertEqual(outcomes[0], outcomes[1], command)
        self.assertEqual(outcomes[0][0], 0, f"{command}: {outcomes[0]}")
        return outcomes[0][1].decode()

    def same_trees(self):
        done = subprocess.run(["diff", "-r", "--no-dereference", self.data, self.plain,
                               "--exclude", ".forebay"], capture_output=True, timeout=200)
        self.assertEqual((done.returncode, done.stdout[-2000:]), (0, b""))
        done = self.served("diff", "-r", "--no-dereference", self.view, self.plain,
                           "--exclude", ".forebay")
        self.assertEqual((done.returncode, done.stdout[-2000:], done.stderr), (0, b"", b""))

    test_calls_of_libc = None  # calls.py

    def test_sqlite(self):  # without a log that is mapped by its writers
        out = self.both(f"{rig.PYTHON} {self.script('sqlite.py', mount.SQLITE)} delete")
        self.assertIn("[('ok',)]", out)
        self.assertIn("(3, 15, ", out)

    @mount.needs("make", "g++")
    def test_compile(self):
        for name, text in mount.PROJECT.items():
            self.script(name, text)
        self.assertIn("42", self.both(
            f"cp {self.temp}/{{a.cc,a.h,main.cc,Makefile}} . && make -j2 >/dev/null && ./program && make -q"
            " && sleep 1 && touch a.h && ! make -q && make >/dev/null && ./program"))

    def test_numpy(self):
        if subprocess.run([rig.PYTHON, "-c", "import numpy"], capture_output=True).returncode != 0:
            self.skipTest("not installed: python3-numpy")
        self.both(f"{rig.PYTHON} {self.script('array.py', NUMPY)}")
        self.same_trees()

    @mount.needs("fio")
    def test_fio(self):
        done = self.served(
            "fio", "--name=v", "--ioengine=psync", "--rw=randwrite", "--bsrange=4k-64k", "--size=4m",
            "--verify=crc32c", "--do_verify=1", "--verify_fatal=1", "--minimal", "--thread",
            "--numjobs=4", f"--directory={self.view}", cwd=self.temp)
        self.assertEqual(done.returncode, 0, f"{done.stderr[-500:]} {done.stdout[-300:]}")

    def test_redirections(self):
        self.both("echo one > f; echo two >> f; cat f; (echo a; /bin/echo b; printf c) > g; cat g;"
                  " { sort <<< $'z\\ny\\nx'; } > h; cat h; exec 3<f; read -r l <&3; echo $l; cat <&3; exec 3<&-;"
                  " exec 4>>f; echo three >&4; /bin/echo four >&4; exec 4>&-; cat f; wc -c < f > n; cat n;"
                  " ls nothing 2> e || cat e; seq 1000 | tee t | tail -1 > l; cat l; cat t | md5sum;"
                  " sh -c 'echo sh > s; cat s; cd /; pwd'; (cd /tmp && pwd); env printf x > p; cat p;"
                  " awk 'BEGIN { print 1 > \"w\"; close(\"w\"); getline x < \"w\"; print x }';"
                  " cat /dev/stdin < f; cat /proc/self/fd/0 < f | md5sum; echo err > e2 2>&1; sh -c 'echo dev > /dev/stdout' > d;"
                  " cat d; sed -i s/o/0/ f; cat f; xargs -a f -n1 echo; printf '#!/bin/sh\\necho script $1\\n' > r;"
                  " chmod +x r; ./r it; cmp f f && echo same; head -c 3 < f; find . -type f -size +1k")
        self.same_trees()


del mount.Directory, mount.Server
if __name__ == "__main__":
    rig.main()
