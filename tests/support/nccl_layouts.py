"""Writes nccl-tests logs in every layout there ever was, for tests.

The formats are the printf formats of the releases' sources: v1.0.0 (all_reduce.cu), v2.0.0 to 2.12 and 2.13
(common.cu), 2.17.3 and 2.19.6 (util.cu). What the parser must find is taken from the figures as printed.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.support.read_logs import printed

ERAS = ("1.0", "2.0", "2.10", "2.13", "2.17.3", "2.19.6")
"""The first release of each layout."""

DTYPES = {
    "int8": 1, "uint8": 1, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8,
    "half": 2, "float": 4, "double": 8, "bfloat16": 2, "f8e4m3": 1, "f8e5m2": 1,
}  # fmt: skip

REDUCING = ("all_reduce", "reduce_scatter", "reduce")
ROOTED = ("broadcast", "reduce", "scatter", "gather")
GATHER_LIKE = ("all_gather", "reduce_scatter", "alltoall", "alltoallv", "scatter", "gather", "hypercube")
PROGRAMS = (*REDUCING, "all_gather", "alltoall", "alltoallv", "broadcast", "scatter", "gather", "sendrecv", "hypercube")
FIRST_PROGRAMS = ("all_reduce", "all_gather", "broadcast", "reduce", "reduce_scatter")
"""What v1 had."""
UNCHECKED_IN_PLACE = ("alltoall", "alltoallv", "sendrecv")

Found: TypeAlias = tuple[int, dict[str, str], dict[str, float]]
"""A point as a test compares it: size, labels, values by metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A release, a program and the options that change what is printed."""

    era: str = "2.19.6"
    case: str = "all_reduce"
    ranks: int = 4
    checked: bool = True
    per_iteration: bool = False
    timestamps: bool = False
    cpu_time: bool = False
    memory: bool = False

    @property
    def since_2_13(self) -> bool:
        """Whether every program prints redop and root, and counts wrong elements."""
        return ERAS.index(self.era) >= ERAS.index("2.13")

    @property
    def sides(self) -> int:
        """v1 measured broadcast once."""
        return 1 if self.era == "1.0" and self.case == "broadcast" else 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """One side of a row: microseconds, GB/s, and wrong elements (before 2.13: the relative error)."""

    time: float
    algbw: float
    busbw: float
    wrong: float = 0
    statistics: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row. `out_of_place` is None in rows that measured in place only."""

    size: int
    out_of_place: Half | None
    in_place: Half
    dtype: str = "float"
    redop: str = "sum"
    root: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """A row as printed: its text, and the figures of each side by metric (or `stat`)."""

    text: str
    sides: tuple[dict[str, str] | None, ...]
    statistics: tuple[dict[str, str], ...] = field(default=())


def cells(layout: Layout, row: Row) -> Cells:
    """Print a row."""
    text = f"{row.size:12d}  {_count(layout, row):12d}  {_left(layout, row)}"
    halves = (row.out_of_place, row.in_place)[: layout.sides] if layout.sides == 2 else (row.in_place,)
    sides: list[dict[str, str] | None] = []
    statistics: list[dict[str, str]] = []
    for side, half in enumerate(halves):
        if half is None:
            text += " " * 32
            sides.append(None)
            continue
        checked = layout.checked and not (side == 1 and layout.case in UNCHECKED_IN_PLACE)
        figures = _half(layout, half, checked=checked)
        text += figures["text"]
        del figures["text"]
        sides.append(figures)
        if layout.per_iteration:
            names = ("min", "max", "p99", "cv")
            found = {name: f"{value:.2f}" for name, value in zip(names, half.statistics, strict=True)}
            text += "".join(f"  {value:>7}" for value in found.values())
            statistics.append(found)
    if layout.timestamps:
        text += "  2026-11-21 10:34:03"
    return Cells(text=text, sides=tuple(sides), statistics=tuple(statistics))


def points(layout: Layout, rows: Iterable[Row]) -> list[Found]:
    """Say what must be found of these rows."""
    found: list[Found] = []
    for row in rows:
        shown = cells(layout, row)
        for side, figures in enumerate(shown.sides):
            if figures is None:
                continue
            placement = ("out-of-place", "in-place")[side] if layout.sides == 2 else ""
            labels = {"placement": placement, "dtype": row.dtype, **_kinds(layout, row)}
            labels = {name: value for name, value in labels.items() if value}
            values = {metric: _value(layout, text, metric) for metric, text in figures.items()}
            found.append((row.size, labels, values))
            if layout.per_iteration:
                stats = shown.statistics[side]
                found += [
                    (row.size, {**labels, "stat": stat}, {"time": printed(stats[stat], "time")})
                    for stat in ("min", "max", "p99")
                ]
    return found


def log(  # noqa: PLR0913 - the parts of a log, each with a default
    layout: Layout,
    rows: Sequence[Row],
    *,
    footer: bool = True,
    failed_checks: int = 0,
    hosts: int = 1,
    host: str = "node",
    pid: int = 100,
    reduced: int = 0,
) -> list[str]:
    """Return the lines of a whole log."""
    return [
        *banner(layout, rows, hosts=hosts, host=host, pid=pid),
        *([f"# Reducing maxBytes to {reduced} due to memory limitation", "#"] if reduced else []),
        *header(layout),
        *(cells(layout, row).text for row in rows),
        *(footer_lines(layout, rows, failed_checks) if footer else []),
    ]


