"""Writes the NVSHMEM perftests' tables as each version's printf statements do, and says what must be read.

The formats are those of perftest/common/utils.cu and of the programs themselves, by version: docs/formats.md.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

BOX = "+------------------------+----------------------+"
BOX_1 = "+--------------+-----------------+---------------+----------------+"

Expected = tuple[int, frozenset[tuple[str, str]], tuple[tuple[str, float], ...]]
"""Size, labels, and metrics with their values in base units."""


def us(token: str) -> float:
    return float(Decimal(token) * Decimal("1e-6"))


def gb(token: str) -> float:
    return float(Decimal(token) * Decimal(10**9))


def gib(token: str) -> float:
    return float(Decimal(token) * 2**30)


@dataclass(frozen=True, kw_only=True)
class Table:
    """The lines of one table, and for each that is a row what it says."""

    lines: tuple[str, ...]
    rows: Mapping[int, Sequence[Expected]] = field(default_factory=dict)
    """Line → its points."""

    def points(self, before: int | None = None) -> list[Expected]:
        """Everything that the lines before `before` say."""
        return [point for line, points in self.rows.items() if before is None or line < before for point in points]


def expected(size: int, labels: Mapping[str, str], **values: float) -> Expected:
    return size, frozenset(labels.items()), tuple(values.items())


def build(above: Sequence[str], rows: Sequence[tuple[str, Sequence[Expected]]], rule: str = "") -> Table:
    lines, found = list(above), {}
    for text, points in rows:
        found[len(lines)] = points
        lines += [text, rule] if rule else [text]
    return Table(lines=tuple(lines), rows=found)


# ---------------------------------------------------------------- one function for each layout


def printf_1(values: Sequence[tuple[int, str]]) -> Table:
    """1.0 and 1.1, between two PEs."""
    rows = [
        (f"{size:10d} \t\t {value:>4} ", [expected(size, {"scope": "block"}, bandwidth=gib(value))])
        for size, value in values
    ]
    return build(["Put with block ", "Size(Bytes) \t\t BW(GB/sec)"], rows)


def box_1(values: Sequence[tuple[int, str]]) -> Table:
    """1.0 and 1.1, collectives: three latencies of two decimals in a row."""
    rows = []
    for size, value in values:
        cells = [f"{Decimal(value) / divisor:.2f}" for divisor in (1, 2, 3)]
        points = [
            expected(size, {"dtype": "32-bit", "scope": scope}, latency=us(cell))
            for scope, cell in zip(("thread", "warp", "block"), cells, strict=True)
        ]
        rows.append((f"|{size:14d}|{cells[0]:>17}|{cells[1]:>15}|{cells[2]:>16}|", points))
    header = "| size (bytes) |   thread (us)   |   warp (us)   |   block (us)   |"
    return build(["# ------------", "# 32-bit operand", "# ------------", BOX_1, header, BOX_1], rows)


def box_2(values: Sequence[tuple[int, str]]) -> Table:
    """2.0 to 3.0: one latency in a row."""
    labels = {"dtype": "64-bit", "scope": "warp"}
    rows = [(f"| {size:<22} | {value:<20} |", [expected(size, labels, latency=us(value))]) for size, value in values]
    title = f"| {'alltoall_device':<22} | {'64-bit-warp':<20} |"
    header = f"| {'size (Bytes)':<22} | {'latency':>10} {'us':<9} |"
    return build([BOX, title, BOX, header, BOX], rows, BOX)


def box_2_bandwidth(values: Sequence[tuple[int, str]]) -> Table:
    """2.0 to 3.0, between two PEs."""
    labels = {"direction": "uni"}
    rows = [(f"| {size:<22} | {value:<20} |", [expected(size, labels, bandwidth=gib(value))]) for size, value in values]
    title = f"| {'shmem_put_bw_uni':<22} | {'None':<20} |"
    header = f"| {'size (Bytes)':<22} | {'BW':>10} {'GB/sec':<9} |"
    return build([BOX, title, BOX, header, BOX], rows, BOX)


def collective_3_1(values: Sequence[tuple[int, str]]) -> Table:
    """3.1 and 3.2, of a job whose size means the same in both."""
    labels = {"dtype": "32-bit", "scope": "block"}
    rows = []
    for size, value in values:
        algbw = f"{size / 1e3 / float(value):.3f}"
        text = f"{size:<10}  {'32-bit':<8}  {'block':<8}  {value:<16}  {algbw:<12}  {algbw:<12}"
        rows.append((text, [expected(size, labels, latency=us(value), algbw=gb(algbw), busbw=gb(algbw))]))
    header = "size(B)     type      scope     latency(us)       algbw(GB/s)   busbw(GB/s) "
    return build(["#bcast_device", header], rows)


def misprinted_3_1(values: Sequence[tuple[int, str]]) -> Table:
    """3.1, between two PEs: the collectives' printer, with a complaint before each row."""
    header = "size(B)     type      scope     latency(us)       algbw(GB/s)   busbw(GB/s) "
    lines, found = ["#shmem_put_bw_bidi", header], {}
    for size, value in values:
        lines.append("Job Name shmem_put_bw_bidi bandwidth factor not set. Using 1 values for bw.")
        found[len(lines)] = [expected(size, {"direction": "bi"}, bandwidth=gib(value))]
        lines.append(f"{size:<10}  {'None':<8}  {'(null)':<8}  {value:<16}  {'1.000':<12}  {'1.000':<12}")
    return Table(lines=tuple(lines), rows=found)


