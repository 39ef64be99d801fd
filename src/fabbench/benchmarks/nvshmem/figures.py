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
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby

from fabbench.benchmarks import consistency
from fabbench.benchmarks.consistency import ALL_REDUCE, GATHERING, SAME, Ratios, note, warning
from fabbench.benchmarks.events import Note
from fabbench.benchmarks.executions import Execution
from fabbench.benchmarks.tables import Row
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
    if (match := _DEVICE.fullmatch(job)) is not None:
        return f"{collective(job) or match[1] or match[2]}_latency"
    return DIRECTION.sub("", job).removesuffix("_msgrate")


V1, V2, V31, V32, V33 = "1", "2.0-3.0", "3.1", "3.2", "3.3+"
_SINCE = {(0, 0): V1, (2, 0): V2, (3, 1): V31, (3, 2): V32, (3, 3): V33}
ALL = frozenset(
    _SINCE.values()
)  # versions with the same behavior, named after the releases whose sources were read
UNNAMED = "?"  # the title of a collective of 1.x, which does not name it
_BINARY, _DECIMAL = "GiB/s", "GB/s"  # values of the fact `unit`
_TOTAL, _BLOCK = "total", "per-pe"  # values of the fact `size_means`
_AMBIGUOUS = "ambiguous"  # of both
_LOG_VERSION = (
    "The log does not state the version: with NVSHMEM_VERSION=1 it has the line `NVSHMEM vX.Y.Z`."
)
_SCOPES = {"t": "thread", "w": "warp", "b": "block", "g": "warpgroup"}
_OPTION = lazy(r"([a-z][a-z_ ]{0,60}?) ?: ?(\d{1,18})(?=[, ])")


def printed_options(line: str) -> dict[str, int]:
    """Return the options with numbers in a line that lists them."""
    return {name: int(value) for name, value in _OPTION.findall(line)}


def has_begun(notes: Iterable[Note]) -> bool:
    """Return whether these include text that a program prints when it starts."""
    return any(note.kind in {"options", "pe", "version"} for note in notes)


class _Said:
    def __init__(self, execution: Execution) -> None:
        self.all = defaultdict[str, list[Note]](list)
        for each in execution.notes:
            self.all[each.kind].append(each)
        self.record, self.rows = execution.record, len(execution.rows)
        self.options = printed_options(self.first("options").value)
        self.pes = {int(each.value): int(each.line) for each in self.all["pe"]}
        self.dumps, self.copies = len(self.all["options"]), len(self.all["copy"])
        self.complete = bool(self.pes) and sorted(self.pes) == list(
            range(self.dumps or len(self.pes))
        )
        self.version = self.first("version").value
        eras = ALL
        for each in self.all["eras"]:
            eras = eras.intersection(each.value.split()) or frozenset(each.value.split())
        number = tuple(map(int, self.version.split(".")[:2])) if self.version else ()
        self.eras = (
            eras.intersection([era for since, era in _SINCE.items() if since <= number][-1:])
            or eras
        )
        self.unit = _only(_BINARY if era in {V1, V2, V31} else _DECIMAL for era in self.eras)

    def first(self, kind: str) -> Note:
        return next(iter(self.all[kind]), Note(""))


def _only(values: Iterable[str]) -> str:
    found = {*values}
    return found.pop() if len(found) == 1 else _AMBIGUOUS if found else ""


