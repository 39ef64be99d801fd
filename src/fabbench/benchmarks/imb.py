"""Intel MPI Benchmarks (IMB-MPI1, IMB-P2P, …): MPI between ranks.

Read only: fabbench does not start them.

Their MB are 10⁶ or 2²⁰ bytes, by version: the rows show which, where the bytes of a transfer are
known.
"""

from collections.abc import Sequence
from types import MappingProxyType
from typing import NamedTuple

from fabbench.benchmarks import OF_MPI
from fabbench.benchmarks.consistency import Printed, missing_end
from fabbench.benchmarks.events import Ahead, Begin, Events, Header, Note, Setting, Stop, Wrong
from fabbench.benchmarks.executions import Execution, Table
from fabbench.benchmarks.standard import ReadBenchmark
from fabbench.benchmarks.tables import (
    Row,
    columns_of,
    is_ascending,
    read_columns,
    unknown_columns,
)
from fabbench.model.log import Facts, MutableFacts, fact_text
from fabbench.model.messages import single_spaced
from fabbench.model.patterns import Match, lazy

_MIB = float(1 << 20)
_COLUMNS = columns_of("imb")
_BEGIN = lazy(r"# Benchmarking ([A-Z][\w-]*)\s*")
_HEADING = lazy(
    r"#\s+(?:\(? ?#processes = (?P<ranks>[1-9]\d{0,8})(?: \(threads: (?P<threads>\d{1,9})\)|; rank "
    r"order .*| \))?"
    r"|\( (?P<groups>\d{1,9}) groups of (?P<each>[1-9]\d{0,8}) processes each .*\)|window_size = "
    r"(?P<window_size>\d{1,9})"
    r"|MODE: (?P<mode>[\w-]+)|Intel ?\(R\) MPI Benchmark(?:s| Suite) V?(?P<imb>[^,]+),.*"
    r"|Maximum message length in bytes: +(?P<largest>\d{1,18})"
    r"|Minimum message length in bytes: +(?P<smallest>\d{1,18})"
    r"|(?P<zero_size>IMB-\w+ .*-zero_size.*))\s*"
)
_COUNTS = ("ranks", "groups", "smallest", "largest", "threads", "window_size")
_SKIPPED = lazy(
    r"(?:\d+\s+){1,2}(?:out-of-|time-out|int-overflow).*|(?P<wrong>CHECK FAILURES|\d+: Error "
    r"\w+,).*"
)
_USUAL_END = 1 << 22
_OF_ALL_TABLES = frozenset({"imb", "smallest", "largest"})
"""What stands above the first table and is about all."""


class _Units(NamedTuple):
    """What a bandwidth may mean."""

    mb: float
    """Bytes of a MB."""
    messages: int
    """Messages in the time of a row."""


_MESSAGES = (1, 2, 4)
_UNITS = [_Units(mb, messages) for mb in (1e6, _MIB) for messages in _MESSAGES]


def _events(text: str, execution: Execution | None) -> Events | None:
    text = text.strip().replace("#- ", "# ", 1)  # as some of them print it
    # The names of columns: before the repetitions stand at most a group and the size.
    before_counts, repetitions, _ = text.partition("#repetitions")
    if repetitions and {"Group", "#bytes"}.issuperset(before_counts.split()):
        return _header_events(text, execution)
    if text[:1] == "#":
        begin = _BEGIN.fullmatch(text)
        if begin is not None:
            # The execution begins with the names of columns; lines until then are about it.
            setting = Setting(begin[1], _kept_facts(execution))
            return (Ahead((setting,)), Stop())
    if execution is not None:
        skipped = _SKIPPED.fullmatch(text)
        if skipped is not None:
            # A size that IMB left out, or data that are wrong.
            note = Note("skipped", single_spaced(text))
            return (note, Wrong()) if skipped["wrong"] else (note,)
    heading = _HEADING.fullmatch(text)
    if heading is None:
        return None
    statement = _heading_setting(heading)
    return (statement,) if execution is not None else (Ahead((statement,)),)


def _kept_facts(execution: Execution | None) -> Facts:
    """Return the facts of an execution that are about the next one, too."""
    if execution is None:
        return {}
    facts = execution.record.facts
    return {name: facts[name] for name in _OF_ALL_TABLES if name in facts}


def _header_events(text: str, execution: Execution | None) -> Events:
    layout = read_columns(text.split(), _COLUMNS)
    begins = execution is None or execution.layouts  # a second header is another table
    return (
        *((Begin(),) if begins else ()),
        Setting(facts=_kept_facts(execution)),
        Header([layout]),
        *unknown_columns(layout, text),
    )


