"""The names of perftests, the sizes of their figures, and what makes rows unreliable.

Pure.

From the sources of 3.2 to 3.6 (perftest/common/utils.cu and the programs): sizes are totals, and
GB are 1e9 bytes.

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
    Formula,
    Ratios,
)
from fabbench.benchmarks.events import Note
from fabbench.benchmarks.executions import Execution
from fabbench.benchmarks.findings import finding
from fabbench.benchmarks.tables import Row, are_of_test, finite, is_ascending
from fabbench.model.log import Finding, Record
from fabbench.model.mappings import first_of, map_values, only, without_empty
from fabbench.model.messages import merged
from fabbench.model.patterns import lazy
from fabbench.model.units import format_size, format_sizes

_COLLECTIVE = lazy(r"alltoall|fcollect|reducescatter|reduction|broadcast|bcast|barrier|sync")
OF_ONE_SIZE = frozenset({"reduction", "bcast"})
"""Collectives whose printed size is the same in all releases.

That of the others was one PE's block, or the total, before there was a column `count` (3.3).
"""
UNSIZED = frozenset({"barrier", "sync"})
"""Collectives that send no data: the column `size(B)` contains the threads of a block."""

CUT_TITLE = lazy(r"\w+_(?:un?|bid|de(?:v(?:ic?)?)?|on_?|on_s(?:t(?:r(?:ea?)?)?)?)")
"""Titles whose suffix is cut: `_uni`, `_bidi`, `_device`, `_on_stream`."""

HOST_TITLES = {"bandwidth": "bw", "latency": "latency", "stream_latency": "stream_latency"}
"""Titles of host programs, which other programs may print as well, and the programs."""
NVSHMEM_TITLE = lazy(
    r"(?=\w+\Z)(?:shmem_\w+|device_[a-z]\w*|[a-z]\w*_(?:device|on_stream)"
    r"|(?:put|get|p|g|st|atomic\w*)_(?:bw|latency|ping_pong_latency)(?:_\w+)?)"
)
"""Titles that only NVSHMEM's programs print."""
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
    device = _DEVICE.fullmatch(job)  # `device_reduction`, `alltoall_device`
    if device is not None:
        name = collective(job) or device[1] or device[2]  # what stands beside `device`
        return f"{name}_latency"
    return DIRECTION.sub("", job).removesuffix("_msgrate")


NOT_READ = finding("layout-not-read")
_SCOPES = {"t": "thread", "w": "warp", "b": "block", "g": "warpgroup"}
_NONE = frozenset({"none", "(null)", "null"})
_OPTION = lazy(r"([a-z][a-z_ ]{0,60}?) ?: ?(\d{1,18})(?=[, ])")


def printed_options(line: str) -> dict[str, int]:
    """Return the options with numbers in a line that lists them."""
    return {name: int(value) for name, value in _OPTION.findall(line)}


def has_begun(notes: Iterable[Note]) -> bool:
    """Return whether these include text that a program prints when it starts."""
    return any(note.kind in {"options", "pe", "version"} for note in notes)


class _NotesByKind:
    """What an execution says about itself: its notes, by their kind."""

    def __init__(self, execution: Execution) -> None:
        self.record = execution.record
        self.row_count = len(execution.rows)
        self.by_kind = defaultdict[str, list[Note]](list)
        for note_of_line in execution.notes:
            self.by_kind[note_of_line.kind].append(note_of_line)
        self.options = printed_options(self.first("options").value)
        self.pes = _node_pes(self.by_kind["pe"])
        """PE → its number on its node, as far as they said it."""
        # How many more processes said that they are PE 0: each is a job of its own, of one PE.
        self.lone_copies = len(self.by_kind["copy"])

    def first(self, kind: str) -> Note:
        """Return the first note of a kind; an empty one if there is none."""
        return first_of(self.by_kind[kind], Note(kind=""))

    def below_rows(self, kind: str) -> Sequence[Note]:
        """Return those below the last row."""
        return [found for found in self.by_kind[kind] if found.rows_above >= self.row_count]

    @property
    def names_all_pes(self) -> bool:
        """Whether each PE has said which it is: each prints the options, too."""
        lists_of_options = len(self.by_kind["options"])
        expected = {*range(lists_of_options or len(self.pes))}
        return bool(self.pes) and self.pes.keys() == expected


