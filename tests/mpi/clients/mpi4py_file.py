"""An mpi4py program like any other: views, both kinds of pointers, non-blocking, split and collective
calls, sizes, errors. The argument is the file; a record of rank r holds the bytes r + 1."""
import sys
from array import array

from mpi4py import MPI

COMM = MPI.COMM_WORLD
RANK, RANKS = COMM.rank, COMM.size
RECORD = 64
ROUNDS = 16


def record(rank):
    return bytearray([rank + 1]) * RECORD


def interleaved(file):
    """Through a view: the records of all ranks in turn, ROUNDS times."""
    etype = MPI.BYTE
    filetype = etype.Create_vector(ROUNDS, RECORD, RECORD * RANKS).Commit()
    file.Set_view(RANK * RECORD, etype, filetype, "native")
    half = record(RANK) * (ROUNDS // 2)
    status = MPI.Status()
    file.Write_all(half, status)
    assert status.Get_count(MPI.BYTE) == len(half)
    file.Write_all_begin(half)
    file.Write_all_end(half)
    assert file.Get_position() == ROUNDS * RECORD
    disp, _, view_type, name = file.Get_view()
    assert (disp, name) == (RANK * RECORD, "native")
    view_type.Free()
    file.Seek(0)
    back = bytearray(ROUNDS * RECORD)
    file.Read_all(back)
    assert back == record(RANK) * ROUNDS
    filetype.Free()


def shared(file, base):
    """Behind it, by the shared pointer: one record of each rank in any order, then in ranks' order."""
    file.Set_view(base, MPI.BYTE, MPI.BYTE, "native")
    file.Seek_shared(0)
    file.Write_shared(record(RANK))
    COMM.Barrier()
    assert file.Get_position_shared() == RANKS * RECORD
    COMM.Barrier()
    file.Write_ordered(record(RANK))
    back = bytearray(RECORD)
    file.Seek_shared(RANKS * RECORD)
    file.Read_ordered(back)
    assert back == record(RANK)


def nonblocking(file, base):
    """Behind that: requests in an array, with one of a message and a null one among them."""
    file.Set_view(base, MPI.INT, MPI.INT, "native")
    values = [array("i", [100 * RANK + i] * 8) for i in range(4)]
    requests = [file.Iwrite_at((RANK * 4 + i) * 8, values[i]) for i in range(4)]
    empty = bytearray(1)
    requests.append(MPI.REQUEST_NULL)
    requests.append(COMM.Irecv(empty, source=(RANK + 1) % RANKS, tag=3))
    requests.append(COMM.Isend(bytearray(1), dest=(RANK - 1) % RANKS, tag=3))
    MPI.Request.Waitall(requests)
    file.Sync()
    COMM.Barrier()
    other = (RANK + 1) % RANKS
    back = array("i", [0] * 32)
    request = file.Iread_at(other * 32, back)
    while not request.Test():
        pass
    assert list(back) == [100 * other + i for i in range(4) for _ in range(8)]
    file.Iread_at_all(RANK * 32, back).Wait()
    assert list(back) == [100 * RANK + i for i in range(4) for _ in range(8)]


def atomic(file):
    file.Set_atomicity(True)
    assert file.Get_atomicity()
    file.Set_atomicity(False)


def errors(path):
    try:
        MPI.File.Open(COMM, path + ".none", MPI.MODE_RDONLY)
    except MPI.Exception as error:
        assert error.Get_error_class() == MPI.ERR_NO_SUCH_FILE, error
    else:
        raise AssertionError("a file that is not there was opened")


def main():
    path = sys.argv[1]
    file = MPI.File.Open(COMM, path, MPI.MODE_CREATE | MPI.MODE_RDWR | MPI.MODE_EXCL)
    block = ROUNDS * RANKS * RECORD
    interleaved(file)
    shared(file, block)
    nonblocking(file, block + 2 * RANKS * RECORD)
    atomic(file)
    total = block + 2 * RANKS * RECORD + RANKS * 32 * 4
    assert file.Get_size() == total, file.Get_size()
    file.Preallocate(total + 4096)
    assert file.Get_size() == total + 4096
    file.Set_size(total)
    assert file.Get_group().Get_size() == RANKS
    file.Close()
    errors(path)


main()
