"""Times torch.distributed's all_reduce: one process per GPU, started by mpirun, torchrun or srun.

It measures like all_reduce_bench.py of stas00/ml-engineering, and its copy in
modal-labs/multinode-training-guide: a few warm-ups, then all trials back to back between two events; algbw is
the payload divided by the mean time of one trial, averaged over the ranks, and busbw is 2(n-1)/n of it. It
prints the same table as they do.

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
_NO_TORCH = 3


class RankProcess(NamedTuple):
    """This process among the ranks."""

    rank: int
    ranks: int
    local: int


def read_process(environment: Mapping[str, str]) -> RankProcess:
    """Read the rank of this process from its launcher's variables; a single rank if there are none."""
    for rank, ranks, local in _RANK_VARIABLES:
        if rank in environment and ranks in environment:
            return RankProcess(int(environment[rank]), int(environment[ranks]), int(environment.get(local, "0")))
    return RankProcess(0, 1, 0)


def options(words: Sequence[str], environment: Mapping[str, str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--columns", type=int, default=2_000)
    parser.add_argument("--size", dest="sizes", type=int, action="append", help="bytes, instead; repeatable")
    parser.add_argument("--dtype", choices=sorted(WIDTHS), default="float32")
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--master", default=environment.get("MASTER_ADDR", "127.0.0.1"), help="of rank 0")
    parser.add_argument("--port", type=int, default=int(environment.get("MASTER_PORT", "29500")))
    return parser.parse_args(words)


def header(trials: int, warmup: int, ranks: int) -> str:
    """Return the lines above the rows."""
    return (
        f"The average bandwidth of all_reduce over {ranks} ranks ({warmup} warmups / {trials} trials):\n\n"
        "| payload |    busbw   |    algbw   |\n| ------: | ---------: | ---------: |\n"
    )


def row(size: int, ranks: int, algbw: float) -> str:
    """Return the row of one payload; `algbw` is in bytes per second."""
    busbw = algbw * 2 * (ranks - 1) / ranks
    return f"| {_binary(size)} | {_rate(busbw)} | {_rate(algbw)} |\n"


def _binary(size: int) -> str:
    for name, unit in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size and size % unit == 0:
            return f"{size // unit}{name}"
    return f"{size}B"


def _rate(value: float) -> str:
    return f"{value / 1e9:.3f}GBps" if value >= 1e9 else f"{value / 1e6:.3f}MBps"


def connect(torch: Any, args: argparse.Namespace, process: RankProcess) -> Any:
    """Meet the other ranks; return torch.distributed."""
    torch.cuda.set_device(process.local % max(torch.cuda.device_count(), 1))
    distributed = importlib.import_module("torch.distributed")
    master = f"[{args.master}]" if ":" in args.master else args.master
    where = f"tcp://{master}:{args.port}"
    distributed.init_process_group("nccl", init_method=where, rank=process.rank, world_size=process.ranks)
    return distributed


def measured(torch: Any, distributed: Any, args: argparse.Namespace, shape: Sequence[int]) -> float:
    """Measure one payload; return algbw in bytes per second."""
    data = torch.rand(*shape, dtype=torch.float32).to(getattr(torch, args.dtype)).to("cuda")
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    for _ in range(args.warmup):
        distributed.all_reduce(data)
    wait(torch, distributed)
    events[0].record()
    for _ in range(args.trials):
        distributed.all_reduce(data)
    events[1].record()
    torch.cuda.synchronize()
    seconds = float(events[0].elapsed_time(events[1])) / 1e3 / args.trials
    wait(torch, distributed)
    mean = torch.tensor([data.numel() * WIDTHS[args.dtype] / seconds], dtype=torch.float64).to("cuda")
    distributed.all_reduce(mean)
    return float(mean.item()) / int(distributed.get_world_size())


def wait(torch: Any, distributed: Any) -> None:
    """Wait until all ranks have arrived and their GPUs are idle."""
    distributed.barrier()
    torch.cuda.synchronize()


def versions(torch: Any) -> str:
    """Return a line with the versions of the software in use."""
    nccl = ".".join(str(part) for part in torch.cuda.nccl.version())
    return f"- software: torch={torch.__version__}, cuda={torch.version.cuda}, nccl={nccl}\n"


def _report(process: RankProcess, text: str) -> None:
    if process.rank == 0:
        sys.stdout.write(text)
        sys.stdout.flush()


def main() -> int:
    """Run; return the exit status."""
    args, process = options(sys.argv[1:], os.environ), read_process(os.environ)
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        _report(process, f"ModuleNotFoundError: {error} ({sys.executable}): pip install torch\n")
        return _NO_TORCH
    distributed, width = connect(torch, args, process), WIDTHS[args.dtype]
    _report(process, versions(torch) + header(args.trials, args.warmup, process.ranks))
    shapes: list[tuple[int, ...]] = [(size // width,) for size in args.sizes or ()]
    for shape in shapes or [(args.rows, args.columns)]:
        _report(process, row(math.prod(shape) * width, process.ranks, measured(torch, distributed, args, shape)))
    wait(torch, distributed)
    distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
