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
from collections.abc import Mapping, Sequence
from decimal import Decimal

from fabbench.benchmarks import Reader, Reading, engine
from fabbench.benchmarks.consistency import (
    ALL_REDUCE,
    ANYTHING,
    is_ordered,
    is_remains,
    note,
    ratios,
    warning,
)
from fabbench.model.compat import override
from fabbench.model.log import Line, Marker, Stream
from fabbench.model.patterns import lazy

_SENTENCE = lazy(
    r"(?:.*\s)?The (?:average bandwidth(?: and the per-call latency)?|\d\S*GiB payload "
    r"bandwidth) of (\w+)"
    r" (?:with a|over) .*"
)
_COUNTS = lazy(r"(\d{1,9}) (ranks|trials|warmup)")
_PAYLOAD = lazy(r"(?<!\d)(\d++(?:\.\d++)?(?:e[+-]?\d++)?)([KMGT]?i?B) payload ")
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

_POWERS = tuple(enumerate(("", *"KMGT")))
_SIZES = tuple((f"{letter}iB" if letter else "B", 1024.0**power) for power, letter in _POWERS)
_RATES = tuple(
    (f"{letter}{unit}ps", 1000.0**power / bits)
    for power, letter in _POWERS
    for unit, bits in (("B", 1), ("b", 8))
)
_BYTES = {**dict(_SIZES), **{f"{letter}B": 1000.0**power for power, letter in _POWERS}}
_ALGBW, _BUSBW = (
    engine.Column(name, cell=r"\d+\.\d+", units=_RATES) for name in ("algbw", "busbw")
)
_TIME = engine.Column("time", cell=r"\d+\.\d", units=(("us", 1e-6),))
_COLUMNS: Mapping[str, engine.Column] = {
    "payload": engine.Column("size", cell=r"\d+(?:\.\d+)?", units=_SIZES),
    "busbw": _BUSBW,
    "algbw": _ALGBW,
    "latency median": _TIME._replace(stat="median"),
    "p99": _TIME._replace(stat="p99"),
    "mean": _TIME._replace(stat="mean"),
    "calls": engine.Column(cell=engine.COUNT),
}
_BAR = engine.Column(cell=r"\|")


def _line(rate: engine.Column, deviations: int) -> engine.Layout:
    """Return the columns of one line of a sentence.

    A deviation is in the unit of the rate, GBps.
    """
    deviation = engine.Column(rate.metric, 1e9, "stdev", r"\d+\.\d+")
    return (rate, *(deviation,) * deviations, rate._replace(metric=f"{rate.metric} in bits"))


_IN_SENTENCES = [
    (*_line(_ALGBW, first), *_line(_BUSBW, second)) for first in (0, 1) for second in (0, 1)
]


def _cells(text: str) -> engine.Cells:
    if "|" in text:
        stripped = text.strip()
        whole = stripped[:1] == stripped[-1:] == "|"
        return engine.Cells(f"| {stripped[1:-1].replace('|', ' ')} |" if whole else stripped)
    if (match := _BOTH.fullmatch(text)) is not None:
        text = " ".join(cell.replace(" ", "") for cell in match.groups() if cell)
    return engine.Cells(text)


def _remains(text: str, layout: engine.Layout) -> bool:
    if layout in _IN_SENTENCES:
        return text.lstrip().startswith(("algbw:", "busbw:"))
    return "|" in text and is_remains(
        text.replace("|", " ").split(), engine.cell_patterns(layout)[1:-1]
    )


def _statement(text: str, execution: engine.Execution | None) -> engine.Statement | None:
    if "The " in text and (said := _sentence(text)) is not None:
        return said
    if "|" in text and (layouts := _header(text)):
        announced = execution is not None and not execution.layouts
        return engine.Statement(
            begins=not announced, case=None if announced else "all_reduce", layouts=layouts
        )
    if text.startswith("- software: ") and (match := _ENVIRONMENT.fullmatch(text)) is not None:
        facts = {**match.groupdict(), "nccl": ".".join(re.findall(r"\d+", match["nccl"]))}
        return engine.Statement(above=True, facts=facts)
    if execution is not None and _STOPPED.fullmatch(text):
        meaning, advice = (
            "The sweep ended early because memory ran out.",
            "Choose sizes that fit, or free GPU memory.",
        )
        return engine.Statement(
            finding=warning("range-reduced", meaning, advice, line=text.strip())
        )
    return None


