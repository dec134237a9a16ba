#!/usr/bin/env python3
"""Mounts whose kernels keep pages under leases: what one writes the others see, in reads and mappings."""

import mmap
import os
import random
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rig

LEASE = 3.0  # seconds


def put(path, at, data):
    fd = os.open(path, os.O_WRONLY)
    try:
        assert os.pwrite(fd, data, at) == len(data)
    finally:
        os.close(fd)


class LeaseCase(rig.MountCase):
    """self.view keeps pages under leases, and so does self.other; the server is one."""

    server = True
    options = ",".join(filter(None, [rig.MountCase.options, "cache=lease"]))

    def start(self, *args):
        return super().start("--lease-time", f"{LEASE:g}s", *args)

    def setUp(self):
        super().setUp()
        self.other = self.path("other")
        os.mkdir(self.other)
        before = set(self.daemons())
        self.view_daemon = before.pop()
        self.mount(where=self.other)
        self.other_daemon = (set(self.daemons()) - {self.view_daemon}).pop()

    def leases(self):
        return self.status()["exports"][0]["leases"]

    def leased(self, fd, count=1):
        """Reads until the lease is held."""
        def held():
            os.pread(fd, 1, 0)
            return self.leases() >= count
        rig.wait_for("a lease", held)

    def file(self, data=b"old" * 5000):
        put_in = os.path.join(self.data, "f")
        with open(put_in, "wb") as out:
            out.write(data)
        os.chmod(put_in, 0o666)
        return os.path.join(self.view, "f"), os.path.join(self.other, "f")


