"""Headers and rows of perftest's tables, as the engine reads them, and whether the figures of a row are consistent.

The source prints each column with a fixed number of decimals (perftest_parameters.h, RESULT_FMT and
REPORT_FMT since 2013): a number with fewer is cut off, and two numbers that lost the tab between them can be
separated. Bandwidth is size times message rate, also for sums of two directions.
"""

import math
import re
from collections.abc import Mapping, Sequence

from fabbench.benchmarks.consistency import Printed, is_remains, note, product, warning
from fabbench.benchmarks.engine import (
    COUNT,
    SIZE,
    UNKNOWN,
    Column,
    Layout,
    Row,
    cell_patterns,
    is_ascending,
    read_columns,
)
from fabbench.model.log import Finding, Point
from fabbench.model.messages import LONGEST_QUOTE
from fabbench.model.patterns import lazy
from fabbench.model.units import format_size

UNITS: Mapping[str, float] = {"MiB/sec": float(1 << 20), "Gb/sec": 125e6}
"""Unit → bytes per second: MB (until 24.04) and MiB are both 2^20 (`format_factor`)."""

# No leading zero and a fixed end, so that joined numbers can be split in only one way.
_TWO, _SIX = (rf"(?:0|[1-9]\d{{0,17}})\.\d{{{decimals}}}|-?nan|-?inf" for decimals in (2, 6))
_BANDWIDTH, _RATE = Column("bandwidth", cell=_TWO), Column("message_rate", 1e6, cell=_SIX)
_TIME = Column("latency", 1e-6, cell=_TWO)
_ITERATIONS, CPU, SL = Column("iterations", cell=COUNT), Column("cpu_util", cell=_TWO), Column("sl", cell=r"\d{1,3}")
_EITHER = Column(cell=rf"{_TWO}|{_SIX}")
_CUT = Column(cell="(?!)")  # a header that is cut off: no row below it can be read
_COLUMNS: Mapping[str, Column] = {
    "#bytes": SIZE,
    "#sl": SL,
    "#iterations": _ITERATIONS,
    **{
        rf"bw{name}\[{unit}\]": _BANDWIDTH._replace(stat=stat, factor=factor)
        for unit, factor in (("mi?b/sec", UNITS["MiB/sec"]), ("gb/sec", UNITS["Gb/sec"]))
        for name, stat in (("average", ""), ("(peak)", "{}"), (r"port(\d)", "port {}"))
    },
    r"msgrate\[mpps\]": _RATE,
    r"msgrateport(\d)\[mpps\]": _RATE._replace(stat="port {}"),
    r"cpu_util\[%%?\]": CPU,
    r"t_(min|max|stdev)\[usec\]": _TIME._replace(stat="{}"),
    r"t_typical\[usec\]": _TIME._replace(stat="median"),
    r"t_avg\[usec\]": _TIME,
    r"t_\w+\[cycles\]|99(?:\.9)?%percentile\[cycles\]": Column("cycles", cell=_TWO),
    r"(99(?:\.9)?)%percentile\[usec\]": _TIME._replace(stat="p{}"),
    "tpsaverage": Column("message_rate", stat="tps", cell=_TWO),  # round trips, whatever the latency beside it
}
_HEADER = lazy(r"\s*#bytes\s+(?:#sl\s+)?#iterations(?:\s.*)?", re.DOTALL)
_GAP = lazy(r"(?<=\])\s*|\s{2,}|\t|(?<=#bytes)\s+|(?<=#sl)\s+|(?<=#iterations)\s+")
_MARKS = lazy(r"^#(?=\s)|\*\*|`")

SUMMARIES: Mapping[str, tuple[Layout, str]] = {
    "Mean": (
        (
            *(Column(cell="Mean BW peak:"), _BANDWIDTH._replace(stat="peak", factor=UNITS["Gb/sec"])),
            *(Column(cell="Gb/s, Mean BW avg:"), _BANDWIDTH._replace(factor=UNITS["Gb/sec"]), Column(cell="Gb/s")),
        ),
        "A script's summary: the mean over all devices.",
    ),
    "Total": (
        (Column(cell="Total BW:"), Column("bandwidth", 1e9), Column(cell="GB/s")),
        "A script's summary: the sum over all devices, both directions added.",
    ),
}
"""First word → layout and meaning of a line of scripts that run a benchmark on every device and print one figure.

`Mean BW peak: 734.26 Gb/s, Mean BW avg: 733.92 Gb/s` is the mean of `ib_write_bw` over all devices, in bits;
`Total BW: 278GB/s` is the sum of `fi_rma_bw` over all EFA domains, in bytes, both directions added (both from
modal-labs/multinode-training-guide: health-checks/modal_bw_ib.py and modal_bw_efa.py).
"""


