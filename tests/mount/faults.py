#!/usr/bin/env python3
"""Mounting and unmounting as a user sees it, several users, two mounts, and servers that die."""

import errno
import fcntl
import mmap
import os
import signal
import stat
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rig


def mounts():
    with open("/proc/self/mounts", encoding="utf-8") as file:
        return file.read()


class Mounting(rig.MountCase):
    """What mount and umount say and do."""

    def test_shown_and_unmounted(self):
        self.assertIn(f"{self.data} {self.view} fuse.forebay rw,nosuid,nodev", mounts())
        self.good("umount", self.view)
        self.assertNotIn(self.view, mounts())
        rig.wait_for("the daemon's end", lambda: not self.daemons())
        self.bad(1, "is not a mount of forebay", "umount", self.view)

    def test_errors_before_it_detaches(self):
        self.bad(1, "No such file or directory", "mount", self.data, self.path("nowhere"))
        self.bad(1, "No such file or directory", "mount", self.path("nowhere"), self.plain)
        self.bad(1, "is a mount of forebay already", "mount", self.data, self.view)
        self.bad(2, "-o allow_otter: no such option", "mount", "-o", "allow_otter", self.data, self.plain)
        self.bad(2, "did you mean retry_for", "mount", "-o", "retry_fo=3s", self.data, self.plain)
        self.bad(3, "", "mount", "data", self.plain)  # no server
        with open(self.path("file"), "w", encoding="utf-8"):
            pass
        self.bad(1, "Not a directory", "mount", self.data, self.path("file"))

    def test_options_as_in_fstab(self):
        other = self.path("a b,c")
        os.mkdir(other)
        self.mount(where=other, options="ro,noexec,noauto,_netdev,x-systemd.automount,nofail")
        with self.assertRaises(OSError) as caught:
            os.mkdir(os.path.join(other, "x"))
        self.assertEqual(caught.exception.errno, errno.EROFS)
        self.good("umount", other)

    def test_as_mount_calls_its_helper(self):
        helper = self.path("mount.forebay")
        os.symlink(os.path.abspath(rig.FOREBAY), helper)
        done = subprocess.run([helper, self.data, self.plain, "-v", "-n", "-o", "rw,noatime"],
                              env=self.env, capture_output=True, timeout=rig.SOON)
        self.addCleanup(self.unmount_whatever_happens, self.plain)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertIn(f"{self.data} {self.plain} fuse.forebay rw,nosuid,nodev,noatime", mounts())

    def foreground(self, *more):
        os.mkdir(self.path("front"))
        self.addCleanup(self.unmount_whatever_happens, self.path("front"))
        process = self.background("mount", "-f", *more, self.data, self.path("front"))
        self.assertIn(b"is mounted on", process.stdout.readline())
        return process

    def test_signals_unmount(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            process = self.foreground()
            with open(self.path("front/f"), "w", encoding="utf-8") as file:
                file.write("here")
            process.send_signal(number)
            self.assertEqual(process.wait(rig.SOON), 0)
            self.assertNotIn(self.path("front"), mounts())
            os.rmdir(self.path("front"))

    def test_umount_and_fusermount_end_it(self):
        for command in (["umount"], ["fusermount3", "-u"]):
            process = self.foreground()
            subprocess.run([*command, self.path("front")], check=True, timeout=rig.SOON)
            self.assertEqual(process.wait(rig.SOON), 0)
            os.rmdir(self.path("front"))

    def test_in_use(self):
        process = self.foreground()
        with open(self.path("front/f"), "w", encoding="utf-8") as file:
            self.bad(1, "busy", "umount", self.path("front"))
            process.send_signal(signal.SIGTERM)
            rig.wait_for("it to be out of sight", lambda: self.path("front") not in mounts())
            file.write("still")
            file.flush()
        self.assertEqual(process.wait(rig.SOON), 0)
        with open(os.path.join(self.data, "f"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "still")

    def test_a_killed_daemon(self):
        process = self.foreground()
        process.kill()
        process.wait(rig.SOON)
        with self.assertRaises(OSError) as caught:
            os.listdir(self.path("front"))
        self.assertEqual(caught.exception.errno, errno.ENOTCONN)
        self.good("umount", self.path("front"))
        self.assertEqual(os.listdir(self.path("front")), [])

    @unittest.skipUnless(rig.ROOT, "the benchmark mounts as root")
    def test_a_killed_benchmark_leaves_no_mount(self):
        if not os.path.exists(os.path.join(os.path.dirname(rig.FOREBAY), "../bench/passthrough_ll")):
            self.skipTest("passthrough_ll was not built")
        folder = self.path("bench")
        os.mkdir(folder)
        bench = self.background("bench", "posix", "--quick", "--only", "mount-write", "--dir", folder)
        rig.wait_for("its mount", lambda: folder in mounts() or bench.poll() is not None)
        self.assertIsNone(bench.poll(), "it ended before it was killed")
        bench.kill()
        rig.wait_for("the mounts' end", lambda: folder not in mounts())
        rig.wait_for("the processes' end", lambda: subprocess.run(
            ["pgrep", "-f", folder], capture_output=True, timeout=rig.SOON).returncode != 0)

    def test_what_a_store_cannot_keep(self):
        for kind in (stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR):
            with self.assertRaises(OSError) as caught:
                os.mknod(os.path.join(self.view, "special"), 0o600 | kind)
            self.assertEqual(caught.exception.errno, errno.EPERM)

    @unittest.skipUnless(rig.ROOT, "/dev/fuse may be root's alone")
    def test_in_a_user_namespace(self):
        inside = (f"{rig.FOREBAY} mount {self.data} {self.plain} && echo hello > {self.plain}/f"
                  f" && cat {self.plain}/f && {rig.FOREBAY} umount {self.plain} && ls {self.plain}")
        done = subprocess.run(["unshare", "-Urm", "/bin/sh", "-c", inside], env=self.env,
                              capture_output=True, timeout=rig.SOON)
        if b"unshare" in done.stderr:
            self.skipTest("no user namespaces here: " + done.stderr.decode())
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"hello\n", b""))


