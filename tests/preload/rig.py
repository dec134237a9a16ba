"""What the tests of the preload share: a server, a prefix of its own, and programs under the preload."""

import importlib.util
import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
_spec = importlib.util.spec_from_file_location("system_rig", os.path.join(HERE, "../system/rig.py"))
system = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(system)
Case, FOREBAY, ROOT, SOON = system.Case, system.FOREBAY, system.ROOT, system.SOON
LIBRARY = os.path.join(os.path.dirname(FOREBAY), "../lib/libforebay-preload.so")
PYTHON = "/usr/bin/python3"


class PreloadCase(Case):
    """A server, self.view (a path that only the preload knows) and a plain folder beside it."""

    server = True

    def setUp(self):
        super().setUp()
        # As long as the other one, so that what programs print can be compared.
        self.view = self.path("view!")
        self.plain = self.path("plain")
        os.mkdir(self.plain)
        os.chmod(self.plain, 0o755)
        self.env["FOREBAY_CLIENT_PRELOAD"] = self.view
        if self.server:
            self.start()

    def served(self, *command, **more):
        """Runs it under the preload, by `forebay run`."""
        more.setdefault("env", self.env)
        more.setdefault("timeout", 200)
        return subprocess.run([FOREBAY, "run", "--", *command], capture_output=True, **more)

    def shell(self, command, **more):
        done = self.served("/bin/bash", "-c", command, **more)
        self.assertEqual((done.returncode, done.stderr), (0, b""), f"{command}: {done}")
        return done.stdout.decode()

    def script(self, name, text):
        path = self.path(name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path


def main():
    if not os.path.exists(LIBRARY):
        print("the preload is not built here", file=sys.stderr)
        return
    unittest.main()
