"""Times torch.distributed's all_reduce: one process per GPU, with the variables of torchrun.

It measures like all_reduce_bench.py of stas00/ml-engineering, and its copy in
modal-labs/multinode-training-guide: a few warm-ups, then all trials back to back between two
events; algbw is the payload divided by the mean time of one trial, averaged over the ranks, and
busbw is 2(n-1)/n of it.

    torchrun --nproc-per-node 8 torch_all_reduce.py --size 1048576 --size 4294967296

It is standalone: it needs only Python 3.8 or later and torch.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}
_UNITS = {
    "GiB": 1 << 30,
    "MiB": 1 << 20,
    "KiB": 1 << 10,
    "B": 1,
}
_NO_TORCH = 3


def options(words: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    summary, *_ = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(description=summary)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--columns", type=int, default=2_000)
    parser.add_argument(
        "--size", dest="sizes", type=int, action="append", help="bytes, instead; repeatable"
    )
    parser.add_argument("--dtype", choices=sorted(WIDTHS), default="float32")
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--warmup", type=int, default=5)
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
    args = options(sys.argv[1:])
    rank = os.environ["RANK"]
    ranks = int(os.environ["WORLD_SIZE"])
    local = int(os.environ["LOCAL_RANK"])

    def report(text: str) -> None:
        if rank == "0":
            sys.stdout.write(text)
            sys.stdout.flush()

    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        report(f"ModuleNotFoundError: {error} ({sys.executable}): pip install torch\n")
        return _NO_TORCH
    torch.cuda.set_device(local % max(torch.cuda.device_count(), 1))
    distributed = importlib.import_module("torch.distributed")
    distributed.init_process_group("nccl")
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