def settle(execution: Execution) -> Sequence[Row]:
    """Return the rows in base units, with what the whole output shows; add facts and findings."""
    said, record, program = _Said(execution), execution.record, execution.record.case or ""
    printed = (
        *(row.title for row in execution.rows),
        *(each.value for each in said.all["title"]),
        execution.title,
    )
    titles = [title for each in printed if (title := each.strip(UNNAMED))]
    record.case = program or case_of(next(iter(titles), "")) or None
    announced = bool(titles) or has_begun(execution.notes)
    rows = [
        row._replace(title=row.title.strip(UNNAMED) or program)
        for _, table in groupby(execution.rows, key=lambda row: row.table)
        for row in _identified([*table], execution, said, announced=announced)
    ]
    for row in _contradictions(rows, len(said.pes) if said.complete and not said.copies else None):
        execution.damage(row.line)
        rows.remove(row)
    implied = _implied_ranks(rows)
    ranks = max(max(said.pes, default=-1) + 1, len(said.pes), implied or 0)
    meanings = [_size_meaning(row, said.eras) for row in rows]
    meaning = _only({*meanings} - {""})
    # The highest PE seen may not be the last: sizes are multiplied only by a number that is
    # certain.
    factor = ranks if meaning == _BLOCK and (implied or said.complete) else 1
    paired = any("bandwidth" in of for row in rows for of in row.figures.values())
    facts: dict[str, str | int | None] = {
        "iterations": said.options.get("iterations"),
        "nvshmem": said.version,
    }
    facts |= {"warmup": said.options.get("warmup iterations"), "ranks": 1 if said.copies else ranks}
    facts |= {"unit": said.unit if paired else "", "size_means": _TOTAL if factor > 1 else meaning}
    if ranks and not said.copies and sorted(said.pes) == list(range(ranks)):
        facts["hosts"] = hosts = [*said.pes.values()].count(
            0
        )  # every node has exactly one first PE
        facts["gpus_per_host"] = ranks // hosts if hosts and ranks % hosts == 0 else 0
    record.facts |= {
        name: fact
        for name, fact in facts.items()
        if fact or (name == "warmup" and fact is not None)
    }
    _add_network(record, said)
    _add_endings(record, said, execution)
    record.findings += _findings(rows, said, factor, meaning)
    return [
        _in_base_units(row, said, factor if each else 1)
        for row, each in zip(rows, meanings, strict=True)
    ]


def _identified(
    table: Sequence[Row], execution: Execution, said: _Said, *, announced: bool
) -> Sequence[Row]:
    """Return the rows below a title and a header, as every version prints them.

    The others are damaged.

    An excerpt without any title (`announced`: it has one) is read. Each sweep, type, operation and
    scope has a header of its own: theirs is missing where sizes do not increase, or labels differ.
    """
    size, labels, kept = (
        -1,
        {**table[0].labels, "threads": ""},
        0 if announced and not table[0].title else len(table),
    )
    for at, row in enumerate(table[:kept]):
        before, size = size, int(row.labels.get("threads", row.size))
        if not said.copies and (size <= before or {**row.labels, "threads": ""} != labels):
            kept = at
            break
    for row in table[kept:]:
        execution.damage(row.line)
    return table[:kept]


_SHAPES = {"reduction": (ALL_REDUCE,), "bcast": (SAME,), **dict.fromkeys(_GATHERERS, (GATHERING,))}


def _contradictions(rows: Sequence[Row], ranks: int | None) -> list[Row]:
    """Return the rows whose figures contradict each other.

    `ranks`: the number of PEs, if it is certain.
    """
    found = list[Row]()
    for kind in {collective(row.title) for row in rows}:
        checks = [
            (row, each) for row in rows if collective(row.title) == kind and (each := _ratios(row))
        ]
        shapes = _SHAPES.get(kind, (ALL_REDUCE, GATHERING, SAME))
        formula = consistency.choose_formula([each for _, each in checks], shapes, ranks)
        found += [row for row, each in checks if formula is not None and not formula.fits(each)]
    return found


def _ratios(row: Row) -> Ratios | None:
    latency, algbw, busbw = (row.main(metric) for metric in ("latency", "algbw", "busbw"))
    if latency is None or algbw is None or busbw is None:
        return None
    return consistency.ratios(
        row.size, latency if latency.value else consistency.ANYTHING, algbw, busbw
    )


def _implied_ranks(rows: Sequence[Row]) -> int | None:
    """Return the only number of PEs that explains busbw / algbw; None: several, or none."""
    kind, found = (
        _only(collective(row.title) for row in rows),
        [each for row in rows if (each := _ratios(row))],
    )
    low, high = (
        max((each.bus_low for each in found), default=0.0),
        min((each.bus_high for each in found), default=1e9),
    )
    if not any(row.title for row in rows):
        kind = "reduction" if low > 1 else "alltoall" if high < 1 else ""
    (shape, *_) = _SHAPES.get(kind, (SAME,))
    numbers = {*shape.candidates(Ratios(0.0, math.inf, low, high))} if shape is not SAME else set()
    return numbers.pop() if len(numbers) == 1 else None


