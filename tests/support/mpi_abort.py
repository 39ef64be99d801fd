"""An MPI program, by libmpi itself: prints three rows of a table, and dies as its argument says."""

import ctypes
import os
import sys


def main(how: str) -> None:
    mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
    world = ctypes.byref(ctypes.c_char.in_dll(mpi, "ompi_mpi_comm_world"))
    char = ctypes.byref(ctypes.c_char.in_dll(mpi, "ompi_mpi_char"))
    mpi.MPI_Init(None, None)
    number = ctypes.c_int()
    mpi.MPI_Comm_rank(world, ctypes.byref(number))
    rank, data = number.value, ctypes.create_string_buffer(64)
    if rank == 0:
        print("# OSU MPI Latency Test v7.4\n# Size          Latency (us)")
        print(
            "1                       1.21\n2                       1.22\n4                   "
            "    "
            "1.25"
        )
    mpi.MPI_Barrier(world)
    if how == "truncate" and rank == 0:
        mpi.MPI_Send(data, 64, char, 1, 0, world)
    elif how == "truncate":
        mpi.MPI_Recv(data, 1, char, 0, 0, world, None)
    elif how == "no such rank":
        mpi.MPI_Send(data, 1, char, 7, 0, world)
    elif rank == 1:
        _end(mpi, world, how)
    mpi.MPI_Barrier(world)
    mpi.MPI_Finalize()


def _end(mpi: ctypes.CDLL, world: object, how: str) -> None:
    if how == "abort":
        mpi.MPI_Abort(world, 3)
    elif how == "exit":
        os._exit(0)
    elif how == "segmentation fault":
        ctypes.string_at(0)
    elif how == "kill":
        os.kill(os.getpid(), 9)


if __name__ == "__main__":
    main(sys.argv[1])