class Coherent(LeaseCase):
    """What is seen when."""

    def test_a_write_elsewhere_is_read_at_once_and_pages_are_kept(self):
        mine, theirs = self.file()
        fd = os.open(mine, os.O_RDONLY)
        self.addCleanup(os.close, fd)
        self.leased(fd)
        os.pread(fd, 15000, 0)
        before = self.status()["exports"][0]["ops"].get("read", 0)
        for _ in range(20):
            os.pread(fd, 15000, 0)
        self.assertEqual(self.status()["exports"][0]["ops"].get("read", 0), before, "from pages")
        for i in range(50):
            put(theirs, i * 10, b"%04d" % i)
            self.assertEqual(os.pread(fd, 4, i * 10), b"%04d" % i)

    def test_growing_and_shrinking(self):
        mine, theirs = self.file(b"")
        fd = os.open(mine, os.O_RDONLY)
        self.addCleanup(os.close, fd)
        size = 0
        for i in range(200):
            if i % 7 == 6:
                size //= 2
                os.truncate(theirs, size)
            else:
                put(theirs, size, b"x" * (1 + i * 37 % 5000))
                size += 1 + i * 37 % 5000
            self.assertEqual(len(os.pread(fd, 1 << 20, 0)), size, i)
            if i % 20 == 0:
                time.sleep(0.05)

    def test_mappings_see_it(self):
        mine, theirs = self.file()
        fd = os.open(mine, os.O_RDONLY)
        self.addCleanup(os.close, fd)
        view = mmap.mmap(fd, 15000, mmap.MAP_SHARED, mmap.PROT_READ)
        self.addCleanup(view.close)
        self.assertEqual(view[:3], b"old")
        rig.wait_for("a lease", lambda: self.leases() >= 1)
        put(theirs, 4096, b"new")
        self.assertEqual(view[4096:4099], b"new")
        for i in range(20):
            # The lease comes back by itself, and with it what was written meanwhile.
            put(theirs, 0, b"%03d" % i)
            rig.wait_for(f"write {i}", lambda: view[:3] == b"%03d" % i)

    def test_two_mounts_and_the_oracle(self):
        seed = int(os.environ.get("FOREBAY_SEED", random.randrange(1 << 32)))
        print("seed", seed, flush=True)
        dice = random.Random(seed)
        paths = self.file(bytes(20000))
        readers = [os.open(path, os.O_RDONLY) for path in paths]
        writers = [os.open(path, os.O_RDWR) for path in paths]
        for fd in readers + writers:
            self.addCleanup(os.close, fd)
        oracle = bytearray(20000)
        for step in range(1500):
            who = dice.randrange(2)
            what = dice.randrange(10)
            at = dice.randrange(len(oracle) + 1)
            if what < 5:
                length = dice.randrange(1, 9000)
                self.assertEqual(os.pread(dice.choice([readers, readers, writers])[who], length, at), oracle[at:at + length],
                                 f"step {step}")
            elif what < 8:
                data = dice.randbytes(dice.choice([1, 100, 4096, 9000]))
                os.pwrite(writers[who], data, at)
                oracle[at:at + len(data)] = data
            elif what == 8:
                size = dice.randrange(30000)
                os.ftruncate(writers[who], size)
                oracle[size:] = bytes(max(0, size - len(oracle)))
            else:
                time.sleep(dice.choice([0, 0.001, 0.02]))
                self.assertEqual(os.fstat(readers[who]).st_size, len(oracle))

    def test_readers_never_see_a_version_go_back(self):
        mine, theirs = self.file(b"%08d" % 0 * 1000)
        stop = time.monotonic() + 4
        done = [0]
        wrong = []

        def write():
            version = 0
            fd = os.open(theirs, os.O_WRONLY)
            while time.monotonic() < stop:
                version += 1
                os.pwrite(fd, b"%08d" % version * 1000, 0)
                done[0] = version
                if version % 50 == 0:
                    time.sleep(0.02)
            os.close(fd)

        def read():
            fd = os.open(mine, os.O_RDONLY)
            while time.monotonic() < stop and not wrong:
                least = done[0]
                at = random.randrange(1000) * 8
                seen = int(os.pread(fd, 8, at))
                if seen < least:
                    wrong.append((seen, least))
            os.close(fd)

        threads = [threading.Thread(target=write)] + [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertGreater(done[0], 100)


class Names(LeaseCase):
    """A server without the privilege for the kernel's handles: one file has a handle for each of its names."""

    def start(self, *args):
        if not rig.ROOT:
            return super().start(*args)
        command = ["setpriv", "--bounding-set=-dac_read_search", "--inh-caps=-dac_read_search", rig.FOREBAY,
                   "start", self.data, "--lease-time", f"{LEASE:g}s", *args]
        return subprocess.run(command, env=self.env, capture_output=True, timeout=rig.SOON, check=True)

    def test_a_write_by_one_name_is_read_by_the_other(self):
        mine, theirs = self.file()
        os.link(mine, mine + "2")
        readers = [os.open(name, os.O_RDONLY) for name in (mine, mine + "2")]
        for fd in readers:
            self.addCleanup(os.close, fd)
        for i in range(10):
            for fd in readers:
                self.leased(fd)
            put((mine, mine + "2", theirs, theirs + "2")[i % 4], 0, b"%03d" % i)
            self.assertEqual([os.pread(fd, 3, 0) for fd in readers], [b"%03d" % i] * 2)


class Faults(LeaseCase):
    """Holders and servers that stop, die and come back."""

    def setUp(self):
        super().setUp()
        self.mine, self.theirs = self.file()
        self.fd = os.open(self.mine, os.O_RDONLY)
        self.leased(self.fd)

    def tearDown(self):
        try:
            os.close(self.fd)
        except OSError:
            pass  # of a mount whose daemon is dead
        super().tearDown()

    def timed_put(self, at, data):
        before = time.monotonic()
        put(self.theirs, at, data)
        return time.monotonic() - before

    def test_a_stopped_holder_delays_a_writer_until_its_lease_is_over(self):
        os.kill(self.view_daemon, signal.SIGSTOP)
        try:
            took = self.timed_put(0, b"new")
        finally:
            os.kill(self.view_daemon, signal.SIGCONT)
        self.assertLess(took, LEASE + 2)
        self.assertGreater(took, 0.2)
        self.assertLess(self.timed_put(3, b"NEW"), 1)
        self.assertEqual(os.pread(self.fd, 6, 0), b"newNEW")

    def test_a_killed_holder_delays_nobody(self):
        os.kill(self.view_daemon, signal.SIGKILL)
        self.assertLess(self.timed_put(0, b"new"), 1)

    def test_a_killed_server(self):
        self.kill_server()
        self.start()
        took = self.timed_put(0, b"new")
        self.assertLess(took, LEASE + 4)
        self.assertEqual(os.pread(self.fd, 3, 0), b"new")
        self.leased(self.fd)
        put(self.theirs, 0, b"two")
        self.assertEqual(os.pread(self.fd, 3, 0), b"two")

    def test_a_server_that_is_stopped_and_started(self):
        self.good("stop")
        self.start()
        put(self.theirs, 0, b"new")
        self.assertEqual(os.pread(self.fd, 3, 0), b"new")


WRITEBACK = LeaseCase.options.replace("cache=lease", "cache=writeback")


class CoherentWrites(Coherent):
    """The same, of mounts that keep writes too."""

    options = WRITEBACK

    def writes(self):
        return self.status()["exports"][0]["ops"].get("write", 0)

    def test_small_writes_go_together_and_are_seen_by_whoever_looks(self):
        mine, theirs = self.file(b"")
        fd = os.open(mine, os.O_RDWR)
        other = os.open(theirs, os.O_RDWR)  # both may write: nobody has pages
        self.addCleanup(os.close, other)
        before = self.writes()
        expected = b""
        for i in range(2000):
            data = b"%d," % i
            self.assertEqual(os.pwrite(fd, data, len(expected)), len(data))
            expected += data
            if i % 500 == 499:
                looks = [lambda: os.stat(theirs).st_size, lambda: os.fstat(other).st_size,
                         lambda: len(os.pread(other, 1 << 20, 0)), lambda: os.stat(mine).st_size]
                self.assertEqual(looks[i // 500](), len(expected))
                self.assertEqual(os.pread(other, 1 << 20, 0), expected)
                time.sleep(0.3)
        self.assertLess(self.writes() - before, 200)
        os.fsync(fd)
        with open(os.path.join(self.data, "f"), "rb") as file:
            self.assertEqual(file.read(), expected)
        os.pwrite(fd, b"last", 0)
        os.close(fd)
        with open(os.path.join(self.data, "f"), "rb") as file:
            self.assertEqual(file.read(4), b"last")

    def test_what_is_kept_is_written_in_time(self):
        mine, _ = self.file(b"")
        fd = os.open(mine, os.O_WRONLY)
        self.addCleanup(os.close, fd)
        for i in range(100):
            os.pwrite(fd, b"%02d" % i, 2 * i)
        rig.wait_for("the writes", lambda: os.stat(os.path.join(self.data, "f")).st_size == 200)


# Whoever forks closes descriptors, and so writes what is kept: the writer is a process of its own.
WRITER = """
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY)
for line in sys.stdin:
    try:
        if line.startswith("sync"):
            os.fsync(fd)
        else:
            for _ in range(20):
                os.pwrite(fd, line.strip().encode(), 0)
        print("done", flush=True)
    except OSError as error:
        print(error.strerror, flush=True)
"""


class FaultyWrites(LeaseCase):
    """Writes that are kept by somebody who stops, or for a server that dies."""

    options = WRITEBACK

    def setUp(self):
        super().setUp()
        self.mine, self.theirs = self.file(b"-" * 100)
        self.writer = subprocess.Popen([sys.executable, "-c", WRITER, self.mine], text=True,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def tearDown(self):
        self.writer.communicate(timeout=rig.SOON)
        super().tearDown()

    def tell(self, line):
        self.writer.stdin.write(line + "\n")
        self.writer.stdin.flush()
        return self.writer.stdout.readline().strip()

    def content(self):
        with open(os.path.join(self.data, "f"), "rb") as file:
            return file.read()

    def keep(self, text):
        self.assertEqual(self.tell(text), "done")
        self.assertNotEqual(self.content()[:len(text)], text.encode(), "it is kept")

    def test_what_comes_too_late_is_told_and_never_written(self):
        self.tell("first")
        time.sleep(0.3)
        self.keep("kept")
        os.kill(self.view_daemon, signal.SIGSTOP)
        try:
            before = time.monotonic()
            put(self.theirs, 0, b"theirs")
            self.assertLess(time.monotonic() - before, LEASE + 2)
        finally:
            os.kill(self.view_daemon, signal.SIGCONT)
        self.assertEqual(self.tell("sync"), "Input/output error")
        self.assertEqual(self.tell("sync"), "done", "told once")
        self.assertEqual(self.content(), b"theirs" + b"-" * 94)
        self.assertEqual(self.tell("again"), "done")
        self.assertEqual(self.tell("sync"), "done")
        self.assertEqual(self.content()[:6], b"agains")

    def test_a_server_that_is_killed_or_stopped_loses_nothing_in_silence(self):
        for end in [self.kill_server, lambda: self.good("stop")]:
            self.tell("first")
            time.sleep(0.3)
            self.keep("KEPT")
            end()
            self.start()
            if self.tell("sync") == "done":
                self.assertEqual(self.content()[:4], b"KEPT")
            self.assertEqual(self.tell("more"), "done")
            self.assertEqual(self.tell("sync"), "done")
            self.assertEqual(self.content()[:4], b"more")


if __name__ == "__main__":
    rig.main()
