"""Reads the text output of nccl-tests (`all_reduce_perf` and its siblings), v1.0 to 2.19.

The formats by version, with the source lines that print them: docs/formats.md.
"""

from collections.abc import Sequence
from dataclasses import replace

from fabbench.benchmarks import Reader, Reading, Shortcut
from fabbench.benchmarks.nccl.findings import PrintedSweep, conclude, place_facts
from fabbench.benchmarks.nccl.rows import Layout
from fabbench.benchmarks.nccl.statements import (
    BANNER,
    DEVICES,
    HEADER,
    Statement,
    case_in_command,
    case_of,
    nccl_version,
    read_statement,
)
from fabbench.benchmarks.nccl.table import Table
from fabbench.model.compat import override
from fabbench.model.log import Line, Point, Record
from fabbench.model.messages import LONGEST_QUOTE
from fabbench.model.patterns import lazy

_MAX_FAILURES = 50
_FOOTERS = {"bounds", "average"}
_MAY_BE_ROW = lazy(r"\s*\d{1,18}\s+\d{1,18}\s+[a-z]")
_COMMENT = lazy(r"#[\s#]*+(?!\d)")
NO_MPI = "The program was built without MPI: independent copies ran side by side, each with a table of its own."


class NcclExecution:
    """Reads the lines of one execution. Several streams (ranks) may print them."""

    def __init__(self, case: str | None) -> None:
        self.copies = False  # whether several programs print a table each, although one should
        self._record = Record(benchmark="nccl", case=case)
        self._tables: dict[str, Table] = {}  # by the stream's rank, like the next
        self._seen: dict[str, set[str]] = {}
        self._largest: dict[tuple[str, ...], int] = {}  # by rank, type, redop and root, where there is no header
        self._doubled = False  # whether a size came twice: copies of the program print side by side
        self._devices: dict[int, tuple[str, str]] = {}  # rank → host, pid
        self._groups: set[str] = set()
        self._sweep = PrintedSweep()
        self._chain = ""
        self._wrong_checks = 0

    def row(self, line: Line) -> tuple[Sequence[Point], bool]:
        """Read a line as a row: return the points it completes, and whether it was part of a table.

        If no header was seen, because a filter removed it, only a complete row counts.
        """
        rank, text = line.stream.rank, line.text
        seen = self._seen.get(rank, set())
        known = self._tables.get(rank)
        if (known is None and not _MAY_BE_ROW.match(text)) or (known and not known.holds and _COMMENT.match(text)):
            return (), False
        table = known or Table(Layout(), self._context)
        table.closed = not self.copies and not seen.isdisjoint(_FOOTERS)
        points, mine = table.feed(line.number, text)
        if known is None and not (points or table.holds_row):
            return (), False
        self._tables[rank] = table
        if points and "bounds" in seen:
            self.copies = True  # a row after the footer is another copy's
        return points, mine

    def begins_again(self, line: Line) -> bool:
        """Return whether a row belongs to another run: below a footer or a larger size, without a header."""
        rank = line.stream.rank
        seen = self._seen.get(rank, set())
        if "header" in seen or not _MAY_BE_ROW.match(line.text):
            return False
        size, _, *kind = line.text.split()[:5]
        largest = self._largest.get((rank, *kind), -1)
        self._largest[rank, *kind] = int(size)
        if seen.isdisjoint(_FOOTERS):
            self._doubled = self._doubled or int(size) == largest
            return int(size) < largest
        return not self._doubled

    def shortcut(self, rank: str) -> Shortcut | None:
        """Return a fast path for more rows of one table; None if the next row may be special."""
        table, seen = self._tables.get(rank), self._seen.get(rank, ())
        return table.shortcut() if table is not None and "header" in seen and "bounds" not in seen else None

    def flush(self) -> list[Point]:
        """End the tables: return the points of rows that were held back."""
        points = [point for table in self._tables.values() for point in table.release()]
        for table in self._tables.values():
            table.settle()
        return points

    def _context(self) -> tuple[str | None, int | None]:
        """Return case and ranks, as far as they are stated. With groups, the ranks of a single group count."""
        alone = bool(self._devices) and len(self._groups) < 2 and not self.copies
        return self._record.case, max(self._devices) + 1 if alone else None

    def ended_by(self, line: Line, statement: Statement) -> bool:
        """Return whether a line can only belong to a later execution."""
        rank = line.stream.rank
        seen = self._seen.get(rank, set())
        table = self._tables.get(rank)
        started = "bounds" in seen or (table is not None and bool(table.points))
        if not seen and statement.stage <= HEADER and bool(rank) == ("" in self._seen):
            return self._record.finished is True  # a launcher labels either all copies or none
        if statement.stage == BANNER:
            # Copies of a program may print all of their banners first.
            return not seen.isdisjoint({"device", "header", "bounds", "average", "concluded"})
        if statement.stage == DEVICES and statement.kind == "reducing":
            return False
        return statement.stage in {DEVICES, HEADER} and started and not self.copies

    def state(self, line: Line, statement: Statement) -> None:
        """Record one statement."""
        rank = line.stream.rank
        self._seen.setdefault(rank, set()).add(statement.kind)
        if statement.layout is not None and rank in self._tables:
            self.copies = True
        elif (layout := statement.layout) is not None:
            if layout.sides == 1 and "in_place" in self._seen[rank]:  # the line above names the only side
                layout = replace(layout, placement="in-place")
            self._tables[rank] = Table(layout, self._context)
        else:
            self._note(statement.kind, line.text.strip(), statement.words)

    def _note(self, kind: str, text: str, words: Sequence[str]) -> None:
        """Record what was run, where, and how it went."""
        record, facts = self._record, self._record.facts
        self._sweep.note(kind, text, words)
        if kind == "rccl_tests" and words[0]:
            facts["rccl_tests"] = words[0]
        elif kind == "version":
            facts |= {"nccl_tests": words[0]} | ({"nccl": nccl_version(words[1])} if words[1] else {})
        elif kind in {"program", "concluded"} or (kind == "usage" and record.case is None):
            record.case = case_of(words[0]) or None
        elif kind == "config":
            facts |= {"iterations": int(words[5]), "warmup": int(words[4])}
        elif kind == "device":
            rank, place = int(words[0]), (words[3], words[2])
            self.copies = self.copies or self._devices.get(rank, place) != place
            self._devices[rank] = place
            self._groups.add(words[1] or "0")
        elif kind == "bounds":
            self._wrong_checks += int(words[0]) if words[1] == "FAILED" else 0
        elif kind == "average" and words[1] == "FAILED":
            self._fail(f"The average bus bandwidth is below NCCL_TESTS_MIN_BW: {text.lstrip('# ')}")
        elif kind == "failure":
            self._fail(f"nccl-tests reported an error: {text[:LONGEST_QUOTE]}")
        elif kind == "timeout":
            record.timed_out = record.timed_out or f"nccl-tests' own time limit of {words[0]} s expired: {text[:200]}"
        elif kind == "chain":
            self._chain = self._chain or text
        record.finished = record.finished or kind in _FOOTERS

    def _fail(self, sentence: str) -> None:
        failures = self._record.failures
        if len(failures) < _MAX_FAILURES and sentence not in failures:
            failures.append(sentence)

    def finish(self) -> Record:
        """Return the record. The tables must have been flushed."""
        record, tables = self._record, self._tables
        several = sum(bool(table.points) for table in tables.values()) > 1
        for rank, table in tables.items():
            of_rank = (point._replace(labels={**point.labels, "rank": rank}) for point in table.points)
            record.points += of_rank if several else table.points
        record.damaged = sorted(row for table in tables.values() for row in table.damaged)
        # FAILED counts checks (row × side × rank); without a footer, the rows are the only source.
        record.wrong = self._wrong_checks or sum(table.wrong for table in tables.values())
        if not record.points and any("usage" in kinds for kinds in self._seen.values()):
            self._fail("The program printed its usage text instead of running.")
        if self._chain and not record.failures and not record.wrong:
            self._fail(f"nccl-tests ended with an error: {self._chain[:LONGEST_QUOTE]}")
        if self.copies or several:
            record.failures.insert(0, NO_MPI)
        ranks = max(self._devices, default=-1) + 1
        hosts = [host for host, _ in self._devices.values()]
        record.facts |= place_facts(ranks, hosts)
        record.hosts = frozenset(hosts)
        if len(self._groups) > 1:
            record.facts["groups"] = len(self._groups)
        conclude(record, self._sweep, [*tables.values()], self._context()[1] if len(hosts) == ranks else None)
        # Each table refers to this execution: breaking that cycle frees rows without a garbage collection.
        self._tables.clear()
        return record


