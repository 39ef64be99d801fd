"""NIXL's nixlbench: transfers of blocks between two agents. Read only: fabbench does not start it.

Until August 2025 it printed six significant digits, without trailing zeros.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from fabbench.benchmarks import Signature
from fabbench.benchmarks.consistency import product
from fabbench.benchmarks.events import Ahead, Begin, Events, Header, Setting, Wrong
from fabbench.benchmarks.executions import Execution, Table
from fabbench.benchmarks.standard import ReadBenchmark
from fabbench.benchmarks.tables import COUNT, SIZE, Column, Row, read_columns, unknown_columns
from fabbench.model.patterns import lazy

_DIGITS = 6
"""Significant digits of a figure without trailing zeros: one with fewer may be cut."""
_SIX_DIGITS = r"\d{1,18}(?:\.\d{1,6})?(?:e[+-]\d\d)?"
_RATE = r"\d{1,18}\.\d{6}"
_TIME = r"\d{1,18}\.\d"
_COLUMNS: Mapping[str, Column] = {
    r"blocksize\(b\)": SIZE,
    "batchsize": Column(label="batch", cell=COUNT),
    r"avglat\.\(us\)": Column("latency", 1e-6, cell=_TIME),
    r"b/w\(gb/sec\)": Column("bandwidth", 1e9, cell=_RATE),
    r"b/w\([mg]ib/sec\)": Column("the same in another unit"),
    r"networkutil\(%\)": Column(cell=_RATE),
    r"aggregateb/w\(gb/sec\)": Column("bandwidth", 1e9, "aggregate", cell=_RATE),
    r"avg(prep|post|tx)\(us\)": Column("time", 1e-6, "{}", cell=_TIME),
    r"p99(prep|post|tx)\(us\)": Column("time", 1e-6, "p99-{}", cell=_TIME),
}
_NAMES = lazy(r"Batch Size|\S[^()]{0,60}\([^()]*\)")
_SETTING = lazy(
    r"(Backend|Enable pt|\w+ seg type|Op type|Num threads|Check consistency) \(--[^)]*\)\s*: *(\S+)"
)


def _events(text: str, execution: Execution | None) -> Events | None:
    if text.lstrip().startswith("Block Size (B)"):
        return _header(text)
    setting = _SETTING.match(text)
    if setting is not None:
        return (Ahead((Setting(facts=_setting(*setting.groups())),)),)
    if execution is None:
        return None
    if text.lstrip().startswith("Consistency check failed"):
        return (Wrong(),)
    return () if text.startswith("-----") else None


def _header(text: str) -> Events:
    layout = read_columns(_NAMES.findall(text), _COLUMNS)
    if "MiB" in text:
        layout = tuple(
            column if column.cell == COUNT else column._replace(cell=_SIX_DIGITS)
            for column in layout
        )
    return (Begin(), Header([layout]), *unknown_columns(layout, text))


def _setting(name: str, value: str) -> Mapping[str, str | int]:
    number = int(value) if value.isdecimal() else value
    if name == "Check consistency":
        return {"checked": "yes" if number else "no"}
    return {name.lower().replace(" ", "_").removeprefix("num_"): number}


def _fits(row: Row, threads: int) -> bool:
    """Return whether the rate is that of the latency, which is of one block.

    Also where there are several pairs.
    """
    latency = row.main("latency")
    bandwidth = row.main("bandwidth")
    if latency is None or bandwidth is None or not row.size:
        return False
    low, high = product(latency, bandwidth)
    slack = 1.01 if threads > 1 else 1.0
    return low <= row.size * threads <= high * slack


def _settle(execution: Execution) -> Sequence[Row]:
    stated = execution.record.facts.get("threads", _usual_threads(execution.rows))
    threads = max(int(stated), 1)

    def read(row: Row) -> Row | None:
        is_last = row.line.number == execution.last_line
        may_be_cut = is_last and _may_go_on(row)
        return row if _fits(row, threads) and not may_be_cut else None

    return execution.kept(read)


def _usual_threads(rows: Sequence[Row]) -> int:
    """Return how many blocks are in flight at once in most rows."""
    in_flight: list[float] = []
    for row in rows:
        latency = row.main("latency")
        rate = row.main("bandwidth")
        if latency and rate and row.size:
            in_flight.append(latency.value * rate.value / row.size)
    in_flight.sort()
    return round(in_flight[len(in_flight) // 2]) if in_flight else 1


def _may_go_on(row: Row) -> bool:
    """Return whether a last figure of few digits may be a longer one that was cut.

    Not if a blank follows it. Only the older format, which has a column of MiB, omits trailing
    zeros.
    """
    if not row.cell("the same in another unit") or row.line.text.endswith(" "):
        return False
    last = row.cells[-1]
    digits = last.replace(".", "").lstrip("0")
    return len(digits) < _DIGITS


TABLE = Table(
    benchmark="nixlbench", program="nixlbench", case="nixlbench", events=_events, settle=_settle
)


class Nixlbench(ReadBenchmark):
    """The benchmark ``nixlbench``."""

    name = "nixlbench"
    network_shown = "UCX_LOG_LEVEL=info, UCX prints it"
    between_two = True
    default_metrics = ("bandwidth", "latency", "time")
    resolution = MappingProxyType({"latency": (1e-7,)})
    signatures = (Signature("Block Size (B)", r"Block Size \(B\)\s+Batch Size\s+"),)
    first_words = (
        "Block Size (B)",
        "Backend (",
        "seg type (",
        "Op type (",
        "Num threads (",
        "Check consistency (",
    )


BENCHMARK = Nixlbench()