def banner(layout: Layout, rows: Sequence[Row], *, hosts: int = 1, host: str = "node", pid: int = 100) -> list[str]:
    """Return the lines before the header."""
    low, high = min(row.size for row in rows), max(row.size for row in rows)
    doubled = {low << power for power in range(64) if low << power <= high}
    # Rows that are no whole sweep are asked for one by one.
    high = high if doubled <= {row.size for row in rows} else low
    config = f"nThread 1 nGpus 1 minBytes {low} maxBytes {high} step: 2(factor) warmup iters: 5 iters: 20"
    lines = []
    if layout.era == "2.19.6":
        lines.append("# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=22809")
    if ERAS.index(layout.era) >= ERAS.index("2.17.3"):
        lines.append(f"# Collective test starting: {layout.case}_perf")
    aggregated = " agg iters: 1" if layout.since_2_13 else ""
    validation = f" validation: {int(layout.checked)}" + (" graph: 0" if layout.since_2_13 else " ")
    lines.append(("" if layout.era == "1.0" else "# ") + config + aggregated + validation)
    lines += ["#", "# Using devices"]
    each = max(1, layout.ranks // hosts)
    for rank in range(layout.ranks):
        where = f"on {f'{host}{rank // each}':>10} device {rank % each:2d}"
        lines.append(_device(layout, rank, pid + rank, where))
    return [*lines, "#"]


def header(layout: Layout) -> list[str]:
    """Return the lines above the rows."""
    time = "cputime" if layout.cpu_time else "time"
    if layout.era == "1.0":
        kinds = "".join(f"  {name:>6}" for name in _columns(layout))
        side = f"  {time:>7}  {'algbw':>5}  {'busbw':>5}  {'res':>7}"
        return [
            "#                                                 out-of-place                    in-place",
            f"# {'bytes':>10}  {'N':>12}  {'type':>6}{kinds}{side * layout.sides}",
        ]
    check = {"2.13": " #wrong", "2.17.3": "  #wrong", "2.19.6": "  #wrong"}.get(layout.era, "  error")
    width = 6 if layout.era == "2.0" else 8
    kinds = "".join(f"  {name:>6}" for name in _columns(layout))
    per_iteration = "".join(f"  {name:>7}" for name in ("i_min", "i_max", "i_p99", "i_cv%"))
    side = f"  {time:>7}  {'algbw':>6}  {'busbw':>6}{check}" + (per_iteration if layout.per_iteration else "")
    stamp = "            timestamp" if layout.timestamps else ""
    trail = " " if layout.era in {"2.17.3", "2.19.6"} else ""
    return [
        f"# {'':59} out-of-place                       in-place",
        f"# {'size':>10}  {'count':>12}  {'type':>{width}}{kinds}{side * 2}{stamp}{trail}",
        "#        (B)    (elements)" + f"{'(us)':>35}  (GB/s)  (GB/s)" + f"{'(us)':>16}  (GB/s)  (GB/s)",
    ]


def footer_lines(layout: Layout, rows: Sequence[Row], failed_checks: int = 0) -> list[str]:
    """Return the lines below the rows."""
    verdict = f"{failed_checks} FAILED" if failed_checks else "0 OK"
    # As the program sums the figures before it rounds them, a test's average may be off in the last place.
    shown = [side["busbw"] for row in rows for side in cells(layout, row).sides if side is not None]
    average = sum(map(float, shown)) / max(len(shown), 1)
    sign = " " if layout.era == "1.0" else "# "
    lines = [f"{sign}Out of bounds values : {verdict}", f"{sign}Avg bus bandwidth    : {average:g} ", "#"]
    if ERAS.index(layout.era) >= ERAS.index("2.17.3"):
        lines.append(f"# Collective test concluded: {layout.case}_perf")
    if layout.memory:
        lines.append(
            "# GPU memory usage     : Initialization 388 MB | User-Allocated 192 MB | "
            "Collective 474 MB | Total  1.03 GB"
        )
    return [*lines, ""]


# ---------------------------------------------------------------- cells


def _value(layout: Layout, text: str, metric: str) -> float:
    if layout.era == "1.0" and metric == "time":
        return printed(f"{text}e3", "time")
    return printed(text, metric)


def _half(layout: Layout, half: Half, *, checked: bool) -> dict[str, str]:
    time = "cpu_time" if layout.cpu_time else "time"
    if layout.era == "1.0":
        figures = {time: f"{half.time / 1e3:.3f}", "algbw": f"{half.algbw:.2f}", "busbw": f"{half.busbw:.2f}"}
        tail = f"  {half.wrong:7.0e}" if checked else "  \tN/A"
        text = f"  {figures[time]:>7}  {figures['algbw']:>5}  {figures['busbw']:>5}{tail}"
        return {"text": text, **figures}
    figures = {time: _time(layout, half.time)}
    figures |= {name: _rate(layout, value) for name, value in (("algbw", half.algbw), ("busbw", half.busbw))}
    text = f"  {figures[time]:>7}  {figures['algbw']:>6}  {figures['busbw']:>6}"
    if not layout.since_2_13:
        return {"text": text + (f"  {half.wrong:5.0e}" if checked else f"  {'N/A':>5}"), **figures}
    width = 5 if layout.era == "2.13" else 6
    if checked:
        figures["wrong"] = f"{half.wrong:g}"
        return {"text": f"{text}  {figures['wrong']:>{width}}", **figures}
    return {"text": f"{text}  {'N/A':>5}", **figures}


def _time(layout: Layout, us: float) -> str:
    if layout.era == "2.19.6":
        return _fitting(us, 7)
    if layout.era == "2.17.3":
        decimals = 2 if us < 1e4 else 1 if us < 1e5 else 0
        text = f"{us:.{decimals}f}"
        return text if len(text) <= 7 or decimals else f"{us:.1e}"
    return f"{us:.0f}" if us >= 10000 else f"{us:.1f}" if us >= 100 else f"{us:.2f}"


def _rate(layout: Layout, gbs: float) -> str:
    if layout.era == "2.19.6":
        return _fitting(gbs, 6)
    if layout.era == "2.17.3":
        decimals = 2 if gbs < 1e3 else 1 if gbs < 1e4 else 0
        text = f"{gbs:.{decimals}f}"
        return text if len(text) <= 6 or decimals else f"{gbs:.0e}"
    return f"{gbs:.2f}"


def _fitting(value: float, width: int) -> str:
    """The first of two, one and no decimals that fits (util.cu, getFloatStr)."""
    for decimals in (2, 1, 0):
        text = f"{value:.{decimals}f}"
        if len(text) <= width:
            return text
    return f"{value:.{width - 6}e}"


def _count(layout: Layout, row: Row) -> int:
    elements = row.size // DTYPES[row.dtype]
    return elements // layout.ranks if layout.case in GATHER_LIKE else elements


def _columns(layout: Layout) -> Iterator[str]:
    if layout.since_2_13 or layout.case in REDUCING:
        yield "op" if layout.era == "1.0" else "redop"
    elif layout.case == "alltoall":
        yield "redop"
    if layout.since_2_13 or layout.case in ROOTED:
        yield "root"


def _kinds(layout: Layout, row: Row) -> dict[str, str]:
    """Return redop and root as this release prints them; empty: a blank cell, or none."""
    reduces = layout.case in REDUCING or (layout.since_2_13 and layout.case == "sendrecv")
    blank = "" if layout.case == "hypercube" or not layout.since_2_13 else "none"
    redop = row.redop if reduces else blank
    rooted = layout.case in ROOTED
    root = str(row.root if rooted else -1) if layout.since_2_13 or rooted else ""
    return {"redop": redop, "root": root}


def _left(layout: Layout, row: Row) -> str:
    kinds = _kinds(layout, row)
    columns = list(_columns(layout))
    width = 6 if layout.era in {"1.0", "2.0"} else 8
    redop = f"  {kinds['redop']:>6}" if {"redop", "op"} & {*columns} else ""
    root = f"  {kinds['root']:>6}" if "root" in columns else ""
    return f"{row.dtype:>{width}}{redop}{root}"


def _device(layout: Layout, rank: int, pid: int, where: str) -> str:
    if layout.era == "1.0":
        return f"#   Rank {rank:2d} {where} [0x10] Tesla V100-SXM2-16GB"
    if not layout.since_2_13:
        return f"#   Rank {rank:2d} Pid {pid:6d} {where} [0x10] Tesla V100-SXM2-16GB"
    return f"#  Rank {rank:2d} Group  0 Pid {pid:6d} {where} [0000:10:1c] NVIDIA A100-SXM4-40GB"


# ---------------------------------------------------------------- figures that fit each other


def bus_factor(case: str, ranks: int) -> float:
    """Return busbw / algbw."""
    if case == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if case in GATHER_LIKE and case != "hypercube" else 1.0


def half(layout: Layout, size: int, gbs: float, *, wrong: float = 0) -> Half:
    """Make one side of a row from what was moved and how fast (at least 5 us)."""
    moved = size * (layout.ranks - 1) / layout.ranks if layout.case == "hypercube" else size
    time = max(moved / gbs / 1e3, 5.0)
    algbw = moved / time / 1e3
    return Half(
        time=time,
        algbw=algbw,
        busbw=algbw * bus_factor(layout.case, layout.ranks),
        wrong=wrong,
        statistics=(time * 0.9, time * 1.2, time * 1.1, 4.35),
    )


def sweep(layout: Layout, *, low: int = 8, high: int = 1 << 20, gbs: float = 40.0) -> list[Row]:
    """Make the rows of a plain sweep."""
    rows = []
    size = low
    while size <= high:
        rows.append(
            Row(
                size=size,
                out_of_place=half(layout, size, gbs),
                in_place=half(layout, size, gbs * 1.01),
                root=0 if layout.case in ROOTED else -1,
            )
        )
        size *= 2
    return rows
