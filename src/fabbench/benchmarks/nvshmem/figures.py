"""The names of perftests, the units and sizes of their figures, and what makes rows unreliable.

Pure.

From the sources of 1.0.1 to 3.6 (perftest/common/utils.cu and the programs): point-to-point
bandwidth is in 2^30 bytes per second up to 3.1.7, and in 1e9 from 3.2.5 on. The size of alltoall,
fcollect and reducescatter is one PE's block up to 3.0.6, the total in 3.1.7, the block again in the
device programs of 3.2.5, and the total from 3.3.9 on.

A title names the job: point-to-point ones are the program's name and the direction
(`shmem_put_bw_uni`), device collectives have names of their own (`alltoall_device` of
`alltoall_latency`, `device_reduction`).

Tables do not mention the network: the output of NVSHMEM_DEBUG=INFO shows which transport and
provider are used.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from itertools import chain, groupby

from fabbench.benchmarks import consistency
from fabbench.benchmarks.consistency import (
    ALL_REDUCE,
    GATHERING,
    SAME,
    Printed,
    Ratios,
    note,
    warning,
)
from fabbench.benchmarks.events import Note
from fabbench.benchmarks.executions import Execution
from fabbench.benchmarks.tables import Row, finite, stated
from fabbench.model.log import Finding, Record
from fabbench.model.messages import merged
from fabbench.model.patterns import lazy
from fabbench.model.units import format_size, format_sizes

_COLLECTIVE = lazy(r"alltoall|fcollect|reducescatter|reduction|broadcast|bcast|barrier|sync")
_GATHERERS = frozenset({"alltoall", "fcollect", "reducescatter"})
"""Collectives whose printed size is one PE's block or the total, depending on the version."""
UNSIZED = frozenset({"barrier", "sync"})
"""Collectives that send no data: the column `size(B)` contains the threads of a block."""

HOST_TITLES = {"bandwidth": "bw", "latency": "latency", "stream_latency": "stream_latency"}
"""Titles of host programs, which other programs may print as well, and the programs."""
JOB = lazy(
    r"(?=\w+\Z)(?:shmem_\w+|device_[a-z]\w*|[a-z]\w*_(?:device|on_stream)"
    r"|(?:put|get|p|g|st|atomic\w*)_(?:bw|latency|ping_pong_latency)(?:_\w+)?)"
)  # names that can only be those of an NVSHMEM job
CUT_JOB = lazy(r"\w+_(?:un?|bid|de(?:v(?:ic?)?)?|on_?|on_s(?:t(?:r(?:ea?)?)?)?)")
"""Jobs whose suffix is truncated: `_uni`, `_bidi`, `_device`, `_on_stream`."""
PROGRAM = (
    r"(?:shmem_\w+|[a-z]\w*_on_stream|stream_latency"
    r"|(?:alltoall|bcast|broadcast|fcollect|reduction|reducescatter|barrier|barrier_all|sync|sync_all)_latency"
    r"|(?:put|get|p|g|st|atomic)_(?:\w+_)?(?:bw|latency))"
)  # a pattern for the programs' names

DIRECTION = lazy(r"_(?:uni|bidi|bi)(?=_|$)")
_DEVICE = lazy(r"device_(\w+)|(\w+?)_device")


@cache
def collective(job: str | None) -> str:
    """Return the collective of a job or program; empty: point-to-point, or unknown."""
    match = _COLLECTIVE.search((job or "").lower().replace("reduce_scatter", "reducescatter"))
    return match[0].replace("broadcast", "bcast") if match is not None else ""


@cache
def case_of(job: str) -> str:
    """Return the program that prints a title; empty: unknown."""
    if job.lower() in HOST_TITLES:
        return HOST_TITLES[job.lower()]
    device = _DEVICE.fullmatch(job)
    if device is not None:
        name = collective(job) or device[1] or device[2]
        return f"{name}_latency"
    return DIRECTION.sub("", job).removesuffix("_msgrate")


