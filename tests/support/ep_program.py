"""Stand-ins for ep_bench and the tests of DeepEP and UCCL-EP, which print what their sources do.

Ranks meet over TCP as torch's do, at MASTER_ADDR and MASTER_PORT, and the debug lines of each are
those of NCCL in its environment. Started as ``ep_program.py PROGRAM OPTIONS``.

While a host has the file TUNE in /run/standin, test_internode tunes its combine, as it does before
its last result.
"""

import contextlib
import fcntl
import os
import socket
import struct
import sys
import time
from multiprocessing import Process
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.paths import DATA, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDINGS = DATA / "corpus/ep"
SCRIPTS = ("test_ep", "test_internode", "test_intranode", "test_low_latency")
_GIN = {
    "IB": "GIN/Plugin: Assigned plugin GIN_IB_GDAKI type 3 to comm",
    "AWS Libfabric": "GIN/Plugin: Assigned plugin Libfabric_GDAKI type 5 to comm",
    "Socket": "GIN/Plugin: Failed to initialize any GIN plugin",
}
_NO_GIN = _GIN["Socket"]
TUNE = Path("/run/standin/TUNE")
TUNING = "[tuning] SMs 24, NVL chunk 4, RDMA chunk 8, "
UNNAMED = "?"
"""The node of a rank that does not ask for it."""
_SIOCGIFADDR = 0x8915


def made(folder: Path) -> Path:
    """Make the programs in a folder: one that is found by its name, and scripts of Python."""
    module = "tests.support.ep_program"
    program = folder / "ep_bench"
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m {module} ep_bench "$@"\n'
    )
    program.chmod(0o755)
    for name in SCRIPTS:
        text = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom {module} import main\n"
        (folder / f"{name}.py").write_text(f"{text}sys.exit(main([{name!r}, *sys.argv[1:]]))\n")
    return folder


def debug(rank: int, ranks: int, nodes: int) -> None:
    """Write what NCCL says of its set-up into this process's file."""
    network = os.environ["NCCL_NET"]
    gin = _NO_GIN if os.environ.get("NCCL_GIN_TYPE") == "0" else _GIN[network]
    lines = (
        "NCCL version 2.30.7+cuda13.0",
        f"Using network {network}",
        gin,
        f"comm 0x55 rank {rank} nRanks {ranks} nNodes {nodes} localRanks 1 localRank 0 MNNVL 0",
    )
    host, pid = socket.gethostname(), os.getpid()
    path = os.environ.get("NCCL_DEBUG_FILE", "/dev/stdout")
    path = path.replace("%h", host).replace("%p", str(pid))
    with Path(path).open("a", encoding="utf-8") as file:
        file.writelines(f"{host}:{pid}:{pid} [0] NCCL INFO {line}\n" for line in lines)


def recording(name: str, ranks: int) -> str:
    """Return what a recording holds, but for the debug lines, of so many ranks."""
    text = (RECORDINGS / f"{os.environ.get('STANDIN_RECORDING', name)}.txt").read_text()
    kept = [line for line in text.splitlines() if " NCCL INFO " not in line]
    return "\n".join(kept).replace("across 16 ranks", f"across {ranks} ranks") + "\n"


def say(text: str) -> None:
    for line in text.splitlines(keepends=True):
        sys.stdout.write(line)
        sys.stdout.flush()


def ep_bench(given: dict[str, str]) -> int:
    """Print a summary on rank 0, as it does whose algorithm is asked for."""
    rank, ranks = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "SIZE"))
    nodes = ranks // int(os.environ["OMPI_COMM_WORLD_LOCAL_SIZE"])
    if int(given["--experts"]) % ranks:
        say(f"Error: num_experts ({given['--experts']}) must be divisible by nRanks ({ranks})\n")
        return 1
    debug(rank, ranks, nodes)
    usual = {"ll": "ep-bench-low-latency", "ht": "ep-bench-high-throughput"}
    text = recording(usual[given["--algorithm"]], ranks)
    if rank:  # the true ranks leave together, with one status
        return 0
    say(text)
    return 2 if "FAILED" in text else 0


def meet(rank: int, ranks: int, node: str) -> set[str]:
    """Wait until all ranks have come to the first one, which is where MASTER_ADDR says.

    `node`: what this rank calls its node; returns the names that the first rank was told.
    """
    place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if rank:
        with connected(place) as line:
            line.sendall(f"{rank} {node}".encode())
            assert line.recv(1) == b"!"
        return set()
    with socket.create_server(("", place[1])) as listening:
        others = [listening.accept()[0] for _ in range(ranks - 1)]
        come = dict(other.recv(64).decode().split() for other in others)
        assert {*map(int, come)} == {*range(1, ranks)}, come
        for other in others:
            other.sendall(b"!")
            other.close()
    return {node, *come.values()}


