"""Writes large nccl-tests logs, always the same ones."""
# ruff: noqa: E501 - lines as the programs print them

import random
from collections.abc import Callable, Iterator
from pathlib import Path

_BANNER = """\
# nThread 1 nGpus 1 minBytes 8 maxBytes 2147483648 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 \
validation: 1 graph: 0
#
# Using devices
"""
_HEADER = (
    "#\n#                                                              out-of-place                       in-place"
    "          \n"
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw"
    " #wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)"
    "       \n"
)
_FOOTER = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : {:g} \n#\n"
_GPUS = 8


def rows_log(size: int) -> Iterator[str]:
    """A log in which nearly every line is a row: runs of 29 sizes, 40 cycles each (-N 40)."""
    chance = random.Random(1)
    return _until(size, lambda: _run(chance, ranks=16, channels=0, cycles=40))


def debug_log(size: int, *, ranks: int) -> Iterator[str]:
    """A log that is mostly NCCL_DEBUG=INFO lines of many ranks. One execution, however large."""
    chance = random.Random(2)
    lines = ranks * 3 * 110
    return _run(chance, ranks=ranks, channels=max(size // lines, 1), cycles=1)


def tables_log(tables: int) -> Iterator[str]:
    """The yardstick of peers: tables of 32 rows, and behind each row ten channel lines of NCCL's."""
    chance = random.Random(3)
    for _ in range(tables):
        rows = _run(chance, ranks=16, channels=0, cycles=1, sizes=32)
        for number, piece in enumerate("".join(rows).splitlines(keepends=True)):
            yield piece
            if piece.startswith(" "):
                yield "".join(_channel((number + each) % 16, each) for each in range(10))


def _channel(rank: int, number: int) -> str:
    who = f"ip-10-0-{rank // _GPUS}-17:{5000 + rank}:{6000 + rank} [{rank % _GPUS}] NCCL INFO "
    peer = (rank + 1) % 16
    via = f"{rank}[{rank % _GPUS}] -> {peer}[{peer % _GPUS}] [send] via NET/AWS Libfabric/{number % 4}/GDRDMA"
    return f"{who}Channel {number:02d}/0 : {via}\n"


def write(path: Path, text: Iterator[str]) -> int:
    """Write a log; gives its bytes."""
    with path.open("w") as file:
        for piece in text:
            file.write(piece)
    return path.stat().st_size


def _until(size: int, run: Callable[[], Iterator[str]]) -> Iterator[str]:
    written = 0
    while written < size:
        for piece in run():
            written += len(piece)
            yield piece


def _run(
    chance: random.Random, *, ranks: int, channels: int, cycles: int, sizes: int = 29
) -> Iterator[str]:
    yield _BANNER
    for rank in range(ranks):
        yield (
            f"#  Rank {rank:2d} Group  0 Pid {5000 + rank:6d} on  ip-10-0-{rank // _GPUS}-17 "
            f"device {rank % _GPUS:2d} [0000:{rank % _GPUS:02x}:00] NVIDIA H100 80GB HBM3\n"
        )
    if channels:
        for rank in range(ranks):
            yield from _debug(rank, ranks, channels)
    yield _HEADER
    shown: list[float] = []
    for _ in range(cycles):
        yield "".join(
            _row(8 << step, chance, 2 * (ranks - 1) / ranks, shown) for step in range(sizes)
        )
    yield _FOOTER.format(sum(shown) / len(shown))


def _debug(rank: int, ranks: int, channels: int) -> Iterator[str]:
    """What one rank prints while it connects and runs, as NCCL 2.28 words it."""
    who = f"ip-10-0-{rank // _GPUS}-17:{5000 + rank}:{6000 + rank} [{rank % _GPUS}] NCCL INFO "
    yield f"{who}NET/OFI Selected provider is efa, fabric is efa-direct (found 4 nics)\n"
    yield f"{who}Using network Libfabric\n"
    for channel in range(channels):
        peer = (rank + 1 + channel % (ranks - 1)) % ranks
        yield (
            f"{who}Channel {channel % 32:02d}/0 : {rank}[{rank % _GPUS}] -> {peer}[{peer % _GPUS}] [send] via NET/Libfabric/{channel % 4}/GDRDMA\n"
            f"{who}Trees [0] {channel}/-1/-1->{rank}->-1 [1] 2/-1/-1->{rank}->{channel} [2] -1/-1/-1->{rank}->7\n"
            f"{who}AllReduce: {8 << channel % 20} Bytes -> Algo RING proto SIMPLE channel{{Lo..Hi}}={{0..{channel % 8}}}\n"
        )


def _row(size: int, chance: random.Random, factor: float, shown: list[float]) -> str:
    """Write a row; its bus bandwidths are added to `shown`."""
    halves = []
    for _ in range(2):
        time = 20 + size / 400e3 * chance.uniform(0.95, 1.05)
        algbw = size / time / 1e3
        us = f"{time:7.2f}" if time < 100 else f"{time:7.1f}" if time < 10_000 else f"{time:7.0f}"
        busbw = f"{algbw * factor:6.2f}"
        shown.append(float(busbw))
        halves.append(f"  {us}  {algbw:6.2f}  {busbw}      0")
    return f"{size:12d}  {size // 4:12d}     float     sum      -1{''.join(halves)}\n"