V1 = "1"
V2 = "2.0-3.0"
V31 = "3.1"
V32 = "3.2"
V33 = "3.3+"
_SINCE = {
    (0, 0): V1,
    (2, 0): V2,
    (3, 1): V31,
    (3, 2): V32,
    (3, 3): V33,
}
ALL = frozenset(_SINCE.values())
"""Versions with the same behavior, named after the releases whose sources were read."""
_OF_BINARY_UNITS = frozenset({V1, V2, V31})
UNNAMED = "?"
"""The title of a collective of 1.x, which does not name it."""
# Values of the fact `unit`, of the fact `size_means`, and of both.
_BINARY = "GiB/s"
_DECIMAL = "GB/s"
_TOTAL = "total"
_BLOCK = "per-pe"
_AMBIGUOUS = "ambiguous"
_LOG_VERSION = (
    "The log does not state the version: with NVSHMEM_VERSION=1 it has the line `NVSHMEM vX.Y.Z`."
)
_SCOPES = {"t": "thread", "w": "warp", "b": "block", "g": "warpgroup"}
_NONE = frozenset({"none", "(null)", "null"})
_OPTION = lazy(r"([a-z][a-z_ ]{0,60}?) ?: ?(\d{1,18})(?=[, ])")


def printed_options(line: str) -> dict[str, int]:
    """Return the options with numbers in a line that lists them."""
    return {name: int(value) for name, value in _OPTION.findall(line)}


def has_begun(notes: Iterable[Note]) -> bool:
    """Return whether these include text that a program prints when it starts."""
    return any(note.kind in {"options", "pe", "version"} for note in notes)


class _Said:
    """What an execution says about itself."""

    def __init__(self, execution: Execution) -> None:
        self.record = execution.record
        self.rows = len(execution.rows)
        self.all = defaultdict[str, list[Note]](list)
        for each in execution.notes:
            self.all[each.kind].append(each)
        self.options = printed_options(self.first("options").value)
        self.pes = _node_pes(self.all["pe"])
        self.copies = len(self.all["copy"])
        self.dumps = len(self.all["options"])
        self.version = self.first("version").value
        self.eras = _eras(self.version, self.all["eras"])
        self.unit = _only(map(_unit, self.eras))

    def first(self, kind: str) -> Note:
        return next(iter(self.all[kind]), Note(""))

    def below_rows(self, kind: str) -> Sequence[Note]:
        """Return those below the last row."""
        return [each for each in self.all[kind] if each.rows >= self.rows]

    @property
    def names_all_pes(self) -> bool:
        """Whether each PE has said which it is: each prints the options, too."""
        expected = {*range(self.dumps or len(self.pes))}
        return bool(self.pes) and self.pes.keys() == expected


def _node_pes(notes: Iterable[Note]) -> dict[int, int]:
    """Return each PE's number on its node."""
    return {int(each.value): int(each.line) for each in notes}


def _eras(version: str, stated: Iterable[Note]) -> frozenset[str]:
    """Return the versions that the output may be of."""
    eras = ALL
    for each in stated:
        named = frozenset(each.value.split())
        eras = eras & named or named
    if not version:
        return eras
    numbers = version.split(".")[:2]
    release = tuple(map(int, numbers))
    *_, latest = (_SINCE[since] for since in _SINCE if since <= release)
    return eras & {latest} or eras


def _unit(era: str) -> str:
    return _BINARY if era in _OF_BINARY_UNITS else _DECIMAL


def _only(values: Iterable[str]) -> str:
    """Return what all values are; empty if there is none."""
    found = {*values}
    if len(found) == 1:
        return found.pop()
    return _AMBIGUOUS if found else ""


# ---------------------------------------------------------------- rows


def settle(execution: Execution) -> Sequence[Row]:
    """Return the rows in base units, with what the whole output shows; add facts and findings."""
    said = _Said(execution)
    record = execution.record
    rows = _printed_rows(execution, said)
    implied = _implied_ranks(rows)
    highest = max(said.pes, default=-1)
    ranks = max(highest + 1, len(said.pes), implied or 0)
    meanings = [_size_meaning(row, said.eras) for row in rows]
    meaning = _only({*meanings} - {""})
    # The highest PE seen may not be the last: sizes are multiplied only by a number that is
    # certain.
    is_certain = bool(implied) or said.names_all_pes
    factor = ranks if meaning == _BLOCK and is_certain else 1
    facts: dict[str, str | int | None] = {
        "iterations": said.options.get("iterations"),
        "nvshmem": said.version,
        "warmup": said.options.get("warmup iterations"),
        "ranks": 1 if said.copies else ranks,
        "unit": said.unit if any(map(_has_bandwidth, rows)) else "",
        "size_means": _TOTAL if factor > 1 else meaning,
        **_hosts(said, ranks),
    }
    _add_facts(record, facts)
    _add_network(record, said)
    _add_endings(record, said, execution)
    record.findings += _findings(rows, said, factor, meaning)
    scaled: list[Row] = []
    for row, of_row in zip(rows, meanings, strict=True):
        scaled.append(_in_base_units(row, said, factor if of_row else 1))
    return scaled


