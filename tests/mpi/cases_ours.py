#!/usr/bin/env python3
"""mpiio_cases on Forebay's MPI-IO:

    cases_ours.py BUILD MPI [threads|readers|nodes|striped|watched|unreserved|sessions] [--apart]
                  [--served] [--hints HINTS]

--apart: each of the two ranks (of `readers`: six; of `nodes`: two pairs) in a name space of
processes of its own, which looks to us like another node (needs root). --served: through a server.
--hints: of every file, as FOREBAY_HINTS has them."""
import argparse
import contextlib
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import launch

parser = argparse.ArgumentParser()
parser.add_argument("build")
parser.add_argument("mpi")
parser.add_argument("which", nargs="?", choices=["threads", "readers", "nodes", "striped", "watched",
                                                  "unreserved", "sessions"])
parser.add_argument("--apart", action="store_true")
parser.add_argument("--served", action="store_true")
parser.add_argument("--hints")
options = parser.parse_args()
if options.apart and os.geteuid() != 0:
    print("skipped: ranks are put apart by root only")
    sys.exit(77)
build, mpi = options.build, options.mpi
ranks = {"readers": 6, "nodes": 4}.get(options.which, 2)
spaces = 2 if options.which == "nodes" else ranks


def cases(words, variables=None, preload=()):
    program = os.path.join(build, "bin", f"mpiio_cases_{mpi}")
    variables = dict(variables or {})
    if options.hints:
        variables["FOREBAY_HINTS"] = options.hints
    env, words = launch.environment(), [program, *words]
    with contextlib.ExitStack() as stack:
        if options.apart:
            env.update(launch.between_nodes(mpi))
            words = stack.enter_context(launch.nodes(spaces))(words)
        return launch.run(
            launch.command(mpi, ranks, launch.libraries(build, mpi, ranks) + list(preload), words,
                           variables), 90, env)


def through_a_server(scratch):
    with launch.Server(build, scratch) as server:
        code, text = cases([server.data, options.which or "at-server"],
                           {"FOREBAY_CLIENT_SERVER": server.run_dir})
        return f"{text}\nserved: {code}" if code else None


def hints_that_need_a_server(scratch):
    """What FOREBAY_EXPLAIN says of them without one, and that they do something with one."""
    said = "ignored romio_ds_write=enable (writes are sieved by servers only"
    code, text = cases([scratch, "local"], {"FOREBAY_EXPLAIN": "1"})
    if code != 0 or said not in text:
        return f"{text}\nlocal: {code}, expected: {said}"
    with launch.Server(build, scratch) as server:
        code, text = cases([server.data, "served"],
                           {"FOREBAY_EXPLAIN": "1", "FOREBAY_CLIENT_SERVER": server.run_dir})
        if code != 0 or "ignored" in text or server.sieved_writes() == 0:
            return f"{text}\nserved: {code}, {server.sieved_writes()} sieved writes"
    return None


def views_that_come_again(scratch):
    """A long view is told as a whole once, to each of two aggregators, not with each call."""
    code, text = cases([scratch, "views"], {"FOREBAY_EXPLAIN": "1"})
    told = re.findall(r"/steady: .* views of this rank told in (\d+) numbers", text)
    if code != 0 or not told or int(told[0]) > 50000:
        return f"{text}\nviews: {code}, told in {told} numbers"
    return None


