"""Reports of all_reduce_bench.py of torch.distributed (stas00/ml-engineering) and its copies.

Sentences, until 2025-01: ``The average bandwidth of all_reduce with a 4.0GB payload (50 trials, 16
ranks):`` and two result lines, which are one row here. GB and GBps are 1e9, Gbps is 1e9 bits per
second.

A Markdown table since 2025-01-22: ``| payload | busbw | algbw |``, with payloads in KiB, MiB, GiB,
and GBps is 1e9. (For a few weeks before that payloads were in GB, and GBps was 2^30: such rows are
damaged.) ``--profile_stability`` has no payload column, and one row per trial. Since 2026 there may
be columns for the latency of one call, and no bandwidths where it is short. There is no closing
line.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal

from fabbench.benchmarks import LogReadings, Reader
from fabbench.benchmarks.consistency import (
    ALL_REDUCE,
    is_ordered,
    is_remains,
)
from fabbench.benchmarks.events import Ahead, Begin, Event, Events, Header, Setting
from fabbench.benchmarks.executions import Assembler, Execution, Table
from fabbench.benchmarks.findings import finding
from fabbench.benchmarks.tables import (
    COUNT,
    NUMBER,
    Cells,
    Column,
    Layout,
    Row,
    cell_patterns,
)
from fabbench.model.compat import override
from fabbench.model.log import NO_STEP, NO_STREAM, Line, Marker, MutableFacts, Stream
from fabbench.model.patterns import Match, lazy

_SENTENCE = lazy(
    r"(?:.*\s)?The (?:average bandwidth(?: and the per-call latency)?|\d\S*GiB payload "
    r"bandwidth) of (\w+)"
    r" (?:with a|over) .*"
)
_COUNTS = lazy(r"(\d{1,9}) (ranks|trials|warmup)")
_PAYLOAD = lazy(r"(?<!\S)(\d{1,15}(?:\.\d{1,18})?(?:e[+-]?[01]?\d)?)([KMGT]?i?B) payload ")
_METHOD = lazy(r" warmups / \d+ trials, (.*)\):")
_ENVIRONMENT = lazy(
    r"- software: `?torch=(?P<torch>[\w.+-]+)`?, `?(?:cuda=(?P<cuda>[\w.]+))`?, "
    r"`?nccl=(?P<nccl>\d+(?:\.\d+)+|\(\d+(?:, \d+)+\))`?.*"
)
_FAILED = lazy(
    r"\s*(?:\[rank\d+\]: ?)?(?:[a-z_]\w*\.)*[A-Z]\w*Error: .*|\s*!!! No payload (?:of \w+ "
    r")?was "
    r"measured !!!\s*"
)
_STOPPED = lazy(r"\s*!!! Stopped (?:(?!before ).)*before .* ran out of memory on some rank !!!\s*")
_RESULT = r"(\d+\.\d+ ?[KMGT]?[bB]ps)(?: \(std: (\d+\.\d+)\))? \((\d+\.\d+ ?[KMGT]?[bB]ps)\)"
_FIRST = lazy(rf"(?:.*\s)?algbw: {_RESULT}\s*")
_BOTH = lazy(rf"(?:.*\s)?algbw: {_RESULT} (?:(?:(?!algbw: ).)*\s)?busbw: {_RESULT}\s*")

_PREFIXES = ("", "K", "M", "G", "T")


def _units(name: str, base: float, bytes_each: float = 1.0) -> dict[str, float]:
    """Return the units with prefixes → base units: bytes, or bytes per second."""
    units: dict[str, float] = {}
    for power, prefix in enumerate(_PREFIXES):
        units[f"{prefix}{name}"] = base**power * bytes_each
    return units


_BINARY_SIZES = {"B": 1.0, **_units("iB", 1024.0)}
_BYTES = {**_BINARY_SIZES, **_units("B", 1000.0)}
_RATES = (
    *_units("Bps", 1000.0).items(),
    *_units("bps", 1000.0, 1 / 8).items(),
)
_RATE = Column(cell=r"\d+\.\d+", units=_RATES)
_ALGBW = _RATE._replace(metric="algbw")
_BUSBW = _RATE._replace(metric="busbw")
_TIME = Column("time", cell=r"\d+\.\d", units=(("us", 1e-6),))
_COLUMNS: Mapping[str, Column] = {
    "payload": Column("size", cell=NUMBER, units=tuple(_BINARY_SIZES.items())),
    "busbw": _BUSBW,
    "algbw": _ALGBW,
    "latency median": _TIME._replace(stat="median"),
    "p99": _TIME._replace(stat="p99"),
    "mean": _TIME._replace(stat="mean"),
    "calls": Column(cell=COUNT),
}


def _result_lines(rate: Column) -> Iterator[Layout]:
    """Return the columns of a result line of a sentence, without and with a deviation."""
    in_bits = rate._replace(metric=f"{rate.metric} in bits")
    yield (rate, in_bits)
    deviation = Column(rate.metric, 1e9, "stdev", r"\d+\.\d+")  # in GBps, the unit of the rate
    yield (rate, deviation, in_bits)


_IN_SENTENCES = [
    (*algbw, *busbw) for algbw in _result_lines(_ALGBW) for busbw in _result_lines(_BUSBW)
]


# ---------------------------------------------------------------- what lines mean


def _events(text: str, execution: Execution | None) -> Events | None:
    """Return what a line that is no row says; None: it is none of this program's.

    A sentence, a header, the versions above a table, or the end of a sweep without memory. Cheap
    tests come before patterns, as most lines are others.
    """
    if "The " in text:
        sentence = _SENTENCE.fullmatch(text)
        if sentence is not None:
            return _sentence_events(text, sentence[1])
    if "|" in text:
        layouts = _layouts(text)
        if layouts:
            return _header_events(layouts, execution)
    if text.startswith("- software: "):
        environment = _ENVIRONMENT.fullmatch(text)
        if environment is not None:
            return (_versions_ahead(environment),)
    if execution is not None and _STOPPED.fullmatch(text):
        return (finding("range-reduced", "torch", line=text.strip()),)
    return None


def _sentence_events(text: str, case: str) -> Events:
    """Read the sentence above the two result lines of a payload, or (with warm-ups) above a table.

    A cut one begins an execution whose rows are damaged: no columns are known.
    """
    counts = _COUNTS.findall(text)
    facts: MutableFacts = {name: int(count) for count, name in counts}
    is_whole = text.rstrip().endswith("):")
    if not is_whole or not {"ranks", "trials"} <= facts.keys():
        return (Begin(),)
    method = _METHOD.search(text)
    if method is not None:
        facts["method"] = method[1]
    events: list[Event] = [Begin(), Setting(case, facts)]
    payload = _PAYLOAD.search(text)
    if payload is not None:
        events += _payload_events(*payload.groups())
        is_above_results = "warmup" not in facts
        events += [Header(_IN_SENTENCES)] if is_above_results else []
    return events


def _payload_events(number: str, unit: str) -> Iterator[Event]:
    """Yield the size of the rows below a sentence, and a note if its digits may be rounded."""
    size = round(Decimal(number) * int(_BYTES[unit]))
    yield Setting(size=size)
    _, _, decimals = number.partition(".")
    if len(decimals) == 3:  # as many as it rounds to: a payload with fewer is exact
        yield finding("size-truncated", "torch", size=size)


def _header_events(layouts: Sequence[Layout], execution: Execution | None) -> Events:
    """Return what names of columns mean: they begin an execution, unless a sentence above did."""
    is_announced = execution is not None and not execution.layouts
    if is_announced:
        return (Header(layouts),)
    # The reports with latencies are of any collective.
    case = "all_reduce" if len(layouts) == 1 else None
    return (Begin(), Setting(case), Header(layouts))


def _layouts(text: str) -> Sequence[Layout]:
    """Return how rows below names of columns may look; none for another line.

    With columns of latency, rows may lack their rates.
    """
    bare = text.strip()
    names = [name.strip() for name in bare.strip("|").split("|")]
    is_known = {"busbw", "algbw"} <= {*names} <= _COLUMNS.keys()
    if not is_known or not bare.endswith("|"):
        return ()
    columns = tuple(_COLUMNS[name] for name in names)
    if not any(column.stat for column in columns):
        return (columns,)
    without_rates = tuple(column for column in columns if column not in {_ALGBW, _BUSBW})
    return (columns, without_rates)


def _versions_ahead(environment: Match) -> Ahead:
    numbers = re.findall(r"\d+", environment["nccl"])
    facts = {**environment.groupdict(), "nccl": ".".join(numbers)}
    return Ahead((Setting(facts=facts),))


# ---------------------------------------------------------------- rows


def _cells(text: str) -> Cells:
    """Return the figures of a line that has both rates in a sentence; of any other, its words."""
    match = _BOTH.fullmatch(text)
    if match is None:
        return Cells(text)
    printed = [cell for cell in match.groups() if cell]
    return Cells(" ".join(cell.replace(" ", "") for cell in printed))


def _remains(text: str, layout: Layout) -> bool:
    # Whether a line may be what is left of a row, in sentences or in a table.
    if layout in _IN_SENTENCES:  # a result line whose other one is missing
        return text.lstrip().startswith(("algbw:", "busbw:"))
    if "|" not in text:
        return False
    words = text.replace("|", " ").split()
    return is_remains(words, cell_patterns(layout))


def _begins_row(text: str) -> bool:
    return "algbw" in text and _FIRST.fullmatch(text) is not None


def _fits(row: Row) -> bool:
    """Return whether times ascend, rates are the same in bits, and busbw is that of the ranks."""
    of_stats = [row.figures.get(stat) for stat in ("median", "p99")]  # None: not printed
    times = [figures["time"] for figures in of_stats if figures]
    if not row.size or not is_ordered(*times):
        return False
    is_same = _is_same_in_bits(row, "algbw") and _is_same_in_bits(row, "busbw")
    return is_same and _is_busbw(row)


def _is_same_in_bits(row: Row, metric: str) -> bool:
    """Return whether a rate is the same in bits per second, where the row has both."""
    rate = row.main(metric)
    bits = row.read(f"{metric} in bits")
    if rate is None or bits is None:
        return True
    return rate.overlaps(bits.low, bits.high)


def _is_busbw(row: Row) -> bool:
    """Return whether the bus bandwidth of an all-reduce is that of its ranks, if that is known."""
    ranks = row.record.facts.get("ranks")
    if row.record.case != "all_reduce" or not isinstance(ranks, int):
        return True
    return not ranks or ALL_REDUCE.of(ranks).fits(row.bus_ratio())


TABLE = Table(
    benchmark="torch",
    program="torch",
    events=_events,
    failed=_FAILED,
    failing="No module named 'torch'",
    fits=_fits,
    cells=_cells,
    begins_row=_begins_row,
    remains=_remains,
    over_mpi=False,
    ascending=False,
)


class TorchReader(Reader):
    """Reads the reports: each rank that prints has one of its own."""

    def __init__(self) -> None:
        self._by_stream: dict[Stream, Assembler] = {}
        self._marker = NO_STEP  # The last one of fabbench

    @override
    def feed(self, line: Line) -> LogReadings | None:
        assembler = self._assembler_of(line.stream)
        is_of_any = line.stream == NO_STREAM or TABLE.failed.fullmatch(line.text)
        if assembler.execution is None and is_of_any:
            # An error of any rank is the failure of a table that is open in another stream, and a
            # line without a label has lost it.
            with_tables = (other for other in self._by_stream.values() if other.execution)
            assembler = next(with_tables, assembler)
        return assembler.feed(line)

    def _assembler_of(self, stream: Stream) -> Assembler:
        """Return the assembler of a stream; a new one learns of the step that it is in."""
        assembler = self._by_stream.get(stream)
        if assembler is None:
            assembler = self._by_stream[stream] = Assembler(TABLE)
            assembler.mark(self._marker)
        return assembler

    @override
    def mark(self, marker: Marker) -> LogReadings:
        self._marker = marker
        assemblers = self._by_stream.values()
        return [reading for assembler in assemblers for reading in assembler.mark(marker)]

    @override
    def close(self) -> LogReadings:
        assemblers = self._by_stream.values()
        return [reading for assembler in assemblers for reading in assembler.close()]
