#!/usr/bin/python3
"""System tests: the real programs, as a user meets them. See README.md."""

import ctypes
import json
import os
import re
import resource
import signal
import socket
import stat
import subprocess
import sys
import time
import unittest

sys.dont_write_bytecode = True  # the tree stays clean
from rig import FOREBAY, FOREBAYD, MIB, ROOT, SOON, Case, Result, sha, wait_for


class RoundTrip(Case):
    def there_and_back(self, transport, *start):
        source = self.random_file("source", 100 * MIB + 17)
        os.chmod(source, 0o640)
        self.start(*start)
        self.env["FOREBAY_CLIENT_TRANSPORT"] = transport
        self.good("put", source, "/big")
        self.assertEqual(self.in_export(), ["big"])
        self.assertEqual(sha(os.path.join(self.data, "big")), sha(source))
        back = self.path("back")
        self.good("get", "/big", back)
        self.assertEqual(sha(back), sha(source))
        self.assertEqual(stat.S_IMODE(os.stat(back).st_mode), 0o640)
        export = self.status()["exports"][0]
        itself = export["shortcuts"]["use"]  # whole blocks of a direct file, if its memory allows it
        self.assertEqual(export["bytes_in"] + itself["bytes_written"], 100 * MIB + 17)
        self.assertEqual(export["bytes_out"] + itself["bytes_read"], 100 * MIB + 17)

    def test_unix(self):
        self.there_and_back("unix")

    def test_tcp(self):
        self.there_and_back("tcp")

    def test_direct(self):
        self.there_and_back("unix", "--set", "export.data.direct=true")

    def test_direct_tcp_and_chunks_beside_the_blocks(self):
        self.there_and_back("tcp", "--set", "export.data.direct=true",
                            "--set", "export.data.chunk=1000001")

    def test_a_chunk_that_is_no_multiple_of_a_page(self):
        source = self.random_file("source", 5 * MIB + 3)
        self.start("--set", "export.data.chunk=1000001")
        self.good("put", source, "/odd")
        self.assertEqual(sha(os.path.join(self.data, "odd")), sha(source))
        self.good("get", "/odd", self.path("back"))
        self.assertEqual(sha(self.path("back")), sha(source))

    def test_get_leaves_special_files_and_links_what_they_are(self):
        source = self.random_file("source", 3000)
        self.start()
        self.good("put", source, "/a")
        fifo, link, target = self.path("fifo"), self.path("link"), self.path("target")
        os.mkfifo(fifo)
        reader = subprocess.Popen(["cat", fifo], stdout=subprocess.PIPE)
        self.good("get", "/a", fifo)
        self.assertEqual(len(reader.communicate(timeout=SOON)[0]), 3000)
        self.assertTrue(stat.S_ISFIFO(os.stat(fifo).st_mode))
        with open(target, "wb"):
            pass
        os.symlink(target, link)
        self.good("get", "/a", link)
        self.assertTrue(os.path.islink(link))
        self.assertEqual(sha(target), sha(source))

    def test_pipes(self):
        self.start()
        data = os.urandom(9 * MIB + 5)
        self.good("put", "-", "/piped", input=data)
        done = subprocess.run([FOREBAY, "get", "/piped", "-"], env=self.env, capture_output=True,
                              timeout=SOON, check=True)
        self.assertTrue(done.stdout == data)
        done = subprocess.run([FOREBAY, "cat", "piped", "piped"], env=self.env,
                              capture_output=True, timeout=SOON, check=True)
        self.assertTrue(done.stdout == data + data)

    def test_start_status_stop(self):
        out = self.start("--name", "lab")
        self.assertIn(self.data, out)
        self.assertIn("forebay stop", out)
        published = self.published()
        self.assertEqual(published["name"], "lab")
        self.assertEqual([a.split(":")[0] for a in published["addresses"]], ["unix", "tcp"])
        self.assertIn("EXPORT", self.good("status"))
        status = self.status()
        self.assertEqual(status["pid"], published["pid"])
        self.assertEqual(status["boot"], published["boot"])  # text: 64 bits are too much for JSON
        self.assertEqual(status["exports"][0]["name"], "data")
        for address in published["addresses"]:
            self.good("status", "--server", address)
            self.good("ls", "--server", address)
        self.assertIn("Stopped", self.good("stop"))
        self.assertNotIn("server.json", os.listdir(self.run_dir))
        self.assertNotIn("socket", os.listdir(self.run_dir))
        self.bad(3, "no server is running", "status")
        self.bad(3, "forebay start", "ls")
        self.bad(3, "no server is running", "stop")

    def test_two_exports(self):
        other = self.path("other")
        os.mkdir(other)
        self.good("start", "--export", f"one={self.data}", "--export", f"two={other}",
                  "--set", "export.mem.store=memory")
        self.bad(2, "choose one with --export", "ls")
        self.good("put", "/etc/hostname", "/h", "--export", "two")
        self.assertIn("h", os.listdir(other))
        self.good("put", "/etc/hostname", "/m", "--export", "mem")
        self.assertEqual(self.good("ls", "--export", "mem"), "m\n")
        self.assertEqual(self.in_export(), [])
        self.bad(3, "none", "ls", "--export", "none")


