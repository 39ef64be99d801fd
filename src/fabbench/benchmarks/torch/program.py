"""Times torch.distributed's all_reduce: one process per GPU, started by mpirun, torchrun or srun.

It measures like all_reduce_bench.py of stas00/ml-engineering, and its copy in
modal-labs/multinode-training-guide: a few warm-ups, then all trials back to back between two
events; algbw is the payload divided by the mean time of one trial, averaged over the ranks, and
busbw is 2(n-1)/n of it.

    mpirun -np 2 python3 torch_all_reduce.py --master 10.0.0.1
    torchrun --nproc-per-node 8 torch_all_reduce.py --size 1048576 --size 4294967296

It is standalone: it needs only Python 3.8 or later and torch.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}
# Rank, number of ranks, and local rank: Open MPI, MPICH and Intel MPI, torchrun, srun.
_RANK_VARIABLES = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)
_UNITS = {
    "GiB": 1 << 30,
    "MiB": 1 << 20,
    "KiB": 1 << 10,
    "B": 1,
}
_NO_TORCH = 3


class Process(NamedTuple):
    """One process of the job."""

    rank: int
    ranks: int
    local: int
    """Its rank on its host."""


def read_process(environment: Mapping[str, str]) -> Process:
    """Return what the launcher's variables say; without any, it is the only process."""
    for rank, ranks, local in _RANK_VARIABLES:
        if rank in environment and ranks in environment:
            return Process(
                int(environment[rank]),
                int(environment[ranks]),
                int(environment.get(local, "0")),
            )
    return Process(rank=0, ranks=1, local=0)


def options(words: Sequence[str], environment: Mapping[str, str]) -> argparse.Namespace:
    """Read the command line."""
    summary, *_ = (__doc__ or "").partition("\n")
    master = environment.get("MASTER_ADDR", "127.0.0.1")
    port = environment.get("MASTER_PORT", "29500")
    parser = argparse.ArgumentParser(description=summary)
    # The defaults are those of all_reduce_bench.py: 4 GB of float32.
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--columns", type=int, default=2_000)
    parser.add_argument(
        "--size", dest="sizes", type=int, action="append", help="bytes, instead; repeatable"
    )
    parser.add_argument("--dtype", choices=sorted(WIDTHS), default="float32")
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--master", default=master, help="of rank 0")
    parser.add_argument("--port", type=int, default=int(port))
    return parser.parse_args(words)


def header(trials: int, warmup: int, ranks: int) -> str:
    """Return the lines above the rows."""
    return (
        f"The average bandwidth of all_reduce over {ranks} ranks ({warmup} warmups / {trials} "
        "trials):\n\n"
        "| payload |    busbw   |    algbw   |\n| ------: | ---------: | ---------: |\n"
    )


def row(size: int, ranks: int, algbw: float) -> str:
    """Return the row of one payload; `algbw` is in bytes per second."""
    # Units are listed from the largest to the byte: the first one that divides the size counts.
    divisors = (unit for unit, width in _UNITS.items() if size % width == 0)
    unit = next(divisors)
    payload = size // _UNITS[unit]
    factor = 2 * (ranks - 1) / ranks
    busbw = shown(algbw * factor)
    return f"| {payload}{unit} | {busbw} | {shown(algbw)} |\n"


def shown(rate: float) -> str:
    """Return a rate, given in bytes per second, as rows have it."""
    giga = rate / 1e9
    mega = rate / 1e6
    return f"{giga:.3f}GBps" if giga >= 1 else f"{mega:.3f}MBps"


def measured(torch: Any, distributed: Any, args: argparse.Namespace, shape: Sequence[int]) -> float:
    """Measure one payload; return algbw in bytes per second."""
    dtype = getattr(torch, args.dtype)
    data = torch.rand(*shape, dtype=torch.float32)
    data = data.to(dtype).to("cuda")
    began = torch.cuda.Event(enable_timing=True)
    ended = torch.cuda.Event(enable_timing=True)
    for _ in range(args.warmup):
        distributed.all_reduce(data)
    wait(torch, distributed)
    began.record()
    for _ in range(args.trials):
        distributed.all_reduce(data)
    ended.record()
    torch.cuda.synchronize()
    milliseconds = float(began.elapsed_time(ended))
    seconds = milliseconds / 1e3 / args.trials
    wait(torch, distributed)
    payload = data.numel() * WIDTHS[args.dtype]
    algbw = payload / seconds
    total = torch.tensor([algbw], dtype=torch.float64).to("cuda")
    distributed.all_reduce(total)
    ranks = int(distributed.get_world_size())
    return float(total.item()) / ranks


def wait(torch: Any, distributed: Any) -> None:
    """Wait until all ranks have arrived and their GPUs are idle."""
    distributed.barrier()
    torch.cuda.synchronize()


def main() -> int:
    """Run; return the exit status."""
    args = options(sys.argv[1:], os.environ)
    rank, ranks, local = read_process(os.environ)

    def report(text: str) -> None:
        if rank == 0:
            sys.stdout.write(text)
            sys.stdout.flush()

    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        report(f"ModuleNotFoundError: {error} ({sys.executable}): pip install torch\n")
        return _NO_TORCH
    # Where a launcher shows each rank its own GPU alone, that is number 0.
    torch.cuda.set_device(local % max(torch.cuda.device_count(), 1))
    distributed = importlib.import_module("torch.distributed")
    master = f"[{args.master}]" if ":" in args.master else args.master
    where = f"tcp://{master}:{args.port}"
    distributed.init_process_group("nccl", init_method=where, rank=rank, world_size=ranks)
    nccl = ".".join(map(str, torch.cuda.nccl.version()))
    cuda = torch.version.cuda
    report(f"- software: torch={torch.__version__}, cuda={cuda}, nccl={nccl}\n")
    report(header(args.trials, args.warmup, ranks))
    width = WIDTHS[args.dtype]
    shapes: list[tuple[int, ...]] = [(size // width,) for size in args.sizes or ()]
    for shape in shapes or [(args.rows, args.columns)]:
        size = math.prod(shape) * width
        algbw = measured(torch, distributed, args, shape)
        report(row(size, ranks, algbw))
    wait(torch, distributed)
    distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
