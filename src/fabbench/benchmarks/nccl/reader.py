"""Reads the text output of nccl-tests (`all_reduce_perf` and its siblings), v1.0 to 2.19.

The formats by version, with the source lines that print them: docs/formats.md.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from fabbench.benchmarks import Reader, Reading, Shortcut
from fabbench.benchmarks.consistency import Formula, Ratios, note, warning
from fabbench.benchmarks.nccl import BENCHMARK
from fabbench.benchmarks.nccl.table import ANY, COLLECTIVES, Layout, Table, read_header
from fabbench.model.compat import override
from fabbench.model.log import Finding, Line, Point, Record
from fabbench.model.messages import LONGEST_QUOTE
from fabbench.model.patterns import lazy
from fabbench.model.units import format_size

_MAX_FAILURES = 50
_FOOTERS = {"bounds", "average"}
_MAY_BE_ROW = lazy(r"\s*\d{1,18}\s+\d{1,18}\s+[a-z]")
_COMMENT = lazy(r"#[\s#]*+(?!\d)")
NO_MPI = (
    "The program was built without MPI: independent copies ran side by side, each with a "
    "table of its own."
)

MISSING, MISMATCH = (
    "sizes-missing",
    "average-mismatch",
)  # findings that prove that the log is incomplete

# In print order. A line of an earlier stage than the current one begins another run.
BANNER, DEVICES, HEADER, FOOTER, AFTER = range(5)


class Statement(NamedTuple):
    """One parsed line. `kind` names its entry in `_LINES`; `words` are its groups."""

    kind: str
    stage: int
    text: str
    words: Sequence[str] = ()
    layout: Layout | None = None


# Kind, stage, and the pattern of a line's beginning; mscclpp-test (`foreign`) prints a table of its
# own between the same lines, and a build of rccl-tests outside of git has "Unknown" or ":+" for its
# version.
_LINES = r"""
device 1 #?\s*Rank\s+(\d{1,9})\s+(?:Group\s+(\d+)\s+)?(?:Pid\s+(\d+)\s+)?on\s+<words>\s+device\s+\d+\s+\[[^][]*\]
version 0 # ([nr]ccl)-tests version (\S+)(?: \(\w+\))?(?: [nr]ccl-headers=\d+ [nr]ccl-library=<n>)?
program 0 # Collective test starting: <name>(?:_perf\S*)?(?!\S)
config 0 #? ?nThread \d+ nGpus \d+ minBytes <n> maxBytes <n> step: <n>\((factor|bytes)\) warmup iters: <n> iters: <n>
foreign 0 # minBytes \d+ maxBytes \d.* kernel num: \d|#\s+size\s+count\s+time\s+algbw
rccl_tests 1 rccl-tests: Version (?:(\w+:[0-9a-f]+\+?)|.*)
in_place 2 # +in-place$
bounds 3 (?:# ?)?Out of bounds values +: +<n> (OK|FAILED)
average 3 (?:# ?)?Avg bus bandwidth +: +(\d+(?:\.\d+)?(?:e[+-]\d+)?|-?nan|inf) *(OK|FAILED)?
reducing 4 # Reducing maxBytes to <n> due to memory limitation
concluded 4 # Collective test concluded: <name>(?:_perf\S*)?(?!\S)
timeout 4 (?:\S+: )?Test timeout \(<n>s\)
chain 4 \.\. \S+ pid \d+: Test failure \S+:\d+
usage 4 USAGE: <name>_perf
failure 4 (?:\S+: )?(?:Test )?(?:NCCL|CUDA|CURAND) failure \S+:\d+|# error: |nRanks \d+ is not a power of 2, skipping
failure 4 (?:\S*_perf\S*: )?(?:unrecognized option|invalid option|option requires) |invalid sizes? (?:specified|for)
failure 4 (?:Invalid number of GPUs: |(?:Option )?-\w\S* .*(?:not supported|requires))(?!.*(?:Ignor|Default)ing)
failure 4 Incompatible NCCL versions|[Dd]evice implementation |\[ERROR\] The number of requested GPUs|NCCL \S+ or later
"""
_WORDS = {
    "<n>": r"(\d{1,18})",
    "<name>": r"(?:\S*/)?([\w.+-]+?)",
    "<words>": r"(\S++(?:\s++\S++)*?)",
}


def _with_words(pattern: str) -> str:
    """Return a pattern of the table with what its abbreviations stand for."""
    for word, meaning in _WORDS.items():
        pattern = pattern.replace(word, meaning)
    return pattern


_STATEMENTS = [
    (
        kind,
        int(stage),
        lazy(_with_words(pattern)),
    )
    for kind, stage, pattern in (line.split(None, 2) for line in _LINES.strip().split("\n"))
]
_PROGRAM = lazy(r"(?:^|[\s/'\"])([a-z]\w*)_perf(?:_mpi)?(?=[\s'\";]|$)")


@lru_cache(maxsize=512)  # most banners of the programs in one log are the same
def read_statement(text: str) -> Statement | None:
    """Parse a line other than a row; None if it does not come from nccl-tests."""
    if "algbw" in text and (layout := read_header(text)) is not None:
        return Statement("header", HEADER, text, (), layout)
    if not BENCHMARK.may_begin(text):
        return None
    text = text.strip()
    for kind, stage, pattern in _STATEMENTS:
        if (match := pattern.match(text)) is not None:
            return Statement(kind, stage, text, match.groups(""))
    return None


class NcclExecution:
    """Reads the lines of one execution.

    Several streams (ranks) may print them; one prints the table.
    """

    def __init__(self, case: str | None) -> None:
        self.table: Table | None = None
        self.copies = False  # whether several programs print a table each, although one should
        self._record = Record(benchmark="nccl", case=case)
        self._printer = ""  # the rank whose stream has the table
        self._said: dict[str, Statement] = {}
        self._seen = defaultdict[str, set[str]](set)  # kinds of statements, by the stream's rank
        self._devices: dict[int, tuple[str, str]] = {}  # rank → host, pid
        self._groups: set[str] = set()
        self._wrong_checks = 0
        self._sizes: dict[
            tuple[str, ...], int
        ] = {}  # of the last row, by rank, type, redop and root: without a header
        self._doubled = False  # whether a size came twice: copies of the program print side by side

    def is_told(self, text: str) -> bool:
        """Return whether a line can only be a statement: it is neither a row nor part of one."""
        if self.table is None:
            return text[:1] == "#" or not _MAY_BE_ROW.match(text)
        return text[:1] == "#" and self.table.held is None and _COMMENT.match(text) is not None

    def row(self, line: Line) -> tuple[Sequence[Point], bool]:
        """Read a line as a row: return the points it completes, and whether it was part of a table.

        If no header was seen, because a filter removed it, only a complete row counts.
        """
        rank, text, known = line.stream.rank, line.text, self.table
        may_be_row = _MAY_BE_ROW.match(text) is not None
        if known is not None and rank != self._printer:
            self.copies = self.copies or may_be_row
            return (), may_be_row
        table, seen = known or Table(Layout(), self.context), self._seen[rank]
        table.closed = not self.copies and not seen.isdisjoint(_FOOTERS)
        points, mine = table.feed(line.number, text)
        if known is None and not (points or (table.held and table.held.row)):
            return (), False
        self.table, self._printer = table, rank
        self.copies = self.copies or bool(
            points and "bounds" in seen
        )  # a row after the footer is another copy's
        return points, mine

    def begins_again(self, line: Line) -> bool:
        """Return whether a row belongs to another run.

        Below a footer or a larger size, without a header.
        """
        seen = self._seen[line.stream.rank]
        if "header" in seen or not _MAY_BE_ROW.match(line.text):
            return False
        size, _, *kind = line.text.split()[:5]
        before = self._sizes.get((line.stream.rank, *kind), -1)
        self._sizes[line.stream.rank, *kind] = int(size)
        if not seen.isdisjoint(_FOOTERS):
            return not self._doubled
        self._doubled = self._doubled or int(size) == before
        return int(size) < before

    def shortcut(self, rank: str) -> Shortcut | None:
        """Return a fast path for more rows of one table; None if the next row may be special."""
        seen, table = self._seen[rank], self.table if rank == self._printer else None
        usual = "header" in seen and "bounds" not in seen
        return table.shortcut() if table is not None and usual else None

    def context(self) -> tuple[str | None, int | None]:
        """Return case and ranks, as far as they are stated.

        With groups, the ranks of a single group count.
        """
        alone = bool(self._devices) and len(self._groups) < 2 and not self.copies
        return self._record.case, max(self._devices) + 1 if alone else None

    def ended_by(self, line: Line, statement: Statement) -> bool:
        """Return whether a line can only belong to a later execution."""
        rank = line.stream.rank
        seen = self._seen[rank]
        if not seen and statement.stage <= HEADER and bool(rank) == bool(self._seen.get("")):
            return self._record.finished is True  # a launcher labels either all copies or none
        if statement.stage == BANNER:
            # Copies of a program may print all of their banners first.
            return not seen.isdisjoint({"device", "header", "bounds", "average", "concluded"})
        started = "bounds" in seen or (
            rank == self._printer and self.table is not None and bool(self.table.points)
        )
        return statement.stage in {DEVICES, HEADER} and started and not self.copies

    def state(self, statement: Statement, rank: str = "") -> None:
        """Record one statement."""
        kind, _, text, words, layout = statement
        seen, record = self._seen[rank], self._record
        seen.add(kind)
        self._said[kind] = statement
        if kind == "device":
            number, place = int(words[0]), (words[3], words[2])
            self.copies = self.copies or self._devices.get(number, place) != place
            self._devices[number] = place
            self._groups.add(words[1] or "0")
        elif layout is not None and self.table is not None:
            self.copies = True
        elif layout is not None:
            if layout.sides == 1 and "in_place" in seen:  # the line above names the only side
                layout = replace(layout, placement="in-place")
            self.table, self._printer = Table(layout, self.context), rank
        elif kind in {"program", "concluded"} or (kind == "usage" and record.case is None):
            record.case = words[0]
        elif kind == "bounds":
            self._wrong_checks += int(words[0]) if words[1] == "FAILED" else 0
        elif kind == "average" and words[1] == "FAILED":
            self.fail(f"The average bus bandwidth is below NCCL_TESTS_MIN_BW: {text.lstrip('# ')}")
        elif kind == "failure":
            self.fail(f"nccl-tests reported an error: {text[:LONGEST_QUOTE]}")
        record.finished = record.finished or kind in _FOOTERS

    def fail(self, sentence: str) -> None:
        """Record a failure."""
        failures = self._record.failures
        if len(failures) < _MAX_FAILURES and sentence not in failures:
            failures.append(sentence)

    def finish(self) -> Record:
        """Return the record. The table must have been released."""
        record, said, table = self._record, self._said, self.table or Table(Layout(), self.context)
        table.settle()
        record.points, record.damaged = table.points, sorted(table.damaged)
        # FAILED counts checks (row × side × rank); without a footer, the rows are the only source.
        record.wrong = self._wrong_checks or table.wrong
        if not record.points and "usage" in said:
            self.fail("The program printed its usage text instead of running.")
        if "timeout" in said:
            seconds, text = said["timeout"].words[0], said["timeout"].text
            record.timed_out = f"nccl-tests' own time limit of {seconds} s expired: {text[:200]}"
        if "chain" in said and not record.failures and not record.wrong:
            self.fail(f"nccl-tests ended with an error: {said['chain'].text[:LONGEST_QUOTE]}")
        if self.copies:
            record.failures.insert(0, NO_MPI)
        record.hosts = frozenset(host for host, _ in self._devices.values())
        record.facts |= self._facts()
        listed = len(self._devices) == record.facts.get("ranks")
        _conclude(record, said, table, self.context()[1] if listed else None)
        # The table refers to this execution: breaking that cycle frees rows without a garbage
        # collection.
        self.table = None
        return record

    def _facts(self) -> dict[str, str | int]:
        words = {kind: statement.words for kind, statement in self._said.items()}
        facts, hosts = dict[str, str | int](), [host for host, _ in self._devices.values()]
        if "version" in words:
            library, facts[f"{words['version'][0]}_tests"], code = words["version"]
            if code:  # 22809 is 2.28.9, and 2804 is 2.8.4, before 2.9
                major, rest = divmod(int(code), 10_000 if int(code) >= 10_000 else 1000)
                facts[library] = f"{major}.{rest // 100}.{rest % 100}"
        if words.get("rccl_tests", ("",))[0]:
            facts["rccl_tests"] = words["rccl_tests"][0]
        if "config" in words:
            facts |= {"iterations": int(words["config"][5]), "warmup": int(words["config"][4])}
        if hosts:
            facts["ranks"] = ranks = max(self._devices) + 1
            if len(hosts) == ranks:
                facts["hosts"], left = len({*hosts}), ranks % len({*hosts})
                facts |= {} if left else {"gpus_per_host": ranks // len({*hosts})}
        return facts | ({"groups": len(self._groups)} if len(self._groups) > 1 else {})


def _conclude(
    record: Record, said: Mapping[str, Statement], table: Table, ranks: int | None
) -> None:
    """Add what all rows together show.

    `said`: the statements; `ranks`: those of the table, if all are listed.
    """
    formula = table.formula
    if algorithms := table.rows.algorithms:
        record.facts |= {
            "algorithms": "+".join(sorted(algorithms)),
            "channels": max(algorithms.values()),
        }
    if table.checked is not None:
        record.facts["checked"] = "yes" if table.checked else "no"
    if record.case is None and record.points and formula is not None:
        record.case = _case_by_figures(record, formula, ranks)
    record.findings += _findings(record, said, exact=table.layout.check == "exact")
    if record.points and formula is None:
        meaning = (
            "The log does not name the collective, and the figures of its rows fit no known one."
        )
        advice = "Keep the command line, or the line `Collective test starting`, in the log."
        record.findings.append(warning("row-arithmetic", meaning, advice))
    missing = (
        finding.meaning for finding in record.findings if finding.code in {MISSING, MISMATCH}
    )
    record.incomplete = next(missing, "")
    shapes = COLLECTIVES.get(record.case or "", ANY).shapes
    known_formulas = {shape.of(ranks) for shape in shapes} if ranks is not None else {formula}
    if formula is not None and formula.bus is not None and formula not in known_formulas:
        record.incomplete = (
            f"The busbw of the rows is {formula.bus:.4g} x algbw, which is not that of {ranks} "
            "ranks: "
            "they are rows of another run."
        )


def _findings(record: Record, said: Mapping[str, Statement], *, exact: bool) -> Iterator[Finding]:
    if (reduced := said.get("reducing")) is not None:
        size = format_size(int(reduced.words[0]))
        meaning = (
            f"nccl-tests ended the sweep below {size}, less than requested because memory ran out."
        )
        advice = (
            "Choose sizes that fit (-e), or free GPU memory; the exit status does not show this."
        )
        yield warning("range-reduced", meaning, advice, line=reduced.text)
    # The factor of collectives is 0 for one rank.
    rates = [
        values[1:3] for _, _, metrics, values in record.points if metrics[1:3] == ("algbw", "busbw")
    ]
    alone = not any(bus for _, bus in rates) and max(rates, default=(0.0, 0.0))[0] >= 1e9
    if record.points and (record.facts.get("ranks") == 1 or alone):
        meaning = "One rank only: busbw is 0 by definition, and nothing went over a fabric."
        advice = "Start more ranks, and build nccl-tests with MPI=1 for more than one host."
        yield warning("one-rank", meaning, advice)
    if record.facts.get("checked") == "no":
        meaning = "The data were not checked (-c 0): `0 OK` in the footer says nothing."
        yield note("not-checked", meaning, "Run with -c 1 once.")
    if record.finished and record.points and "config" in said:
        yield from _missing(record, said)
    if "average" in said:
        yield from _average([bus / 1e9 for _, bus in rates], said["average"], exact=exact)


def _missing(record: Record, said: Mapping[str, Statement]) -> Iterator[Finding]:
    # Sizes of gather-like collectives are rounded to a multiple of the ranks: only their number is
    # certain.
    low, high, step = map(int, said["config"].words[:3])
    by_factor = said["config"].words[3] == "factor"
    last = min(high, int(said["reducing"].words[0])) if "reducing" in said else high
    expected, size = 0, low
    if by_factor and (step <= 1 or not low):
        return
    while size <= last and expected <= 100_000:
        expected += 1
        size = size * step if by_factor else size + max(step, 1)
    sizes = [point.size for point in record.points]
    found = len({*sizes} - {0})
    # Sizes of 0 repeat, and two byte steps may be rounded to the same size.
    if found + sizes.count(0) < expected and (by_factor or len(sizes) < expected):
        meaning = f"The sweep should have {expected} sizes, but the log has rows of {found}."
        yield warning(
            MISSING, meaning, "Check whether a pipe, a terminal or an editor dropped lines."
        )


def _average(known: Sequence[float], average: Statement, *, exact: bool) -> Iterator[Finding]:
    """Compare the printed average with the mean of both busbw columns, as far as their rounding allows."""
    stated = float(average.words[0])
    if not known or not math.isfinite(stated):
        return
    mean = math.fsum(known) / len(known)
    # Half of the last digit: two decimals as long as they fit, then four or five digits, and two
    # from 1e6 on.
    halves = [0.005 if rate < 999.995 else rate * (5e-5 if rate < 1e6 else 0.05) for rate in known]
    slack = 0.5e-6 if exact else math.fsum(halves) / len(known)
    # The average has six digits (%g), without trailing zeros.
    digits = (
        0.5e-6 if exact else 0.5 * 10.0 ** (math.floor(math.log10(stated)) - 5) if stated else 1e-6
    )
    if abs(mean - stated) > (slack + digits) * 1.0001:
        meaning = f"The printed average is {stated:g} GB/s, but that of the rows is {mean:.6g} GB/s"
        yield warning(MISMATCH, f"{meaning}: rows are missing or were altered.", line=average.text)


def _case_by_figures(record: Record, formula: Formula, ranks: int | None) -> str | None:
    """Return the collective that a table's rows can only be of; None if there are several."""
    labels = record.points[0].labels
    kind = (labels.get("redop", "none") != "none", labels.get("root", "-1") != "-1")
    checked = {point.labels.get("placement"): "wrong" in point.metrics for point in record.points}
    stated, (share, bus) = [ranks] if ranks is not None else [], (each or 0.0 for each in formula)
    exact = Ratios(share, share, bus, bus)
    one_sided = checked.get("out-of-place") and not checked.get("in-place", True)
    fitting = [
        case
        for case, (known, reduces, rooted, in_place_checked) in COLLECTIVES.items()
        if (reduces, rooted) == kind
        and any(
            each.of(number) == formula
            for each in known
            for number in stated or each.candidates(exact)
        )
        and not (one_sided if in_place_checked else checked.get("in-place", False))
    ]
    return fitting[0] if len(fitting) == 1 else None


class NcclReader(Reader):
    """Splits the lines of a stream group into executions, and reads each."""

    def __init__(self) -> None:
        self._current: NcclExecution | None = None
        self._hint: str | None = None
        self._foreign = False  # whether the lines are of another program that prints the same ones
        self._wrapped = ""  # the last line, if it may go on in the next: a terminal ended it

    @override
    def feed(self, line: Line) -> Sequence[Reading] | None:
        current = self._current or NcclExecution(self._hint)
        if current.is_told(line.text):
            return self._state(line)
        before: list[Reading] = []
        if current.begins_again(line):
            before, current = self._end(), NcclExecution(self._hint)
            current.begins_again(line)
        points, mine = current.row(line)
        if mine:
            # A command line names one execution, the next that begins.
            self._hint = None if current is not self._current else self._hint
            self._current = current
            return [*before, *points]
        readings = self._state(line)
        return [*before, *points, *(readings or ())] if before or points else readings

    def _state(self, line: Line) -> Sequence[Reading] | None:
        statement = read_statement(line.text) or read_statement(self._wrapped + line.text)
        self._wrapped = (
            line.text if statement is None and line.text[:1] == "#" and len(line.text) > 70 else ""
        )
        if statement is None:
            command = _PROGRAM.search(line.text) if "_perf" in line.text else None
            self._hint = command[1] if command is not None else self._hint
            return None
        self._foreign = statement.kind == "foreign" if statement.stage == BANNER else self._foreign
        if self._foreign:
            return self._end() or None
        ended = self._current is not None and self._current.ended_by(line, statement)
        out = self._end() if ended else ()
        if self._current is None:
            self._current, self._hint = NcclExecution(self._hint), None
        self._current.state(statement, line.stream.rank)
        return out

    @override
    def shortcut(self, rank: str) -> Shortcut | None:
        return self._current.shortcut(rank) if self._current is not None else None

    @override
    def close(self) -> Sequence[Reading]:
        out, self._hint, self._foreign = self._end(), None, False
        return out

    def _end(self) -> list[Reading]:
        current, self._current = self._current, None
        if current is None:
            return []
        held = current.table.release() if current.table is not None else ()
        return [*held, current.finish()]