class SharedState(Case):
    """Numbers that clients share, and the journal that keeps them."""

    def restart(self, *args):
        self.kill_server()
        self.start(*args)

    def test_verbs_and_a_killed_server(self):
        self.start()
        self.good("put", "-", "/f", input=b"hello")
        self.bad(1, "no attribute is named 'n'", "attr", "get", "/f", "n")
        self.good("attr", "create", "/f", "n", "5")
        self.bad(1, "File exists (EEXIST)", "attr", "create", "/f", "n")
        self.assertEqual(self.good("attr", "add", "/f", "n", "3"), "5\n")
        self.assertEqual(self.good("attr", "cas", "/f", "n", "8", "20"), "8\n")
        self.assertEqual(self.forebay("attr", "cas", "/f", "n", "8", "20").code, 1)
        self.good("attr", "create", "/f", "m")
        self.restart()
        self.assertEqual(self.good("attr", "list", "/f"), "m 0\nn 20\n")
        self.assertEqual(json.loads(self.good("attr", "list", "/f", "--json")), {"m": "0", "n": "20"})
        self.good("attr", "set", "/f", "n", "7")
        self.assertEqual(self.good("attr", "get", "/f", "n"), "7\n")
        self.good("attr", "remove", "/f", "n")
        self.assertEqual(self.status()["exports"][0]["state"]["attributes"], 1)
        self.assertEqual(self.good("attr", "holes", "/f"), "")
        self.assertEqual(json.loads(self.good("attr", "holes", "/f", "--json")), [])
        self.bad(2, "usage: forebay attr cas FILE NAME EXPECTED DESIRED", "attr", "cas", "/f", "n")
        self.bad(2, "'grow' is not one of", "attr", "grow", "/f")

    def test_a_state_that_is_lost_or_damaged_is_said(self):
        state = self.path("state")
        os.mkdir(state, 0o700)
        args = ("--set", f"server.state_dir={state}", "--set", "server.state_sync=true")
        self.start(*args)
        self.good("put", "-", "/f", input=b"hello")
        for name in "abcdef":
            self.good("attr", "create", "/f", name, "5")
        self.kill_server()
        journal, = (n for n in os.listdir(state) if n.endswith(".journal"))
        path = os.path.join(state, journal)
        with open(path, "rb") as file:
            good = file.read()
        with open(path, "wb") as file:
            file.write(good[:150] + b"#" + good[151:])
        self.bad(1, "damaged at byte", "start", self.data, *args)
        os.remove(path)
        self.bad(1, "what clients share is in journal", "start", self.data, *args)
        with open(path, "wb") as file:
            file.write(good + good[-5:])  # the end of a write that was cut off
        self.start(*args)
        self.assertEqual(self.good("attr", "get", "/f", "f"), "5\n")


