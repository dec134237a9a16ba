#!/usr/bin/env python3
"""flock(2) and F_OFD_SETLK of served files: a lock is the open file's, whichever process has it."""

import os
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rig

# Locks a file, and has no child that it did not make.
SEEN = r"""
import fcntl, os, signal, sys
seen = []
signal.signal(signal.SIGCHLD, lambda *a: seen.append(1))
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
fcntl.flock(fd, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.readline()
try:
    os.waitpid(-1, 0)
except ChildProcessError:
    print("no child, no signal" if not seen else "a signal", flush=True)
"""

# Words on standard input, one to a line, on one open file: what each came to.
OPEN_FILE = r"""
import errno, fcntl, os, signal, struct, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
os.set_inheritable(fd, True)
print("open", flush=True)
OFD_SETLK, OFD_SETLKW, OFD_GETLK = 37, 38, 36
def ofd(command, kind, start=0, length=0):
    text = fcntl.fcntl(fd, command, struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0))
    return struct.unpack("hhqqi4x", text)
def killed():
    pid = os.fork()
    if pid == 0:
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
def killed_at_once():
    pid = os.fork()
    if pid == 0:
        while True: fcntl.flock(fd, fcntl.LOCK_EX)
    import random, time
    time.sleep(random.random() / 50)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
def forked(call):
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            call()
        except OSError as error:
            code = error.errno
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code: raise OSError(code, "child")
def interrupted():
    signal.signal(signal.SIGALRM, lambda *a: (_ for _ in ()).throw(InterruptedError(errno.EINTR, "x")))
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    fcntl.flock(fd, fcntl.LOCK_EX)
words = {
  "exclusive": lambda: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB),
  "shared": lambda: fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB),
  "wait": lambda: fcntl.flock(fd, fcntl.LOCK_EX),
  "interrupted": interrupted,
  "free": lambda: fcntl.flock(fd, fcntl.LOCK_UN),
  "exclusive-in-child": lambda: forked(lambda: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)),
  "free-in-child": lambda: forked(lambda: fcntl.flock(fd, fcntl.LOCK_UN)),
  "killed-child": killed,
  "killed-at-once": killed_at_once,
  "range": lambda: ofd(OFD_SETLK, fcntl.F_WRLCK, 0, 10),
  "other-range": lambda: ofd(OFD_SETLK, fcntl.F_WRLCK, 10, 10),
  "range-in-child": lambda: forked(lambda: ofd(OFD_SETLK, fcntl.F_WRLCK, 0, 10)),
  "free-range": lambda: ofd(OFD_SETLK, fcntl.F_UNLCK, 0, 10),
  "posix": lambda: fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB),
  "test-range": lambda: print(ofd(OFD_GETLK, fcntl.F_WRLCK, 0, 100)[:4:2], flush=True),
  "other-user": lambda: os.setuid(1000),
  "close": lambda: os.close(fd),
  "orphan": lambda: os.fork() or (os.closerange(1, 3), signal.pause()),
  "exec": lambda: os.execv("/bin/sleep", ["sleep", "100"]),
  "end": lambda: sys.exit(0),
  "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
}
for line in sys.stdin:
    try:
        words[line.strip()]()
        print("done", flush=True)
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)
"""


# 40 children and their threads, each with an open file of its own.
MANY = r"""
import fcntl, os, sys, threading
path = sys.argv[1]
with open(path, "w") as file:
    file.write("0")
def work():
    for _ in range(5):
        with open(path, "r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            count = int(file.read())
            file.seek(0)
            file.write(str(count + 1))
            file.flush()
for _ in range(40):
    if os.fork() == 0:
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        os._exit(0)
for _ in range(40):
    os.wait()
with open(path) as file:
    print(file.read())
"""