def _add_facts(record: Record, facts: Mapping[str, str | int | None]) -> None:
    """Add what is known: no warm-up is known, too."""
    for name, fact in facts.items():
        if fact or (name == "warmup" and fact is not None):
            record.facts[name] = fact


def _has_bandwidth(row: Row) -> bool:
    return any("bandwidth" in figures for figures in row.figures.values())


def _hosts(said: _Said, ranks: int) -> dict[str, int]:
    """Return the number of hosts, and of GPUs of each, if all PEs have said where they are."""
    are_all_known = sorted(said.pes) == [*range(ranks)]
    if not ranks or said.copies or not are_all_known:
        return {}
    hosts = [*said.pes.values()].count(0)  # every node has exactly one first PE
    return consistency.ranks_of_hosts(ranks, hosts)


def _printed_rows(execution: Execution, said: _Said) -> list[Row]:
    """Return the rows that the program printed; others are damaged. Name the program.

    That is what started it, if a line shows that, else what prints the first title.
    """
    record = execution.record
    program = record.case or ""
    titles = [row.title for row in execution.rows]
    titles += (note.value for note in said.all["title"])
    titles.append(execution.title)
    named = (title.strip(UNNAMED) for title in titles)
    job = next(filter(None, named), "")
    record.case = program or case_of(job) or None
    is_announced = bool(job) or has_begun(execution.notes)
    below_headers: list[Row] = []
    for _, table in groupby(execution.rows, key=lambda row: row.table):
        below_headers += _identified([*table], execution, said, announced=is_announced)
    rows = [_titled(row, program) for row in below_headers]
    is_certain = said.names_all_pes and not said.copies
    for row in _contradictions(rows, len(said.pes) if is_certain else None):
        execution.damage(row.line)
        rows.remove(row)
    return rows


def _titled(row: Row, program: str) -> Row:
    """Return a row whose title is the program if none is printed."""
    title = row.title.strip(UNNAMED)
    return row._replace(title=title or program)


def _identified(
    table: Sequence[Row], execution: Execution, said: _Said, *, announced: bool
) -> Sequence[Row]:
    """Return the rows below a title and a header, as every version prints them.

    The others are damaged.

    An excerpt without any title (`announced`: it has one) is read. Each sweep, type, operation and
    scope has a header of its own: theirs is missing where sizes do not increase, or labels differ.
    """
    kept = len(table) if said.copies else _length_of_sweep(table)
    if announced and not table[0].title:
        kept = 0
    for row in table[kept:]:
        execution.damage(row.line)
    return table[:kept]


def _length_of_sweep(rows: Sequence[Row]) -> int:
    """Return how many rows are of one sweep: sizes increase, and other labels are the same."""
    largest = -1
    labels = {**rows[0].labels, "threads": ""}
    for at, row in enumerate(rows):
        size = int(row.labels.get("threads", row.size))
        if size <= largest or {**row.labels, "threads": ""} != labels:
            return at
        largest = size
    return len(rows)


_ANY_SHAPE = (ALL_REDUCE, GATHERING, SAME)
_SHAPES = {
    "reduction": (ALL_REDUCE,),
    "bcast": (SAME,),
    **dict.fromkeys(_GATHERERS, (GATHERING,)),
}


def _contradictions(rows: Sequence[Row], ranks: int | None) -> list[Row]:
    """Return the rows whose figures contradict each other.

    `ranks`: the number of PEs, if it is certain.
    """
    checks: dict[str, list[tuple[Row, Ratios]]] = {}
    for row in rows:
        ratios = _ratios(row)
        if ratios is not None:
            of_kind = checks.setdefault(collective(row.title), [])
            of_kind.append((row, ratios))
    found: list[Row] = []
    for kind, of_kind in checks.items():
        shapes = _SHAPES.get(kind, _ANY_SHAPE)
        all_ratios = [ratios for _, ratios in of_kind]
        formula = consistency.choose_formula(all_ratios, shapes, ranks)
        if formula is not None:
            found += (row for row, ratios in of_kind if not formula.fits(ratios))
    return found