@unittest.skipUnless(rig.ROOT, "needs root to act as several users")
class Users(rig.MountCase):
    """Every request is its caller's."""

    def as_user(self, uid, gid, groups, command):
        done = subprocess.run(["/bin/sh", "-c", command], cwd=self.view, capture_output=True, user=uid,
                              group=gid, extra_groups=groups, timeout=rig.SOON)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def test_rights(self):
        os.chmod(self.view, 0o777)
        self.assertEqual(self.as_user(1000, 1000, [], "umask 077; echo mine > f; stat -c '%u %g %a' f"),
                         (0, "1000 1000 600\n", ""))
        self.assertIn("Permission denied", self.as_user(1001, 1001, [], "cat f")[2])
        self.assertEqual(self.as_user(0, 0, [], "cat f")[1], "mine\n")

    def test_supplementary_groups(self):
        path = os.path.join(self.view, "team")
        os.mkdir(path)
        os.chown(path, 0, 2000)
        os.chmod(path, 0o2770)
        self.assertEqual(self.as_user(1000, 1000, [2000], "echo x > team/f; stat -c %g team/f")[1],
                         "2000\n")
        many = list(range(3000, 3100))  # more than fit at once
        self.assertEqual(self.as_user(1001, 1001, [*many, 2000], "cat team/f")[1], "x\n")
        self.assertNotEqual(self.as_user(1001, 1001, many, "cat team/f")[0], 0)

    def test_set_id_bits_go(self):
        path = os.path.join(self.view, "program")
        with open(path, "wb") as file:
            file.write(b"x")
        os.chmod(path, 0o6777)
        self.assertEqual(self.as_user(1000, 1000, [], "echo y >> program; stat -c %a program")[1], "777\n")

    def test_a_descriptor_is_the_openers(self):
        path = os.path.join(self.view, "secret")
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        done = subprocess.run(["/bin/sh", "-c", f"echo given >&{fd}"], pass_fds=[fd], user=1000, group=1000,
                              extra_groups=[], timeout=rig.SOON)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(os.pread(fd, 100, 0), b"given\n")
        cut = f"import os; os.ftruncate({fd}, 3)"
        done = subprocess.run(["/usr/bin/python3", "-c", cut], pass_fds=[fd], user=1000, group=1000,
                              extra_groups=[], timeout=rig.SOON)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(os.fstat(fd).st_size, 3)
        os.close(fd)

    def test_others_only_if_told(self):
        self.mount(where=self.plain, options="")
        code, _, err = self.as_user(1000, 1000, [], f"ls {self.plain}")
        self.assertNotEqual(code, 0)
        self.assertIn("Permission denied", err)