class Names(Case):
    def setUp(self):
        super().setUp()
        self.start()

    def test_verbs(self):
        self.good("mkdir", "-p", "/a/b/c")
        self.good("put", "-", "/a/f", input=b"hello")
        self.good("ln", "/a/f", "/a/hard")
        self.good("ln", "-s", "/a/f", "/a/b/soft")
        self.assertEqual(self.good("ls", "/a"), "b\nf\nhard\n")
        self.assertEqual(self.good("cat", "a/b/soft"), "hello")
        self.assertIn("soft -> /a/f", self.good("ls", "-l", "/a/b"))
        info = json.loads(self.good("stat", "--json", "/a/f"))[0]
        self.assertEqual((info["size"], info["links"], info["type"]), (5, 2, "file"))
        listed = json.loads(self.good("ls", "--json", "/a"))[0]["entries"]
        self.assertEqual([e["name"] for e in listed], ["b", "f", "hard"])
        self.good("mv", "/a/f", "/g")
        self.good("mv", "/g", "/a/b")  # into the directory
        self.assertEqual(self.good("cat", "/a/b/g"), "hello")
        self.bad(1, "Is a directory (EISDIR)", "rm", "/a")
        self.good("rm", "-r", "/a")
        self.assertEqual(self.in_export(), [])

    def test_errors_name_the_verb_the_path_and_the_errno(self):
        for args, text in [
            (("cat", "/x"), "forebay: cat: /x: No such file or directory (ENOENT)"),
            (("ls", "/x"), "forebay: ls: /x: No such file or directory (ENOENT)"),
            (("rm", "/x"), "forebay: rm: /x: No such file or directory (ENOENT)"),
            (("mkdir", "/x/y"), "forebay: mkdir: /x/y: No such file or directory (ENOENT)"),
            (("mv", "/x", "/y"), "forebay: mv: /x: No such file or directory (ENOENT)"),
            (("put", "/nonexistent", "/y"), "forebay: put: /nonexistent: No such file"),
            (("put", "/etc/hostname", "/x/y"), "forebay: put: /x/y: No such file"),
            (("get", "/x"), "forebay: get: /x: No such file or directory (ENOENT)"),
            (("rm", "-r", "/"), "cannot be removed"),
        ]:
            self.bad(1, text, *args)
        self.good("rm", "-f", "/x")

    def test_one_failing_operand_does_not_stop_the_others(self):
        self.good("put", "-", "/a", input=b"1")
        self.good("put", "-", "/b", input=b"2")
        self.bad(1, "/x", "rm", "/a", "/x", "/b")
        self.assertEqual(self.in_export(), [])

    def test_the_umask_is_the_clients(self):
        self.good("mkdir", "/d", preexec_fn=lambda: os.umask(0o027))
        self.assertEqual(stat.S_IMODE(os.stat(os.path.join(self.data, "d")).st_mode), 0o750)
        self.good("mkdir", "-m", "700", "/e")
        self.assertEqual(stat.S_IMODE(os.stat(os.path.join(self.data, "e")).st_mode), 0o700)
        self.bad(2, "not a mode", "mkdir", "-m", "rwx", "/f")

    def test_names_that_would_steer_a_terminal(self):
        name = "a\nb\x1b[31m\\"
        self.good("put", "-", "/" + name, input=b"x")
        self.good("ln", "-s", name, "/z")
        shown = r"a\nb\x1b[31m\\"
        self.assertEqual(self.good("ls"), f"{shown}\nz\n")
        self.assertIn(f"z -> {shown}\n", self.good("ls", "-l"))
        self.assertTrue(self.good("stat", name).startswith(shown + "\n"))
        listed = json.loads(self.good("ls", "--json"))[0]["entries"]
        self.assertEqual(listed[0]["name"], name)
        self.assertEqual(json.loads(self.good("stat", "--json", name))[0]["name"], name)
        result = self.bad(1, r"forebay: cat: /\x1b[2Jx\ny: No such file", "cat", "/\x1b[2Jx\ny")
        self.assertEqual(result.err.count("\n"), 1)
        result = self.bad(2, r"unknown verb '\x1b[2J'", "\x1b[2J")
        self.assertNotIn("\x1b", result.err)

    def test_trailing_slashes(self):
        self.good("mkdir", "/d", "/e")
        for name in ("a", "b", "c"):
            self.good("put", "-", name, input=b"x")
        self.good("mv", "a", "d/")
        self.assertEqual(self.good("ls", "/d"), "a\n")
        self.good("put", "/etc/hostname", "d/")
        no_such = "there is no such directory to put it in: No such file or directory (ENOENT)"
        self.bad(1, f"new/: {no_such}", "mv", "b", "new/")
        self.bad(1, f"new/: {no_such}", "ln", "b", "new/")
        self.bad(1, f"new/: {no_such}", "put", "/etc/hostname", "new/")
        self.bad(1, "Not a directory (ENOTDIR)", "mv", "b", "c/")
        self.bad(1, "Not a directory (ENOTDIR)", "put", "/etc/hostname", "c/")
        self.bad(1, "Is a directory (EISDIR)", "put", "-", "d/", input=b"x")
        self.good("mv", "e", "f/")  # a directory may be named so
        self.assertEqual(self.in_export(), ["b", "c", "d", "f"])

    def test_permissions_are_as_with_cp(self):
        source, back = self.random_file("source", 10), self.path("back")
        os.chmod(source, 0o664)
        in_export = lambda name: stat.S_IMODE(os.stat(os.path.join(self.data, name)).st_mode)
        mask = {"preexec_fn": lambda: os.umask(0o027)}
        self.good("put", source, "/f", **mask)
        self.assertEqual(in_export("f"), 0o640)
        os.chmod(os.path.join(self.data, "f"), 0o606)
        self.good("put", source, "/f", **mask)
        self.assertEqual(in_export("f"), 0o606)
        self.good("get", "/f", back, **mask)
        self.assertEqual(stat.S_IMODE(os.stat(back).st_mode), 0o600)
        os.chmod(back, 0o444)
        self.good("get", "/f", back, **mask)
        self.assertEqual(stat.S_IMODE(os.stat(back).st_mode), 0o444)

    def test_what_is_not_there_is_no_failure(self):
        self.forebay("stat", "/absent")
        self.good("put", "-", "/f", input=b"x")
        self.assertEqual(self.status()["exports"][0]["errors"], 0)
        self.bad(1, "EEXIST", "ln", "-s", "x", "/f")
        self.bad(1, "EISDIR", "put", "-", "/", input=b"x")

    def test_version_and_usage(self):
        self.assertIn("forebay", self.good("version"))
        self.assertIn("protocol_max", json.loads(self.good("version", "--json")))
        self.assertIn("Examples", self.good("--help"))
        self.bad(2, "did you mean 'ls'", "lss")
        self.bad(2, "forebay: ls: unknown option '--bogus'\n", "ls", "--bogus")
        # What is misspelt comes before what is then missing.
        self.bad(2, "forebay: put: unknown option '--hlep'; did you mean '--help'?", "put", "--hlep")
        self.bad(2, "did you mean '--retry-for'?", "ls", "--retry-fro=1s")
        self.bad(2, "did you mean '--config'?", "--confg", "x", "ls")
        self.bad(2, "ls: unknown option '-z'", "ls", "-z")
        self.bad(2, "unexpected argument 'extra'", "mv", "a", "b", "extra")
        self.bad(2, "forebay: run: --mpi: foo not in {auto,mpich,openmpi}\n", "run", "--mpi", "foo", "--", "ls", "-l")
        self.bad(2, "forebay: put: local is required\nTry `forebay help put`.", "put")
        self.bad(2, "needs a name", "put", "-", input=b"x")
        done = Result(subprocess.run([FOREBAYD, "--gracee", "1s"], env=self.env,
                                     capture_output=True, timeout=SOON))
        self.assertEqual(done.code, 2)
        self.assertIn("unknown option '--gracee'; did you mean '--grace'?", done.err)

    def test_help(self):
        self.assertEqual(self.good("help"), self.good("--help"))
        self.assertEqual(self.good("help", "put"), self.good("put", "--help"))
        self.bad(2, "unknown verb 'putt'; did you mean 'put'?", "help", "putt")


class Limits(Case):
    def setUp(self):
        super().setUp()
        self.start()

    def test_names_of_255_bytes(self):
        name = "n" * 255
        self.good("put", "-", name, input=b"x")
        self.assertEqual(self.good("cat", name), "x")
        self.good("mkdir", "/" + "d" * 255)
        self.good("mv", name, "/" + "d" * 255)
        self.good("rm", "-r", "/" + "d" * 255)

    def test_longer_ones_are_refused(self):
        for args in (("put", "/etc/hostname"), ("mkdir",), ("ls",), ("stat",), ("rm",), ("cat",)):
            self.bad(1, "File name too long (ENAMETOOLONG)", *args, "n" * 256)
            self.bad(1, "File name too long (ENAMETOOLONG)", *args, "/" + "d/" * 2500 + "f")
        self.assertEqual(self.in_export(), [])

    def test_deep_trees_beyond_path_max(self):
        # Longer in all than a path may be: made and removed by steps that are not.
        os.chdir(self.data)
        for _ in range(25):
            os.mkdir("d" * 200)
            os.chdir("d" * 200)
        os.chdir("/")
        if ROOT:
            self.good("rm", "-r", "/" + "d" * 200)
            self.assertEqual(self.in_export(), [])
        else:
            # A handle without privilege is a path, and holds no longer one: said, and nothing lost.
            self.bad(1, "ENAMETOOLONG", "rm", "-r", "/" + "d" * 200)

    def test_many_entries(self):
        for i in range(3000):
            open(os.path.join(self.data, f"file-{i:05}"), "w").close()
        self.assertEqual(len(self.good("ls").split()), 3000)

    def test_few_descriptors(self):
        self.good("stop")
        few = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        self.good("start", self.data, preexec_fn=few)
        source = self.random_file("f", 3 * MIB)
        puts = [self.background("put", source, f"/f{i}") for i in range(12)]
        codes = [p.wait(timeout=SOON) for p in puts]
        self.assertEqual(codes, [0] * 12, [p.stderr.read() for p in puts])
        self.assertEqual(len(self.in_export()), 12)