def _ratios(row: Row) -> Ratios | None:
    latency = row.main("latency")
    algbw = row.main("algbw")
    busbw = row.main("busbw")
    if latency is None or algbw is None or busbw is None:
        return None
    time = latency if latency.value else consistency.ANYTHING
    return consistency.ratios(row.size, time, algbw, busbw)


def _implied_ranks(rows: Sequence[Row]) -> int | None:
    """Return the only number of PEs that explains busbw / algbw; None: several, or none."""
    ratios = [each for each in map(_ratios, rows) if each is not None]
    low = max((each.bus_low for each in ratios), default=0.0)
    high = min((each.bus_high for each in ratios), default=1e9)
    if any(row.title for row in rows):
        kind = _only(collective(row.title) for row in rows)
    else:
        kind = _kind_of_factor(low, high)
    (shape, *_) = _SHAPES.get(kind, (SAME,))
    if shape is SAME:
        return None
    numbers = {*shape.candidates(Ratios(0.0, math.inf, low, high))}
    return numbers.pop() if len(numbers) == 1 else None


def _kind_of_factor(low: float, high: float) -> str:
    """Return a collective with such a factor busbw / algbw; empty: it may be any."""
    if low > 1:
        return "reduction"
    return "alltoall" if high < 1 else ""


def _size_meaning(row: Row, eras: Iterable[str]) -> str:
    """Return the meaning of the size of a row that is, or may be, of a gathering collective.

    Empty: it is not.
    """
    of_scopes = any(stat.startswith("scope=") for stat in row.figures)
    if not row.title and of_scopes:
        return _AMBIGUOUS  # an unknown collective of 1.x
    ratios = None if row.title else _ratios(row)
    may_gather = ratios is not None and ratios.bus_low < 1
    if collective(row.title) not in _GATHERERS and not may_gather:
        return ""
    blocks = {V1, V2} if "on_stream" in row.title else {V1, V2, V32}
    return _only(_BLOCK if era in blocks else _TOTAL for era in eras)


def _in_base_units(row: Row, said: _Said, factor: int) -> Row:
    figures = {stat: finite(each) for stat, each in row.figures.items()}
    for each in figures.values():
        for name in each.keys() & {"algbw", "busbw"}:
            each[name] = each[name].times(factor)
    if said.unit == _BINARY:
        _read_in_binary_units(row, figures)
    labels = _labels(row, said, {*chain.from_iterable(figures.values())})
    return row._replace(
        size=row.size * factor,
        labels=stated(labels),
        figures={stat: each for stat, each in figures.items() if each},
    )


def _read_in_binary_units(row: Row, figures: Mapping[str, dict[str, Printed]]) -> None:
    for column, cell in zip(row.layout, row.cells, strict=True):
        measured = figures.get(column.stat)
        if column.metric == "bandwidth" and measured:
            measured["bandwidth"] = consistency.printed(cell).times(2.0**30)


def _labels(row: Row, said: _Said, metrics: AbstractSet[str]) -> dict[str, str]:
    labels = dict(row.labels)
    for name, label in row.labels.items():
        if label.lower() in _NONE:
            labels[name] = ""
    scope = labels.get("scope", "").lower()
    labels["scope"] = _SCOPES.get(scope, scope)
    if not metrics.isdisjoint({"bandwidth", "message_rate"}):
        labels["direction"] = _direction(row.title, said)
    elif "latency" in metrics:
        labels["way"] = _way(row.title.lower())
    return labels


def _direction(title: str, said: _Said) -> str:
    titled = DIRECTION.search(title)
    if titled is not None:
        return "uni" if titled[0] == "_uni" else "bi"
    both_ways = said.options.get("bidirectional", -1)
    return {0: "uni", 1: "bi"}.get(both_ways, "")


def _way(title: str) -> str:
    if "ping" in title:
        return "round-trip"
    # The source of the others does not state it.
    return "one-way" if "put_latency" in title else ""