def basic(values: Sequence[tuple[int, str]]) -> Table:
    """3.2 and later, between two PEs."""
    rows = [
        (f"{size:<10}  {'None':<8}  {value:<16}", [expected(size, {"direction": "uni"}, bandwidth=gb(value))])
        for size, value in values
    ]
    return build(["#shmem_get_bw_uni", "size(B)     scope     BW (GB/sec)     "], rows)


def ping_pong(values: Sequence[tuple[int, str]]) -> Table:
    """3.2 and later: a round trip."""
    labels = {"way": "round-trip", "scope": "thread"}
    rows = [
        (f"{size:<10}  {'Thread':<8}  {value:<16}", [expected(size, labels, latency=us(value))])
        for size, value in values
    ]
    above = ["Note: This test measures full round-trip latency", "#shmem_put_ping_pong_latency"]
    return build([*above, "size(B)     scope     latency (us)    "], rows)


def collective_3_3(values: Sequence[tuple[int, str]]) -> Table:
    """3.3 and later: with a count."""
    labels = {"dtype": "int32", "redop": "sum", "scope": "warp"}
    rows = []
    for size, value in values:
        algbw = f"{size / 1e3 / float(value):.3f}"
        text = f"{size:<10}  {size // 4:<8}  {'int32':<8}  {'sum':<8}  {'w':<8}  {value:<16}  "
        text += f"{algbw:<12}  {algbw:<12}"
        rows.append((text, [expected(size, labels, latency=us(value), algbw=gb(algbw), busbw=gb(algbw))]))
    header = "size(B)     count     type      redop     scope     latency(us)       algbw(GB/s)   busbw(GB/s) "
    return build(["#device_reduction", header], rows)


def on_stream_3_3(values: Sequence[tuple[int, str]]) -> Table:
    """3.3 and later, on a stream: with the smallest and the largest latency."""
    labels = {"dtype": "int", "redop": "sum"}
    rows = []
    for size, value in values:
        short = f"{float(value):.3f}"
        algbw = f"{size / 1e3 / float(value):.3f}"
        text = (
            f"{size:<10}  {size // 4:<8}  {'int':<8}  {'sum':<8}  {value:<16}  {short:<16}  {short:<16}  "
            f"{algbw:<12}  {algbw:<12}"
        )
        points = [
            expected(size, labels, latency=us(value), algbw=gb(algbw), busbw=gb(algbw)),
            expected(size, {**labels, "stat": "min"}, latency=us(short)),
            expected(size, {**labels, "stat": "max"}, latency=us(short)),
        ]
        rows.append((text, points))
    header = (
        "size(B)     count     type      redop     latency(us)       min_lat(us)       max_lat(us)       "
        "algbw(GB/s)   busbw(GB/s) "
    )
    return build(["#reduction_on_stream", header], rows)


def pairs(values: Sequence[tuple[int, str]]) -> Table:
    """After 3.6: a column for each pair of PEs, with two decimals."""
    rows = []
    for size, value in values:
        cells = [f"{Decimal(value) / divisor:.2f}" for divisor in (1, 2)]
        points = [
            expected(size, {"direction": "uni", "rank": pair}, bandwidth=gb(cell))
            for pair, cell in zip(("0->1", "2->3"), cells, strict=True)
        ]
        rows.append((f"{size:14d}{cells[0]:>14}{cells[1]:>14}", points))
    return build(["shmem_put_bw_uni (GB/s)", f"{'size (B)':>14}  PE 0 -> PE 1  PE 2 -> PE 3"], rows)


