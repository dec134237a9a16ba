"""What the system tests share: a temporary place with a server, and running programs in it."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

BIN = os.environ.get("FOREBAY_TEST_BIN", os.path.join(os.path.dirname(__file__), "../../build/bin"))
FOREBAY = os.path.join(BIN, "forebay")
FOREBAYD = os.path.join(BIN, "forebayd")
ROOT = os.geteuid() == 0
MIB = 1 << 20

if not os.access(FOREBAY, os.X_OK):
    raise SystemExit(f"{FOREBAY} is not there: build it, or set FOREBAY_TEST_BIN")

# Limit of anything that should take a moment; generous, because the machine may be busy and the
# programs may be built with sanitizers.
SOON = 60


class Result:
    """How a program ended, as a user saw it."""

    def __init__(self, done):
        self.code = done.returncode
        self.out = done.stdout.decode(errors="replace")
        self.err = done.stderr.decode(errors="replace")

    def __repr__(self):
        return f"code {self.code}\n--- out\n{self.out}--- err\n{self.err}"


def wait_for(what, condition, seconds=SOON):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"waited {seconds} s in vain for {what}")


def sha(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(MIB), b""):
            digest.update(block)
    return digest.hexdigest()


class Case(unittest.TestCase):
    """A temporary directory with an export in it. Whatever a test starts is ended after it."""

    def setUp(self):
        self.temp = tempfile.mkdtemp(prefix="forebay-system-")
        os.chmod(self.temp, 0o755)
        self.data = os.path.join(self.temp, "data")
        self.run_dir = os.path.join(self.temp, "run")
        os.mkdir(self.data)
        os.chmod(self.data, 0o755)
        # Nothing of the user's own configuration may matter, nor of the make that runs the tests.
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith("FOREBAY_") and k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
        self.env.update(
            HOME=self.temp,
            XDG_CONFIG_HOME=self.temp,
            XDG_RUNTIME_DIR=self.temp,
            FOREBAY_SERVER_RUN_DIR=self.run_dir,
        )
        self.running = []
        self.addCleanup(self.clean_up)

    def clean_up(self):
        for process in self.running:
            if process.poll() is None:
                process.kill()
            process.communicate()
        self.stop_at_once()
        shutil.rmtree(self.temp, ignore_errors=True)

    def stop_at_once(self):
        # By its pid and not by `forebay stop`: the test may be about to show that it fails.
        try:
            with open(os.path.join(self.run_dir, "server.json"), encoding="utf-8") as file:
                pid = json.load(file)["pid"]
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                ours = self.temp.encode() in file.read()
            if ours:
                os.kill(pid, signal.SIGKILL)
        except (OSError, ValueError):
            pass  # none is running

    def path(self, name):
        return os.path.join(self.temp, name)

    def mount_small_disk(self, size):
        """An ext4 of so many bytes as the export. Needs root; skips where there are no loop devices."""
        image = self.path("image")
        with open(image, "wb") as file:
            file.truncate(size)
        subprocess.run(["mkfs.ext4", "-q", image], check=True, timeout=SOON)
        mounted = subprocess.run(["mount", "-o", "loop", image, self.data], capture_output=True,
                                 timeout=SOON)
        if mounted.returncode != 0:
            self.skipTest("no loop devices here: " + mounted.stderr.decode())
        self.addCleanup(self.unmount_small_disk)

    def unmount_small_disk(self):
        self.stop_at_once()
        subprocess.run(["umount", "-l", self.data], capture_output=True, timeout=SOON)

    # ---- Running programs ----

    def forebay(self, *args, user=None, **more):
        """Runs `forebay args`; user is a uid to run as (root only)."""
        done = subprocess.run(
            [FOREBAY, *args], env=self.env, capture_output=True, timeout=180,
            user=user, group=user, extra_groups=[] if user is not None else None, **more)
        return Result(done)

    def good(self, *args, **more):
        result = self.forebay(*args, **more)
        self.assertEqual(result.code, 0, f"forebay {' '.join(args)}: {result}")
        return result.out

    def bad(self, code, text, *args, **more):
        """It must end with this code and say this, and nothing on standard output."""
        result = self.forebay(*args, **more)
        self.assertEqual(result.code, code, f"forebay {' '.join(args)}: {result}")
        self.assertIn(text, result.err)
        return result

    def background(self, *args, **more):
        process = subprocess.Popen([FOREBAY, *args], env=self.env, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, **more)
        self.running.append(process)
        return process

    def start(self, *args):
        return self.good("start", self.data, *args)

    # ---- The server ----

    def published(self):
        with open(os.path.join(self.run_dir, "server.json"), encoding="utf-8") as file:
            return json.load(file)

    def status(self):
        return json.loads(self.good("status", "--json"))

    def kill_server(self):
        pid = self.published()["pid"]
        os.kill(pid, signal.SIGKILL)
        # Its lock is free when it is gone; it is no child of ours.
        wait_for("the server's end", lambda: self.forebay("status").code == 3)

    # ---- Files ----

    def random_file(self, name, size):
        path = self.path(name)
        with open(path, "wb") as file:
            while size > 0:
                file.write(os.urandom(min(size, MIB)))
                size -= MIB
        return path

    def in_export(self):
        """Names at the top of the export, without the server's own folder."""
        return sorted(set(os.listdir(self.data)) - {".forebay"})
