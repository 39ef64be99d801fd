"""Times torch.distributed's all_reduce: one process for each GPU, started by mpirun, torchrun or srun.

It measures as all_reduce_bench.py of stas00/ml-engineering does, and its copy in
modal-labs/multinode-training-guide: some warm-ups, then all trials back to back between two events; the
payload over the mean time of one of them is algbw, averaged over the ranks, and busbw is 2(n-1)/n of it. It
also prints what they do.

    mpirun -np 2 python3 torch_all_reduce.py --master 10.0.0.1
    mpirun -np 2 python3 torch_all_reduce.py --backend gloo --rows 1000
    torchrun --nproc-per-node 8 torch_all_reduce.py --size 1048576 --size 4294967296

It stands alone: Python 3.8 or later and torch.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}
# Rank, number of ranks, and rank on its host: Open MPI, MPICH and Intel MPI, torchrun, srun.
_STARTERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)
_NO_TORCH = 3


class Place(NamedTuple):
    """Which process this is."""

    rank: int
    ranks: int
    local: int


def place(environment: Mapping[str, str]) -> Place:
    """Read who started this process, and as what; alone if nobody did."""
    for rank, ranks, local in _STARTERS:
        if rank in environment and ranks in environment:
            return Place(int(environment[rank]), int(environment[ranks]), int(environment.get(local, "0")))
    return Place(0, 1, 0)


def options(words: Sequence[str], environment: Mapping[str, str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--columns", type=int, default=2_000)
    parser.add_argument("--size", dest="sizes", type=int, action="append", help="bytes, instead; repeatable")
    parser.add_argument("--dtype", choices=sorted(WIDTHS), default="float32")
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl")
    parser.add_argument("--master", default=environment.get("MASTER_ADDR", "127.0.0.1"), help="of rank 0")
    parser.add_argument("--port", type=int, default=int(environment.get("MASTER_PORT", "29500")))
    return parser.parse_args(words)


def payload(size: int) -> str:
    """Write a payload so that it can be read back exactly: ``4.0GB`` as the others do, else in bytes."""
    return f"{size / 1e9}GB" if size % 10**8 == 0 else f"{size}B"


def sentences(size: int, trials: int, ranks: int, algbw: float) -> str:
    """Report one payload; `algbw` is in bytes per second."""
    busbw = algbw * 2 * (ranks - 1) / ranks
    what = f"all_reduce with a {payload(size)} payload"
    return (
        f"The average bandwidth of {what} ({trials} trials, {ranks} ranks):\n"
        f" algbw: {algbw / 1e9:.3f} GBps ({algbw * 8 / 1e9:.1f} Gbps)\n"
        f" busbw: {busbw / 1e9:.3f} GBps ({busbw * 8 / 1e9:.1f} Gbps)\n"
    )


def header(trials: int, warmup: int, ranks: int) -> str:
    """Begin the report of several payloads."""
    return (
        f"The average bandwidth of all_reduce over {ranks} ranks ({warmup} warmups / {trials} trials):\n\n"
        "| payload |    busbw   |    algbw   |\n| ------: | ---------: | ---------: |\n"
    )


def row(size: int, ranks: int, algbw: float) -> str:
    """Report one of several payloads."""
    busbw = algbw * 2 * (ranks - 1) / ranks
    return f"| {_binary(size)} | {_rate(busbw)} | {_rate(algbw)} |\n"


def _binary(size: int) -> str:
    for name, unit in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size and size % unit == 0:
            return f"{size // unit}{name}"
    return f"{size}B"


def _rate(value: float) -> str:
    return f"{value / 1e9:.3f}GBps" if value >= 1e9 else f"{value / 1e6:.3f}MBps"


class Bench:
    """The measurement itself, in one process of several."""

    def __init__(self, torch: Any, asked: argparse.Namespace, where: Place) -> None:
        self._torch, self._asked = torch, asked
        self._distributed = importlib.import_module("torch.distributed")
        self._cuda = asked.backend == "nccl"
        if self._cuda:
            self.device = torch.device("cuda", where.local % max(torch.cuda.device_count(), 1))
            torch.cuda.set_device(self.device)
        else:
            self.device = torch.device("cpu")
        master = f"[{asked.master}]" if ":" in asked.master else asked.master
        self._distributed.init_process_group(
            asked.backend,
            init_method=f"tcp://{master}:{asked.port}",
            rank=where.rank,
            world_size=where.ranks,
        )

    def algbw(self, shape: Sequence[int]) -> float:
        """Measure one payload, in bytes per second."""
        asked, torch = self._asked, self._torch
        data = torch.rand(*shape, dtype=torch.float32).to(getattr(torch, asked.dtype)).to(self.device)
        for _ in range(asked.warmup):
            self._distributed.all_reduce(data)
        self._together()
        seconds = self._timed(data) / asked.trials
        self._together()
        mean = torch.tensor([data.numel() * WIDTHS[asked.dtype] / seconds], dtype=torch.float64)
        mean = mean.to(self.device)
        self._distributed.all_reduce(mean)
        return float(mean.item()) / int(self._distributed.get_world_size())

    def _timed(self, data: Any) -> float:
        """Return the seconds of all trials."""
        if not self._cuda:
            begun = time.perf_counter()
            self._trials(data)
            return time.perf_counter() - begun
        events = [self._torch.cuda.Event(enable_timing=True) for _ in range(2)]
        events[0].record()
        self._trials(data)
        events[1].record()
        self._torch.cuda.synchronize()
        return float(events[0].elapsed_time(events[1])) / 1e3

    def _trials(self, data: Any) -> None:
        for _ in range(self._asked.trials):
            self._distributed.all_reduce(data)

    def _together(self) -> None:
        """Wait until all ranks are here, and their GPUs have nothing left to do."""
        self._distributed.barrier()
        if self._cuda:
            self._torch.cuda.synchronize()

    def close(self) -> None:
        """End together."""
        self._together()
        self._distributed.destroy_process_group()


def versions(torch: Any) -> str:
    """Return the versions of what is measured with."""
    nccl = ".".join(str(part) for part in torch.cuda.nccl.version())
    return f"- software: torch={torch.__version__}, cuda={torch.version.cuda}, nccl={nccl}\n"


def measure(bench: Bench, asked: argparse.Namespace, where: Place) -> None:
    """Measure everything, and report it as rank 0."""
    if asked.sizes is None:
        size = asked.rows * asked.columns * WIDTHS[asked.dtype]
        algbw = bench.algbw((asked.rows, asked.columns))
        _say(where, sentences(size, asked.trials, where.ranks, algbw))
        return
    _say(where, header(asked.trials, asked.warmup, where.ranks))
    for size in asked.sizes:
        _say(where, row(size, where.ranks, bench.algbw((size // WIDTHS[asked.dtype],))))


def _say(where: Place, text: str) -> None:
    if where.rank == 0:
        sys.stdout.write(text)
        sys.stdout.flush()


def main() -> int:
    """Run; gives the exit status."""
    asked, where = options(sys.argv[1:], os.environ), place(os.environ)
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        _say(where, f"ModuleNotFoundError: {error} ({sys.executable}): pip install torch\n")
        return _NO_TORCH
    bench = Bench(torch, asked, where)
    if asked.backend == "nccl":
        _say(where, versions(torch))
    measure(bench, asked, where)
    bench.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