def _heading_setting(match: Match) -> Setting:
    """Return what a line above a table says: it is of one of several kinds."""
    facts: MutableFacts = {}
    for name in _COUNTS:
        if match[name]:  # a line of another kind has None here
            facts[name] = int(match[name])
    if match["each"]:
        groups, processes = map(int, match.group("groups", "each"))
        facts["ranks"] = groups * processes
    if match["imb"]:
        facts["imb"] = match["imb"].lower()
    if match["zero_size"]:
        facts["smallest"] = -1  # not known: the command line changes whether size 0 is measured
    labels = {"operation": match["mode"].lower()} if match["mode"] else {}
    return Setting(facts=facts, labels=labels)


def _bandwidth_fits(row: Row, units: _Units) -> bool | None:
    """Return whether the bandwidth is that of the row's time or rate, in these units.

    None: it cannot be said.
    """
    bandwidth = row.main("bandwidth")
    rate = row.main("message_rate")
    of_slowest_rank = row.figures.get("max", {})
    time = row.main("latency") or of_slowest_rank.get("time")
    if rate is None and time is not None and time.low:
        messages = units.messages  # 1, 2 or 4 in that time: the bandwidth may count all of them
        # Only its range counts, not its value.
        rate = Printed(0.0, messages / time.high, messages / time.low)
    # Of threads, the bandwidth is that of the slowest, and the rate the mean.
    of_threads = "threads" in row.record.facts
    if bandwidth is None or rate is None or not row.size or of_threads:
        return None
    return bandwidth.times(units.mb).agrees(rate.times(row.size))


def _settle(execution: Execution) -> Sequence[Row]:
    """Return the rows in bytes per second; a bandwidth whose unit nothing shows is left out."""
    record = execution.record
    # Headings state them for what follows here: they are no facts of the record.
    largest = int(record.facts.pop("largest", 0))  # 0: not known
    release = fact_text(record.facts, "imb")
    first, *_ = _UNITS
    # Rows whose time or rate says what the bandwidth has to be (whatever the units), and the units
    # that fit most of them.
    telling = [row for row in execution.rows if _bandwidth_fits(row, first) is not None]
    usual = max(_UNITS, key=lambda units: _count_fitting(telling, units))
    is_known = 0 < len(telling) <= _count_fitting(telling, usual) * 2  # half of them fit
    # From the release of 2018 on MB have 10⁶ bytes, as those of `first`. Before years, 4.1 was one.
    year = release[:4]
    is_assumed = not telling and year.isdecimal() and year >= "2018"

    def read(row: Row) -> Row | None:
        fits = _bandwidth_fits(row, usual) if is_known else None
        is_last = row.line.number == execution.last_line  # of all lines, not only of rows
        # A rate is a whole number: nothing but a next line shows that no digit was cut.
        may_be_cut = fits is None and is_last and row.main("message_rate")
        if fits is False or may_be_cut:
            return None
        return _in_bytes(row, mb=usual.mb if fits or is_assumed else None)

    rows = execution.reread_rows(read)
    sizes = [row.size for row in rows]
    first_size = _first_size(execution, sizes)
    missing = missing_end(sizes, first=first_size, last=largest)
    record.is_at_end = max(sizes, default=-1) == (largest or _USUAL_END)
    skipped = [f"IMB said: {note.value}" for note in execution.notes]
    reasons = (*skipped, record.incomplete, missing)
    record.incomplete = next(filter(None, reasons), "")
    return rows


def _first_size(execution: Execution, sizes: Sequence[int]) -> int | None:
    """Return the size that the first row has to have; None: any, a choice of the user's.

    A whole sweep from 1 byte on has a row of no bytes above that, unless a heading says that it was
    left out (-1).
    """
    usual = 0 if min(sizes, default=0) == 1 else -1
    smallest = int(execution.record.facts.pop("smallest", usual))
    return smallest if smallest >= 0 else None


def _in_bytes(row: Row, mb: float | None) -> Row:
    """Return a row with the bandwidth in bytes per second; without it if a MB is not known."""
    main = dict(row.figures.get("", {}))
    bandwidth = main.pop("bandwidth", None)
    if bandwidth is not None and mb is not None:
        main["bandwidth"] = bandwidth.times(mb)
    figures = {**row.figures, "": main}
    if not main:  # the bandwidth was all of it
        del figures[""]
    return row._replace(figures=figures)


def _count_fitting(rows: Sequence[Row], units: _Units) -> int:
    return sum(_bandwidth_fits(row, units) is True for row in rows)


TABLE = Table(benchmark="imb", program="IMB", events=_events, fits=is_ascending, settle=_settle)


class Imb(ReadBenchmark):
    """The benchmark ``imb``."""

    name = "imb"
    network_shown = OF_MPI
    versions = ("imb", "libfabric")
    default_metrics = ("bandwidth", "latency", "time", "message_rate")
    resolution = MappingProxyType(
        {"latency": (1e-8,), "time": (1e-8,), "bandwidth": (1e4,), "message_rate": (1.0,)}
    )


BENCHMARK = Imb()
