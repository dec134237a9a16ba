#!/usr/bin/python3
"""System tests of servers and clients that know each other by a key. See README.md."""

import json
import os
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest

sys.dont_write_bytecode = True  # the tree stays clean
from rig import BIN, FOREBAY, MIB, SOON, Case, Result, sha, wait_for

LIB = os.environ.get("FOREBAY_TEST_LIB", os.path.join(BIN, "../lib"))


class Keys(Case):
    def setUp(self):
        super().setUp()
        self.key = self.path("key")
        self.good("key", "make", self.key)

    def start_with_key(self, *args):
        self.start("--listen", "tcp:127.0.0.1:0", "--key-file", self.key, *args)
        return self.published()["addresses"][0]

    def test_a_client_with_the_key(self):
        address = self.start_with_key("--log-level", "debug")
        source = self.random_file("source", 20 * MIB + 17)
        remote = ("--server", address, "--key-file", self.key)
        self.good(*remote, "put", source, "/big")
        self.good(*remote, "get", "/big", self.path("back"))
        self.assertEqual(sha(self.path("back")), sha(source))
        self.good(*remote, "status")

    def in_log(self, pattern):
        """Lines of the server's log, which may be a moment behind its clients."""
        found = []
        for _ in range(500):
            with open(os.path.join(self.run_dir, "forebayd.log"), encoding="utf-8") as file:
                found = [line for line in file if re.search(pattern, line)]
            if found:
                break
            time.sleep(0.01)
        return "\n".join(found)

    def test_another_key_is_told(self):
        address = self.start_with_key()
        other = self.path("other")
        self.good("key", "make", other)
        self.bad(3, "the server there has another key", "--server", address, "--key-file", other,
                 "ls", "/")
        self.assertIn("without a proof", self.in_log("refused"))

    def test_a_server_without_a_key(self):
        self.start("--listen", "tcp:127.0.0.1:0")
        address = self.published()["addresses"][0]
        self.bad(3, "did not take our key", "--server", address, "--key-file", self.key, "ls", "/")

    def test_without_a_key_on_this_machine(self):
        address = self.start_with_key()
        self.good("--server", address, "ls", "/")

    def test_a_server_with_a_key_listens_anywhere(self):
        self.start("--listen", "tcp:0.0.0.0:0", "--key-file", self.key)
        port = self.published()["addresses"][0].rsplit(":", 1)[1]
        own = socket.gethostbyname(socket.gethostname())
        if own.startswith("127."):
            self.skipTest("this machine has no address but loopback")
        address = f"tcp:{own}:{port}"
        self.good("--server", address, "--key-file", self.key, "ls", "/")
        self.bad(3, "nobody vouches for", "--server", address, "ls", "/")

    def test_keys_that_are_none(self):
        def refused(text, key):
            self.bad(1, text, "start", self.data, "--key-file", key)
        refused("forebay key make", self.path("none"))
        os.chmod(self.key, 0o640)
        refused("chmod 600", self.key)
        short = self.path("short")
        with open(short, "w", encoding="utf-8") as file:
            file.write("secret")
        os.chmod(short, 0o600)
        refused("has 6 bytes instead of 32 to 4096", short)
        self.bad(1, "is there already", "key", "make", short)
        self.bad(1, "has 6 bytes", "key", "check", short)


