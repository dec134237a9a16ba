"""MPI jobs as a user starts them, with Forebay's MPI-IO preloaded, in a scratch folder."""

import os
import shutil
import signal
import subprocess
import sys
import unittest
import uuid

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "../../system")]
from rig import BIN, ROOT, SOON, Case, Result, wait_for  # noqa: F401 (for the tests, too)

import launch

BUILD = os.path.realpath(os.path.join(BIN, ".."))
PROGRAMS = os.path.join(BUILD, "tests/mpi/clients")
MPIS = ("mpich", "openmpi")


def library(mpi):
    return launch.libraries(BUILD, mpi, 1)[0]


class JobCase(Case):
    """Runs jobs whose processes can be found again by a mark in their environment."""

    def setUp(self):
        super().setUp()
        self.mark = "FOREBAY_TEST_JOB=" + uuid.uuid4().hex
        self.env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                        TMPDIR=self.temp, PYTHONDONTWRITEBYTECODE="1",
                        OMPI_MCA_mpi_yield_when_idle="1",
                        OMPI_MCA_hwloc_base_binding_policy="none")

    def clean_up(self):
        self.end_job()
        super().clean_up()

    def need(self, mpi, *programs):
        """Skips, with what is missing, unless the MPI and the programs are here."""
        for file in (f"mpiexec.{mpi}", library(mpi), *programs):
            if not shutil.which(file) and not os.path.exists(file):
                self.skipTest(f"{file} is not here")

    def program(self, name):
        path = os.path.join(PROGRAMS, name)
        if not os.access(path, os.X_OK):
            self.skipTest(f"{path} was not built: what it needs is not installed")
        return path

    def serve(self, *args):
        """Starts a server over the scratch folder, which the jobs from now on use."""
        self.start(*args)
        self.env["FOREBAY_CLIENT_SERVER"] = self.run_dir

    def moved(self):
        export = self.status()["exports"][0]
        itself = export["shortcuts"]["use"]
        return export["bytes_in"] + itself["bytes_written"], export["bytes_out"] + itself["bytes_read"]

    # ---- Jobs ----

    def begin_job(self, mpi, ranks, argv, before=()):
        name, value = self.mark.split("=")
        process = subprocess.Popen(
            [*before, *launch.command(mpi, ranks, launch.libraries(BUILD, mpi, ranks), argv)],
            env={**self.env, name: value}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, cwd=self.temp)
        self.running.append(process)
        return process

    def finish_job(self, process, limit=SOON):
        """How the job ended; a job that does not end is ended, and is a failure."""
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            self.end_job()
            process.kill()
            out, err = process.communicate()
            raise AssertionError(
                f"not done in {limit} s: {process.args}\n{out.decode()}\n{err.decode()}") from None
        self.running.remove(process)
        return Result(subprocess.CompletedProcess(process.args, process.returncode, out, err))

    def job(self, mpi, ranks, argv, limit=SOON):
        """A job that has to succeed, by our library."""
        self.env["FOREBAY_EXPLAIN"] = "1"
        result = self.finish_job(self.begin_job(mpi, ranks, argv), limit)
        self.assertEqual(result.code, 0, f"{argv}: {result}")
        return result

    def job_processes(self):
        """Of the jobs of this test, whoever started them."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    if self.mark.encode() in file.read().split(b"\0"):
                        found.append(int(pid))
            except OSError:
                pass  # it has ended, or is somebody else's
        return found

    def end_job(self):
        for pid in self.job_processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def main():
    unittest.main(verbosity=2)