def address_of_node() -> str:
    """Return what tells nodes apart for UCCL: the address of the first interface that may be used.

    As `get_oob_ip` of its include/util/net.h: by NCCL's variable, unless it has one of its own.
    """
    wanted = os.environ.get("UCCL_SOCKET_IFNAME") or os.environ.get("NCCL_SOCKET_IFNAME", "^lo")
    names = tuple(wanted.lstrip("^=").split(","))
    for _, name in socket.if_nameindex():
        found = name in names if "=" in wanted[:2] else name.startswith(names)
        if found != (wanted[0] == "^"):
            with contextlib.suppress(OSError), socket.socket() as asking:
                request = struct.pack("256s", name.encode())
                return socket.inet_ntoa(fcntl.ioctl(asking, _SIOCGIFADDR, request)[20:24])
    raise LookupError(f"no interface of {wanted}")


def connected(place: tuple[str, int]) -> socket.socket:
    """Connect to the first rank, which may not listen yet."""
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection(place, timeout=30)
        time.sleep(0.1)  # until it listens


def test(name: str, rank: int, ranks: int, nodes: int, node: str) -> None:
    """Meet the other ranks, and print this one's lines. `node`: UCCL's name of its node."""
    debug(rank, ranks, nodes)
    found = meet(rank, ranks, node)
    assert rank or node == UNNAMED or len(found) == nodes, found
    if name == "test_internode" and node != UNNAMED:  # UCCL-EP's
        internode(is_first=rank % (ranks // nodes) == 0)
        return
    if "STANDIN_RECORDING" in os.environ:
        say(recording("", ranks) if rank == 0 else "")
        return
    row, rest = f"EP: {rank:3}/{ranks} |", "900 GB/s, 100.000 us"
    size = 93_000_000 + rank * 1_000_000  # a higher rank is faster
    rate = f"{size / 1.5e-3 / 1e9:.0f} GB/s (SO), {size / 1.5e-3 / 1e9:.0f} GB/s (SU)"
    lines = {
        "test_ep": (
            f"   * {row} dispatch: {rate}, 1500.000 us, {size} bytes | copy: {rest}\n"
            f"   @ {row} combine: {rate}, 1500.000 us, {size} bytes | reduce: {rest}\n"
        ),
        "test_low_latency": (
            f"[rank {rank}] Dispatch bandwidth: {49 + rank}.19 GB/s, avg_t=308.45 us | "
            f"Combine bandwidth: {65 + rank}.34 GB/s, avg_t=449.38 us\n"
        ),
    }
    say(lines[name])


def internode(*, is_first: bool) -> None:
    """Measure dispatch, and later combine: the first rank of each node prints."""
    rates = "transmit: 1234.56 us, notify: 21.00 us, BW: 43.51 GB/s (RDMA), 142.49 GB/s (NVL)"
    printed = say if is_first else str
    printed(f"[tuning] Best dispatch (FP8): SMs 24, NVL chunk 8, RDMA chunk 32, {rates}\n")
    while TUNE.exists():
        printed(f"{TUNING}{rates} \n")
        time.sleep(0.05)  # as long as a measurement may take
    printed(f"[tuning] Best combine: SMs 24, NVL chunk 4, RDMA chunk 12, {rates}\n")


def by_node(name: str, given: dict[str, str]) -> int:
    """Start this node's ranks, as torch.multiprocessing.spawn does: RANK is the node."""
    node, nodes = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    count = int(given["--num-processes"])
    if node == 0 and name == "test_ep":
        say("Config:\n > Testing with use_fp8_dispatch=1 do_expand=0 ...\n")
    ranks = [
        Process(target=test, args=(name, node * count + local, nodes * count, nodes, UNNAMED))
        for local in range(count)
    ]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    return max(rank.exitcode or 0 for rank in ranks)


def by_rank(name: str, given: dict[str, str]) -> int:
    """Be one rank, as below torchrun."""
    assert "--num-processes" not in given
    rank, ranks, local, per_node = (
        int(os.environ[key]) for key in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    )
    assert rank % per_node == local
    test(name, rank, ranks, ranks // per_node, address_of_node())
    return 0


def main(words: list[str]) -> int:
    name, *options = words
    following = [*options[1:], ""]
    given = {
        word: value for word, value in zip(options, following, strict=True) if word[:2] == "--"
    }
    if name == "ep_bench":
        return ep_bench(given)
    start: Callable[[str, dict[str, str]], int] = by_node if "--num-processes" in given else by_rank
    return start(name, given)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
