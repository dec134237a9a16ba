#!/usr/bin/env python3
"""Real programs on a mount and on a plain folder: what they print and leave must be the same."""

import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rig

SOURCES = os.path.join(rig.HERE, "../../src/core")
PYTHON = "/usr/bin/python3"
CALLS = os.path.join(rig.HERE, "../preload/calls.c")

SQLITE = r"""
import sqlite3, multiprocessing, sys
def work(i):
    db = sqlite3.connect("db", timeout=60)
    for n in range(15):
        with db:
            db.execute("insert into t values (?, ?, ?)", (i, n, "x" * (n * 97 % 3000)))
    db.close()
if __name__ == "__main__":
    db = sqlite3.connect("db")
    db.execute("pragma journal_mode=" + sys.argv[1])
    db.execute("create table t (who, n, text)")
    db.commit()
    processes = [multiprocessing.Process(target=work, args=(i,)) for i in range(4)]
    [p.start() for p in processes]
    [p.join() for p in processes]
    print(db.execute("pragma integrity_check").fetchall())
    print(db.execute("select who, count(*), sum(length(text)) from t group by who").fetchall())
"""

POOL = r"""
import multiprocessing, os, sys
def work(i):
    with open(f"part{i}", "wb") as file:
        file.write(bytes([i]) * 100000)
    with open("shared", "r+b") as file:
        file.seek(i * 1000)
        file.write(bytes([i]) * 1000)
    return os.path.getsize(f"part{i}")
if __name__ == "__main__":
    with open("shared", "wb") as file:
        file.truncate(8000)
    with multiprocessing.get_context(sys.argv[1]).Pool(4) as pool:
        print(pool.map(work, range(8)))
"""

NUMPY = r"""
import numpy
a = numpy.memmap("array", dtype="f8", mode="w+", shape=(300, 500))
a[:] = numpy.arange(150000).reshape(300, 500)
a[7, :] *= -1
a.flush()
print(numpy.fromfile("array").sum())
numpy.save("saved.npy", a[::3])
print(numpy.load("saved.npy", mmap_mode="r")[2, 3], numpy.array_equal(numpy.load("saved.npy"), a[::3]))
del a
"""

HDF5 = r"""
rows, columns = 60, 50
with open("numbers.txt", "w") as file:
    for r in range(rows):
        file.write(" ".join(str((r * columns + c) % 97) for c in range(columns)) + "\n")
with open("import.conf", "w") as file:
    file.write("PATH /group/set\nINPUT-CLASS TEXTIN\nRANK 2\nDIMENSION-SIZES 60 50\n"
               "OUTPUT-CLASS IN\nOUTPUT-SIZE 32\nCHUNKED-DIMENSION-SIZES 20 25\nCOMPRESSION-PARAM 3\n")
"""

PROJECT = {
    "a.cc": '#include "a.h"\n#include <vector>\nint a(int n) { return std::vector<int>(n, 2).size(); }\n',
    "a.h": "int a(int n);\n",
    "main.cc": '#include "a.h"\n#include <cstdio>\nint main() { std::printf("%d\\n", a(42)); }\n',
    "Makefile": "program: main.o a.o\n\tg++ -o $@ $^\n%.o: %.cc a.h\n\tg++ -O0 -c $<\n",
}


def needs(*programs):
    missing = [p for p in programs if not shutil.which(p)]
    return rig.unittest.skipIf(missing, f"not installed: {' '.join(missing)}")