def machine(values: Sequence[tuple[int, str]]) -> Table:
    """Machine readable."""
    labels = {"dtype": "64-bit", "scope": "block"}
    rows = [
        (
            f"&&&& PERF bcast_device___64-bit-block___size__{size}___latency {value} -us",
            [expected(size, labels, latency=us(value))],
        )
        for size, value in values
    ]
    return build(["bcast_device"], rows)


def machine_statistics(values: Sequence[tuple[int, str]]) -> Table:
    """Machine readable, after 3.6: with statistics."""
    rows = []
    for size, value in values:
        names = {"mean": value, "stddev": "0.125000", "min": value, "max": value}
        figures = " ".join(f"{name}={number}" for name, number in names.items())
        points = [
            expected(size, {"direction": "bi", "stat": name.replace("stddev", "stdev")}, bandwidth=gb(number))
            for name, number in names.items()
        ]
        text = f"&&&& PERF_STATS shmem_get_bw_bidi___None___size__{size}___BW +GB/sec {figures} repetitions=10"
        rows.append((text, points))
    return build(["shmem_get_bw_bidi"], rows)


LAYOUTS: Mapping[str, Callable[[Sequence[tuple[int, str]]], Table]] = {
    layout.__name__: layout
    for layout in (
        printf_1, box_1, box_2, box_2_bandwidth, collective_3_1, misprinted_3_1, basic, ping_pong,
        collective_3_3, on_stream_3_3, pairs, machine, machine_statistics,
    )
}  # fmt: skip
"""Every layout by its name. A layout takes sizes with one number of six decimals each."""

OPTIONS = (
    "min_size: {low}, max_size: {high}, step_factor: 2, iterations: {iterations}, warmup iterations: 5, "
    "number of ctas: 32, threads per cta: 256 stride: 1, datatype: int, reduce_op: sum, "
    "threadgroup_scope: all_scopes, atomic_op: inc, dir: write, report_msgrate: 0, "
    "bidirectional: 0, putget_issue :on_stream, use_graph: 0, "
    "use_mmap: 0, mem_handle_type: 0, use_egm: 0"
)


def dump(low: int = 8, high: int = 64, iterations: int = 200) -> list[str]:
    """What each PE prints of its options."""
    return [
        "Runtime options after parsing command line arguments ",
        OPTIONS.format(low=low, high=high, iterations=iterations),
        "Note: Above is full list of options, any given test will use only a subset of these variables.",
    ]


def present(pe: int, per_node: int = 8) -> str:
    """How a PE presents itself."""
    return f"mype: {pe} mype_node: {pe % per_node} device name: NVIDIA H200 bus id: 0 "


def start(pes: int, per_node: int = 8, version: str = "") -> list[str]:
    """What is printed before the first table."""
    lines = [line for _ in range(pes) for line in dump()]
    lines += [present(pe, per_node) for pe in range(pes)]
    return [*lines, f"NVSHMEM v{version}"] if version else lines


def put_bw(values: Sequence[tuple[int, str]], job: str = "shmem_put_bw_uni") -> list[str]:
    """A table of 3.2 or later."""
    return [f"#{job}", "size(B)     scope     BW (GB/sec)     "] + [
        f"{size:<10}  {'None':<8}  {value:<16}" for size, value in values
    ]


def alltoall(
    pes: int, sizes: Sequence[int], *, count: bool = True, scope: str = "block", job: str = "alltoall_device"
) -> list[str]:
    """A collective's table whose busbw is right for `pes`; `sizes` are as printed."""
    lines = [
        f"#{job}",
        f"size(B)     {'count     ' * count}type      scope     latency(us)       algbw(GB/s)   busbw(GB/s) ",
    ]
    for size in sizes:
        latency = 100 + size / 1e4
        algbw = size / 1e3 / latency
        cells = [f"{size:<10}", *([f"{size // 4:<8}"] if count else []), f"{'32-bit':<8}", f"{scope:<8}"]
        cells += [f"{latency:<16.6f}", f"{algbw:<12.3f}", f"{algbw * (pes - 1) / pes:<12.3f}"]
        lines.append("  ".join(cells))
    return lines
