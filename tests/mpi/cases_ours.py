#!/usr/bin/env python3
"""mpiio_cases on Forebay's MPI-IO: cases_ours.py BUILD MPI [threads] [--apart] [--hints HINTS]

--apart: each of the two ranks in a name space of processes of its own, which looks to us like
another node (needs root). --hints: of every file, as FOREBAY_HINTS has them."""
import argparse
import contextlib
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import launch

parser = argparse.ArgumentParser()
parser.add_argument("build")
parser.add_argument("mpi")
parser.add_argument("which", nargs="?", choices=["threads"])
parser.add_argument("--apart", action="store_true")
parser.add_argument("--hints")
options = parser.parse_args()
if options.apart and os.geteuid() != 0:
    print("skipped: ranks are put apart by root only")
    sys.exit(77)
build, mpi = options.build, options.mpi
env = launch.environment()
variables = {"FOREBAY_HINTS": options.hints} if options.hints else {}
with contextlib.ExitStack() as stack:
    scratch = stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp",
                                                              prefix="forebay-cases-"))
    words = [os.path.join(build, "bin", f"mpiio_cases_{mpi}"), scratch]
    if options.which:
        words.append(options.which)
    if options.apart:
        env.update(launch.between_nodes(mpi))
        words = stack.enter_context(launch.nodes(2))(words)
    code, text = launch.run(
        launch.command(mpi, 2, launch.libraries(build, mpi, 2), words, variables), 90, env)
print(text)
sys.exit(code)