def plain(text: str) -> str:
    """Return a line without the markup of documents: a comment sign, bold, and code marks."""
    if "\xa0" in text:
        text = text.replace("\xa0", " ")
    if "Total BW" in text:
        text = text.replace("GB/s", " GB/s")
    return _MARKS.sub("", text) if "#" in text[:1] or "*" in text or "`" in text else text


def read_header(text: str, *, cycles: bool) -> Sequence[Layout]:
    """Return the layouts of the rows below a header; empty for any other line. `cycles`: they are not usec (-C)."""
    if "#bytes" not in text or _HEADER.fullmatch(text) is None:
        return ()
    layout = read_columns([name for name in _GAP.split(text) if name.strip()], _COLUMNS)
    if UNKNOWN in layout:
        return ((SIZE, _ITERATIONS, _CUT),)
    if cycles:
        layout = tuple(each._replace(metric="cycles") if each.metric == "latency" else each for each in layout)
    if not any(column.metric == "latency" and not column.stat for column in layout):
        # Before 2016 there was no average: `--output=latency` printed t_typical, so that is the main figure.
        layout = tuple(column._replace(stat="") if column.stat == "median" else column for column in layout)
    figures = layout.index(_ITERATIONS) + 1
    layout = (*layout[: figures + 1], *(column._replace(joined=True) for column in layout[figures + 1 :]))
    if text[0].isspace():  # the second half of a row that was torn within its size has no indent
        layout = (SIZE._replace(cell=r"(?<=\s)\d{1,18}"), *layout[1:])
    # Gb/sec below 0.1 have six decimals.
    six = (each._replace(cell=_SIX) if each.factor == UNITS["Gb/sec"] else each for each in layout)
    return (layout, tuple(six)) if any(each.factor == UNITS["Gb/sec"] for each in layout) else (layout,)


def is_remains_of_row(cells: Sequence[str], layout: Layout) -> bool:
    """Return whether these are what is left of a row, with either number of decimals."""
    counts = [column for column in layout if column.metric in {"size", "sl", "iterations"}]
    return is_remains(cells, cell_patterns((*(SIZE for _ in counts), *(_EITHER for _ in layout[len(counts) :]))))


def header_finding(layout: Layout) -> Finding | None:
    """Return what a reader should know about all rows of a table."""
    if any(column.metric == "cycles" for column in layout):
        return CYCLES
    stats = [column.stat for column in layout if column.metric == "latency"]
    return OLD_LAYOUT if "min" in stats and "median" not in stats else None


def way_of_program(case: str | None) -> str:
    """Return `one-way` or `round-trip`: what a program prints as latency; empty: unknown.

    It prints half of the round trip, or all of it (`rtt_factor` in the source).
    """
    verb = (case or "").split("_")[1:2]
    return {"read": "round-trip", "atomic": "round-trip"}.get(verb[0], "one-way") if verb else ""


def _ways(row: Row) -> Sequence[str]:
    """Return what a latency may be: its product with the rate of round trips shows it, where that is printed."""
    latency, rate, stated = row.main("latency"), row.figures.get("tps", {}).get("message_rate"), row.labels.get("way")
    ways = [stated] if stated else ["one-way", "round-trip"]
    if latency is None or rate is None or not latency.value or not rate.value:
        return ways
    low, high = product(latency, rate)
    trips = {"one-way": 0.5, "round-trip": 1.0}
    return [way for way in ways if 0.998 * low <= trips[way] <= 1.002 * high < 4 * low]