def _node_pes(notes: Iterable[Note]) -> dict[int, int]:
    """Return each PE's number on its node: these notes have it in place of their line."""
    return {int(pe.value): int(pe.line) for pe in notes}


# ---------------------------------------------------------------- rows


def settle(execution: Execution) -> Sequence[Row]:
    """Return the rows with all labels; add the facts and findings that the whole output shows."""
    notes = _NotesByKind(execution)
    record = execution.record
    rows = _printed_rows(execution, notes)
    highest = max(notes.pes, default=-1)  # PEs count from 0; -1: none has said its number
    # Some PEs may not have said theirs: rates may show more of them.
    ranks = max(highest + 1, _implied_ranks(rows))
    facts: dict[str, str | int | None] = {
        "iterations": notes.options.get("iterations"),
        "nvshmem": notes.first("version").value,
        "warmup": notes.options.get("warmup iterations"),
        "ranks": 1 if notes.lone_copies else ranks,
        **_hosts(notes, ranks),
    }
    _add_facts(record, facts)
    _add_network(record, notes)
    _add_failures(record, notes)
    record.findings += _findings(rows, notes)
    return [_labeled(row, notes) for row in rows]


def _add_facts(record: Record, facts: Mapping[str, str | int | None]) -> None:
    """Add what is known: no warm-up is known, too."""
    for name, fact in facts.items():
        if fact or (name == "warmup" and fact is not None):  # 0 of others: not known
            record.facts[name] = fact


def _hosts(notes: _NotesByKind, ranks: int) -> dict[str, int]:
    """Return the number of hosts, and of GPUs of each, if all PEs have said where they are."""
    are_all_known = sorted(notes.pes) == [*range(ranks)]
    if not ranks or notes.lone_copies or not are_all_known:
        return {}
    hosts = [*notes.pes.values()].count(0)  # every node has exactly one first PE
    return consistency.ranks_of_hosts(ranks, hosts)


def _printed_rows(execution: Execution, notes: _NotesByKind) -> list[Row]:
    """Return the rows that the program printed; others are damaged. Set the record's case.

    It is the program that a command line names, if there is one, else what prints the first title.
    """
    record = execution.record
    program = record.case or ""
    titles = [row.title for row in execution.rows]
    titles += (note.value for note in notes.by_kind["title"])
    job = next(filter(None, (*titles, execution.title)), "")
    record.case = program or case_of(job) or None
    is_announced = bool(job) or has_begun(execution.notes)
    rows: list[Row] = []
    for _, table in groupby(execution.rows, key=lambda row: row.table):
        below_header = [*table]
        if not notes.lone_copies:  # else processes that are each PE 0, alone, print the same tables
            below_header = _rows_of_one_sweep(below_header, rows, execution, announced=is_announced)
        rows += below_header
    rows = [row._replace(title=row.title or program) for row in rows]
    are_pes_certain = notes.names_all_pes and not notes.lone_copies
    for row in _contradictions(rows, ranks=len(notes.pes) if are_pes_certain else None):
        execution.damage(row.line)
        rows.remove(row)
    return rows


def _rows_of_one_sweep(
    table: Sequence[Row], above: Sequence[Row], execution: Execution, *, announced: bool
) -> list[Row]:
    """Return the rows of a table that are of the sweep below its header; the others are damaged.

    Each sweep, type, operation and scope has a header of its own: theirs is missing where sizes do
    not increase, or labels differ. None count below a header without a title, unless this is an
    excerpt without any (`announced`: it is not), or if `above` has the table: a program prints
    each once.
    """
    count = _length_of_sweep(table)
    if announced and not table[0].title:
        count = 0
    first = _what_is_measured(table[0])
    if first in map(_what_is_measured, above):
        count = 0
        execution.record.findings.append(finding("rows-repeated"))
    for row in table[count:]:
        execution.damage(row.line)
    return [*table[:count]]


def _what_is_measured(row: Row) -> tuple[str, int, Mapping[str, str]]:
    # A program measures each of these once.
    return (row.title, row.size, row.labels)