class Confinement(Case):
    def setUp(self):
        super().setUp()
        with open(self.path("secret"), "w", encoding="utf-8") as file:
            file.write("secret")
        self.start()

    def test_dot_dot(self):
        for path in ("../secret", "/../../secret", "../../etc/passwd", "a/../../secret"):
            self.bad(1, "No such file or directory", "cat", path)
        self.good("put", "-", "../../planted", input=b"x")
        self.assertEqual(self.in_export(), ["planted"])
        self.assertNotIn("planted", os.listdir(self.temp))

    def test_symbolic_links_lead_nowhere_outside(self):
        os.symlink("../secret", os.path.join(self.data, "up"))
        os.symlink("/etc", os.path.join(self.data, "conf"))
        os.symlink(self.path("secret"), os.path.join(self.data, "direct"))
        for path in ("up", "conf/passwd", "direct"):
            self.bad(1, "No such file or directory", "cat", path)
        self.bad(1, "", "put", "/etc/hostname", "conf/planted")
        self.good("ln", "-s", "/etc/passwd", "/made")
        self.bad(1, "No such file or directory", "cat", "made")

    def test_the_servers_own_folder_cannot_be_named(self):
        self.bad(1, "", "cat", "/.forebay/key")
        self.bad(1, "", "rm", "-r", "/.forebay")
        self.assertNotIn(".forebay", self.good("ls", "-a"))