def fits(row: Row) -> bool:
    """Return whether the figures of a row can be those of one measurement."""
    bandwidth, rate, peak = row.main("bandwidth"), row.main("message_rate"), row.figures.get("peak")
    if peak and bandwidth and peak["bandwidth"].value and peak["bandwidth"].high < bandwidth.low:
        return False
    if row.size and bandwidth and rate and not bandwidth.overlaps(rate.low * row.size, rate.high * row.size):
        return False
    return bool(_ways(row)) and is_ascending(row)


def true_unit(bandwidth: Printed, rate: Printed, size: int) -> str:
    """Return the only unit in which a bandwidth is size times message rate; empty: none, or not known."""
    if bandwidth.high > 2 * bandwidth.low or rate.high > 2 * rate.low:
        return ""
    low, high = rate.low * size, rate.high * size
    units = [unit for unit, factor in UNITS.items() if bandwidth.times(factor).overlaps(low, high)]
    return units[0] if len(units) == 1 else ""


def points(row: Row) -> list[Point]:
    """Return the points of a row: one for all figures with the same labels.

    Times are multiples of 1e-8 s, which rounding makes exact again.
    perftest prints zero for what it did not measure (`BW peak`), or for what is below the last decimal.
    """
    out, ways, name = [], _ways(row), row.cell("sl")
    for stat, figures in (row.figures if not row.cell("cycles") else {"": {}, **row.figures}).items():
        measured = {metric: round(each.value, 12) for metric, each in figures.items() if 0 < each.value < math.inf}
        if not measured and stat:
            continue
        labels = {label: value for label, value in row.labels.items() if value}
        if "latency" in figures and len(ways) == 1:
            labels["way"] = ways[0]
        if stat == "tps":
            labels["way"] = "round-trip"
        elif stat.startswith("port"):
            labels["name"] = stat
        elif stat:
            labels["stat"] = stat
        if name and "name" not in labels:
            labels["name"] = f"sl {name}"
        out.append(Point(row.size, labels, tuple(measured), tuple(measured.values())))
    return out


def mismatch(row: Row) -> Sequence[Finding]:
    """Return a finding if a bandwidth is size times message rate in a unit other than the header's."""
    bandwidth, rate = row.main("bandwidth"), row.main("message_rate")
    factor = next((each.factor for each in row.layout if each.metric == "bandwidth"), 0.0)
    unit = true_unit(bandwidth.times(1 / factor), rate, row.size) if bandwidth and rate else ""
    if not unit or UNITS[unit] == factor:
        return ()
    stated = next(each for each in UNITS if each != unit)
    meaning = f"At {format_size(row.size)} the printed bandwidth fits size and message rate in {unit}, not in {stated}."
    advice = "Such rows are left out as damaged; check what changed the header."
    return (warning("unit-mismatch", meaning, advice, line=row.line.text.strip()[:LONGEST_QUOTE]),)


def no_size(reason: str, text: str) -> Finding:
    """Return the finding that a figure has no size, preceded by `reason`."""
    meaning, advice = f"{reason} The size is not stated: it is given as 0.", "Keep perftest's own table in the log."
    return note("size-unstated", meaning, advice, line=text.strip()[:LONGEST_QUOTE])


def cpu_frequency(text: str) -> Finding:
    """Return the finding that perftest's clock may be off."""
    meaning = "perftest measures in CPU cycles, and the CPUs' frequencies differ."
    advice = "Set the CPUs' governor to performance, or run with -F knowing that figures may be off."
    return note("cpu-frequency", meaning, advice, line=text[:LONGEST_QUOTE])


AMBIGUOUS_WAY = note(
    "way-ambiguous",
    "The log has neither title nor command line: write and send tests print half of a round trip, "
    "read and atomic tests all of it.",
    "Keep perftest's title (or the command line) in the log.",
)
AMBIGUOUS_UNIT = warning(
    "unit-ambiguous",
    "perftest's JSON records no unit, and size, bandwidth and message rate do not imply it: the bandwidth is left out.",
    "Keep the printed table, whose header states the unit.",
)
CYCLES = warning(
    "unit-cycles",
    "Times were printed in CPU cycles, and the log does not show how long one is: they are left out.",
    "Run without -C.",
)
BOTH_SIDES = note("both-sides", "Client and server printed their rows into one text: each measurement is there twice.")
OLD_LAYOUT = note(
    "median-only", "This perftest (before 2016) prints no average: the main figure is t_typical, the median."
)
