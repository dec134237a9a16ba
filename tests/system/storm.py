#!/usr/bin/python3
"""Many clients count and append through several servers, which are killed all the while. README.md.

Every number must have been told once, every record must lie where its client was told, whole, and
between two records there must be nothing. In `make test` in a short form; FOREBAY_STORM=long is the
long one: 64 clients, a million fetch-and-adds and 100,000 appends.
"""

import os
import signal
import sys
import time
import unittest

sys.dont_write_bytecode = True  # the tree stays clean
import nodes
from storm_record import storm_record


class Size:
    def __init__(self, clients, adds, appends, files, pause):
        self.clients, self.adds, self.appends, self.files = clients, adds, appends, files
        self.pause = pause  # seconds between a restart and the next kill, at most

    def share(self, total, client):
        return total // self.clients + (client < total % self.clients)


SIZES = {"short": Size(16, 12000, 2400, 6, 0.5), "long": Size(64, 1_000_000, 100_000, 16, 2.0)}


class Storm(nodes.Cluster):
    NAMES = ("a", "b", "c", "d")

    def client_env(self, name):
        # Nobody may give up: the point is that nothing is unknown in the end.
        return {**super().client_env(name), "FOREBAY_CLIENT_RETRY_FOR": "5min"}

    def start_one(self, name):
        result = self.start_server(name, "--set", "cluster.patience=2min")
        self.assertEqual(result.code, 0, result)

    def test_once_each_while_servers_are_killed(self):
        size = SIZES[os.environ.get("FOREBAY_STORM", "short")]
        for name in self.NAMES:
            self.start_one(name)
        paths = [f"/shared{i}" for i in range(size.files)]
        clients = [self.client(self.NAMES[i % len(self.NAMES)]) for i in range(size.clients)]
        for path in paths:
            clients[0].do("create", path, 0, "next")
        base = self.random.randrange(1 << 32)
        began = time.monotonic()
        for i, client in enumerate(clients):
            client.say("storm", self.told(i), base + i, paths, size.share(size.adds, i),
                       size.share(size.appends, i))
        kills = self.kill_until_done(clients, size)
        took = time.monotonic() - began
        self.verify(size, base, paths)
        print(f"{size.clients} clients, {len(self.NAMES)} servers, {size.files} files: {size.adds} "
              f"fetch-and-adds and {size.appends} appends in {took:.0f} s, {kills} servers killed",
              flush=True)

    def told(self, client):
        return self.path(f"told{client}")

    def kill_until_done(self, clients, size):
        kills = 0
        pending = dict(enumerate(clients))
        while pending:
            end = time.monotonic() + self.random.uniform(0, size.pause)
            while pending and time.monotonic() < end:
                self.reap(pending)
                time.sleep(0.02)
            if not pending:
                break
            # Now and then two at once: where a file lives, and where it is asked for.
            down = self.random.sample(self.NAMES, self.random.choice((1, 1, 1, 2)))
            for name in down:
                self.end_server(name, signal.SIGKILL)
            time.sleep(self.random.choice((0, 0, 0.2)))
            for name in down:
                self.start_one(name)
            kills += len(down)
        self.assertGreater(kills, 0, "it was over before a server was killed")
        return kills

    def reap(self, pending):
        for i, client in list(pending.items()):
            if client.has_answered():
                client.hear()
                del pending[i]

    def verify(self, size, base, paths):
        numbers = [[] for _ in paths]
        records = [[] for _ in paths]
        for i in range(size.clients):
            with open(self.told(i), encoding="utf-8") as file:
                for line in file:
                    kind, which, value, *number = line.split()
                    if kind == "add":
                        numbers[int(which)].append(int(value))
                    else:
                        records[int(which)].append((int(value), base + i, int(number[0])))
        self.assertEqual(sum(map(len, numbers)), size.adds)
        self.assertEqual(sum(map(len, records)), size.appends)
        for which, path in enumerate(paths):
            values = sorted(numbers[which])
            wrong = next(((i, v) for i, v in enumerate(values) if i != v), None)
            self.assertIsNone(wrong, f"{path}: the number {wrong} (expected, got)")
            self.verify_records(path, sorted(records[which]))

    def verify_records(self, path, records):
        with open(os.path.join(self.data, path[1:]), "rb") as file:
            content = file.read()
        end = 0
        for place, seed, number in records:
            self.assertEqual(place, end, f"{path}: a gap, or two records at one place")
            record = storm_record(seed, number)
            end = place + len(record)
            self.assertTrue(content[place:end] == record, f"{path}: the record at {place} is torn")
        self.assertEqual(end, len(content), f"{path}: something behind the last record")


if __name__ == "__main__":
    unittest.main()