def _sentence(text: str) -> engine.Statement | None:
    match = _SENTENCE.fullmatch(text)
    if match is None:
        return None
    facts: dict[str, str | int] = {name: int(count) for count, name in _COUNTS.findall(text)}
    payload, method, size, finding = _PAYLOAD.search(text), _METHOD.search(text), None, None
    if not {"ranks", "trials"} <= facts.keys() or not text.rstrip().endswith("):"):
        return engine.Statement(begins=True)
    if method is not None:
        facts["method"] = method[1]
    if payload is not None:
        size = int((Decimal(payload[1]) * int(_BYTES[payload[2]])).to_integral_value())
        if len(payload[1].partition(".")[2]) == 3:
            finding = note(
                "size-truncated",
                f"The payload is printed with three decimals: {size} bytes are assumed.",
            )
    layouts = () if "warmup" in facts or size is None else _IN_SENTENCES
    return engine.Statement(
        begins=True, case=match[1], facts=facts, layouts=layouts, size=size, finding=finding
    )


def _header(text: str) -> Sequence[engine.Layout]:
    names = [name.strip() for name in text.strip().strip("|").split("|")]
    if not ({"busbw", "algbw"} <= {*names} <= _COLUMNS.keys() and text.rstrip().endswith("|")):
        return ()
    columns = (_BAR, *(_COLUMNS[name] for name in names), _BAR)
    short = tuple(column for column in columns if column.metric not in {"algbw", "busbw"})
    return (columns, short) if any(column.stat for column in columns) else (columns,)


def _fits(row: engine.Row) -> bool:
    algbw, busbw, ranks = row.main("algbw"), row.main("busbw"), row.record.facts.get("ranks")
    stats = [row.figures[stat]["time"] for stat in ("median", "p99") if stat in row.figures]
    if not row.size or not is_ordered(*stats):
        return False
    for metric in ("algbw", "busbw"):
        rate, bits = row.main(metric), row.read(f"{metric} in bits")
        if rate is not None and bits is not None and not rate.overlaps(bits.low, bits.high):
            return False
    if (
        row.record.case != "all_reduce"
        or not isinstance(ranks, int)
        or not ranks
        or algbw is None
        or busbw is None
    ):
        return True
    return ALL_REDUCE.of(ranks).fits(ratios(0, ANYTHING, algbw, busbw))


TABLE = engine.Table(
    benchmark="torch",
    program="torch",
    statement=_statement,
    failed=_FAILED,
    failing="No module named 'torch'",
    fits=_fits,
    cells=_cells,
    begins_row=lambda text: "algbw" in text and _FIRST.fullmatch(text) is not None,
    remains=_remains,
    over_mpi=False,
    ascending=False,
)


class TorchReader(Reader):
    """Reads the reports: each rank that prints has one of its own."""

    def __init__(self) -> None:
        self._readers: dict[Stream, engine.TableReader] = {}
        self._marker: Marker | None = None

    @override
    def feed(self, line: Line) -> Sequence[Reading] | None:
        if (reader := self._readers.get(line.stream)) is None:
            reader = self._readers[line.stream] = engine.TableReader(TABLE)
            if self._marker is not None:
                reader.mark(self._marker)
        if reader.execution is None and TABLE.failed.fullmatch(line.text):
            # An error of any rank is the failure of a table that is open in another stream.
            reader = next((each for each in self._readers.values() if each.execution), reader)
        return reader.feed(line)

    @override
    def mark(self, marker: Marker) -> Sequence[Reading]:
        self._marker = marker
        return [reading for reader in self._readers.values() for reading in reader.mark(marker)]

    @override
    def close(self) -> Sequence[Reading]:
        return [reading for reader in self._readers.values() for reading in reader.close()]
