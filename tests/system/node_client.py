#!/usr/bin/python3
"""A program that uses libforebay, told what to do line by line: JSON in, JSON out (nodes.py).

Files stay open until they are closed, so what is written and not committed is seen by others as the
server has it.
"""

import ctypes
import json
import os
import random
import sys

sys.dont_write_bytecode = True
from storm_record import storm_record

fb = ctypes.CDLL(os.path.join(os.environ["FOREBAY_TEST_LIB"], "libforebay.so"), use_errno=True)
fb.fb_error.restype = ctypes.c_char_p
for name in ("fb_pread", "fb_pwrite"):
    function = getattr(fb, name)
    function.restype = ctypes.c_int64
    function.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]
for name in ("fb_close", "fb_fsync"):
    getattr(fb, name).argtypes = [ctypes.c_void_p]
fb.fb_unlink.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
PLACE = ctypes.POINTER(ctypes.c_uint64)
fb.fb_append.restype = ctypes.c_int64
fb.fb_append.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, PLACE]
fb.fb_attr_create.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64]
fb.fb_attr_fetch_add.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64, PLACE]
fb.fb_lock.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64]
fb.fb_unlock.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64]


class Failed(Exception):
    pass


def check(result):
    if result < 0:
        code, text = ctypes.get_errno(), fb.fb_error().decode(errors="replace")
        raise Failed(f"{os.strerror(code)}: {text}")
    return result


store = ctypes.c_void_p()
files = {}


def connect():
    check(fb.fb_connect(None, None, ctypes.byref(store)))


def opened(path):
    if path not in files:
        file = ctypes.c_void_p()
        mode = 0o444 if path.endswith(".readonly") else 0o644
        check(fb.fb_open(store, path.encode(), os.O_RDWR | os.O_CREAT, mode, None,
                         ctypes.byref(file)))
        files[path] = file
    return files[path]


def storm(out, seed, paths, adds, appends):
    """So many of each, in random order, to random files. What each was told goes to `out`, a line
    for each, before the next one begins: ("add", file, value) or ("append", file, place, number)."""
    rng = random.Random(seed)
    kinds = ["add"] * adds + ["append"] * appends
    rng.shuffle(kinds)
    number = ctypes.c_uint64()
    with open(out, "w", encoding="utf-8") as told:
        for i, kind in enumerate(kinds):
            which = rng.randrange(len(paths))
            file = opened(paths[which])
            if kind == "add":
                check(fb.fb_attr_fetch_add(file, b"next", 1, ctypes.byref(number)))
                told.write(f"add {which} {number.value}\n")
            else:
                record = storm_record(seed, i)
                check(fb.fb_append(file, record, len(record), ctypes.byref(number)))
                told.write(f"append {which} {number.value} {i}\n")
    return len(kinds)


def do(what, path, offset=0, data="", size=0, more=0):
    if what == "storm":
        return storm(path, offset, data, size, more)
    if what == "write":
        return check(fb.fb_pwrite(opened(path), data.encode(), len(data), offset))
    number = ctypes.c_uint64()
    if what == "append":
        check(fb.fb_append(opened(path), data.encode(), len(data), ctypes.byref(number)))
        return number.value
    if what == "create":
        return check(fb.fb_attr_create(opened(path), data.encode(), 0))
    if what == "add":
        check(fb.fb_attr_fetch_add(opened(path), data.encode(), size, ctypes.byref(number)))
        return number.value
    if what == "lock":  # exclusive; size: FB_WAIT or 0
        return check(fb.fb_lock(opened(path), 2 | size, offset, 10))
    if what == "unlock":
        return check(fb.fb_unlock(opened(path), offset, 10))
    if what == "read":
        buffer = ctypes.create_string_buffer(size)
        count = check(fb.fb_pread(opened(path), buffer, size, offset))
        return buffer.raw[:count].decode()
    if what == "fsync":
        return check(fb.fb_fsync(opened(path)))
    if what == "close":
        return check(fb.fb_close(files.pop(path)))
    return check(fb.fb_unlink(store, path.encode()))


def main():
    connect()
    print(json.dumps({"result": "ready"}), flush=True)
    for line in sys.stdin:
        try:
            answer = {"result": do(*json.loads(line))}
        except Failed as failed:
            answer = {"error": str(failed)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    try:
        main()
    except Failed as failed:
        print(json.dumps({"error": str(failed)}), flush=True)