def stripes_that_are_reported(scratch):
    """What FOREBAY_EXPLAIN says of them, with a Store in the ranks and with one at a server."""
    library = os.path.join(build, "lib", "libforebay-test-layout.so")
    # As CephFS has it. Ours to set for the ranks; a server has it from us.
    layout = "stripe_unit=65536 stripe_count=4 object_size=4194304 pool=data"
    reported = "stripes of 65536 bytes on 4 targets as the file system says"
    ordered = ", in the order of storage targets\n"
    expected = {
        "reported": ["even parts of the region, aligned to stripes", reported + ordered],
        "wide": ["even parts of the region, aligned to stripes", reported + "\n"],
        "hinted": ["even parts of the region, aligned to stripes",
                   "stripes of 32768 bytes as hints say"],
        "kept": ["persistent, from byte 0 on", reported],
        "given": ["3 collective calls, 2 of them in two phases (collective buffering is enabled), "
                  "the last one not (no rank has data): 2 aggregators (all ranks), buffers of ",
                  "realms: as given, stripes"],
        "ends": ["not as given, since they end at byte 8192, and the call at 80000"],
        "types": ["persistent, from byte 0 on, of 3 sizes one after the other", reported]}

    def failure(folder, variables, preload):
        code, text = cases([folder, "striped"], {"FOREBAY_EXPLAIN": "1", **variables}, preload)
        lines = {name: line for line in text.splitlines(True) for name in expected
                 if f"/{name}: " in line}
        wrong = [name for name, words in expected.items()
                 if not all(word in lines.get(name, "") for word in words)]
        return f"{text}\n{folder}: {code}, not as expected: {wrong}" if code or wrong else None

    failed = failure(scratch, {"CEPH_FILE_LAYOUT": layout}, [library])
    if failed:
        return failed
    os.environ.update(LD_PRELOAD=library, CEPH_FILE_LAYOUT=layout)
    server = launch.Server(build, scratch)
    with server:
        del os.environ["LD_PRELOAD"], os.environ["CEPH_FILE_LAYOUT"]
        return failure(server.data, {"FOREBAY_CLIENT_SERVER": server.run_dir}, [])


def space_that_is_written(scratch):
    """Where the file system reserves none; in the ranks, and at a server."""
    library = os.path.join(build, "lib", "libforebay-test-unreserved.so")
    code, text = cases([scratch, "unreserved"], preload=[library])
    if code != 0:
        return f"{text}\nlocal: {code}"
    os.environ["LD_PRELOAD"] = library
    with launch.Server(build, scratch) as server:
        del os.environ["LD_PRELOAD"]
        code, text = cases([server.data, "unreserved"], {"FOREBAY_CLIENT_SERVER": server.run_dir})
        return f"{text}\nserved: {code}" if code else None


def what_was_watched(scratch):
    """When aggregators read and write, one of which is slow, or both are."""
    library = os.path.join(build, "lib", "libforebay-test-watch.so")
    stripe, targets = 65536, 2

    def watched(slow):
        folder = os.path.join(scratch, "slow" if slow else "both")
        os.mkdir(folder)
        code, text = cases([folder, "watched"],
                           {"FOREBAY_TEST_WATCH": folder, "FOREBAY_TEST_PAUSE": "60000",
                            "FOREBAY_TEST_FILES": "targets stored", **slow},
                           [library])
        calls = []
        for rank in range(ranks if code == 0 else 0):
            with open(os.path.join(folder, str(rank)), encoding="utf-8") as file:
                for line in file:
                    what, path, *numbers = line.split()
                    calls.append((rank, what, os.path.basename(path), *map(int, numbers)))
        return calls, f"{text}\n{code}" if code else None

    calls, failure = watched({"FOREBAY_TEST_SLOW": "1"})
    for what in ["write", "read"]:
        of_targets = [(rank, offset // stripe % targets, begin, end)
                      for rank, op, file, offset, begin, end, _ in calls
                      if op == what and file == "targets"]
        at_once = [(a, b) for a in of_targets for b in of_targets
                   if a[0] < b[0] and a[1] == b[1] and a[2] < b[3] and b[2] < a[3]]
        if not failure and (at_once or len(of_targets) < 4):
            failure = f"a target serves two aggregators: {what} {at_once} of {of_targets}"
    if failure or not options.apart:
        return failure
    calls, failure = watched({})
    arrived = sum(received for _, op, file, *_, received in calls
                  if op == "write" and file == "stored")
    if not failure and arrived < 2 << 20:  # of 7/8 of 4 MiB
        failure = f"only {arrived} bytes arrived while a window was written"
    return failure


with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="forebay-cases-") as scratch:
    if options.served:
        code, text, failure = 0, "", through_a_server(scratch)
    elif options.which == "striped":
        code, text, failure = 0, "", stripes_that_are_reported(scratch)
    elif options.which == "unreserved":
        code, text, failure = 0, "", space_that_is_written(scratch)
    elif options.which == "watched":
        code, text, failure = 0, "", what_was_watched(scratch)
    else:
        code, text = cases([scratch, *([options.which] if options.which else [])])
        plain = not (options.which or options.apart or options.hints)
        if plain:
            failure = hints_that_need_a_server(scratch) or views_that_come_again(scratch)
        else:
            failure = None
print(text, failure or "", sep="\n")
sys.exit(code or failure is not None)