class Restart(rig.MountCase):
    """A server that dies below a mount."""
    server = True
    options = "retry_for=30s"

    def test_restarted(self):
        path = os.path.join(self.view, "f")
        with open(path, "w+b", buffering=0) as file:
            file.write(b"before ")
            os.mkdir(os.path.join(self.view, "folder"))
            self.kill_server()
            writer = subprocess.Popen(["/bin/sh", "-c", f"echo during > {self.view}/folder/g"])
            self.running.append(writer)
            time.sleep(0.3)
            self.assertIsNone(writer.poll())
            self.start()
            self.assertEqual(writer.wait(rig.SOON), 0)
            file.write(b"after")
            self.assertEqual(os.pread(file.fileno(), 100, 0), b"before after")
        self.assertEqual(sorted(os.listdir(self.view)), ["f", "folder"])
        with open(os.path.join(self.data, "folder/g"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "during\n")

    def test_unlinked_while_open_over_a_restart(self):
        path = os.path.join(self.view, "f")
        with open(path, "w+b", buffering=0) as file:
            file.write(b"kept")
            os.unlink(path)
            self.kill_server()
            self.start()
            self.assertEqual(os.pread(file.fileno(), 10, 0), b"kept")
            file.write(b" on")
            self.assertEqual(os.fstat(file.fileno()).st_nlink, 0)
        self.assertEqual(os.listdir(self.view), [])

    def test_interrupted_while_it_is_gone(self):
        self.kill_server()
        reader = subprocess.Popen(["/bin/ls", self.view], stderr=subprocess.PIPE)
        self.running.append(reader)
        time.sleep(0.5)
        self.assertIsNone(reader.poll())
        began = time.monotonic()
        reader.send_signal(signal.SIGTERM)
        reader.wait(rig.SOON)
        self.assertLess(time.monotonic() - began, 10)

    def test_gone_for_good(self):
        self.good("umount", self.view)
        self.mount(options="retry_for=1s")
        with open(os.path.join(self.view, "f"), "w+b", buffering=0) as file:
            file.write(b"x")
            self.kill_server()
            began = time.monotonic()
            for call in (lambda: os.listdir(self.view), lambda: os.pread(file.fileno(), 1, 0),
                         lambda: os.stat(os.path.join(self.view, "f")), lambda: file.write(b"y")):
                with self.assertRaises(OSError) as caught:
                    call()
                # Never ENOENT, and never an empty folder.
                self.assertIn(caught.exception.errno, (errno.ENOTCONN, errno.ETIMEDOUT))
            self.assertLess(time.monotonic() - began, 30)
            self.start()
            rig.wait_for("it to come back", lambda: self.reads(file) == b"x")
        self.assertEqual(os.listdir(self.view), ["f"])

    @staticmethod
    def reads(file):
        try:
            return os.pread(file.fileno(), 1, 0)
        except OSError:
            return None


# Waits for a lock of the whole file.
LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
"""
APPEND = """
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
for _ in range(300):
    assert os.write(fd, sys.argv[2].encode() * 100) == 100
"""


class TwoMounts(rig.MountCase):
    """Two clients of one server see each other."""
    server = True

    def setUp(self):
        super().setUp()
        os.mkdir(self.path("other"))
        self.mount(where=self.path("other"))
        self.ours, self.theirs = self.path("view/f"), self.path("other/f")

    def test_writes_are_seen_at_once(self):
        with open(self.ours, "w+b", buffering=0) as a, open(self.theirs, "r+b", buffering=0) as b:
            for i in range(200):
                a.seek(0)
                a.write(b"%06d" % i)
                self.assertEqual(os.pread(b.fileno(), 6, 0), b"%06d" % i)
                self.assertEqual(os.path.getsize(self.theirs), 6)
            os.ftruncate(b.fileno(), 3)
            self.assertEqual(os.pread(a.fileno(), 10, 0), b"000")
            b.seek(0, os.SEEK_END)
            b.write(b"more")
            self.assertEqual(os.lseek(a.fileno(), 0, os.SEEK_END), 7)

    def test_names_are_seen_at_once(self):
        for i in range(50):
            with open(self.ours, "w", encoding="utf-8"):
                pass
            self.assertTrue(os.path.exists(self.theirs))
            os.rename(self.theirs, self.path(f"other/g{i}"))
            self.assertFalse(os.path.exists(self.ours))
            self.assertEqual(os.listdir(self.view), [f"g{i}"])
            os.unlink(self.path(f"view/g{i}"))
        self.assertEqual(os.listdir(self.path("other")), [])

    def test_locks_hold_across_mounts(self):
        with open(self.ours, "w+b") as a, open(self.theirs, "r+b") as b:
            fcntl.lockf(a, fcntl.LOCK_EX, 10, 100)
            with self.assertRaises(BlockingIOError):
                fcntl.lockf(b, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 109)
            fcntl.lockf(b, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 110)
            fcntl.flock(a, fcntl.LOCK_SH)
            with self.assertRaises(BlockingIOError):
                fcntl.flock(b, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(b, fcntl.LOCK_SH)
        # What is closed is free, and a wait ends when its turn comes.
        with open(self.theirs, "r+b") as b:
            fcntl.lockf(b, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(b, fcntl.LOCK_EX)  # the kernel tells a mount of the last close a moment later
            waits = subprocess.Popen([sys.executable, "-c", LOCK, self.ours], stdout=subprocess.PIPE)
            self.addCleanup(waits.stdout.close)
            time.sleep(0.5)
            self.assertIsNone(waits.poll())
        self.assertEqual(waits.wait(timeout=rig.SOON), 0)

    def test_a_process_that_waits_for_a_lock_can_be_killed(self):
        with open(self.theirs, "w+b") as b:
            fcntl.lockf(b, fcntl.LOCK_EX)
            waits = [subprocess.Popen([sys.executable, "-c", LOCK, self.ours],
                                      stdout=subprocess.DEVNULL) for _ in range(3)]
            time.sleep(1)
            for one in waits:
                one.kill()
            for one in waits:
                one.wait(timeout=rig.SOON)
        with open(self.theirs, "r+b") as b:
            fcntl.lockf(b, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def test_appends_never_meet(self):
        writers = [subprocess.Popen([sys.executable, "-c", APPEND, name, letter])
                   for name, letter in ((self.ours, "a"), (self.theirs, "b"))]
        for one in writers:
            self.assertEqual(one.wait(timeout=rig.SOON), 0)
        with open(self.ours, "rb") as file:
            records = [file.read(100) for _ in range(600)]
            self.assertEqual(file.read(), b"")
        for letter in b"ab":
            self.assertEqual(sum(r == bytes([letter]) * 100 for r in records), 300)

    def test_removed_by_the_other_while_open(self):
        with open(self.ours, "w+b", buffering=0) as file:
            file.write(b"kept")
            os.unlink(self.theirs)
            self.assertEqual(os.pread(file.fileno(), 10, 0), b"kept")
            self.assertFalse(os.path.exists(self.ours))

    def test_appends_after_the_other(self):
        with open(self.ours, "ab", buffering=0) as a, open(self.theirs, "ab", buffering=0) as b:
            for i in range(20):
                (a if i % 2 else b).write(b"%02d" % i)
        with open(self.ours, "rb") as file:
            self.assertEqual(file.read(), b"".join(b"%02d" % i for i in range(20)))

    def test_a_new_mapping_sees_what_was_written(self):
        with open(self.ours, "w+b", buffering=0) as a, open(self.theirs, "r+b", buffering=0) as b:
            a.write(b"a" * 4096)
            with mmap.mmap(b.fileno(), 4096) as m:
                self.assertEqual(m[:4], b"aaaa")
                m[:4] = b"bbbb"
                m.flush()
            self.assertEqual(os.pread(a.fileno(), 4, 0), b"bbbb")
            os.pwrite(a.fileno(), b"cccc", 0)
            with mmap.mmap(b.fileno(), 4096) as m:
                self.assertEqual(m[:4], b"cccc")


if __name__ == "__main__":
    rig.main()