def _length_of_sweep(rows: Sequence[Row]) -> int:
    """Return how many rows are of one sweep: sizes increase, and other labels are the same.

    A barrier has no size: its sweep is over the threads of a block.
    """
    largest = -1  # below any size: 0 may be the first
    labels = {**rows[0].labels, "threads": ""}
    for at, row in enumerate(rows):
        size = int(row.labels.get("threads", row.size))
        if size <= largest or {**row.labels, "threads": ""} != labels:
            return at
        largest = size
    return len(rows)


_WIDTHS = (1, 2, 4, 8, 16)
"""Of a type, in bytes."""


def fits(row: Row) -> bool:
    """Return whether the statistics of a row ascend, and its count is that of its size.

    The programs print size / width of the type, without a remainder.
    """
    count = row.read("count")
    counts = [row.size // width for width in _WIDTHS]
    return is_ascending(row) and (count is None or count.value in counts)


_ANY_SHAPE = (ALL_REDUCE, GATHERING, SAME)
_SHAPES = {
    "reduction": (ALL_REDUCE,),
    "bcast": (SAME,),
    **dict.fromkeys(("alltoall", "fcollect", "reducescatter"), (GATHERING,)),
}


def _contradictions(rows: Sequence[Row], ranks: int | None) -> list[Row]:
    """Return the rows whose figures contradict each other, or the test that their title names.

    `ranks`: the number of PEs, if it is certain; else the one that most rows of a collective fit.
    """
    with_ratios: dict[str, list[tuple[Row, Ratios]]] = {}  # by collective
    contradicting: list[Row] = []
    for row in rows:
        ratios = _ratios(row)
        if not _is_of_its_test(row):
            contradicting.append(row)
        elif ratios is not None:
            of_collective = with_ratios.setdefault(collective(row.title), [])
            of_collective.append((row, ratios))
    for name, of_collective in with_ratios.items():
        shapes = _SHAPES.get(name, _ANY_SHAPE)
        all_ratios = [ratios for _, ratios in of_collective]
        known = consistency.choose_formula(all_ratios, shapes, ranks)
        formula = known or Formula(share=1.0, bus=None)  # algbw of any is size by latency
        contradicting += (row for row, ratios in of_collective if not formula.fits(ratios))
    return contradicting


def _is_of_its_test(row: Row) -> bool:
    """Return whether the programs of its title and of the command line print such a row.

    Both have to be of the same collective, or between two PEs.
    """
    case = row.record.case or ""
    title = case_of(row.title) or case
    are_alike = collective(title) == collective(case)
    return are_alike and are_of_test(row.layout, title) and are_of_test(row.layout, case)


def _ratios(row: Row) -> Ratios | None:
    """Return the ratios that a row of a collective allows; None for one between two PEs."""
    latency = row.main("latency")
    algbw = row.main("algbw")
    busbw = row.main("busbw")
    if latency is None or algbw is None or busbw is None:
        return None
    time = latency if latency.value else consistency.ANYTHING  # 0: too short to be printed
    return consistency.ratios(row.size, time, algbw, busbw)


def _implied_ranks(rows: Sequence[Row]) -> int:
    """Return the only number of PEs that explains busbw / algbw; 0: several, or none."""
    ratios = [ratio for ratio in map(_ratios, rows) if ratio is not None]
    low = max((ratio.bus_low for ratio in ratios), default=0.0)
    high = min((ratio.bus_high for ratio in ratios), default=math.inf)
    if low <= 1 <= high:  # the factor of a broadcast by any number of PEs
        return 0
    shape = ALL_REDUCE if low > 1 else GATHERING  # 2(n-1)/n, or (n-1)/n
    # From 0 to inf: any share of the data. Only busbw / algbw counts here.
    numbers = {*shape.candidates(Ratios(0.0, math.inf, low, high))}
    return only(numbers, 0)


def _labeled(row: Row, notes: _NotesByKind) -> Row:
    """Return a row with all labels, without its nan and inf."""
    finite_figures = map_values(finite, row.figures)
    labels = _labels(row, notes, {*chain.from_iterable(finite_figures.values())})
    return row._replace(labels=without_empty(labels), figures=without_empty(finite_figures))


def _labels(row: Row, notes: _NotesByKind, metrics: AbstractSet[str]) -> dict[str, str]:
    """Return the labels of a row in the words of docs/formats.md; an empty one: it has none."""
    labels = dict(row.labels)
    for name, label in row.labels.items():
        if label.lower() in _NONE:
            labels[name] = ""
    scope = labels.get("scope", "").lower()
    labels["scope"] = _SCOPES.get(scope, scope)
    if not metrics.isdisjoint({"bandwidth", "message_rate"}):
        labels["direction"] = _direction(row.title, notes)
    elif "latency" in metrics:
        labels["way"] = _way(row.title.lower())
    return labels


def _direction(title: str, notes: _NotesByKind) -> str:
    # `uni` or `bi`, by the title, else by the options; empty: not known.
    titled = DIRECTION.search(title)
    if titled is not None:
        return "uni" if titled[0] == "_uni" else "bi"
    both_ways = notes.options.get("bidirectional", -1)  # -1: not printed, so not known
    return {0: "uni", 1: "bi"}.get(both_ways, "")


def _way(title: str) -> str:
    """Return the label that says which way a latency covers; empty: not known."""
    if "ping" in title:
        return "round-trip"
    # The source of the others does not state it.
    return "one-way" if "put_latency" in title else ""


# ---------------------------------------------------------------- what else the output shows


def _add_network(record: Record, notes: _NotesByKind) -> None:
    """Add the network that debug text shows: settings prove nothing.

    With PEs on two or more hosts, the transport that NVSHMEM reports as initialized carried the
    data; on one host without any, PEs access each other's memory directly.
    """
    transport = notes.first("transport")  # `none`: NVSHMEM has said so; empty: it has said nothing
    hosts = int(record.facts.get("hosts", 0))  # 0: not all PEs said where they are
    network_facts: dict[str, Note] = {}
    if transport.value == "libfabric":
        network_facts = {"provider": notes.first("provider"), "fabric": notes.first("fabric")}
    if transport.value != "none":
        network = _network(transport.value, notes.first("provider").value)
        network_facts["network"] = transport._replace(value=network)
        if hosts > 1:
            network_facts["transport"] = network_facts["network"]
    elif hosts == 1:
        network_facts["transport"] = transport._replace(value="p2p")
    for name, fact in network_facts.items():
        if fact.value:
            record.facts[name] = fact.value
            record.evidence[name] = fact.line


def _network(transport: str, provider: str) -> str:
    """Return what facts call NVSHMEM's transport; `provider`: that of libfabric, if it is used."""
    if transport in {"ibrc", "ibdevx", "ibgda"}:
        return "ib"
    if transport != "libfabric":
        return transport
    is_efa = provider in {"efa", "efa-direct"}
    return "efa" if is_efa else f"libfabric-{provider}".strip("-")


def _add_failures(record: Record, notes: _NotesByKind) -> None:
    """Add why the execution failed: errors that no row follows; and that another one is cut off."""
    final_errors = (*notes.by_kind["fatal"], *notes.below_rows("error"))
    errors = [error.value for error in final_errors]
    if notes.lone_copies:
        record.failures.insert(
            0, "Each process is PE 0 and measures alone: does NVSHMEM_BOOTSTRAP fit the launcher?"
        )
    record.failures += (f"NVSHMEM reported: {error}" for error in dict.fromkeys(errors))
    below = len(notes.below_rows("options"))
    above = len(notes.by_kind["options"]) - below
    # Each PE prints the options once. If all have done so above the rows, those below are of PEs
    # that start again.
    if notes.row_count and below and above == len(notes.pes):
        record.incomplete = (
            "Below the last row the options of another execution are printed, and it has no row."
        )


# ---------------------------------------------------------------- findings


def _findings(rows: Sequence[Row], notes: _NotesByKind) -> Iterator[Finding]:
    """Yield what rows and notes show: first whether they can be trusted, at last warnings."""
    record = notes.record
    ranks = int(record.facts.get("ranks", 0))  # 0: not known
    if rows and record.case is None:
        yield finding("test-unknown")
    yield from consistency.unmeasured(_infinite_sizes(rows), "nvshmem")
    if any("bandwidth" in figures for row in rows for figures in row.figures.values()):
        yield from _findings_of_point_to_point(rows, notes)
    yield from _mislabelled_sizes(rows, notes, ranks)
    if ranks == 1 and rows:
        yield finding("one-rank", "nvshmem")
    yield from _warnings(notes)


def _infinite_sizes(rows: Sequence[Row]) -> Iterator[int]:
    # Sizes with a figure that is printed as inf or nan.
    for row in rows:
        for figures in row.figures.values():
            if len(finite(figures)) < len(figures):
                yield row.size


def _mislabelled_sizes(rows: Sequence[Row], notes: _NotesByKind, ranks: int) -> Iterator[Finding]:
    """Yield a finding if 32-bit rows of fcollect may have sizes that were not measured.

    `ranks`: 0 if it is not known.
    """
    gathered = [row for row in rows if collective(row.title) == "fcollect"]
    types = {row.labels.get("dtype") for row in gathered}
    smallest = notes.options.get("min_size", 0)
    least = 4 * ranks  # bytes: one element of 32 bits for each PE
    if "32-bit" in types and 0 < least < smallest:
        yield finding("sizes-mislabelled", smallest=smallest, least=least)


_MILLION = 1_000_000
_MOST_WARNINGS = 5


def _warnings(notes: _NotesByKind) -> Iterator[Finding]:
    """Yield the program's warnings, and the errors that rows follow."""
    survived = [error for error in notes.by_kind["error"] if error.rows_above < notes.row_count]
    survived += notes.by_kind["warning"]
    counts = Counter(message.value for message in survived)
    # Equal ones are merged to one finding; `times` says how many there were, as " 3 times".
    for words, times in merged(counts.items())[:_MOST_WARNINGS]:
        begin = max(words.find("NVSHMEM WARN"), 0)
        is_harmless = "Skipping NVLINK SHARP resource initialized" in words
        of = "NVLink SHARP" if is_harmless else ""
        yield finding("nvshmem-warning", of, line=words[begin:], times=times)


def _findings_of_point_to_point(rows: Sequence[Row], notes: _NotesByKind) -> Iterator[Finding]:
    sizes = {row.size for row in rows}
    yield from _rounding(notes)
    program = notes.record.case or ""
    # Only these divide a message among thread blocks, and print a row for each size.
    if program.removeprefix("shmem_") in {"put_bw", "get_bw"}:
        yield from _sizes_not_moved(sizes, notes)
        yield from _missing_sizes(sizes, notes)


def _rounding(notes: _NotesByKind) -> Iterator[Finding]:
    """Yield a finding if integer arithmetic makes bandwidths too high.

    `size / (ms * (1000000000 / (iterations * 1000)))`: the inner division is an integer one.
    """
    iterations = notes.options.get("iterations", 0)
    if not 0 < iterations <= _MILLION:
        return
    # By what share the truncated quotient makes them too high: 0 where the million divides.
    excess = _MILLION / iterations / (_MILLION // iterations) - 1
    if excess >= 0.001:  # 0.1 %, the least that is shown
        yield finding("rounded-bandwidth", iterations=iterations, percent=excess * 100)


def _sizes_not_moved(sizes: AbstractSet[int], notes: _NotesByKind) -> Iterator[Finding]:
    """Yield a finding for sizes below one element of each thread block.

    These programs divide a message among thread blocks, and print a row for each size.
    """
    blocks = notes.options.get("number of ctas", 0) or 32  # their default
    least = 8 * blocks  # elements have 8 bytes
    unmoved = {size for size in sizes if 0 < size < least}
    if unmoved:
        smallest = format_size(least)
        sizes_shown = format_sizes(unmoved)
        yield finding("moves-nothing", smallest=smallest, sizes=sizes_shown, least=least)


def _missing_sizes(sizes: AbstractSet[int], notes: _NotesByKind) -> Iterator[Finding]:
    """Yield a finding for sizes that the options request, and the table lacks."""
    options = notes.options
    steps = (options.get(name, 0) for name in ("min_size", "max_size", "step_factor"))
    planned = {*consistency.powers(*steps)}
    missing = planned - sizes
    if not missing:
        return
    requested = format_sizes(planned)
    lacking = finding("sizes-missing", "nvshmem", planned=requested, missing=format_sizes(missing))
    yield lacking
    if sizes <= planned:  # other sizes show that the options are not those of the table
        notes.record.incomplete = notes.record.incomplete or lacking.meaning
