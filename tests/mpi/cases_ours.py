#!/usr/bin/env python3
"""mpiio_cases on Forebay's MPI-IO: cases_ours.py BUILD MPI"""
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import launch

build, mpi = sys.argv[1:3]
with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="forebay-cases-") as scratch:
    words = [os.path.join(build, "bin", f"mpiio_cases_{mpi}"), scratch]
    code, text = launch.run(
        launch.command(mpi, 2, launch.libraries(build, mpi, 2), words), 90)
print(text)
sys.exit(code)
