"""NIXL's nixlbench: transfers of blocks between two agents. Read only: fabbench does not start it.

Until August 2025 it printed six significant digits without trailing zeros, and rates in three
units.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from fabbench.benchmarks import Signature, engine
from fabbench.benchmarks.consistency import Printed, printed, product
from fabbench.benchmarks.standard import ReadBenchmark
from fabbench.model.patterns import lazy

_OLD, _RATE, _TIME = r"\d{1,18}(?:\.\d{1,6})?(?:e[+-]\d\d)?", r"\d{1,18}\.\d{6}", r"\d{1,18}\.\d"
_COLUMNS: Mapping[str, engine.Column] = {
    r"blocksize\(b\)": engine.SIZE,
    "batchsize": engine.Column(label="batch", cell=engine.COUNT),
    r"avglat\.\(us\)": engine.Column("latency", 1e-6, cell=_TIME),
    r"b/w\(gb/sec\)": engine.Column("bandwidth", 1e9, cell=_RATE),
    r"b/w\(mib/sec\)": engine.Column("mib"),
    r"b/w\(gib/sec\)": engine.Column("gib"),
    r"networkutil\(%\)": engine.Column(cell=_RATE),
    r"aggregateb/w\(gb/sec\)": engine.Column("bandwidth", 1e9, "aggregate", cell=_RATE),
    r"avg(prep|post|tx)\(us\)": engine.Column("time", 1e-6, "{}", cell=_TIME),
    r"p99(prep|post|tx)\(us\)": engine.Column("time", 1e-6, "p99-{}", cell=_TIME),
}
_NAMES = lazy(r"Batch Size|\S[^()]{0,60}\([^()]*\)")
_SETTING = lazy(
    r"(Backend|Enable pt|\w+ seg type|Op type|Num threads|Check consistency) \(--[^)]*\)\s*: *(\S+)"
)


def _statement(text: str, execution: engine.Execution | None) -> engine.Statement | None:
    if text.lstrip().startswith("Block Size (B)"):
        layout = engine.read_columns(_NAMES.findall(text), _COLUMNS)
        if "MiB" in text:
            layout = tuple(
                each if each.cell == engine.COUNT else each._replace(cell=_OLD) for each in layout
            )
        return engine.Statement(
            begins=True, layouts=(layout,), finding=engine.unknown_columns(layout, text)
        )
    if (match := _SETTING.match(text)) is not None:
        name = match[1].lower().replace(" ", "_").removeprefix("num_")
        value = int(match[2]) if match[2].isdecimal() else match[2]
        facts = (
            {name: value} if name != "check_consistency" else {"checked": "yes" if value else "no"}
        )
        return engine.Statement(above=True, facts=facts)
    if execution is not None and text.lstrip().startswith("Consistency check failed"):
        return engine.Statement(wrong=1)
    return engine.NO_MEANING if execution is not None and text.startswith("-----") else None


def _six_digits(cell: str, factor: float) -> Printed:
    exponent = int(f"{float(cell):.5e}".partition("e")[2])
    return (
        printed(cell, decimals=5 - exponent).times(factor)
        if "e" not in cell
        else printed(cell).times(factor)
    )


def _fits(row: engine.Row, threads: int) -> bool:
    """Return whether the rate is that of the latency, which is of one block also where there are several pairs."""
    latency, bandwidth = row.main("latency"), row.main("bandwidth")
    if latency is None or bandwidth is None or not row.size:
        return False
    mib, gib = row.cell("mib"), row.cell("gib")
    if mib and gib:
        latency = _six_digits(row.cell("latency"), 1e-6)
        rates = [
            _six_digits(row.cell("bandwidth"), 1e9),
            _six_digits(mib, 1 << 20),
            _six_digits(gib, 1 << 30),
        ]
        low, high = max(rate.low for rate in rates), min(rate.high for rate in rates)
        bandwidth = Printed(bandwidth.value, low, high)
        if low > high:
            return False
    low, high = product(latency, bandwidth)
    return low <= row.size * threads <= high * 1.01 if threads > 1 else low <= row.size <= high


def _settle(execution: engine.Execution) -> Sequence[engine.Row]:
    pairs = ((row.main("latency"), row.main("bandwidth"), row.size) for row in execution.rows)
    in_flight = sorted(
        latency.value * rate.value / size
        for latency, rate, size in pairs
        if latency and rate and size
    )
    threads = int(
        execution.record.facts.get("threads", round([*in_flight, 1][len(in_flight) // 2]))
    )  # as most show

    def read(row: engine.Row) -> engine.Row | None:
        # A last figure of few digits may be a longer one that was cut, unless something follows it.
        short = row.cell("mib") and len(row.cells[-1].replace(".", "").lstrip("0")) < 6
        may_be_cut = short and row.line.number == execution.last and row.line.text[-1:] != " "
        return row if _fits(row, threads) and not may_be_cut else None

    return execution.kept(read)


TABLE = engine.Table(
    benchmark="nixlbench",
    program="nixlbench",
    case="nixlbench",
    statement=_statement,
    settle=_settle,
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