class Programs:
    """Run over each kind of mount below."""

    def both(self, command, **more):
        """A shell command in both folders; the same output and code. Returns the output."""
        outcomes = []
        for folder in (self.view, self.plain):
            done = subprocess.run(["/bin/bash", "-c", command], cwd=folder, capture_output=True,
                                  timeout=200, **more)
            outcomes.append((done.returncode, done.stdout, done.stderr.replace(
                os.fsencode(folder), b"HERE")))
        self.assertEqual(outcomes[0], outcomes[1], command)
        self.assertEqual(outcomes[0][0], 0, f"{command}: {outcomes[0]}")
        return outcomes[0][1].decode()

    def same_trees(self):
        done = subprocess.run(["diff", "-r", "--no-dereference", self.view, self.plain,
                               "--exclude", ".forebay"], capture_output=True, timeout=200)
        self.assertEqual((done.returncode, done.stdout[-2000:]), (0, b""))

    def script(self, name, text):
        path = self.path(name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def test_copy_and_tar(self):
        self.both(f"cp -a {SOURCES} tree && ln -s tree/README.md link && ln tree/README.md hard"
                  " && chmod 600 hard && touch -d 2001-02-03 hard && cp -a tree again"
                  " && diff -r tree again && tar cf tree.tar tree link hard && mkdir out"
                  " && tar xf tree.tar -C out && diff -r tree out/tree"
                  " && (cd out && find . -printf '%p %m %s %l %n %T@\\n' | grep -v '^[.] ' | sort >../listed)"
                  " && rm -r again tree.tar && sed -i 's/ [0-9.]*$//' listed")
        self.same_trees()

    def test_shell(self):
        self.both("seq 20000 | tee all | grep 7 | sort -rn > sevens; wc -l < sevens;"
                  " for i in 1 2 3; do echo line $i >> log; done; cat log; head -c 5 all;"
                  " (while read -r l; do echo \"$l\"; done) < log > copy; cmp log copy;"
                  " dd if=/dev/zero of=zeros bs=1M count=20 status=none; dd if=zeros bs=64k status=none"
                  " | md5sum; dd if=zeros of=zeros bs=1 seek=30000000 count=0 status=none; stat -c %s zeros;"
                  " mkdir -p a/b/c; touch a/b/c/{1..300}; ls a/b/c | wc -l; find a -name '1*' | wc -l;"
                  " rm -r a; ls; exec 5<>log; rm log; echo more >&5; exec 5<&-; ls; cat *nothing* 2>/dev/null;"
                  " mv sevens eights; test -e sevens || echo moved; du -a --apparent-size all | cut -f1")
        self.same_trees()

    @needs("git")
    def test_git(self):
        git = ("git -c init.defaultBranch=main -c user.name=n -c user.email=e -c commit.gpgsign=false"
               " -c safe.directory=* -c gc.auto=0 -c protocol.file.allow=always")
        when = dict(os.environ, GIT_AUTHOR_DATE="2020-01-01T00:00:00Z", HOME=self.temp,
                    GIT_COMMITTER_DATE="2020-01-01T00:00:00Z", GIT_CONFIG_NOSYSTEM="1")
        self.both(f"mkdir r && cd r && {git} init -q && cp -a {SOURCES} s && {git} add . &&"
                  f" {git} commit -qm one && echo x > s/x && {git} add . && {git} commit -qm two && cd .. &&"
                  f" {git} clone -q --no-local r c && cd c && {git} fsck --full && {git} log --oneline &&"
                  f" {git} status --short && {git} repack -adq && {git} fsck", env=when)

    def test_sqlite(self):
        script = self.script("sqlite.py", SQLITE)
        for mode in ("delete", "wal"):
            out = self.both(f"rm -f db*; {PYTHON} {script} {mode}")
            self.assertIn("[('ok',)]", out)
            self.assertIn("(3, 15, ", out)

    @needs("make", "g++")
    def test_compile(self):
        for folder in (self.view, self.plain):
            for name, text in PROJECT.items():
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(text)
        self.assertIn("42", self.both("make -j2 >/dev/null && ./program && make -q && touch a.h"
                                      " && ! make -q && make >/dev/null && ./program"))

    def test_multiprocessing(self):
        script = self.script("pool.py", POOL)
        self.both(f"{PYTHON} {script} fork")
        self.both(f"{PYTHON} {script} spawn")
        self.same_trees()

    @needs("gcc")
    def test_calls_of_libc(self):
        program = self.path("calls")
        subprocess.run(["gcc", "-O1", "-w", "-std=gnu2x", "-o", program, CALLS], check=True, timeout=200,
                       capture_output=True)
        lines = []
        for folder in (self.view, self.plain):
            place = os.path.join(folder, "1234567"[len(os.path.basename(folder)) - 1:])  # as long as the other
            os.mkdir(place)
            done = subprocess.run([program, place], capture_output=True, timeout=200)
            self.assertEqual((done.returncode, done.stderr), (0, b""), folder)
            lines.append(done.stdout.decode().splitlines())
        self.assertEqual([], [pair for pair in zip(*lines) if pair[0] != pair[1]])
        self.assertEqual(len(lines[0]), len(lines[1]))

    def test_virtual_environment(self):  # links with whole paths, out of the folder
        if subprocess.run([PYTHON, "-c", "import venv"], capture_output=True).returncode != 0:
            self.skipTest("not installed: venv")
        self.both(f"{PYTHON} -m venv --without-pip env && readlink env/bin/python3 && ls env/bin &&"
                  " echo 'import sys; print(sys.prefix != sys.base_prefix)' > env/script.py &&"
                  " echo 'word = 5' > $(echo env/lib/python3*/site-packages)/module.py &&"
                  " env/bin/python env/script.py && env/bin/python -c 'import module; print(module.word)'")

    def test_numpy(self):
        if subprocess.run([PYTHON, "-c", "import numpy"], capture_output=True).returncode != 0:
            self.skipTest("not installed: python3-numpy")
        self.both(f"{PYTHON} {self.script('array.py', NUMPY)}")
        self.same_trees()

    @needs("rsync")
    def test_rsync(self):
        self.both(f"rsync -a {SOURCES}/ tree && rsync -aHAX --delete tree/ again && diff -r tree again"
                  " && echo more >> tree/README.md && rm tree/log.h && ln tree/README.md tree/hard"
                  " && ln -s hard tree/link && rsync -aHc --delete --itemize-changes tree/ again | sort"
                  " && diff -r tree again && dd if=/dev/urandom of=tree/big bs=1M count=8 status=none"
                  " && rsync -a --no-whole-file --inplace tree/ again"
                  " && printf x | dd of=tree/big bs=1 seek=4000000 conv=notrunc status=none"
                  " && rsync -ac --no-whole-file --partial tree/ again && cmp tree/big again/big"
                  " && rsync -anc --itemize-changes tree/ again && rm tree/big again/big && stat -c %h again/hard")
        self.same_trees()

    @needs("h5import", "h5dump", "h5diff", "h5repack", "h5ls", "h5copy")
    def test_hdf5_tools(self):
        out = self.both(
            f"{PYTHON} {self.script('hdf5.py', HDF5)} && h5import numbers.txt -c import.conf -o a.h5 >/dev/null"
            " && h5dump -d /group/set a.h5 | md5sum && h5repack -f GZIP=6 -l CHUNK=10x10 a.h5 b.h5"
            " && h5diff a.h5 b.h5 && h5copy -i a.h5 -o b.h5 -s /group/set -d /copy && h5ls -r b.h5"
            " && h5diff a.h5 b.h5 /group/set /copy && h5repack -f NONE -l CONTI b.h5 c.h5 && h5dump -H c.h5"
            " && h5dump -d /copy -o text -b LE -o binary c.h5 >/dev/null && md5sum binary")
        self.assertIn("DATASET", out)

    @needs("sqlite3")
    def test_sqlite_shell(self):
        self.assertIn("ok\n400\n", self.both(
            "sqlite3 s 'create table t (who, n)'; for i in 1 2 3 4; do (for n in $(seq 5); do sqlite3 -cmd"
            " '.timeout 60000' s \"with recursive c(x) as (select 1 union all select x + 1 from c where x < 20)"
            " insert into t select $i, x from c\"; done) & done; wait; sqlite3 s 'pragma integrity_check;"
            " select count(*) from t; vacuum; select sum(n) from t'; rm s"))

    @needs("fio")
    def test_fio(self):
        for engine, more in (("psync", "--numjobs=4"), ("mmap", "--numjobs=2"), ("libaio", "--iodepth=8")):
            done = subprocess.run(
                ["fio", "--name=v", f"--ioengine={engine}", "--rw=randwrite", "--bsrange=4k-64k",
                 "--size=4m", "--verify=crc32c", "--do_verify=1", "--verify_fatal=1", "--minimal",
                 "--thread", more], cwd=self.view, capture_output=True, timeout=200)
            self.assertEqual(done.returncode, 0, f"{engine}: {done.stderr[-500:]} {done.stdout[-300:]}")


class Directory(Programs, rig.MountCase):
    """Over a directory, in the mount's own process."""


class Server(Programs, rig.MountCase):
    """Through a server."""
    server = True


if __name__ == "__main__":
    rig.main()