# ---------------------------------------------------------------- what else the output shows


def _add_network(record: Record, said: _Said) -> None:
    """Add the network that debug text shows: settings prove nothing.

    With PEs on two or more hosts, the transport that NVSHMEM reports as initialized carried the
    data; on one host without any, PEs access each other's memory directly.
    """
    transport = said.first("transport")
    hosts = int(record.facts.get("hosts", 0))
    found: dict[str, Note] = {}
    if transport.value == "libfabric":
        found = {"provider": said.first("provider"), "fabric": said.first("fabric")}
    if transport.value != "none":
        network = _network(transport.value, said.first("provider").value)
        found["network"] = transport._replace(value=network)
        if hosts > 1:
            found["transport"] = found["network"]
    elif hosts == 1:
        found["transport"] = transport._replace(value="p2p")
    for name, each in found.items():
        if each.value:
            record.facts[name] = each.value
            record.evidence[name] = each.line


def _network(transport: str, provider: str) -> str:
    if transport in {"ibrc", "ibdevx", "ibgda"}:
        return "ib"
    if transport != "libfabric":
        return transport
    is_efa = provider in {"efa", "efa-direct"}
    return "efa" if is_efa else f"libfabric-{provider}".strip("-")


def _add_endings(record: Record, said: _Said, execution: Execution) -> None:
    errors = [each.value for each in said.below_rows("error")]
    if said.copies:
        record.failures.insert(
            0, "Each process is PE 0 and measures alone: does NVSHMEM_BOOTSTRAP fit the launcher?"
        )
    record.failures += (f"NVSHMEM reported: {error}" for error in dict.fromkeys(errors))
    if not said.rows:
        return
    below = len(said.below_rows("options"))
    if below and said.dumps - below == len(said.pes):
        record.incomplete = (
            "Below the last row the options of another execution are printed, and it has no row."
        )
    last = execution.rows[-1]
    # From 2.0 to 3.0 a rule follows each row.
    is_boxed = "|" in last.line.text and len(last.layout) == 2
    if is_boxed and not said.below_rows("rule"):
        record.finished = False


# ---------------------------------------------------------------- findings


def _findings(rows: Sequence[Row], said: _Said, factor: int, meaning: str) -> Iterator[Finding]:
    record = said.record
    ranks = int(record.facts.get("ranks", 0))
    if rows and record.case is None:
        yield consistency.UNKNOWN_TEST
    yield from _ambiguities(said, factor, meaning)
    yield from consistency.unmeasured(
        _infinite_sizes(rows),
        "More than a million iterations make the bandwidth inf: run fewer (-n).",
    )
    if "unit" in record.facts and not collective(record.case):
        yield from _of_pairs(rows, said)
    yield from _mislabelled(rows, said, ranks)
    if ranks == 1 and rows:
        yield warning("one-rank", "One PE only: nothing went over a fabric.", "Start more PEs.")
    yield from _warnings(said)


def _infinite_sizes(rows: Sequence[Row]) -> Iterator[int]:
    for row in rows:
        for figures in row.figures.values():
            if len(finite(figures)) < len(figures):
                yield row.size


def _mislabelled(rows: Sequence[Row], said: _Said, ranks: int) -> Iterator[Finding]:
    gathered = [row for row in rows if collective(row.title) == "fcollect"]
    types = {row.labels.get("dtype") for row in gathered}
    smallest = said.options.get("min_size", 0)
    least = 4 * ranks
    if "32-bit" in types and said.eras == {V33} and 0 < least < smallest:
        # Its 32-bit block table begins at one element.
        meaning = (
            f"fcollect_latency of 3.3 mislabels 32-bit block sizes: -b {smallest} is over "
            "4 bytes for each PE."
        )
        yield warning("sizes-mislabelled", meaning, f"Begin with -b {least} or less.")


_MOST_WARNINGS = 5


