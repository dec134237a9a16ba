#!/usr/bin/env python3
"""mpiio_cases on Forebay's MPI-IO: cases_ours.py BUILD MPI"""
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import launch

build, mpi = sys.argv[1:3]


def cases(words, variables=None):
    program = os.path.join(build, "bin", f"mpiio_cases_{mpi}")
    return launch.run(
        launch.command(mpi, 2, launch.libraries(build, mpi, 2), [program, *words], variables), 90)


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


with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="forebay-cases-") as scratch:
    code, text = cases([scratch])
    failure = hints_that_need_a_server(scratch)
print(text, failure or "", sep="\n")
sys.exit(code or failure is not None)
