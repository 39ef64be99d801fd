"""Reads DeepEP's tests of expert parallelism (test_intranode, test_internode, test_low_latency).

UCCL-EP's are equal.

Each line with figures stands alone: `[tuning] Best dispatch (FP8): …`, or one line per rank. GB are
10⁹ bytes. Only V2 (test_ep, since April 2026) states how many: those of scale-up (SU), inside a
scale-out (SO) domain. The times of send and recv alone, and of copy and reduce, are not read.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from fabbench.benchmarks.consistency import Printed, is_ordered, printed, product
from fabbench.benchmarks.events import Ahead, Begin, Events, Header, Setting
from fabbench.benchmarks.executions import Execution
from fabbench.benchmarks.findings import finding
from fabbench.benchmarks.tables import Column, Figures, Row, cell_patterns
from fabbench.model.mappings import without_empty
from fabbench.model.patterns import expand, lazy

_FIGURES = (
    r"(?:\[tuning\] Best |\[rank (?P<rank>\d+)\] )?(?P<name>[Dd]ispatch \+ "
    r"combine|[Dd]ispatch|[Cc]ombine)"
    r"(?: \((?P<dtype>\w+)\)| bandwidth)?: (?:SMs \d+, NVL chunk \d+(?:, RDMA chunk \d+)?[:,] )?"
    r"(?:<N> \+ (?P<t><N>) us, |transmit: (?P<transmit><F>) us, notify: <F> us, BW: )?"
    r"(?P<rate><F>) GB/s(?: \((?P<way>RDMA)\), (?P<nvl><F>) GB/s \(NVL\)| \(NVL\)(?:, t: "
    r"(?P<best><F>) us)?"
    r"|, avg_t=(?P<avg><F>) us(?:, min_t=(?P<min><F>) us, max_t=(?P<max><F>) us)?)"
)
_FIXED = r"(?:0|[1-9]\d*)\.\d\d"
_ANY = r"(?:0|[1-9]\d*)(?:\.\d\d)?"
_PART = lazy(expand(_FIGURES, {"F": _FIXED, "N": _ANY}))
_V2 = lazy(
    r"[*#@+-] EP: +(?P<rank>\d+)/\d+ \| (?P<name>(?:expanded |cached )?dispatch|(?:reduced "
    r")?combine): "
    r"(?P<SO>\d+) GB/s \(SO\), (?P<SU>\d+) GB/s \(SU\), (?P<t>\d+\.\d{3}) us, (?P<size>\d{1,18}) "
    r"bytes"
    r" \| (?:copy|reduce): \d+ GB/s, \d+\.\d{3} us"
)
_V2_DTYPE = lazy(r"(?:> )?Testing with .*\buse_fp8_dispatch=([01])\b.*")
_DTYPES = {"0": "BF16", "1": "FP8"}
_LINES = {
    "test_internode": r"\[tuning\] Best .*RDMA.*",
    "test_intranode": r"\[tuning\] Best (?!.*RDMA).*",
    "test_ep": r"[*#@+-] EP: +\d+/\d+ \| .*",
    "test_low_latency": r"(?:\[rank \d+\] )?Dispatch (?:\+ combine )?bandwidth.*",
}
_MAY_GO_ON = lazy(r"\[tuning\](?!.*RDMA).*\(NVL\)\s*")
"""Newer releases print a time behind it."""


FAILED_CHECK = lazy(r"\s*assert .*(?:\bdiff\b|calc_diff|torch\.\w+\(|\.(?:sum|all|eq)\().*")
"""The line of a traceback with a check of data."""


def events(text: str, execution: Execution | None) -> Events | None:
    """Return what a line means, without blanks around it; None: it is not one of these tests'."""
    for case, pattern in _LINES.items():
        layout = (Column(cell=pattern),)
        # The first row of a test; those that follow are read by its layout, without a new header.
        if cell_patterns(layout)[0].fullmatch(text):
            facts = _OVER_NVLINK if case == "test_intranode" else {}
            return (Begin(), Setting(case, facts), Header([layout], is_row=True))
    setting = _setting(text)
    if setting is not None:
        return (setting,) if execution is not None else (Ahead((setting,)),)
    # Figures that are not read.
    is_own = execution is not None and text.startswith(("[tuning] ", "Dispatch send"))
    return () if is_own else None


_OVER_NVLINK = {"transport": "p2p"}
"""What is known of a test whose kernels have no other way."""


def _setting(text: str) -> Setting | None:
    """Return the type of dispatch that V2 states, or what NVSHMEM says of its transport."""
    dtype = _V2_DTYPE.fullmatch(text)
    if dtype is not None:
        return Setting(labels={"dtype": _DTYPES[dtype[1]]})
    from fabbench.catalog.paths import ways  # imported here: few logs need it

    # The line of NVSHMEM's debug text alone; of any other line nothing but the sign is left.
    for way in ways(_OF_NVSHMEM + text.partition(_OF_NVSHMEM)[2]):
        return Setting(facts={way.fact: way.value, "transport": way.network})
    return None