def _size_meaning(row: Row, eras: Iterable[str]) -> str:
    """Return the meaning of the size of a row that is, or may be, of a gathering collective.

    Empty: it is not.
    """
    if not row.title and any(stat.startswith("scope=") for stat in row.figures):
        return _AMBIGUOUS  # an unknown collective of 1.x
    found = None if row.title else _ratios(row)
    if collective(row.title) not in _GATHERERS and (found is None or found.bus_low >= 1):
        return ""
    blocks = {V1, V2} if "on_stream" in row.title else {V1, V2, V32}
    return _only(_BLOCK if era in blocks else _TOTAL for era in eras)


def _in_base_units(row: Row, said: _Said, factor: int) -> Row:
    figures = {
        stat: {key: one for key, one in of.items() if one.high < math.inf}
        for stat, of in row.figures.items()
    }
    for of in figures.values() if factor > 1 else ():
        of |= {name: of[name].times(factor) for name in ("algbw", "busbw") if name in of}
    for column, cell in zip(row.layout, row.cells, strict=True) if said.unit == _BINARY else ():
        if column.metric == "bandwidth" and figures[column.stat]:
            figures[column.stat]["bandwidth"] = consistency.printed(cell).times(2.0**30)
    labels = {
        name: "" if label.lower() in {"none", "(null)", "null"} else label
        for name, label in row.labels.items()
    }
    scope = labels.get("scope", "").lower()
    labels["scope"] = _SCOPES.get(scope, scope)
    metrics = {name for of in figures.values() for name in of}
    if not metrics.isdisjoint({"bandwidth", "message_rate"}):
        both_ways, titled = said.options.get("bidirectional", -1), DIRECTION.search(row.title)
        titled_ways = {"": both_ways, "_uni": 0}.get(titled[0] if titled is not None else "", 1)
        labels["direction"] = {0: "uni", 1: "bi"}.get(titled_ways, "")
    elif "latency" in metrics:  # the source of the others does not state it
        title = row.title.lower()
        labels["way"] = (
            "round-trip" if "ping" in title else "one-way" if "put_latency" in title else ""
        )
    kept = {name: label for name, label in labels.items() if label}
    return row._replace(
        size=row.size * factor,
        labels=kept,
        figures={stat: of for stat, of in figures.items() if of},
    )


def _add_network(record: Record, said: _Said) -> None:
    """Add the network that debug text shows: settings prove nothing.

    With PEs on two or more hosts, the transport that NVSHMEM reports as initialized carried the
    data; on one host without any, PEs access each other's memory directly.
    """
    transport, provider, found = said.first("transport"), said.first("provider"), dict[str, Note]()
    name = transport.value
    if name == "libfabric":
        found = {"provider": provider, "fabric": said.first("fabric")}
        name = (
            "efa"
            if provider.value in {"efa", "efa-direct"}
            else f"{name}-{provider.value}".strip("-")
        )
    name = "ib" if name in {"ibrc", "ibdevx", "ibgda"} else name
    if name == "none" and record.facts.get("hosts") == 1:
        found["transport"] = transport._replace(value="p2p")
    elif name != "none":
        found["network"] = transport._replace(value=name)
        found |= {"transport": found["network"]} if int(record.facts.get("hosts", 0)) > 1 else {}
    record.facts |= {name: each.value for name, each in found.items() if each.value}
    record.evidence |= {name: each.line for name, each in found.items() if each.value}


def _add_endings(record: Record, said: _Said, execution: Execution) -> None:
    errors = dict.fromkeys(each.value for each in said.all["error"] if each.rows >= said.rows)
    if said.copies:
        record.failures.insert(
            0, "Each process is PE 0 and measures alone: does NVSHMEM_BOOTSTRAP fit the launcher?"
        )
    record.failures += (f"NVSHMEM reported: {error}" for error in errors)
    below = sum(each.rows >= said.rows for each in said.all["options"])
    if said.rows and below and said.dumps - below == len(said.pes):
        record.incomplete = (
            "Below the last row the options of another execution are printed, and it has no row."
        )
    # From 2.0 to 3.0 a rule follows each row.
    boxed = (
        bool(said.rows)
        and "|" in execution.rows[-1].line.text
        and len(execution.rows[-1].layout) == 2
    )
    if boxed and not any(each.rows >= said.rows for each in said.all["rule"]):
        record.finished = False


