#!/usr/bin/python3
"""System tests of servers and clients that know each other by a key. See README.md."""

import os
import re
import socket
import sys
import unittest

sys.dont_write_bytecode = True  # the tree stays clean
from rig import MIB, Case, sha


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
        with open(os.path.join(self.run_dir, "forebayd.log"), encoding="utf-8") as file:
            return "\n".join(line for line in file if re.search(pattern, line))

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


if __name__ == "__main__":
    unittest.main()
