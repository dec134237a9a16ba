"""An h5py program like any other (driver='mpio'): the field of field.h in contiguous and chunked
datasets, written independently and collectively, read back across. The argument is the file."""
import sys

import h5py
import numpy
from mpi4py import MPI

SHAPE = (47, 41, 33)
COMM = MPI.COMM_WORLD
RANK, RANKS = COMM.rank, COMM.size


def part(extent):
    return slice(extent * RANK // RANKS, extent * (RANK + 1) // RANKS)


def write(file, field, layout, collective):
    chunks = (10, 16, 8) if layout == "chunked" else None
    name = f"{layout}_{'collective' if collective else 'independent'}"
    dataset = file.create_dataset(name, SHAPE, dtype="<f8", chunks=chunks)
    mine = (slice(None), part(SHAPE[1]))
    if collective:
        with dataset.collective:
            dataset[mine] = field[mine]
    else:
        dataset[mine] = field[mine]


def main():
    z, y, x = numpy.indices(SHAPE)
    field = z * 10000.0 + y * 100 + x + 0.25
    with h5py.File(sys.argv[1], "w", driver="mpio", comm=COMM) as file:
        file.atomic = False
        for layout in ("contiguous", "chunked"):
            for collective in (False, True):
                write(file, field, layout, collective)
        file.attrs["title"] = "a field"
    with h5py.File(sys.argv[1], "r", driver="mpio", comm=COMM) as file:
        across = (part(SHAPE[0]), slice(None), slice(None))
        for name in file:
            assert (file[name][across] == field[across]).all(), name
            with file[name].collective:
                assert (file[name][across] == field[across]).all(), name


main()
