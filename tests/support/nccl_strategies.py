"""Random nccl-tests tables, launcher prefixes and debug lines, for property tests."""

import random
from collections.abc import Callable

from hypothesis import strategies as st

from tests.support.nccl_layouts import (
    DTYPES,
    ERAS,
    FIRST_PROGRAMS,
    GATHER_LIKE,
    PROGRAMS,
    REDUCING,
    ROOTED,
    Layout,
    Row,
    half,
)

Prefix = Callable[[str, int], str]
"""(line, number of the line) → the line behind a launcher's prefix."""


def _before(prefix: str) -> Prefix:
    return lambda line, number: prefix + line


PREFIXES: tuple[Prefix, ...] = (
    _before("[1,0]<stdout>:"),
    _before("[1,0]<stdout>: "),
    _before("[prterun-node0-4711@1,0]<stdout>: "),
    _before("[1,0][node0:4711]<stdout>: "),
    lambda line, number: f"[Sat Nov 21 10:35:{number % 60:02d} 2026]<stdout>: {line}",
    lambda line, number: f"[Sat Nov  7 10:35:{number % 60:02d} 2026][1,0]<stdout>: {line}",
    lambda line, number: f"Sat Nov 21 10:35:{number % 60:02d} 2026[1,0]<stdout>:{line}",
    lambda line, number: f"Sat Nov 21 10:35:{number % 60:02d} 2026<stdout>:{line}",
    _before("(head, rank=0, pid=1234) "),
    _before("(worker1, rank=1, pid=1, ip=10.0.0.2) "),
    _before("(worker1, rank=1, ip=10.0.0.2, pid=1) "),
    _before("\x1b[36m(head, rank=0, pid=3808)\x1b[0m "),
    _before("(task, pid=12) "),
    _before("[rank 0] "),
    _before("[node0:0]:"),
    _before("[default0]:"),
    lambda line, number: f"2026-11-21T10:35:09.{number % 10**9:09d}Z {line}",
    _before("[pod/bench-launcher-x7k2p/main] "),
    _before("0: "),
    _before(" 3: "),
    _before("[0] "),
    _before("> "),
    _before("    "),
    _before(""),
)

HOSTS = ("node0", "ip-10-0-3-17", "10-0-3-17", "3gpu.example.org", "p5-dy-gpu-2", "a", "4711", "e1")

MESSAGES = (
    "Using network Socket",
    "Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0",
    "AllReduce: 67108864 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..1}",
    "Trees [0] 1/-1/-1->0->-1 [1] -1/-1/-1->0->1",
    "8 16 float sum -1 1.0 2.0 3.0 0 1.0 2.0 3.0 0",
    "   1024   256   float   sum   -1   27.30   0.04   0.06   0   27.19   0.04   0.06   0",
    "",
)

NOISE = (
    "",
    "...",
    "Warning: Permanently added 'node1' (ED25519) to the list of known hosts.",
    "hello from a program that runs beside it",
    "     Broadcast |        0         0         1   |             1              1",
    "--------------------------------------------------------------------------",
    "step 12 loss 3.14",
)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Any release, program and options that it had."""
    era = draw(st.sampled_from(ERAS))
    newest = era == "2.19.6"
    return Layout(
        era=era,
        case=draw(st.sampled_from(FIRST_PROGRAMS if era == "1.0" else PROGRAMS)),
        ranks=draw(st.sampled_from([2, 3, 4, 16, 144])),
        checked=draw(st.booleans()),
        per_iteration=newest and draw(st.booleans()),
        timestamps=newest and draw(st.booleans()),
        cpu_time=ERAS.index(era) >= ERAS.index("2.13") and draw(st.booleans()),
        memory=newest and draw(st.booleans()),
    )


@st.composite
def tables(draw: st.DrawFn, *, least: int = 1) -> tuple[Layout, list[Row]]:
    """A layout, and rows as it prints them; the figures of a row fit each other."""
    layout = draw(layouts())
    rows = [draw(_rows(layout)) for _ in range(draw(st.integers(least, 8)))]
    return layout, rows


@st.composite
def _rows(draw: st.DrawFn, layout: Layout) -> Row:
    dtype = draw(st.sampled_from(sorted(DTYPES)))
    unit = DTYPES[dtype] * (layout.ranks if layout.case in GATHER_LIKE else 1)
    size = draw(st.integers(0, 1 << 28) | st.integers(0, 64)) * unit
    rates = st.floats(0.001, 2000.0, allow_nan=False, allow_infinity=False)
    return Row(
        size=size,
        out_of_place=half(layout, size, draw(rates)),
        in_place=half(layout, size, draw(rates)),
        dtype=dtype,
        redop=draw(st.sampled_from(["sum", "prod", "max", "min", "avg", "mulsum"]))
        if layout.case in (*REDUCING, "sendrecv")
        else "sum",
        root=draw(st.integers(0, layout.ranks - 1)) if layout.case in ROOTED else -1,
    )


def debug_lines(chance: random.Random, most: int) -> list[str]:
    """Debug lines of several ranks on several hosts, none up to `most`."""
    lines = []
    for _ in range(chance.randint(0, most)):
        process = f"{chance.choice(HOSTS)}:{chance.randint(1, 99999)}:{chance.randint(1, 99999)}"
        lines.append(f"{process} [{chance.randint(0, 7)}] NCCL INFO {chance.choice(MESSAGES)}")
    return lines


def known_hosts() -> list[str]:
    """Debug lines that name every host once, as the start of a run does."""
    return [f"{host}:1:1 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>" for host in HOSTS]
