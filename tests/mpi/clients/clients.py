#!/usr/bin/python3
"""Real clients of MPI-IO, unmodified: alone, and through a server; what they wrote is read by serial
tools and compared. See README.md."""

import array
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True  # the tree stays clean
from job import HERE, MPIS, SOON, JobCase, main

# As in field.h.
EXTENT = (47, 41, 33)
FIELD = array.array("d", (z * 10000 + y * 100 + x + 0.25 for z in range(EXTENT[0])
                          for y in range(EXTENT[1]) for x in range(EXTENT[2])))
FIELD_BYTES = len(FIELD) * FIELD.itemsize


def python_package(name):
    """Debian's, which is the one that was built for Open MPI."""
    return os.path.join("/usr/lib/python3/dist-packages", name)


class Client:
    """A client in a class of its own says which MPIs it is for, and overrides what it needs."""

    mpis = MPIS
    ranks = 4
    needs = ()  # files and programs
    file = "field"
    datasets = ()

    def command(self, mpi, path):
        raise NotImplementedError

    def verify(self, path):
        raise NotImplementedError

    def bytes(self):
        """That it writes, and reads, at least."""
        return len(self.datasets) * FIELD_BYTES

    def run_on(self, mpi):
        self.need(mpi, *self.needs)
        folder = os.path.join(self.data, mpi)
        os.mkdir(folder)
        path = os.path.join(folder, self.file)
        result = self.job(mpi, self.ranks, self.command(mpi, path))
        self.assertEqual(os.listdir(folder), [self.file])
        self.verify(path)
        return result

    def test_local(self):
        for mpi in self.mpis:
            with self.subTest(mpi):
                self.assertIn("local: no server is configured", self.run_on(mpi).err)

    def test_served(self):
        self.serve()
        for mpi in self.mpis:
            with self.subTest(mpi):
                before = self.moved()
                result = self.run_on(mpi)
                self.assertIn("served: below", result.err)
                for was, now in zip(before, self.moved()):
                    self.assertGreaterEqual(now - was, self.bytes())


class HdfFile(Client):
    file = "field.h5"

    def verify(self, path):
        raw = self.path("raw")
        for name in self.datasets:
            subprocess.run(["h5dump", "-d", name, "-b", "LE", "-o", raw, path], check=True,
                           capture_output=True, timeout=SOON)
            with open(raw, "rb") as file:
                self.assertTrue(file.read() == FIELD.tobytes(), f"{name} is not as it was written")


class NetcdfFile(Client):
    file = "field.nc"

    def verify(self, path):
        shown = subprocess.run(["ncdump", "-p", "9,17", path], check=True, capture_output=True,
                               timeout=SOON, text=True).stdout
        data = shown[shown.index("\ndata:"):]
        for name in self.datasets:
            values = re.search(rf"\n {name} =([^;]*);", data).group(1)
            self.assertTrue(array.array("d", map(float, values.split(","))) == FIELD,
                            f"{name} is not as it was written")


class Hdf5(HdfFile, JobCase):
    needs = ("h5dump",)
    datasets = ("contiguous_independent", "contiguous_collective", "chunked_independent",
                "chunked_collective", "deflated_collective", "planes_independent",
                "planes_collective", "chunked_planes_collective")

    def bytes(self):
        return (len(self.datasets) - 1) * FIELD_BYTES  # one is compressed

    def command(self, mpi, path):
        return [self.program(f"hdf5_field_{mpi}"), path]


class H5py(HdfFile, JobCase):
    mpis = ("openmpi",)
    needs = ("h5dump", python_package("h5py/_debian_h5py_mpi"), python_package("mpi4py"))
    datasets = ("contiguous_independent", "contiguous_collective", "chunked_independent",
                "chunked_collective")

    def command(self, mpi, path):
        return ["/usr/bin/python3", "-m", "mpi4py", os.path.join(HERE, "h5py_field.py"), path]


class Pnetcdf(NetcdfFile, JobCase):
    mpis = ("openmpi",)
    needs = ("ncdump",)
    datasets = ("vara_all", "vara", "varn_all", "iput_vara", "records_all", "records_iput")

    def command(self, mpi, path):
        return [self.program("pnetcdf_field_openmpi"), path]


class Netcdf4(NetcdfFile, JobCase):
    mpis = ("openmpi",)
    needs = ("ncdump",)
    datasets = ("contiguous_independent", "contiguous_collective", "chunked_independent",
                "chunked_collective")

    def command(self, mpi, path):
        return [self.program("netcdf_field_openmpi"), path]


class Mpi4py(Client, JobCase):
    mpis = ("openmpi",)
    needs = (python_package("mpi4py"),)
    ranks = 3
    # As in mpi4py_file.py.
    RECORD, ROUNDS = 64, 16

    def command(self, mpi, path):
        return ["/usr/bin/python3", "-m", "mpi4py", os.path.join(HERE, "mpi4py_file.py"), path]

    def bytes(self):
        return (self.ROUNDS + 2) * self.ranks * self.RECORD + self.ranks * 32 * 4

    def verify(self, path):
        records = [bytes([rank + 1]) * self.RECORD for rank in range(self.ranks)]
        one_of_each = len(records) * self.RECORD
        with open(path, "rb") as file:
            self.assertEqual(file.read(self.ROUNDS * one_of_each), b"".join(records) * self.ROUNDS)
            in_any_order = file.read(one_of_each)
            self.assertEqual(sorted(in_any_order[at:at + self.RECORD]
                                    for at in range(0, one_of_each, self.RECORD)), records)
            self.assertEqual(file.read(one_of_each), b"".join(records))
            numbers = array.array("i", file.read())
        self.assertEqual(list(numbers), [100 * rank + i for rank in range(self.ranks)
                                         for i in range(4) for _ in range(8)])


class Fortran(Client, JobCase):
    ranks = 3

    def command(self, mpi, path):
        return [self.program(f"fortran_file_{mpi}"), path]

    def bytes(self):
        return 51 * 7 * self.ranks * 4  # as in fortran_file.f90

    def verify(self, path):
        with open(path, "rb") as file:
            numbers = array.array("i", file.read())
        self.assertEqual(list(numbers), list(range(51 * 7 * self.ranks)))


if __name__ == "__main__":
    main()