def _findings(rows: Sequence[Row], said: _Said, factor: int, meaning: str) -> Iterator[Finding]:
    record, ranks = said.record, said.record.facts.get("ranks")
    if rows and record.case is None:
        yield consistency.UNKNOWN_TEST
    yield from _ambiguities(said, factor, meaning)
    figures = (
        (row.size, each) for row in rows for of in row.figures.values() for each in of.values()
    )
    unread = [size for size, each in figures if each.high == math.inf]
    yield from consistency.unmeasured(
        unread, "More than a million iterations make the bandwidth inf: run fewer (-n)."
    )
    if "unit" in record.facts and not collective(record.case):
        yield from _of_pairs(rows, said)
    types = {row.labels.get("dtype") for row in rows if collective(row.title) == "fcollect"}
    smallest, least = said.options.get("min_size", 0), 4 * int(ranks or 0)
    if "32-bit" in types and said.eras == {V33} and 0 < least < smallest:
        # Its 32-bit block table begins at one element.
        meaning = (
            f"fcollect_latency of 3.3 mislabels 32-bit block sizes: -b {smallest} is over "
            "4 bytes for each PE."
        )
        yield warning("sizes-mislabelled", meaning, f"Begin with -b {least} or less.")
    if ranks == 1 and rows:
        yield warning("one-rank", "One PE only: nothing went over a fabric.", "Start more PEs.")
    passed = [*(each for each in said.all["error"] if each.rows < said.rows), *said.all["warning"]]
    for words, times in merged(Counter(each.value for each in passed).items())[:5]:
        line = words[max(words.find("NVSHMEM WARN"), 0) :]
        make, advice = (
            warning,
            "Check whether it is about the transport that should have been used.",
        )
        if "Skipping NVLINK SHARP resource initialized" in line:
            make, advice = note, "It does not use NVLink SHARP: collectives use NVLink without it."
        yield make(
            "nvshmem-warning", f"NVSHMEM warned{times}, but still printed rows.", advice, line=line
        )


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
    record, options, sizes = said.record, said.options, {row.size for row in rows}
    iterations, base = options.get("iterations"), {_BINARY: 2**30, _DECIMAL: 10**9}.get(said.unit)
    # `size / (ms * (GB / (iterations * 1000)))`: the inner division is an integer one.
    if iterations and base and (whole := base // (iterations * 1000)):
        excess = base / (iterations * 1000) / whole - 1
        if excess >= 0.001:
            meaning = (
                f"With {iterations} iterations integer arithmetic makes bandwidths "
                f"{excess * 100:.1f} % too high."
            )
            yield note(
                "rounded-bandwidth", meaning, "Use a number of iterations that divides 1000000."
            )
    if (record.case or "").removeprefix("shmem_") not in {"put_bw", "get_bw"}:
        return
    # These divide a message among thread blocks, and print a row for each size.
    least = 8 * (options.get("number of ctas", 0) or 32)
    if small := {size for size in sizes if 0 < size < least}:
        meaning = (
            f"Below {format_size(least)} no data is moved: the figures at "
            f"{format_sizes(small)} say nothing."
        )
        yield warning(
            "moves-nothing", meaning, f"Begin with -b {least}, or use fewer thread blocks (-c)."
        )
    low, high, step = (options.get(name, 0) for name in ("min_size", "max_size", "step_factor"))
    planned = (
        {size for power in range(64) if (size := low * step**power) <= high}
        if low and step > 1
        else set()
    )
    if missing := planned - sizes:
        meaning = f"The options request {format_sizes(planned)}; missing: {format_sizes(missing)}."
        advice = (
            "The program was stopped, or the symmetric heap is too small (NVSHMEM_SYMMETRIC_SIZE)."
        )
        yield warning("sizes-missing", meaning, advice)
        if sizes <= planned:  # other sizes show that the options are not those of the table
            record.incomplete = record.incomplete or meaning
