"""Reads the text output of nccl-tests (`all_reduce_perf` and its siblings), v1.0 to 2.19.

The formats by version, with the source lines that print them: docs/formats.md.
"""

from collections.abc import Sequence
from dataclasses import replace

from fabbench.benchmarks import Reader, Reading, Shortcut
from fabbench.benchmarks.nccl import statements
from fabbench.benchmarks.nccl.findings import conclude
from fabbench.benchmarks.nccl.rows import Layout
from fabbench.benchmarks.nccl.statements import BANNER, DEVICES, HEADER, Statement
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
    """Reads the lines of one execution. Several streams (ranks) may print them; one prints the table."""

    def __init__(self, case: str | None) -> None:
        self.table: Table | None = None
        self.copies = False  # whether several programs print a table each, although one should
        self._record = Record(benchmark="nccl", case=case)
        self._printer = ""  # the rank whose stream has the table
        self._said: dict[str, Statement] = {}
        self._seen: dict[str, set[str]] = {}  # kinds of statements, by the stream's rank
        self._devices: dict[int, tuple[str, str]] = {}  # rank → host, pid
        self._groups: set[str] = set()
        self._wrong_checks = 0
        self._sizes: dict[tuple[str, ...], int] = {}  # of the last row, by rank, type, redop and root: without a header
        self._doubled = False  # whether a size came twice: copies of the program print side by side

    def _of(self, rank: str) -> set[str]:
        return self._seen.setdefault(rank, set())

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
        table, seen = known or Table(Layout(), self.context), self._of(rank)
        table.closed = not self.copies and not seen.isdisjoint(_FOOTERS)
        points, mine = table.feed(line.number, text)
        if known is None and not (points or (table.held and table.held.row)):
            return (), False
        self.table, self._printer = table, rank
        self.copies = self.copies or bool(points and "bounds" in seen)  # a row after the footer is another copy's
        return points, mine

    def begins_again(self, line: Line) -> bool:
        """Return whether a row belongs to another run: below a footer or a larger size, without a header."""
        seen = self._of(line.stream.rank)
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
        seen = self._of(rank)
        usual = self.table is not None and rank == self._printer and "header" in seen and "bounds" not in seen
        return self.table.shortcut() if self.table is not None and usual else None

    def context(self) -> tuple[str | None, int | None]:
        """Return case and ranks, as far as they are stated. With groups, the ranks of a single group count."""
        alone = bool(self._devices) and len(self._groups) < 2 and not self.copies
        return self._record.case, max(self._devices) + 1 if alone else None

    def ended_by(self, line: Line, statement: Statement) -> bool:
        """Return whether a line can only belong to a later execution."""
        rank = line.stream.rank
        seen = self._of(rank)
        if not seen and statement.stage <= HEADER and bool(rank) == bool(self._seen.get("")):
            return self._record.finished is True  # a launcher labels either all copies or none
        if statement.stage == BANNER:
            # Copies of a program may print all of their banners first.
            return not seen.isdisjoint({"device", "header", "bounds", "average", "concluded"})
        started = "bounds" in seen or (rank == self._printer and self.table is not None and bool(self.table.points))
        return statement.stage in {DEVICES, HEADER} and started and not self.copies

    def state(self, statement: Statement, rank: str = "") -> None:
        """Record one statement."""
        kind, _, text, words, layout = statement
        seen, record = self._of(rank), self._record
        seen.add(kind)
        self._said[kind] = statement
        if layout is not None and self.table is not None:
            self.copies = True
        elif layout is not None:
            if layout.sides == 1 and "in_place" in seen:  # the line above names the only side
                layout = replace(layout, placement="in-place")
            self.table, self._printer = Table(layout, self.context), rank
        elif kind in {"program", "concluded"} or (kind == "usage" and record.case is None):
            record.case = statements.case_of(words[0]) or None
        elif kind == "device":
            number, place = int(words[0]), (words[3], words[2])
            self.copies = self.copies or self._devices.get(number, place) != place
            self._devices[number] = place
            self._groups.add(words[1] or "0")
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

    def release(self) -> Sequence[Point]:
        """End the table: return the points of a row that was held back."""
        return self.table.release() if self.table is not None else ()

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
        conclude(record, said, table, self.context()[1] if listed else None)
        # The table refers to this execution: breaking that cycle frees rows without a garbage collection.
        self.table = None
        return record

    def _facts(self) -> dict[str, str | int]:
        words = {kind: statement.words for kind, statement in self._said.items()}
        facts, hosts = dict[str, str | int](), [host for host, _ in self._devices.values()]
        if "version" in words:
            release, nccl = words["version"]
            facts |= {"nccl_tests": release} | ({"nccl": statements.nccl_version(nccl)} if nccl else {})
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


class NcclReader(Reader):
    """Splits the lines of a stream group into executions, and reads each."""

    def __init__(self) -> None:
        self._current: NcclExecution | None = None
        self._hint: str | None = None
        self._foreign = False  # whether the lines are of another program that prints the same ones

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
            self._open(current)
            return [*before, *points]
        readings = self._state(line)
        return [*before, *points, *(readings or ())] if before or points else readings

    def _state(self, line: Line) -> Sequence[Reading] | None:
        """Read what a line other than a row states; it may begin another execution."""
        statement, current, out = statements.read_statement(line.text), self._current, list[Reading]()
        if statement is None:
            self._hint = statements.case_in_command(line.text) or self._hint
            return None
        self._foreign = statement.kind == "foreign" if statement.stage == BANNER else self._foreign
        if self._foreign:
            return self._end() or None
        if current is not None and current.ended_by(line, statement):
            out += self._end()
        self._open(self._current or NcclExecution(self._hint)).state(statement, line.stream.rank)
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
        return [] if current is None else [*current.release(), current.finish()]
