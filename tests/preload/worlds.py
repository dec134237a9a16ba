"""Plays worlds (tests/mount/world.py) in this process, which is under the preload.

    worlds.py VIEW PLAIN SEED OPERATIONS one|processes|threads|users
"""

import mmap
import os
import sys
import threading
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../mount"))
# pylint: disable=wrong-import-position
from world import World

USERS = [(1000, 1000, [1000, 2000]), (1001, 1001, [1001, 2000]), (1002, 2000, [])]


class PreloadWorld(World):
    """What differs is said in docs/preload.md, or is the order in which two faults are seen."""

    def alike(self, what, ours, theirs):
        # A name that is too long is seen before the folders above it are.
        if ours == "!ENAMETOOLONG" and theirs in ("!ENOENT", "!ENOTDIR", "!ELOOP", "!EACCES", "!EEXIST"):
            return True
        return super().alike(what, ours, theirs)


# Shared mappings that are written to are refused (faults.py).
mmap.ACCESS_WRITE = mmap.ACCESS_COPY


def play(view, plain, name, seed, operations, identities=None):
    sides = [os.path.join(top, name, "in") for top in (view, plain)]
    try:
        for side in sides:
            for folder in (os.path.dirname(side), side):
                os.mkdir(folder)
                os.chmod(folder, 0o777)
        PreloadWorld(*sides, seed, identities).run(operations)
        return None
    except BaseException:  # pylint: disable=broad-except
        return "".join(traceback.format_exc().splitlines(True)[-22:])


def in_processes(view, plain, seed, operations):
    children = {}
    for i in range(8):
        pid = os.fork()
        if pid == 0:
            wrong = play(view, plain, f"p{i}", seed + i, operations // 8)
            if wrong:
                print(wrong, flush=True)
            os._exit(1 if wrong else 0)
        children[pid] = i
    return [f"process {children[pid]}" for pid in list(children) if os.waitpid(pid, 0)[1] != 0]


def in_threads(view, plain, seed, operations):
    wrong = [None] * 8

    def work(i):
        wrong[i] = play(view, plain, f"t{i}", seed + i, operations // 8)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


def main():
    view, plain, seed, operations, how = sys.argv[1:]
    seed, operations = int(seed), int(operations)
    os.umask(0o022)
    if how == "processes":
        wrong = in_processes(view, plain, seed, operations)
    elif how == "threads":
        wrong = in_threads(view, plain, seed, operations)
    else:
        wrong = [play(view, plain, how, seed, operations, USERS if how == "users" else None)]
    wrong = [one for one in wrong if one]
    print("\n".join(wrong), end="")
    sys.exit(1 if wrong else 0)


main()