class OpenFile:
    """A process of that kind."""

    def __init__(self, case, path):
        self.process = subprocess.Popen([rig.FOREBAY, "run", "--", rig.PYTHON, case.script("open.py", OPEN_FILE),
                                         path], env=case.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        case.running.append(self.process)
        case.assertEqual(self.outcome(), "open")

    def begin(self, word):
        self.process.stdin.write(word.encode() + b"\n")
        self.process.stdin.flush()

    def outcome(self):
        return self.process.stdout.readline().decode().strip()

    def does(self, word):
        self.begin(word)
        return self.outcome()

    def ends(self, word):
        self.begin(word)
        self.process.wait(rig.SOON)


class Locks(rig.PreloadCase):
    """With a server."""

    server = False

    def setUp(self):
        super().setUp()
        self.env["FOREBAY_SERVER_GRACE"] = "4s"
        self.start()

    def two(self):
        return OpenFile(self, f"{self.view}/lock"), OpenFile(self, f"{self.view}/lock")

    def soon(self, file, word):
        """What a process that is killed has held is free when the kernel and the keeper have seen it."""
        end = time.monotonic() + 5
        while file.does(word) != "done":
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def keepers(self):
        """Of this test; others may run beside it."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    ours = self.view.encode() in file.read()
                with open(f"/proc/{name}/comm", encoding="utf-8") as file:
                    if ours and file.read().strip() == "forebay-lock-ke":
                        found.append(int(name))
            except OSError:
                pass
        return found

    def test_of_the_description(self):
        one, other = self.two()
        self.assertEqual(one.does("exclusive-in-child"), "done")  # the child has ended
        self.assertEqual(other.does("exclusive"), "EAGAIN")
        self.assertEqual(one.does("exclusive"), "done")  # it is its own
        self.assertEqual(one.does("free-in-child"), "done")
        self.assertEqual(other.does("exclusive"), "done")
        self.assertEqual(one.does("exclusive-in-child"), "EAGAIN")
        self.assertEqual(other.does("shared"), "done")
        self.assertEqual(one.does("shared"), "done")
        self.assertEqual(one.does("exclusive"), "EAGAIN")
        self.assertEqual(other.does("close"), "done")
        self.assertEqual(one.does("exclusive"), "done")  # at once

    def test_ranges(self):
        one, other = self.two()
        self.assertEqual(one.does("test-range"), str((2, 0)))
        one.outcome()
        self.assertEqual(one.does("range-in-child"), "done")
        self.assertEqual(other.does("range"), "EAGAIN")
        self.assertEqual(other.does("other-range"), "done")
        self.assertEqual(other.does("test-range"), str((1, 0)))
        other.outcome()
        self.assertEqual(one.does("exclusive"), "done")  # they do not see each other
        self.assertEqual(one.does("free-range"), "done")
        self.assertEqual(other.does("range"), "done")
        other.ends("end")
        self.assertEqual(one.does("range"), "done")

    def test_waits_and_signals(self):
        one, other = self.two()
        self.assertEqual(one.does("exclusive"), "done")
        self.assertEqual(other.does("interrupted"), "EINTR")
        other.begin("wait")
        time.sleep(0.2)
        self.assertEqual(one.does("free"), "done")
        self.assertEqual(other.outcome(), "done")
        self.assertEqual(one.does("exclusive"), "EAGAIN")
        one.begin("wait")
        time.sleep(0.2)
        one.process.kill()  # who waited has gone, and gets nothing
        one.process.wait(rig.SOON)
        self.assertEqual(other.does("free"), "done")
        third = OpenFile(self, f"{self.view}/lock")
        self.soon(third, "exclusive")

    def test_deaths(self):
        one, other = self.two()
        self.assertEqual(one.does("killed-child"), "done")
        self.assertEqual(other.does("exclusive"), "EAGAIN")  # its parent has the file open
        one.ends("kill")
        self.soon(other, "exclusive")
        self.assertEqual(other.does("orphan"), "done")
        other.ends("end")
        third = OpenFile(self, f"{self.view}/lock")
        self.assertEqual(third.does("exclusive"), "EAGAIN")  # the child has it
        child = [pid for pid in self.children() if pid != third.process.pid]
        self.assertEqual(len(child), 1)
        os.kill(child[0], signal.SIGKILL)
        self.soon(third, "exclusive")

    def children(self):
        """Processes with the script, by their words."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    if file.read().split(b"\0")[1:2] == [self.path("open.py").encode()]:
                        found.append(int(name))
            except OSError:
                pass
        return found

    def test_exec(self):
        one, other = self.two()
        self.assertEqual(one.does("exclusive"), "done")
        one.begin("exec")
        time.sleep(0.5)
        self.assertEqual(other.does("exclusive"), "EAGAIN")
        one.process.kill()
        one.process.wait(rig.SOON)
        self.soon(other, "exclusive")

    def test_of_a_process_that_is_killed(self):
        """Far below the grace time."""
        self.good("stop")
        self.env["FOREBAY_SERVER_GRACE"] = "100s"
        self.start()
        one, other = self.two()
        self.assertEqual(one.does("posix"), "done")
        self.assertEqual(other.does("posix"), "EAGAIN")
        one.ends("kill")
        self.soon(other, "posix")
        other.begin("exec")  # it is the same process, so it may come back
        time.sleep(0.5)
        third = OpenFile(self, f"{self.view}/lock")
        self.assertEqual(third.does("posix"), "EAGAIN")
        other.process.kill()
        other.process.wait(rig.SOON)
        self.soon(third, "posix")

    @unittest.skipUnless(rig.ROOT, "needs to become others")
    def test_other_users(self):
        """The first lock is root's; who was root before is refused, and nobody loses anything."""
        os.chmod(self.temp, 0o755)
        one, other = self.two()
        self.assertEqual(one.does("exclusive"), "done")
        self.assertEqual(one.does("other-user"), "done")
        self.assertEqual(one.does("free"), "EPERM")
        self.assertEqual(other.does("exclusive"), "EAGAIN")
        one.ends("end")
        self.soon(other, "exclusive")

    def test_many_wait(self):
        script = self.script("many.py", MANY)
        done = self.served(rig.PYTHON, script, f"{self.view}/count", timeout=2 * rig.SOON)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"400\n", b""))

    def test_server_restarts_meanwhile(self):
        one, other = self.two()
        self.assertEqual(one.does("exclusive-in-child"), "done")
        self.kill_server()
        self.start()
        self.assertEqual(other.does("exclusive"), "EAGAIN")
        self.assertEqual(one.does("free"), "done")
        self.assertEqual(other.does("exclusive"), "done")

    def test_processes_of_a_user_share_a_keeper_that_they_do_not_see(self):
        program = self.script("seen.py", SEEN)
        crowd = [subprocess.Popen([rig.FOREBAY, "run", "--", rig.PYTHON, program, f"{self.view}/file{i}"],
                                  env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                 for i in range(12)]
        self.running += crowd
        for one in crowd:
            self.assertEqual(one.stdout.readline(), b"locked\n")
        self.assertEqual(len(self.keepers()), 1)
        for one in crowd:
            out, _ = one.communicate(b"\n", rig.SOON)
            self.assertEqual(out, b"no child, no signal\n")

    def test_a_child_that_is_killed_takes_nothing_from_its_parent(self):
        one, other = self.two()
        self.assertEqual(one.does("exclusive"), "done")
        for _ in range(20):
            self.assertEqual(one.does("killed-at-once"), "done")
        time.sleep(0.3)
        self.assertEqual(other.does("exclusive"), "EAGAIN")
        self.assertEqual(one.does("free"), "done")
        self.soon(other, "exclusive")

    def test_keeper(self):
        one, other = self.two()
        self.assertEqual(one.does("exclusive"), "done")
        self.assertEqual(one.does("exclusive-in-child"), "done")
        keepers = self.keepers()
        self.assertEqual(len(keepers), 1)
        os.kill(keepers[0], signal.SIGKILL)  # nobody is left in the dark
        self.assertEqual(one.does("exclusive"), "EIO")
        self.soon(one, "exclusive")
        self.assertEqual(len(self.keepers()), 1)
        one.ends("end")
        other.ends("end")
        end = time.monotonic() + 10
        while self.keepers():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)

    def test_shell(self):
        lock = f"{self.view}/lock"
        free, held = f"flock -n {lock} echo free", f"flock -n {lock} true || echo held"
        self.assertEqual(self.shell(f"exec 9>{lock}; flock 9; {held}; flock -u 9; {free}"), "held\nfree\n")
        self.assertEqual(self.shell(f"exec 9>{lock}; flock 9; {held}; exec 9>&-; {free}"), "held\nfree\n")
        self.assertEqual(self.shell(f"(flock -x 9; {held}) 9>{lock}; {free}"), "held\nfree\n")
        self.assertEqual(self.shell(f"flock {lock} bash -c '{held}'; {free}"), "held\nfree\n")
        self.assertEqual(self.shell(f"flock -F {lock} bash -c '{held}'; {free}"), "held\nfree\n")
        self.assertEqual(self.shell(f"exec 9>{lock}; flock 9; flock -w 0.2 {lock} true || echo late"), "late\n")
        # In the background, by whoever has the descriptor.
        self.assertEqual(self.shell(f"flock {lock} bash -c 'sleep 1 & echo on'; {held}; sleep 1.5; {free}"),
                         "on\nheld\nfree\n")
        self.assertEqual(self.shell(f"flock -o {lock} bash -c 'sleep 1 & echo on'; {free}"), "on\nfree\n")

    def test_one_at_a_time(self):
        count = f"{self.view}/count"
        self.assertEqual(self.shell(
            f"echo 0 > {count}; for i in 1 2 3 4; do (for j in 1 2 3 4 5; do"
            f" (flock 9; n=$(cat {count}); echo $((n + 1)) > {count}) 9>{self.view}/lock; done) & done;"
            f" wait; cat {count}"), "20\n")


if __name__ == "__main__":
    rig.main()