def _warnings(said: _Said) -> Iterator[Finding]:
    """Yield the program's warnings, and the errors that rows follow."""
    passed = [each for each in said.all["error"] if each.rows < said.rows]
    passed += said.all["warning"]
    counts = Counter(each.value for each in passed)
    for words, times in merged(counts.items())[:_MOST_WARNINGS]:
        begin = max(words.find("NVSHMEM WARN"), 0)
        meaning = f"NVSHMEM warned{times}, but still printed rows."
        if "Skipping NVLINK SHARP resource initialized" in words:
            make = note
            advice = "It does not use NVLink SHARP: collectives use NVLink without it."
        else:
            make = warning
            advice = "Check whether it is about the transport that should have been used."
        yield make("nvshmem-warning", meaning, advice, line=words[begin:])


def _ambiguities(said: _Said, factor: int, meaning: str) -> Iterator[Finding]:
    if said.record.facts.get("unit") == _AMBIGUOUS:
        what = (
            "GB is 2^30 bytes up to NVSHMEM 3.1 and 1e9 from 3.2 on: 1e9 is assumed (2^30 is "
            "7.4 % more)."
        )
        yield warning("unit-ambiguous", what, _LOG_VERSION)
    if meaning == _AMBIGUOUS:
        what = (
            "The size is one PE's block up to NVSHMEM 3.0 and in device programs of 3.2, else "
            "the total: as printed."
        )
        yield warning("size-ambiguous", what, _LOG_VERSION)
    elif factor > 1:
        what = (
            "This version prints one PE's block: sizes and bandwidths are multiplied by "
            f"{factor} PEs, to be totals."
        )
        yield note("size-per-pe", what)
    elif meaning == _BLOCK:
        what = (
            "The printed size is one PE's block, not the total, and the log does not show the "
            "number of PEs."
        )
        advice = (
            "Multiply sizes and bandwidths by the number of PEs to compare with other versions."
        )
        yield warning("size-per-pe", what, advice)


def _of_pairs(rows: Sequence[Row], said: _Said) -> Iterator[Finding]:
    sizes = {row.size for row in rows}
    yield from _rounded(said)
    program = said.record.case or ""
    if program.removeprefix("shmem_") in {"put_bw", "get_bw"}:
        yield from _unmoved(sizes, said)
        yield from _missing(sizes, said)


_BASES = {_BINARY: 1 << 30, _DECIMAL: 1_000_000_000}
"""Unit → bytes."""


def _rounded(said: _Said) -> Iterator[Finding]:
    """Yield a finding if integer arithmetic makes bandwidths too high.

    `size / (ms * (GB / (iterations * 1000)))`: the inner division is an integer one.
    """
    base = _BASES.get(said.unit, 0)
    iterations = said.options.get("iterations", 0)
    divisor = iterations * 1000
    if not 0 < divisor <= base:
        return
    excess = base / divisor / (base // divisor) - 1
    if excess >= 0.001:
        percent = excess * 100
        meaning = (
            f"With {iterations} iterations integer arithmetic makes bandwidths "
            f"{percent:.1f} % too high."
        )
        advice = "Use a number of iterations that divides 1000000."
        yield note("rounded-bandwidth", meaning, advice)


def _unmoved(sizes: AbstractSet[int], said: _Said) -> Iterator[Finding]:
    """Yield a finding for sizes below one element of each thread block.

    These programs divide a message among thread blocks, and print a row for each size.
    """
    blocks = said.options.get("number of ctas", 0) or 32
    least = 8 * blocks
    unmoved = {size for size in sizes if 0 < size < least}
    if unmoved:
        smallest = format_size(least)
        figures = f"the figures at {format_sizes(unmoved)} say nothing"
        advice = f"Begin with -b {least}, or use fewer thread blocks (-c)."
        yield warning("moves-nothing", f"Below {smallest} no data is moved: {figures}.", advice)


def _missing(sizes: AbstractSet[int], said: _Said) -> Iterator[Finding]:
    """Yield a finding for sizes that the options request."""
    options = said.options
    steps = (options.get(name, 0) for name in ("min_size", "max_size", "step_factor"))
    planned = {*consistency.powers(*steps)}
    missing = planned - sizes
    if not missing:
        return
    meaning = f"The options request {format_sizes(planned)}; missing: {format_sizes(missing)}."
    advice = "The program was stopped, or the symmetric heap is too small (NVSHMEM_SYMMETRIC_SIZE)."
    yield warning("sizes-missing", meaning, advice)
    if sizes <= planned:  # other sizes show that the options are not those of the table
        said.record.incomplete = said.record.incomplete or meaning
