"""What the tests of the mount share: a mount for the time of a test, over a directory or a server."""

import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../system"))
# pylint: disable=wrong-import-position
import importlib.util

_spec = importlib.util.spec_from_file_location("system_rig", os.path.join(HERE, "../system/rig.py"))
system = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(system)
Case, FOREBAY, ROOT, SOON, wait_for = (system.Case, system.FOREBAY, system.ROOT, system.SOON,
                                       system.wait_for)


def why_not():
    """Why nothing can be mounted here, or None."""
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        return f"/dev/fuse cannot be used here: {error.strerror}"
    done = subprocess.run([FOREBAY, "umount", "/nonexistent"], capture_output=True, timeout=SOON)
    if b"without libfuse" in done.stderr:
        return "built without libfuse 3"
    return None


class MountCase(Case):
    """A mount of self.data on self.view, and an ordinary folder self.plain beside it."""

    server = False  # through a forebayd, or served by the mount's own process
    options = "allow_other" if ROOT else ""

    def setUp(self):
        reason = why_not()
        if reason:
            self.skipTest(reason)
        super().setUp()
        self.view = self.path("view")
        self.plain = self.path("plain")
        os.mkdir(self.view)
        os.mkdir(self.plain)
        os.chmod(self.plain, 0o755)
        self.mount()

    def mount(self, *more, where=None, options=None):
        where = where or self.view
        if self.server and not os.path.exists(os.path.join(self.run_dir, "server.json")):
            self.start()
        source = "data" if self.server else self.data
        words = self.options if options is None else options
        arguments = ["mount", *(["-o", words] if words else []), *more, source, where]
        # Last in, first out: before the folders go, and before the server does.
        self.addCleanup(self.unmount_whatever_happens, where)
        return self.good(*arguments)

    def unmount_whatever_happens(self, where):
        subprocess.run(["umount", "-l", where] if ROOT else ["fusermount3", "-uz", where],
                       capture_output=True, timeout=SOON)

    def daemons(self):
        """Of mounts in this test's folder."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    line = file.read()
            except OSError:
                continue
            if self.temp.encode() in line and b"\0mount\0" in line and FOREBAY.encode() in line:
                found.append(int(pid))
        return found


def main():
    unittest.main()
