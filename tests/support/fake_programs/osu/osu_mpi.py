"""A ping-pong over the distribution's own MPI, which prints as the OSU micro-benchmarks do.

STANDIN_PARAMETER=NAME also prints which value a parameter of Open MPI has in rank 0.

Their source is in no package registry. What matters is real: ranks of Open MPI exchange messages
over the transport that its parameters name, and Open MPI itself prints which one it is.
"""

import ctypes
import ctypes.util
import os
import sys
import time
from pathlib import Path

TITLES = {
    "osu_latency": ("Latency", "# Size       Avg Latency(us)"),
    "osu_bw": ("Bandwidth", "# Size      Bandwidth (MB/s)"),
    "osu_allreduce": ("Allreduce Latency", "# Size       Avg Latency(us)"),
}
ROUNDS = 5
RTLD_GLOBAL = ctypes.RTLD_GLOBAL


class Mpi:
    """As much of MPI's C interface as it takes.

    Open MPI's handles are the addresses of its own objects.
    """

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libmpi.so.40", mode=RTLD_GLOBAL)
        self.world = ctypes.c_void_p(self._address("ompi_mpi_comm_world"))
        self.byte = ctypes.c_void_p(self._address("ompi_mpi_byte"))
        self.sum = ctypes.c_void_p(self._address("ompi_mpi_op_bor"))
        self.library.MPI_Init(None, None)

    def _address(self, name: str) -> int:
        return ctypes.addressof(ctypes.c_char.in_dll(self.library, name))

    def number(self, function: str) -> int:
        value = ctypes.c_int()
        getattr(self.library, function)(self.world, ctypes.byref(value))
        return value.value

    def parameter(self, name: str) -> int:
        """What Open MPI itself has as a whole number (MPI_T, a control variable)."""
        index, count, value = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        handle = ctypes.c_void_p()
        self.library.MPI_T_init_thread(0, ctypes.byref(count))
        self.library.MPI_T_cvar_get_index(name.encode(), ctypes.byref(index))
        into = (ctypes.byref(handle), ctypes.byref(count))
        assert self.library.MPI_T_cvar_handle_alloc(index, None, *into) == 0
        assert self.library.MPI_T_cvar_read(handle, ctypes.byref(value)) == 0
        return value.value

    def send(self, buffer: ctypes.Array[ctypes.c_char], size: int, to: int) -> None:
        self.library.MPI_Send(buffer, size, self.byte, to, 1, self.world)

    def receive(self, buffer: ctypes.Array[ctypes.c_char], size: int, sender: int) -> None:
        self.library.MPI_Recv(buffer, size, self.byte, sender, 1, self.world, None)

    def reduce(
        self, buffer: ctypes.Array[ctypes.c_char], into: ctypes.Array[ctypes.c_char], size: int
    ) -> None:
        self.library.MPI_Allreduce(buffer, into, size, self.byte, self.sum, self.world)


def main() -> None:
    """Measure each power of two of ``-m FIRST:LAST``."""
    name = Path(sys.argv[0]).name
    if "--unknown" in sys.argv:
        sys.exit("osu_bw: unrecognized option '--unknown'")
    title, columns = TITLES[name]
    first, last = map(int, sys.argv[sys.argv.index("-m") + 1].split(":"))
    rounds = int(sys.argv[sys.argv.index("-i") + 1]) if "-i" in sys.argv else ROUNDS
    mpi = Mpi()
    rank, ranks = mpi.number("MPI_Comm_rank"), mpi.number("MPI_Comm_size")
    if name != "osu_allreduce" and ranks != 2:
        if rank == 0:
            print("This test requires exactly two processes", flush=True)
        sys.exit(1)
    if rank == 0 and (parameter := os.environ.get("STANDIN_PARAMETER")):
        print(f"{parameter} is {mpi.parameter(parameter)}", flush=True)
    if rank == 0:
        print(f"\n# OSU MPI {title} Test v7.5\n# Datatype: MPI_CHAR.\n{columns}", flush=True)
    buffer, into = (ctypes.create_string_buffer(last + 1) for _ in range(2))
    size = first
    while size <= last:
        begun = time.perf_counter()
        for _ in range(rounds):
            exchange(mpi, name, rank, (buffer, into), size)
        each = (time.perf_counter() - begun) / rounds
        if rank == 0:
            figure = (
                size / each / 1e6 if name == "osu_bw" else each * 1e6 / (2 if ranks == 2 else 1)
            )
            print(f"{size:<10d}{figure:18.2f}", flush=True)
        size = 2 * size or 1
    mpi.library.MPI_Finalize()


def exchange(
    mpi: Mpi,
    name: str,
    rank: int,
    buffers: tuple[ctypes.Array[ctypes.c_char], ctypes.Array[ctypes.c_char]],
    size: int,
) -> None:
    """Do once what is measured."""
    buffer, into = buffers
    if name == "osu_allreduce":
        mpi.reduce(buffer, into, size)
    elif rank == 0:
        mpi.send(buffer, size, 1)
        mpi.receive(into, size, 1)
    else:
        mpi.receive(into, size, 0)
        mpi.send(buffer, size, 0)


if __name__ == "__main__":
    main()