class Configuration(Case):
    def write(self, text):
        path = self.path("c.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def test_unknown_keys_name_the_nearest(self):
        config = self.write("[server]\n\ngrase = \"1s\"\n")
        for verb in ("start", "ls", "config"):
            self.bad(2, f"{config}:3: unknown key 'grase' in [server]; did you mean 'grace'?",
                     verb, "--config", config)
        done = Result(subprocess.run([FOREBAYD, "--config", config], env=self.env,
                                     capture_output=True, timeout=SOON))
        self.assertEqual(done.code, 2)
        self.assertIn("did you mean 'grace'?", done.err)

    def test_unknown_variables_name_the_nearest(self):
        self.env["FOREBAY_CLIENT_EXPROT"] = "x"
        self.bad(2, "did you mean 'FOREBAY_CLIENT_EXPORT'?", "ls")

    def test_wrong_values(self):
        self.bad(2, "with us, ms, s, min or h, such as 30s", "start", self.data, "--grace", "30")
        self.bad(2, "out of range", "start", self.data, "--slots", "0")
        self.bad(2, "did you mean 'posix'?", "start", "--set", "export.a.store=posx")
        self.bad(2, "needs a path", "start", "--set", "export.a.pool=8MiB")
        self.bad(2, "c.toml:1", "start", "--config", self.write("[server\n"))

    def test_unreadable(self):
        self.bad(2, "No such file or directory", "ls", "--config", self.path("absent"))
        self.bad(2, "Is a directory", "ls", "--config", self.temp)
        if ROOT:
            config = self.write("")
            os.chmod(config, 0o600)
            self.bad(2, "Permission denied", "ls", "--config", config, user=12345)

    def test_precedence(self):
        config = self.write("[server]\nname = \"file\"\n[export.d]\npath = \"%s\"\n" % self.data)
        show = lambda *args: json.loads(self.good("config", "--json", "--config", config, *args))
        self.assertEqual(show()["server"]["name"], "file")
        self.env["FOREBAY_SERVER_NAME"] = "environment"
        self.assertEqual(show()["server"]["name"], "environment")
        self.assertEqual(show("--set", "server.name=line")["server"]["name"], "line")
        self.good("start", "--config", config, "--name", "line")
        self.assertEqual(self.status()["name"], "line")
        self.assertEqual(self.status()["exports"][0]["name"], "d")

    def test_what_is_shown_can_be_used(self):
        shown = self.good("config", "--set", "server.grace=7s", "--set", "export.x.path=/x")
        config = self.write(shown)
        again = self.good("config", "--config", config)
        self.assertEqual(shown.split("\n")[1:], again.split("\n")[1:])


class Starting(Case):
    def test_two_servers_cannot_share_a_run_directory(self):
        self.start()
        pid = self.published()["pid"]
        self.bad(1, f"a server (pid {pid}) is already running", "start", self.data)
        self.assertEqual(self.status()["pid"], pid)

    def test_a_directory_is_one_servers(self):
        self.start("--name", "first")
        pid = self.published()["pid"]
        another = ("--run-dir", self.path("another"))
        key = self.path("key")
        self.good("key", "make", key)
        cluster = ("--name", "a", "--key-file", key, "--set", "cluster.servers=a=tcp:127.0.0.1:9")
        for more in (another, (*another, *cluster)):
            self.bad(1, f"is served by server 'first' (pid {pid} on ", "start", self.data, *more)
        os.kill(pid, signal.SIGKILL)
        self.good("start", self.data, *another)
        self.good("stop", *another)

    def test_a_port_in_use(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"tcp:127.0.0.1:{taken.getsockname()[1]}"
            result = self.bad(1, address, "start", self.data, "--listen", address)
            self.assertIn("EADDRINUSE", result.err)
        self.assertNotIn("server.json", os.listdir(self.run_dir))
        self.start("--listen", address)  # now it is free

    def test_a_socket_in_use(self):
        path = self.path("taken")
        with socket.socket(socket.AF_UNIX) as taken:
            taken.bind(path)
            taken.listen()
            self.bad(1, "EADDRINUSE", "start", self.data, "--listen", f"unix:{path}")

    def test_tcp_stays_on_this_machine(self):
        self.bad(1, "EPERM", "start", self.data, "--listen", "tcp:0.0.0.0:0")

    def test_it_says_why_it_does_not_start(self):
        self.bad(1, "/nonexistent", "start", "/nonexistent")
        self.bad(1, "forebay: start: export data: /etc/passwd: Not a directory (ENOTDIR)\n", "start",
                 "/etc/passwd")
        self.bad(2, "nothing to serve", "start")
        self.bad(2, "must begin with 'unix:'", "start", self.data, "--listen", "carrier-pigeon")
        os.mkdir(self.path("open"))
        os.chmod(self.path("open"), 0o777)
        self.bad(1, "can be written by others", "start", self.data, "--run-dir", self.path("open"))
        self.bad(1, "cannot make the run directory", "start", self.data, "--run-dir",
                 "/nonexistent/run")
        deep = self.path("d" * 120)
        result = self.bad(1, "", "start", self.data, "--run-dir", deep, "--listen", "unix")
        self.assertRegex(result.err, "too long|ENAMETOOLONG")

    def test_the_foreground_server_ends_on_signals(self):
        for sig in (signal.SIGTERM, signal.SIGINT):
            server = subprocess.Popen([FOREBAYD, self.data], env=self.env, stderr=subprocess.PIPE)
            self.running.append(server)
            wait_for("the server", lambda: self.forebay("status").code == 0)
            server.send_signal(sig)
            self.assertEqual(server.wait(timeout=SOON), 0)
            self.assertNotIn("server.json", os.listdir(self.run_dir))
            self.assertNotIn("socket", os.listdir(self.run_dir))

    def test_stop_now(self):
        self.start()
        self.good("stop", "--now")
        self.assertNotIn("server.json", os.listdir(self.run_dir))
        self.start()  # what it left is not in the way


class Documents(Case):
    """docs/errors.md says what is really printed."""

    DOCUMENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/errors.md")
    # Not to be had in a test: a server that crashes while it starts.
    NOT_TRIED = "the server ended"

    def documented(self):
        """The texts in the first columns of the tables on starting and reaching a server."""
        with open(self.DOCUMENT, encoding="utf-8") as file:
            text = file.read()
        tables = text[text.index("## Starting a server"):text.index("## While it works")]
        for row in tables.splitlines():
            if row.startswith("| `"):
                yield from re.findall("`([^`]+)`", row.split("|")[1])

    def hear_of_state(self, hear):
        state = self.path("state")
        os.mkdir(state, 0o700)
        args = (self.data, "--set", f"server.state_dir={state}")
        self.good("start", *args)
        hear("start", *args, "--run-dir", self.path("another"))
        os.remove(os.path.join(self.data, ".forebay/lock"))  # as where there are no locks
        hear("start", *args, "--run-dir", self.path("another"))
        self.good("put", "-", "/f", input=b"hello")
        for name in "abc":
            self.good("attr", "create", "/f", name)
        self.good("stop")
        journal, = (os.path.join(state, n) for n in os.listdir(state) if n.endswith(".journal"))
        with open(journal, "r+b") as file:
            file.seek(100)
            file.write(b"###")
        hear("start", *args)
        os.remove(journal)
        hear("start", *args)

    def printed(self):
        said = []
        hear = lambda *args, **more: said.append(self.forebay(*args, **more).err)
        typing_error = self.path("c.toml")
        with open(typing_error, "w", encoding="utf-8") as file:
            file.write("[server]\ngrase = \"1s\"\n")
        dead = self.path("dead")
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(dead)
        other, theirs, shared = self.path("other"), self.path("theirs"), self.path("shared")
        os.mkdir(other)
        open(os.path.join(other, ".forebay"), "w", encoding="utf-8").close()
        os.mkdir(shared)
        os.chmod(shared, 0o777)
        hear("ls")
        hear("ls", "--server", f"unix:{dead}")
        hear("ls", "--config", typing_error)
        hear("ls", "--config", self.path("absent"))
        hear("start", self.path("absent"))
        hear("start", "/etc/passwd")
        hear("start", other)
        hear("start", self.data, "--run-dir", shared)
        hear("start", self.data, "--listen", "tcp:0.0.0.0:0")
        with socket.create_server(("127.0.0.1", 0)) as taken:
            hear("start", self.data, "--listen", f"tcp:127.0.0.1:{taken.getsockname()[1]}")
        self.hear_of_state(hear)
        self.good("start", self.data, "--set", f"export.more.store=memory")
        hear("start", self.data)
        hear("ls")
        hear("ls", "--export", "none")
        if ROOT:
            self.good("stop")
            for path in (theirs, self.run_dir):
                os.makedirs(path, exist_ok=True)
                os.chown(path, 12345, 12345)
            os.chmod(self.run_dir, 0o755)
            for name in os.listdir(self.run_dir):
                os.chown(os.path.join(self.run_dir, name), 12345, 12345)
            self.good("start", theirs, user=12345)
            hear("ls", user=12346)
            hear("ls", "--server", self.published()["addresses"][1], user=12346)
        return said

    def test_the_texts_are_those_that_are_printed(self):
        said = self.printed()
        for text in self.documented():
            if text.startswith(self.NOT_TRIED):
                continue
            if not ROOT and ("serves no other" in text or "nor to root" in text):
                continue
            pattern = ".*".join(re.escape(part) for part in text.split("..."))
            self.assertTrue(any(re.search(pattern, one) for one in said), (text, said))


class Faults(Case):
    def put_slowly(self, size, *args):
        """A put whose data comes through a pipe that we hold, so that it is under way."""
        process = self.background("put", "-", "/slow", *args, stdin=subprocess.PIPE)
        self.first = os.urandom(size // 2)
        process.stdin.write(self.first)
        process.stdin.flush()
        wait_for("a partial file", lambda: any(
            os.path.getsize(os.path.join(self.data, n)) > 0 for n in self.in_export()))
        return process

    def finish(self, process, data):
        process.stdin.write(data)
        process.stdin.close()
        process.stdin = None
        out, err = process.communicate(timeout=90)
        self.assertEqual(process.returncode, 0, err)

    def check_slow(self, second):
        with open(os.path.join(self.data, "slow"), "rb") as file:
            self.assertTrue(file.read() == self.first + second, "bytes differ")
        self.assertEqual(self.in_export(), ["slow"])

    def restart_under_a_put(self, transport, end):
        self.env["FOREBAY_CLIENT_TRANSPORT"] = transport
        self.start()
        process = self.put_slowly(60 * MIB)
        end()
        second = os.urandom(30 * MIB)
        self.start()
        self.finish(process, second)
        self.check_slow(second)

    def test_a_killed_and_restarted_server_unix(self):
        self.restart_under_a_put("unix", self.kill_server)

    def test_a_killed_and_restarted_server_tcp(self):
        # The new one has another port: clients read it anew.
        self.restart_under_a_put("tcp", self.kill_server)

    def test_a_stopped_and_restarted_server(self):
        self.restart_under_a_put("any", lambda: self.good("stop"))

    def test_killed_again_and_again_under_load(self):
        source = self.random_file("source", 100 * MIB)
        self.start()
        puts = [self.background("put", source, f"/f{i}") for i in range(3)]
        for _ in range(3):
            time.sleep(0.15)
            self.kill_server()
            self.start()
        for put in puts:
            out, err = put.communicate(timeout=90)
            # A create or rename that was under way at the kill has an unknown outcome; a write goes
            # on. One that came when there was no server at all is told so.
            if put.returncode != 0:
                reach = b"cannot reach|no server is running"
                self.assertRegex(err, reach if put.returncode == 3 else b"outcome unknown")
        for name in self.in_export():
            if not name.startswith("."):
                self.assertEqual(sha(os.path.join(self.data, name)), sha(source))

    def test_a_server_that_does_not_come_back(self):
        self.start()
        process = self.put_slowly(8 * MIB, "--retry-for", "1s")
        self.kill_server()
        process.stdin.write(os.urandom(8 * MIB))
        process.stdin.close()
        process.stdin = None
        out, err = process.communicate(timeout=90)
        self.assertEqual(process.returncode, 1)
        self.assertIn(b"forebay: put: /slow: ", err)

    def test_the_job_of_a_client_is_shown(self):
        self.start("--grace", "1s")
        for name, job in (("SLURM_JOB_ID", "4711"), ("FOREBAY_CLIENT_JOB", "night run")):
            self.env[name] = job  # ours counts more than Slurm's
            process = self.put_slowly(40 * MIB)
            wait_for("its session", lambda: [s["job"] for s in self.status()["sessions"]] == [job])
            self.assertIn(job, self.good("status"))
            process.kill()
            process.wait(timeout=SOON)
            wait_for("the session's end", lambda: not self.status()["sessions"])

    def test_a_client_killed_in_the_middle_of_a_write(self):
        self.start("--grace", "1s")
        process = self.put_slowly(40 * MIB)
        process.kill()
        process.wait(timeout=SOON)
        self.assertNotIn("slow", self.in_export())
        self.good("put", "/etc/hostname", "/after")
        wait_for("the session's end", lambda: not self.status()["sessions"])
        export = self.status()["exports"][0]
        self.assertEqual((export["flights"], export["pool"]["in_use"]), (0, 0))

    def test_a_file_size_limit_is_an_error_and_no_death(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4 * MIB, 4 * MIB))
        self.good("start", self.data, preexec_fn=limit)
        pid = self.published()["pid"]
        self.bad(1, "File too large (EFBIG)", "put", self.random_file("big", 6 * MIB), "/big")
        self.good("put", self.random_file("small", 3 * MIB), "/small")
        self.assertEqual(self.status()["pid"], pid)
        self.assertEqual(self.in_export(), ["small"])

    def test_a_back_end_that_never_answers_does_not_keep_the_server(self):
        server = subprocess.Popen([FOREBAYD, self.data, "--drain", "1s"], env=self.env,
                                  stderr=subprocess.PIPE)
        self.running.append(server)
        wait_for("the server", lambda: self.forebay("status").code == 0)
        tasks = f"/proc/{server.pid}/task"
        before = set(os.listdir(tasks))
        self.good("ls")  # a listing is the pool's work, and starts a thread or two
        pool = [int(tid) for tid in set(os.listdir(tasks)) - before]

        def idle(tid):
            with open(f"{tasks}/{tid}/stat", encoding="utf-8") as file:
                return file.read().rpartition(")")[2].split()[0] == "S"

        wait_for("an idle pool", lambda: all(idle(tid) for tid in pool))
        # Its threads are stopped, as in calls that never return.
        libc = ctypes.CDLL(None, use_errno=True)
        PTRACE_SEIZE, PTRACE_INTERRUPT, WALL = 0x4206, 0x4207, 0x40000000
        for tid in pool:
            if libc.ptrace(PTRACE_SEIZE, tid, 0, 0) != 0:
                self.skipTest("ptrace is not allowed here: " + os.strerror(ctypes.get_errno()))
            self.assertEqual(libc.ptrace(PTRACE_INTERRUPT, tid, 0, 0), 0)
            os.waitpid(tid, WALL)
        listing = self.background("ls", "--retry-for", "1s")
        wait_for("the listing", lambda: self.status()["exports"][0]["flights"] == 1)
        server.terminate()

        def gone():
            for tid in pool:
                try:
                    os.waitpid(tid, WALL | os.WNOHANG)  # a traced thread is its tracer's to bury
                except ChildProcessError:
                    pass
            return server.poll() is not None

        wait_for("the server's end", gone)
        self.assertEqual(server.returncode, 1)
        self.assertIn(b"unanswered", server.stderr.read())
        listing.communicate(timeout=SOON)
        self.start()  # the run directory is free

    def test_stop_waits_for_what_is_under_way(self):
        self.start()
        source = self.random_file("source", 100 * MIB)
        put = self.background("put", source, "/f")
        wait_for("the put", lambda: self.in_export())
        self.good("stop")
        self.start()
        out, err = put.communicate(timeout=90)
        self.assertEqual(put.returncode, 0, err)
        self.assertEqual(sha(os.path.join(self.data, "f")), sha(source))


@unittest.skipUnless(ROOT, "loop devices need root")
class DiskFull(Case):
    def setUp(self):
        super().setUp()
        self.mount_small_disk(24 * MIB)

    def test_put(self):
        self.start()
        source = self.random_file("source", 40 * MIB)
        self.good("put", "/etc/hostname", "/f")
        self.bad(1, "forebay: put: /f: ", "put", source, "/f")
        result = self.bad(1, "No space left on device", "put", source, "/g")
        self.assertIn("ENOSPC", result.err)
        self.assertEqual(sorted(set(self.in_export()) - {"lost+found"}), ["f"])
        with open("/etc/hostname", encoding="utf-8") as file:
            self.assertEqual(self.good("cat", "/f"), file.read())
        self.good("put", self.random_file("small", MIB), "/small")  # there is room again


@unittest.skipUnless(ROOT, "only root can run programs as other users")
class Users(Case):
    ALICE, BOB = 12345, 12346

    def test_roots_server_acts_as_the_caller(self):
        os.chmod(self.data, 0o1777)
        self.start()
        self.env["FOREBAY_CLIENT_SERVER"] = self.run_dir
        for transport in ("unix", "tcp"):
            self.env["FOREBAY_CLIENT_TRANSPORT"] = transport
            name = f"/{transport}"
            self.good("put", "-", name, input=b"alice's", user=self.ALICE)
            self.assertEqual(os.stat(self.data + name).st_uid, self.ALICE)
            os.chmod(self.data + name, 0o600)
            self.assertEqual(self.good("cat", name, user=self.ALICE), "alice's")
            self.bad(1, "Permission denied (EACCES)", "cat", name, user=self.BOB)
            self.bad(1, "(EPERM)", "rm", name, user=self.BOB)  # the sticky bit
        os.chmod(self.data, 0o755)
        self.bad(1, "Permission denied (EACCES)", "mkdir", "/d", user=self.ALICE)
        self.bad(1, "only root", "stop", user=self.ALICE)
        self.good("ls")

    def test_a_users_server_serves_that_user_only(self):
        os.chown(self.data, self.ALICE, self.ALICE)
        os.mkdir(self.run_dir)
        os.chown(self.run_dir, self.ALICE, self.ALICE)
        self.good("start", self.data, user=self.ALICE)
        self.good("put", "-", "/f", input=b"x", user=self.ALICE)
        self.assertEqual(os.stat(os.path.join(self.data, "f")).st_uid, self.ALICE)
        for address in self.published()["addresses"]:
            result = self.forebay("ls", "--server", address, "--export", "data", user=self.BOB)
            self.assertEqual(result.code, 3, result)
            self.assertRegex(result.err, "EPERM|EACCES|serves no other")
        self.good("stop", user=self.ALICE)

    def test_a_run_directory_of_another_user_is_not_used(self):
        os.mkdir(self.run_dir)
        os.chown(self.run_dir, self.BOB, self.BOB)
        self.bad(1, f"belongs to user {self.BOB}", "start", self.data)


class Interrupts(Case):
    def interrupt_put(self, sig):
        self.start()
        process = self.background("put", "-", "/f", stdin=subprocess.PIPE)
        process.stdin.write(os.urandom(12 * MIB))
        process.stdin.flush()
        wait_for("a partial file", self.in_export)
        process.send_signal(sig)
        process.wait(timeout=SOON)
        self.assertEqual(process.returncode, 128 + sig)
        self.assertEqual(self.in_export(), [])

    def test_put_by_ctrl_c(self):
        self.interrupt_put(signal.SIGINT)

    def test_put_by_term(self):
        self.interrupt_put(signal.SIGTERM)

    def test_get_to_a_closed_pipe(self):
        self.start()
        self.good("put", self.random_file("f", 30 * MIB), "/f")
        reader = subprocess.run(f"{FOREBAY} cat /f | head -c 1000 | wc -c", shell=True,
                                env=self.env, capture_output=True, timeout=SOON)
        self.assertEqual(reader.stdout.strip(), b"1000")
        self.good("ls")

    def test_progress(self):
        self.start()
        result = self.forebay("put", self.random_file("f", 64 * MIB), "/f", "--progress")
        self.assertEqual(result.code, 0)
        self.assertEqual(self.forebay("put", self.path("f"), "/g").err, "")


class Locks(Case):
    """`forebay lock`: a command that runs while a file is locked."""

    def holder(self, *args):
        """A process that holds the lock until its standard input ends."""
        process = self.background("lock", *args, "/f", "--", "sh", "-c", "echo held; cat",
                                  stdin=subprocess.PIPE)
        self.assertEqual(process.stdout.readline(), b"held\n")
        return process

    def let_go(self, process):
        process.stdin.close()
        process.stdin = None
        _, err = process.communicate(timeout=SOON)
        return process.returncode, err.decode()

    def test_excludes_until_it_ends(self):
        self.start()
        first = self.holder()
        self.bad(1, "is locked by somebody else", "lock", "--try", "/f", "--", "true")
        waits = self.background("lock", "/f", "--", "sh", "-c", "exit 7")
        time.sleep(0.3)
        self.assertIsNone(waits.poll())
        self.assertEqual(self.let_go(first), (0, ""))
        self.assertEqual(waits.wait(timeout=SOON), 7)
        readers = [self.holder("--shared") for _ in range(2)]
        self.bad(1, "is locked", "lock", "--try", "/f", "--", "true")
        for reader in readers:
            self.assertEqual(self.let_go(reader), (0, ""))
        self.bad(127, "No such file", "lock", "/f", "--", "/no/such/program")
        self.bad(2, "nothing to run", "lock", "/f")

    def test_ends_with_its_owner(self):
        self.start("--set", "server.grace=100s")
        first = self.holder()
        first.kill()
        begin = time.monotonic()
        self.good("lock", "/f", "--", "true")
        self.assertLess(time.monotonic() - begin, 20)

    def test_survives_the_server(self):
        for how in ("killed", "stopped"):
            with self.subTest(how):
                self.start("--set", "server.grace=4s")
                first = self.holder()
                self.kill_server() if how == "killed" else self.good("stop")
                self.start("--set", "server.grace=4s")
                self.bad(1, "is locked", "lock", "--try", "/f", "--", "true")
                self.assertEqual(self.let_go(first), (0, ""))
                self.good("lock", "--try", "/f", "--", "true")
                self.good("stop")

    def test_a_lock_that_was_lost_is_reported(self):
        self.start("--set", "server.grace=1s")
        first = self.holder()
        first.send_signal(signal.SIGSTOP)
        self.kill_server()
        self.start("--set", "server.grace=1s")
        self.good("lock", "/f", "--", "true")
        first.send_signal(signal.SIGCONT)
        code, err = self.let_go(first)
        self.assertEqual(code, 1)
        self.assertIn("was lost", err)


class Demo(Case):
    def demo(self, **more):
        return subprocess.Popen([FOREBAY, "demo", "--dir", self.temp], env=self.env,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)

    def left(self):
        return [n for n in os.listdir(self.temp) if n.startswith("forebay-demo-")]

    def test_it_runs_and_cleans_up(self):
        process = self.demo()
        self.running.append(process)
        out, err = process.communicate(timeout=150)
        self.assertEqual(process.returncode, 0, err)
        self.assertIn(b"Every byte was as written", out)
        self.assertIn(b"through Forebay", out)
        self.assertEqual(self.left(), [])

    def test_interrupted_it_cleans_up_too(self):
        process = self.demo(start_new_session=True)
        self.running.append(process)
        where = lambda: self.left() and os.path.join(self.temp, self.left()[0], "data/shared")
        wait_for("work", lambda: where() and os.path.exists(where()))
        os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=SOON)
        self.assertEqual(process.returncode, 130)
        self.assertEqual(self.left(), [])


class Bench(Case):
    def left(self):
        return [n for n in os.listdir(self.temp) if n.startswith("forebay-bench-")]

    def test_rows_are_verified_and_nothing_is_left(self):
        rows = ["stream-write", "stream-write-alloc", "stream-read", "stream-tcp", "small-8", "memory"]
        saved = self.path("saved.json")
        out = self.good("bench", "forward", "--quick", "--json", "--dir", self.temp, "--save", saved,
                        "--only", ",".join(rows))
        report = json.loads(out)
        self.assertEqual([row["id"] for row in report["rows"]], rows)
        for row in report["rows"]:
            self.assertTrue(row["verified"], row)
            self.assertGreater(row["ours"], 0, row)
        with open(saved) as f:
            self.assertEqual(json.load(f), report)
        self.assertEqual(self.left(), [])

    def test_the_simulation_says_the_same_twice(self):
        run = lambda: json.loads(self.good("bench", "ibcs", "--json", "--dir", self.temp, "--only", "ior-write"))
        report = run()
        self.assertTrue(report["rows"][0]["verified"])
        self.assertGreater(report["rows"][0]["ratio"], 1)
        self.assertEqual(run(), report)

    def test_a_row_that_there_is_not(self):
        """It is told before any other is measured, with those that there are."""
        for suite, row in [("base", "rpc-unix"), ("forward", "small-8"), ("mpi", "btio"), ("posix", "preload-4k"),
                           ("ibcs", "ior-write"), ("state", "fetch-add")]:
            begin = time.monotonic()
            done = self.forebay("bench", suite, "--only", f"{row},nosuch", "--dir", self.temp)
            self.assertEqual((done.code, done.out), (2, ""), done)
            self.assertIn("bench: unknown row 'nosuch'; there are ", done.err)
            self.assertRegex(done.err, f"[ ,]{row}[,\n]")
            self.assertNotIn("...", done.err)
            self.assertLess(time.monotonic() - begin, 5)
        self.assertEqual(self.left(), [])

    def test_interrupted_it_cleans_up(self):
        process = subprocess.Popen([FOREBAY, "bench", "forward", "--dir", self.temp, "--only", "small-8",
                                    "--seconds", "50"], env=self.env, start_new_session=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.running.append(process)
        where = lambda: self.left() and os.path.join(self.temp, self.left()[0], "small-8/export/load.shared")
        wait_for("work", lambda: where() and os.path.exists(where()))
        process.terminate()
        process.communicate(timeout=SOON)
        self.assertEqual(process.returncode, 143)
        self.assertEqual(self.left(), [])


if __name__ == "__main__":
    unittest.main()