class NcclReader(Reader):
    """Splits the lines of a stream group into executions, and reads each."""

    def __init__(self) -> None:
        self._current: NcclExecution | None = None
        self._hint: str | None = None
        self._foreign = False  # whether the lines are of another program that prints the same ones

    @override
    def feed(self, line: Line) -> Sequence[Reading] | None:
        if self._current is None and not _MAY_BE_ROW.match(line.text):
            return self._state(line)
        current = self._current or NcclExecution(self._hint)
        before: list[Reading] = []
        if current.begins_again(line):
            before, current = self._end(), NcclExecution(self._hint)
            current.begins_again(line)
        points, mine = current.row(line)
        if mine:
            self._open(current)
            return [*before, *points]
        readings = self._state(line)
        return [*before, *points, *(readings or ())] if before or points else readings

    def _state(self, line: Line) -> Sequence[Reading] | None:
        """Read what a line other than a row states; it may begin another execution."""
        statement, current, out = read_statement(line.text), self._current, list[Reading]()
        if statement is None:
            self._hint = case_in_command(line.text) or self._hint
            return None
        self._foreign = statement.kind == "foreign" if statement.stage == BANNER else self._foreign
        if self._foreign:
            return self._end() or None
        if current is not None and current.ended_by(line, statement):
            out += self._end()
        self._open(self._current or NcclExecution(self._hint)).state(line, statement)
        return out

    def _open(self, execution: NcclExecution) -> NcclExecution:
        """Make an execution the current one: a command line names one, the next that begins."""
        if execution is not self._current:
            self._current, self._hint = execution, None
        return execution

    @override
    def shortcut(self, rank: str) -> Shortcut | None:
        return self._current.shortcut(rank) if self._current is not None else None

    @override
    def close(self) -> Sequence[Reading]:
        out, self._hint, self._foreign = self._end(), None, False
        return out

    def _end(self) -> list[Reading]:
        current, self._current = self._current, None
        return [] if current is None else [*current.flush(), current.finish()]