_OF_NVSHMEM = "NVSHMEM INFO "


def _with_figures(row: Row) -> Row | None:
    """Return a row with what its line says; None if it is not whole.

    A line of v2 has one operation; one of v1 has one, or dispatch and combine beside each other.
    """
    text = row.cells[0].strip()
    match = _V2.fullmatch(text)
    if match is not None:
        return _with_figures_of_v2(row, match)
    figures: dict[str, Mapping[str, Printed]] = {}
    labels = {"rank": row.line.stream.rank}
    operations = text.split(" | ")
    parts = [*filter(None, map(_PART.fullmatch, operations))]
    expected = 2 if "Dispatch bandwidth" in text else 1  # one line for dispatch and combine
    if len(parts) != expected or not all(map(_is_whole, parts)):
        return None
    for part in parts:
        labels |= {name: part[name] for name in ("dtype", "rank") if part[name]}
        figures |= _figures(part, is_nvl="(NVL)" in text)
    return row._replace(labels=without_empty(labels), figures=figures) if figures else None


def _is_whole(part: re.Match[str]) -> bool:
    """Return whether the times of an operation can be those of one measurement."""
    least, mean, most = part.group("min", "avg", "max")
    if "+" in part["name"] and not most:  # `Dispatch + combine` always has three times
        return False
    # One that the line lacks is read as nan, which contradicts no order.
    times = [printed(time or "nan") for time in (least, mean, most)]
    return is_ordered(*times)


def _figures(part: re.Match[str], *, is_nvl: bool) -> Figures:
    """Return the figures of one operation, by the network that its bytes went over.

    Label (``operation=dispatch NVL``) → metric → figure: rates are printed in GB/s, times in µs.
    Rates of 0 are left out. `is_nvl`: whether an operation that names no network went over NVLink.
    """
    printed_times = part.group("t", "transmit", "best", "avg")  # a form of the line has one of them
    time = next(filter(None, printed_times), "")
    times = {"time": printed(time, exponent=-6)} if time else {}
    default_way = "NVL" if is_nvl else ""
    # Network → rate: there is one, or that over RDMA and that over NVLink.
    rates = {part["way"] or default_way: part["rate"]}
    if part["nvl"]:
        rates["NVL"] = part["nvl"]
    name = part["name"].lower()
    return {
        f"operation={name} {way}".strip(): {"bandwidth": printed(rate, 9), **times}
        for way, rate in rates.items()
        if float(rate)
    }


def _with_figures_of_v2(row: Row, match: re.Match[str]) -> Row | None:
    """Return a row with the figures of a line of DeepEP v2; None: they contradict each other.

    Its rates are those over scale-out (SO, between nodes) and scale-up (SU, NVLink); 0: not used.
    """
    # The bytes are those of scale-up (SU): its rate and the time have to agree with them.
    name = match["name"]
    size = int(match["size"])
    time = printed(match["t"], exponent=-6)
    low, high = product(printed(match["SU"], exponent=9), time)
    figures = {
        f"operation={name} {domain}": {
            "bandwidth": printed(match[domain], exponent=9),
            "time": time,
        }
        for domain in ("SO", "SU")
        if int(match[domain])
    }
    if not figures or not low <= size <= high:
        return None
    labels = {**row.labels, "rank": match["rank"]}
    if "dispatch" not in name:  # a line above states the type of dispatch alone
        labels["dtype"] = "BF16"
    return row._replace(size=size, labels=labels, figures=figures)


def settle(execution: Execution) -> list[Row]:
    """Return the rows that count; add findings on what their figures leave open."""
    record = execution.record
    if record.case != "test_ep":  # which is v2, whose lines state the bytes
        record.findings.append(finding("size-unstated", "ep"))
    if record.case == "test_internode":
        record.findings.append(finding("rdma-includes-own-node"))
    # Cut there, a line of the newer form looks like a whole one of the older form: the last line
    # does not count if no other is like it.
    last = execution.last_line
    is_last_cut = [*_lines_that_may_be_cut(execution.rows)] == [last]
    return execution.reread_rows(
        lambda row: None if is_last_cut and row.line.number == last else _with_figures(row)
    )


def _lines_that_may_be_cut(rows: Sequence[Row]) -> Iterator[int]:
    for row in rows:
        if _MAY_GO_ON.fullmatch(row.cells[0]):
            yield row.line.number


def slowest(rows: Sequence[Row]) -> list[str]:
    """Return the rank with the lowest rate of each operation, where several print theirs."""
    rates: dict[str, dict[float, str]] = {}  # operation → rate in bytes/s → the rank that has it
    for row in rows:
        for operation, figures in row.figures.items():
            ranks = rates.setdefault(operation, {})
            ranks[figures["bandwidth"].value] = row.labels.get("rank", "")
    slowest_ranks = []
    for label, ranks in rates.items():
        if len({*ranks.values()}) > 1:
            operation = label.removeprefix("operation=")
            rank = ranks[min(ranks)]
            slowest_ranks.append(f"rank {rank} in {operation}")
    return slowest_ranks