def has_ended(pid):
    """Gone, with all its threads, or waiting for whoever is to bury it."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            state = file.read().rsplit(")", 1)[1].split()[0]
        return state == "Z" and len(os.listdir(f"/proc/{pid}/task")) == 1
    except OSError:
        return True


class Client:
    """A program in a network namespace, which reaches one server (node_client.py)."""

    def __init__(self, case, prefix, env, user):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "node_client.py")
        self.process = subprocess.Popen([*prefix, "/usr/bin/python3", script], env=env, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, **user)
        case.running.append(self.process)
        self.hear()

    def hear(self):
        line = self.process.stdout.readline()
        answer = json.loads(line) if line else {"error": "it has ended"}
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["result"]

    def say(self, *words):
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()

    def has_answered(self):
        return bool(select.select([self.process.stdout], [], [], 0)[0])

    def do(self, *words):
        self.say(*words)
        return self.hear()


class Cluster(Case):
    """Servers in network namespaces, one for each, and beside each one for its clients, from which
    no other server can be reached."""

    NAMES = ("a", "b", "c")
    PORT = 4711

    def setUp(self):
        super().setUp()
        self.made = []
        self.addCleanup(self.remove_nodes)
        self.tag = f"fb{os.getpid()}"
        self.user = {}
        self.make_nodes()
        self.key = self.path("key")
        self.good("key", "make", self.key, user=self.user.get("user"))
        seed = int(os.environ.get("FOREBAY_SEED", random.randrange(1 << 32)))
        print(f"seed {seed} (replay with FOREBAY_SEED={seed})", flush=True)
        self.random = random.Random(seed)

    # ---- The network ----

    def ip(self, *words):
        done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=SOON)
        if done.returncode != 0:
            raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")

    def space(self, name):
        return f"{self.tag}-{name}"

    def add_space(self, name):
        self.ip("netns", "add", self.space(name))
        self.made.append(self.space(name))
        self.ip("-n", self.space(name), "link", "set", "lo", "up")

    def make_nodes(self):
        if not shutil.which("ip"):
            self.skipTest("no `ip` here, so no network namespaces")
        try:
            self.add_space("hub")
            self.ip("-n", self.space("hub"), "link", "add", "bridge0", "type", "bridge")
            self.ip("-n", self.space("hub"), "link", "set", "bridge0", "up")
            for number, name in enumerate(self.NAMES, 1):
                self.make_node(number, name)
        except OSError as error:
            self.skipTest(f"network namespaces are not permitted here: {error}")

    def make_node(self, number, name):
        server, client, hub = self.space(name), self.space("c" + name), self.space("hub")
        self.add_space(name)
        self.add_space("c" + name)
        self.ip("-n", server, "link", "add", "net0", "type", "veth", "peer", "name", f"p{number}",
                "netns", hub)
        self.ip("-n", hub, "link", "set", f"p{number}", "master", "bridge0", "up")
        self.ip("-n", server, "addr", "add", f"10.77.0.{number}/24", "dev", "net0")
        self.ip("-n", server, "link", "set", "net0", "up")
        self.ip("-n", server, "link", "add", "own0", "type", "veth", "peer", "name", "own0", "netns",
                client)
        self.ip("-n", server, "addr", "add", f"10.77.{number}.1/24", "dev", "own0")
        self.ip("-n", server, "link", "set", "own0", "up")
        self.ip("-n", client, "addr", "add", f"10.77.{number}.2/24", "dev", "own0")
        self.ip("-n", client, "link", "set", "own0", "up")

    def remove_nodes(self):
        for name in self.NAMES:
            self.end_server(name, signal.SIGKILL)
        for space in self.made:
            subprocess.run(["ip", "netns", "del", space], capture_output=True, timeout=SOON)

    # ---- Servers and clients ----

    def within(self, space):
        return ["ip", "netns", "exec", self.space(space)]

    def run_dir_of(self, name):
        return self.path("run-" + name)

    def among_servers(self, name):
        return f"tcp:10.77.0.{self.NAMES.index(name) + 1}:{self.PORT}"

    def for_clients(self, name):
        return f"tcp:10.77.{self.NAMES.index(name) + 1}.1:{self.PORT}"

    def listened_on(self, _):
        return f"tcp:0.0.0.0:{self.PORT}"

    def servers(self, names=None):
        return ",".join(f"{name}={self.among_servers(name)}" for name in names or self.NAMES)

    def start_server(self, name, *more, names=None):
        done = subprocess.run(
            [*self.within(name), FOREBAY, "start", self.data, "--name", name, "--run-dir",
             self.run_dir_of(name), "--listen", self.listened_on(name), "--key-file", self.key,
             "--set", f"cluster.servers={self.servers(names)}", "--set", "cluster.patience=2s",
             *more], env=self.env, capture_output=True, timeout=SOON, **self.user)
        return Result(done)

    def start_all(self, *more):
        for name in self.NAMES:
            result = self.start_server(name, *more)
            self.assertEqual(result.code, 0, result)

    def end_server(self, name, how):
        try:
            with open(os.path.join(self.run_dir_of(name), "server.json"), encoding="utf-8") as file:
                pid = json.load(file)["pid"]
            os.kill(pid, how)
        except (OSError, ValueError):
            return
        wait_for("the server's end", lambda: has_ended(pid))

    def client_env(self, name):
        return {**self.env, "FOREBAY_CLIENT_SERVER": self.for_clients(name),
                "FOREBAY_CLIENT_KEY_FILE": self.key, "FOREBAY_TEST_LIB": LIB,
                "FOREBAY_CLIENT_RETRY_FOR": "5s"}

    def by(self, name, *words):
        """Runs `forebay` where only server `name` can be reached."""
        done = subprocess.run([*self.within("c" + name), FOREBAY, *words], capture_output=True,
                              env=self.client_env(name), timeout=SOON, **self.user)
        return Result(done)

    def fine(self, name, *words):
        result = self.by(name, *words)
        self.assertEqual(result.code, 0, f"through {name}: {' '.join(words)}: {result}")
        return result.out

    def client(self, name):
        return Client(self, self.within("c" + name), self.client_env(name), self.user)


class Nodes(Cluster):
    def test_a_client_reaches_its_server_only(self):
        self.start_all()
        self.fine("a", "ls", "/")
        other = self.by("a", "--server", self.for_clients("b"), "--connect-timeout", "1s", "ls",
                        "/")
        self.assertEqual(other.code, 3, other)

    def test_files_through_any_server(self):
        self.start_all()
        sources = [self.random_file(f"source{i}", size)
                   for i, size in enumerate((0, 1, 5000, 40000, 3 * MIB + 1, 30 * MIB + 17))]
        for i, source in enumerate(sources):
            self.fine(self.random.choice(self.NAMES), "put", source, f"/file{i}")
        back = self.path("back")
        for i, source in enumerate(sources):
            for name in self.NAMES:
                self.fine(name, "get", f"/file{i}", back)
                self.assertEqual(sha(back), sha(source), f"file{i} through {name}")
                self.assertIn(str(os.stat(source).st_size), self.fine(name, "stat", f"/file{i}"))
        for i in range(len(sources)):
            self.fine(self.random.choice(self.NAMES), "mv", f"/file{i}", f"/moved{i}")
            self.fine(self.random.choice(self.NAMES), "rm", f"/moved{i}")
        for name in self.NAMES:
            self.assertEqual(self.fine(name, "ls", "/").strip(), "")

    def seen_at_once(self, *start):
        self.start_all(*start)
        clients = {name: self.client(name) for name in self.NAMES}
        content = {}
        for step in range(300):
            path = f"/shared{self.random.randrange(8)}"
            whole = content.get(path, "")
            who = clients[self.random.choice(self.NAMES)]
            if self.random.random() < 0.5:
                size = self.random.choice((1, 100, 4096, 70000))
                offset = self.random.randrange(len(whole) + 1)
                data = "".join(self.random.choices("abcdefgh", k=100)) * (size // 100 + 1)
                data = data[:size]
                self.assertEqual(who.do("write", path, offset, data), size)
                content[path] = whole[:offset] + data + whole[offset + size:]
            else:
                got = who.do("read", path, 0, "", len(whole) + 10)
                self.assertTrue(got == whole, f"step {step}: {path}")
                content.setdefault(path, "")
        for path, whole in content.items():
            self.assertIn(str(len(whole)), self.fine(self.random.choice(self.NAMES), "stat", path))

    def test_written_through_one_is_read_through_another(self):
        self.seen_at_once()

    def test_with_write_behind_too(self):
        self.seen_at_once("--set", "export.data.write_behind=on", "--set",
                          "export.data.write_behind_age=1h")

    def test_numbers_and_appends_through_any_server(self):
        """Each once, whichever server it goes through and whichever is killed meanwhile."""
        self.start_all()
        clients = {name: self.client(name) for name in self.NAMES}
        paths = [f"/shared{i}" for i in range(4)]  # they live at different servers
        next_number, ends, content = dict.fromkeys(paths, 0), dict.fromkeys(paths, 0), {}
        for path in paths:
            clients["a"].do("create", path, 0, "next")
            content[path] = ""
        for step in range(200):
            if step % 40 == 20:
                name = self.random.choice(self.NAMES)
                self.end_server(name, signal.SIGKILL)
                self.assertEqual(self.start_server(name).code, 0)
            path = self.random.choice(paths)
            who = clients[self.random.choice(self.NAMES)]
            by = self.random.randrange(1, 10)
            self.assertEqual(who.do("add", path, 0, "next", by), next_number[path])
            next_number[path] += by
            record = self.random.choice("abcdefgh") * self.random.choice((1, 100, 4096, 70000))
            self.assertEqual(who.do("append", path, 0, record), ends[path])
            ends[path] += len(record)
            content[path] += record
        for path in paths:
            got = clients["b"].do("read", path, 0, "", ends[path] + 10)
            self.assertTrue(got == content[path], path)

    def test_numbers_follow_a_file_that_is_renamed(self):
        """It, or its directory; and every server is restarted."""
        self.start_all()
        for i in range(6):
            self.fine("a", "mkdir", f"/dir{i}")
            with open(self.path("empty"), "wb"):
                pass
            self.fine("b", "put", self.path("empty"), f"/dir{i}/f")
            self.fine(self.random.choice(self.NAMES), "attr", "create", f"/dir{i}/f", "n", str(i))
            self.fine(self.random.choice(self.NAMES), "mv", f"/dir{i}/f", f"/dir{i}/g")
            if i % 2 == 0:
                self.fine(self.random.choice(self.NAMES), "mv", f"/dir{i}", f"/moved{i}")

        def value(i):
            path = f"/moved{i}/g" if i % 2 == 0 else f"/dir{i}/g"
            return self.fine(self.random.choice(self.NAMES), "attr", "add", path, "n", "10").strip()
        for round_number in range(3):
            for i in range(6):
                self.assertEqual(value(i), str(10 * round_number + i))
            for name in self.NAMES:
                self.end_server(name, self.random.choice((signal.SIGKILL, signal.SIGTERM)))
                self.assertEqual(self.start_server(name).code, 0)

    def test_temporary_numbers_go_with_who_uses_them(self):
        self.start_all("--set", "server.grace=1s")
        a, b = self.client("a"), self.client("b")
        paths = [f"/shared{i}" for i in range(4)]  # they live at different servers
        for path in paths:
            a.do("create", path, 0, "tmp:n")
            self.assertEqual(b.do("add", path, 0, "tmp:n", 1), 0)
        a.process.kill()
        name = self.random.choice(self.NAMES)
        for path in paths:
            self.assertEqual(b.do("add", path, 0, "tmp:n", 1), 1)
        time.sleep(2)
        for path in paths:
            self.assertEqual(b.do("add", path, 0, "tmp:n", 1), 2)  # b has it open
        b.process.kill()
        for path in paths:
            wait_for("temporary numbers to go",
                     lambda: "tmp:" not in self.fine(name, "attr", "list", path), 20)

    def test_locks_through_any_server(self):
        self.start_all("--set", "server.grace=2s")
        a, b, c = (self.client(name) for name in self.NAMES)
        for path in (f"/locked{i}" for i in range(4)):  # they live at different servers
            a.do("lock", path, 0)
            for other in (b, c):
                with self.assertRaisesRegex(RuntimeError, "EAGAIN"):
                    other.do("lock", path, 9)
                other.do("read", path, 0, "", 1)  # the connection is as it was
            b.do("lock", path, 10)
            a.do("unlock", path, 0)
            c.do("lock", path, 0)
            b.do("unlock", path, 10)
            c.do("unlock", path, 0)
            a.do("lock", path, 0)
        a.process.kill()  # what it held is free soon
        for path in (f"/locked{i}" for i in range(4)):
            b.do("lock", path, 0, "", 4)

    def test_mounts_keep_pages_of_files_of_all_servers(self):
        """Each of three mounts reads files that live at any server; what is written through any
        server is read at once."""
        none = subprocess.run([FOREBAY, "umount", "/none"], capture_output=True, timeout=SOON)
        if not os.access("/dev/fuse", os.R_OK | os.W_OK) or b"without libfuse" in none.stderr:
            self.skipTest("nothing can be mounted here")
        self.start_all("--lease-time", "3s")
        views = {}
        for name in self.NAMES:
            views[name] = os.path.join(self.temp, "view" + name)
            os.mkdir(views[name])
            # (`ip netns exec` would mount where nobody else sees it.)
            done = subprocess.run(["nsenter", f"--net=/run/netns/{self.space('c' + name)}", FOREBAY,
                                   "mount", "-o", "cache=lease", "data", views[name]],
                                  env=self.client_env(name), capture_output=True, timeout=SOON)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.addCleanup(subprocess.run, ["umount", "-l", views[name]], capture_output=True)
        writers = {name: self.client(name) for name in self.NAMES}
        paths = [f"f{i}" for i in range(6)]
        for path in paths:
            writers["a"].do("write", "/" + path, 0, "00000000")
        files = [(path, os.open(os.path.join(view, path), os.O_RDONLY))
                 for path in paths for view in views.values()]
        for _, fd in files:
            self.addCleanup(os.close, fd)

        def leases(name):
            return json.loads(self.fine(name, "status", "--json"))["exports"][0]["leases"]

        def all_read(expected):
            for path, fd in files:
                self.assertEqual(os.pread(fd, 8, 0).decode(), expected[path], path)

        expected = {path: "00000000" for path in paths}
        # Each server has those of its own mount, and at each home the two others hold theirs.
        def kept():
            all_read(expected)
            return sum(leases(name) for name in self.NAMES) >= (3 + 2) * len(paths)
        wait_for("leases of all files", kept)
        for turn in range(1, 61):
            path = self.random.choice(paths)
            expected[path] = f"{turn:08}"
            writers[self.random.choice(self.NAMES)].do("write", "/" + path, 0, expected[path])
            all_read(expected)
            if turn % 10 == 0:
                wait_for("leases of all files", kept)
        for name in ("b", "c"):
            self.end_server(name, signal.SIGKILL)
            self.assertEqual(self.start_server(name, "--lease-time", "3s").code, 0)
            for path in paths:
                expected[path] = f"{name:>8}"
                writers["a"].do("write", "/" + path, 0, expected[path])
                all_read(expected)

    def test_locks_in_a_circle_over_servers(self):
        """fcntl(2) of preloaded programs: one of a circle is refused, and the others go on."""
        self.start_all()
        script = ("import errno, fcntl, os, sys\n"
                  "files = {}\n"
                  "for line in sys.stdin:\n"
                  "    what, path = line.split()\n"
                  "    if path not in files:\n"
                  "        files[path] = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)\n"
                  "    how = fcntl.LOCK_EX if what == 'lock' else fcntl.LOCK_UN\n"
                  "    try:\n"
                  "        fcntl.lockf(files[path], how)\n"
                  "        print(what, flush=True)\n"
                  "    except OSError as error:\n"
                  "        circle = error.errno == errno.EDEADLK\n"
                  "        print('circle' if circle else error, flush=True)\n")
        programs = []
        for name in self.NAMES:
            programs.append(subprocess.Popen(
                [*self.within("c" + name), FOREBAY, "--preload", "/served", "run", "--",
                 "/usr/bin/python3", "-c", script], env=self.client_env(name), text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, **self.user))
        self.running += programs

        def say(program, what, path):
            program.stdin.write(f"{what} {path}\n")
            program.stdin.flush()

        def hear(program):
            return program.stdout.readline().strip()

        def done(program, what, path):
            say(program, what, path)
            self.assertEqual(hear(program), what)

        def answered():
            return select.select([program.stdout for program in programs], [], [], 0)[0]

        for turn in range(4):
            paths = [f"/served/circle{turn}.{i}" for i in range(3)]  # they live at different servers
            for program, path in zip(programs, paths):
                done(program, "lock", path)
            for i, program in enumerate(programs):
                say(program, "lock", paths[(i + 1) % 3])
            wait_for("one to be refused", answered, 20)
            self.assertEqual(len(answered()), 1)
            refused = next(i for i in range(3) if programs[i].stdout in answered())
            self.assertEqual(hear(programs[refused]), "circle")
            time.sleep(0.5)
            self.assertEqual(answered(), [])
            for i in (refused, refused - 1, refused - 2):  # each goes on when the next is through
                if i != refused:
                    self.assertEqual(hear(programs[i]), "lock")
                    done(programs[i], "unlock", paths[(i + 1) % 3])
                done(programs[i], "unlock", paths[i])

    def test_locks_outlive_servers(self):
        """Those that keep them and those that relay them, orderly ended or not; and their holder asks
        for nothing meanwhile."""
        grace = ("--set", "server.grace=4s")
        self.start_all(*grace)
        a, b = self.client("a"), self.client("b")
        paths = [f"/locked{i}" for i in range(6)]  # they live at different servers
        for path in paths:
            a.do("lock", path, 0)
        for down in ("a", "bc", "ac", "c"):
            how = self.random.choice((signal.SIGKILL, signal.SIGTERM))
            for name in down:
                self.end_server(name, how)
            for name in down:
                self.assertEqual(self.start_server(name, *grace).code, 0)
            time.sleep(5)  # longer than anybody waits for those who held locks
            for path in paths:
                with self.assertRaisesRegex(RuntimeError, "EAGAIN", msg=f"{path}, {down}, {how}"):
                    b.do("lock", path, 9)
        for path in paths:
            a.do("unlock", path, 0)
            b.do("lock", path, 9)

    def test_a_file_that_is_removed_while_open_elsewhere(self):
        self.start_all()
        reader = self.client("a")
        for i in range(6):
            reader.do("write", f"/f{i}", 0, f"content {i}")
        for i in range(6):
            self.fine(self.NAMES[i % 3], "rm", f"/f{i}")
        for i in range(6):
            self.assertEqual(reader.do("read", f"/f{i}", 0, "", 100), f"content {i}")
            reader.do("close", f"/f{i}")
        unlinked = os.path.join(self.data, ".forebay/unlinked")
        wait_for("removed files to go", lambda: not os.path.isdir(unlinked) or
                 not os.listdir(unlinked))

    def test_a_file_that_is_created_read_only(self):
        self.start_all()
        client = self.client("a")
        for i in range(8):
            client.do("write", f"/f{i}.readonly", 0, "by its creator")
            client.do("close", f"/f{i}.readonly")
            with open(os.path.join(self.data, f"f{i}.readonly"), encoding="utf-8") as file:
                self.assertEqual(file.read(), "by its creator")
                self.assertEqual(os.fstat(file.fileno()).st_mode & 0o777, 0o444)

    def test_a_dead_home(self):
        self.start_all()
        client = self.client("a")
        for i in range(12):
            client.do("write", f"/f{i}", 0, "alive")
        self.end_server("b", signal.SIGKILL)
        dead = []
        for i in range(12):
            began = time.monotonic()
            try:
                self.assertEqual(client.do("read", f"/f{i}", 0, "", 9), "alive")
            except RuntimeError as error:
                self.assertIn("lives at server 'b'", str(error))
                dead.append(i)
            self.assertLess(time.monotonic() - began, 15)
        self.assertTrue(0 < len(dead) < 12, dead)
        self.assertRegex(self.fine("a", "status"), r"\nb +data +no answer +[1-9]")
        self.assertEqual(self.start_server("b").code, 0)
        for i in dead:
            self.assertEqual(client.do("read", f"/f{i}", 0, "", 9), "alive")
        shown = self.fine("a", "status")
        self.assertRegex(shown, r"\na +data +this one +0 +0\n")
        self.assertRegex(shown, r"\nb +data +there +[1-9][0-9]* +0\n")

    def test_another_list_is_refused(self):
        self.start_all()
        self.end_server("c", signal.SIGTERM)
        result = self.start_server("c", names=("a", "c"))
        self.assertNotEqual(result.code, 0)
        self.assertIn("its files live at the servers a,b,c", result.err)
        self.bad(1, "but this one is alone", "start", self.data,
                 user=self.user.get("user"))


class Together(Nodes):
    """The same on one machine, by ordinary users: no privilege, and handles that hold a path."""

    NOBODY = 65534

    def make_nodes(self):
        self.ports = {}
        taken = [socket.socket() for _ in self.NAMES]
        for name, one in zip(self.NAMES, taken):
            one.bind(("127.0.0.1", 0))
            self.ports[name] = one.getsockname()[1]
        for one in taken:
            one.close()
        if os.geteuid() == 0:
            self.user = {"user": self.NOBODY, "group": self.NOBODY, "extra_groups": []}
            for path in (self.temp, self.data):
                os.chown(path, self.NOBODY, self.NOBODY)

    def within(self, space):
        return []

    def among_servers(self, name):
        return f"tcp:127.0.0.1:{self.ports[name]}"

    for_clients = listened_on = among_servers
    test_a_client_reaches_its_server_only = None
    test_mounts_keep_pages_of_files_of_all_servers = None  # nobody may not mount

    def test_a_trace_of_64_writers(self):
        """examples/tracelog.c as the poster has it: every writer through one of several servers."""
        self.start_all()
        program = self.path("tracelog")
        top = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
        subprocess.run(["cc", "-std=c99", "-D_POSIX_C_SOURCE=200809L", "-I", f"{top}/include",
                        f"{top}/examples/tracelog.c", "-o", program, "-L", LIB, "-lforebay",
                        f"-Wl,-rpath,{LIB}"], check=True, timeout=SOON)
        done = subprocess.run(
            [program, "/", "64", "50", "4", *(self.for_clients(name) for name in self.NAMES)],
            env=self.client_env("a"), capture_output=True, text=True, timeout=120, **self.user)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("3200 events of 64 writers in 4 files, each once and whole", done.stdout)

    def test_an_append_that_is_too_large_to_be_passed_on_is_short(self):
        self.start_all("--set", "export.data.pool=8MiB")
        size = 3 << 20  # a quarter of the pool is 2 MiB
        script = ("import os, sys\n"
                  "fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)\n"
                  f"data, counts = bytes(range(256)) * {size // 256}, []\n"
                  "while data:\n"
                  "    counts.append(os.write(fd, data))\n"
                  "    data = data[counts[-1]:]\n"
                  "print(*counts)\n")
        short = 0
        for i in range(12):
            out = self.fine("a", "--preload", "/served", "run", "--", "/usr/bin/python3", "-c", script,
                            f"/served/f{i}")
            short += " " in out.strip()
            with open(os.path.join(self.data, f"f{i}"), "rb") as file:
                self.assertEqual(file.read(), bytes(range(256)) * (size // 256))
        self.assertTrue(0 < short < 12, short)


if __name__ == "__main__":
    unittest.main()
