"""Reads the text output of nccl-tests (`all_reduce_perf` and its siblings), v1.0 to 2.19.

The formats by version, with the source lines that print them: docs/formats.md.
"""

from collections.abc import Sequence
from dataclasses import replace

from fabbench.benchmarks import Reader, Reading, Shortcut
from fabbench.benchmarks.nccl.arithmetic import case_by_figures, is_of_ranks
from fabbench.benchmarks.nccl.findings import UNEXPLAINED, PrintedSweep, incompleteness, nccl_findings
from fabbench.benchmarks.nccl.rows import Layout, Row
from fabbench.benchmarks.nccl.table import (
    BANNER,
    DEVICES,
    HEADER,
    Statement,
    TableReader,
    case_in_command,
    case_of,
    nccl_version,
    read_statement,
)
from fabbench.model.compat import override
from fabbench.model.log import Line, Point, Record
from fabbench.model.messages import LONGEST_QUOTE
from fabbench.model.patterns import lazy

_MAX_FAILURES = 50
_FOOTERS = {"bounds", "average"}
_MAY_BE_ROW = lazy(r"\s*\d+\s+\d+\s+[a-z]")
NO_MPI = "The program was built without MPI: independent copies ran side by side, each with a table of its own."


class NcclExecution:
    """Reads the lines of one execution. Several streams (ranks) may print them."""

    def __init__(self, case: str | None) -> None:
        self.copies = False  # whether several programs print a table each, although one should
        self.footers = 0
        self._record = Record(benchmark="nccl", case=case)
        self._tables: dict[str, TableReader] = {}
        self._points: dict[str, list[Point]] = {}  # by the stream's rank, like _tables
        self._largest: dict[tuple[str, ...], int] = {}  # by rank, type, redop and root, where there is no header
        self._doubled = False  # whether a size came twice: copies of the program print side by side
        self._seen: dict[str, set[str]] = {}
        self._devices: dict[int, tuple[str, str]] = {}  # rank → host, pid
        self._groups: set[str] = set()
        self._sweep = PrintedSweep()
        self._chain = ""
        self._usage = False
        self._in_place = False  # whether the line above the header names only one side
        self._checked: bool | None = None
        self._wrong_sides = 0
        self._wrong_checks = 0

    def row(self, line: Line) -> tuple[list[Point], bool]:
        """Read a line as a row: return the points it completes, and whether it was part of a table.

        If no header was seen, because a filter removed it, only a complete row counts.
        """
        rank = line.stream.rank
        table = self._tables.get(rank)
        if table is None:
            if not _MAY_BE_ROW.match(line.text):
                return [], False
            table = TableReader(Layout(), self._context)
            rows, mine = table.feed(line.number, line.text)
            if not (rows or table.holds_row):
                return [], False
            self._tables[rank] = table
        elif line.text[:1] == "#" and table.is_known_comment(line.text):
            return [], False
        else:
            table.closed = not self.copies and not self._seen.get(rank, set()).isdisjoint(_FOOTERS)
            rows, mine = table.feed(line.number, line.text)
        return self._take(rank, rows), mine

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
        """Return a fast path for more plain rows of one table; None if the next row may be special."""
        table, points, seen = self._tables.get(rank), self._points.get(rank), self._seen.get(rank, ())
        if table is None or not points or not self._checked or "bounds" in seen or "header" not in seen:
            return None
        return table.shortcut(points)

    def _take(self, rank: str, rows: list[Row]) -> list[Point]:
        if not rows:
            return []
        if "bounds" in self._seen.get(rank, ()):
            self.copies = True  # a row after the footer is another copy's
        new = [point for row in rows for point in row.points]
        self._points.setdefault(rank, []).extend(new)
        for row in rows:
            self._checked = bool(self._checked) or row.checked
            self._wrong_sides += row.wrong
        return new

    def flush(self) -> list[Point]:
        """End the tables: return the points of rows that were held back."""
        return [point for rank, table in self._tables.items() for point in self._take(rank, table.end())]

    def _context(self) -> tuple[str | None, int | None]:
        """Return case and ranks, as far as they are stated. With groups, the ranks of a single group count."""
        alone = bool(self._devices) and len(self._groups) < 2 and not self.copies
        return self._record.case, max(self._devices) + 1 if alone else None

    @property
    def only_banners(self) -> bool:
        """Whether there has been neither a table nor an error yet."""
        return not self._tables and not self._record.failures

    def ended_by(self, line: Line, statement: Statement) -> bool:
        """Return whether a line can only belong to a later execution."""
        rank = line.stream.rank
        seen = self._seen.get(rank, set())
        if not seen and self.footers and statement.stage <= HEADER and bool(rank) == ("" in self._seen):
            return True  # a launcher labels either all copies or none
        if statement.stage == BANNER:
            beyond = seen & {"device", "using", "header", "bounds", "average", "concluded"}
            return bool(beyond or statement.kind in seen or (self._record.failures and not seen))
        if statement.stage == DEVICES:
            started = "bounds" in seen or bool(self._points.get(rank))
            return statement.kind != "reducing" and started and not self.copies
        if statement.stage == HEADER and not self.copies:
            return "bounds" in seen or bool(self._points.get(rank))
        return False

    def state(self, line: Line, statement: Statement) -> None:
        """Record one statement."""
        rank = line.stream.rank
        begun = any(kinds & {"version", "config", "header"} for kinds in self._seen.values())
        if statement.stage <= HEADER and rank not in self._seen and begun:
            self.copies = True  # with mpirun's tags, only one rank prints
        self._seen.setdefault(rank, set()).add(statement.kind)
        if statement.layout is not None and rank in self._tables:
            self.copies = True
        elif (layout := statement.layout) is not None:
            if self._in_place and layout.sides == 1:
                layout = replace(layout, placement="in-place")
            self._tables[rank] = TableReader(layout, self._context)
        else:
            words = [word or "" for word in statement.words]
            self._describe(statement.kind, words)
            self._conclude(statement.kind, line.text.strip(), words)

    def merge(self, provisional: "NcclExecution") -> None:
        """Take over what another copy of the same program printed before its header."""
        self._devices = provisional._devices | self._devices  # noqa: SLF001 - the same class
        self._record.case = self._record.case or provisional._record.case  # noqa: SLF001

    def _describe(self, kind: str, words: Sequence[str]) -> None:
        """Record what was run, and where."""
        facts = self._record.facts
        if kind == "rccl_tests" and words[0]:
            facts["rccl_tests"] = words[0]
        elif kind == "version":
            facts["nccl_tests"] = words[0]
            if words[2]:
                facts["nccl"] = nccl_version(words[2])
        elif kind in {"program", "concluded"}:
            self._record.case = case_of(words[0]) or None
        elif kind == "config":
            low, high, step, by, warmup, iterations = words
            self._sweep.requested = (int(low), int(high), int(step), by)
            facts |= {"iterations": int(iterations), "warmup": int(warmup)}
        elif kind == "in_place":
            self._in_place = True
        elif kind == "device":
            rank, group, pid, host = int(words[0]), words[1] or "0", words[2], words[3]
            self.copies = self.copies or self._devices.get(rank, (host, pid)) != (host, pid)
            self._devices[rank] = (host, pid)
            self._groups.add(group)

    def _conclude(self, kind: str, text: str, words: Sequence[str]) -> None:
        """Record how it went."""
        record, sweep = self._record, self._sweep
        if kind == "reducing":
            sweep.reduced, sweep.reduced_line = int(words[0]), text
        elif kind == "bounds":
            self.footers += 1
            record.finished = True
            self._wrong_checks += int(words[0]) if words[1] == "FAILED" else 0
        elif kind == "average":
            record.finished = True
            sweep.average, sweep.average_line = words[0], text
            if words[1] == "FAILED":
                self._fail(f"The average bus bandwidth is below NCCL_TESTS_MIN_BW: {text.lstrip('# ')}")
        elif kind == "failure":
            self._fail(f"nccl-tests reported an error: {text[:LONGEST_QUOTE]}")
        elif kind == "timeout":
            record.timed_out = record.timed_out or (f"nccl-tests' own time limit of {words[0]} s expired: {text[:200]}")
        elif kind == "chain":
            self._chain = self._chain or text
        elif kind == "usage":
            self._usage = True
            record.case = record.case or case_of(words[0]) or None

    def _fail(self, sentence: str) -> None:
        failures = self._record.failures
        if len(failures) < _MAX_FAILURES and sentence not in failures:
            failures.append(sentence)

    def finish(self) -> Record:
        """Return the record. The tables must have been flushed."""
        record, several = self._record, len(self._points) > 1
        for rank, given in self._points.items():
            retracted = self._tables[rank].retracted
            points = [point for point in given if id(point) not in retracted] if retracted else given
            if several:
                points = [point._replace(labels={**point.labels, "rank": rank}) for point in points]
            record.points += points
        record.damaged = sorted(row for table in self._tables.values() for row in table.damaged)
        # FAILED counts checks (row × side × rank); without a footer, the rows are the only source.
        record.wrong = self._wrong_checks or self._wrong_sides
        if self._usage and not record.points:
            self._fail("The program printed its usage text instead of running.")
        if self._chain and not record.failures and not record.wrong:
            self._fail(f"nccl-tests ended with an error: {self._chain[:LONGEST_QUOTE]}")
        if self.copies or several:
            record.failures.insert(0, NO_MPI)
        record.facts |= self._facts()
        record.hosts = frozenset(host for host, _ in self._devices.values())
        tables = [table.arithmetic for table in self._tables.values()]
        formula = next((each.rates.formula for each in tables if each.rates.formula is not None), None)
        ranks = self._context()[1] if len(self._devices) == record.facts.get("ranks") else None
        if record.case is None and record.points and formula is not None:
            record.case = case_by_figures(record.points, formula, ranks)
        record.findings += nccl_findings(record, self._sweep)
        if any(each.unexplained for each in tables):
            record.findings.append(UNEXPLAINED)
        record.incomplete = incompleteness(record)
        if ranks is not None and formula is not None and not is_of_ranks(formula, record.case, ranks):
            record.incomplete = (
                f"The busbw of the rows is {formula.bus:.4g} x algbw, which is not that of {ranks} ranks: "
                "they are rows of another run."
            )
        # Each table refers to this execution: breaking that cycle frees rows without a garbage collection.
        self._tables.clear()
        return record

    def _facts(self) -> dict[str, str | int]:
        facts: dict[str, str | int] = {}
        if self._devices:
            hosts = {host for host, _ in self._devices.values()}
            facts["ranks"] = ranks = max(self._devices) + 1
            if len(self._devices) == ranks:
                facts["hosts"] = len(hosts)
                if ranks % len(hosts) == 0:
                    facts["gpus_per_host"] = ranks // len(hosts)
        if len(self._groups) > 1:
            facts["groups"] = len(self._groups)
        if self._checked is not None:
            facts["checked"] = "yes" if self._checked else "no"
        return facts


class NcclReader(Reader):
    """Splits the lines of a stream group into executions, and reads each."""

    def __init__(self) -> None:
        self._current: NcclExecution | None = None
        self._provisional: list[NcclExecution] = []
        self._hint: str | None = None

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
        statement = read_statement(line.text)
        if statement is None:
            self._hint = case_in_command(line.text) or self._hint
            return None
        out: list[Reading] = []
        current = self._current
        if current is not None and current.ended_by(line, statement):
            if current.only_banners:
                self._provisional.append(current)
            else:
                out += self._end()
            self._current = None
        self._open(self._current or NcclExecution(self._hint)).state(line, statement)
        if self._provisional:
            out += self._settle_provisional()
        return out

    def _open(self, execution: NcclExecution) -> NcclExecution:
        """Make an execution the current one: a command line names one, the next that begins."""
        if execution is not self._current:
            self._current, self._hint = execution, None
        return execution

    def _settle_provisional(self) -> list[Record]:
        """Decide what banners without a table are: copies, which print headers after all banners, or cut runs."""
        current = self._current
        if current is None or not (current.copies or current.footers):
            return []
        provisional, self._provisional = self._provisional, []
        if current.copies:
            for earlier in provisional:
                current.merge(earlier)
            return []
        return [earlier.finish() for earlier in provisional]

    @override
    def shortcut(self, rank: str) -> Shortcut | None:
        return self._current.shortcut(rank) if self._current is not None else None

    @override
    def close(self) -> Sequence[Reading]:
        out, self._hint = self._end(), None
        return out

    def _end(self) -> list[Reading]:
        out: list[Reading] = list(self._settle_provisional())
        current, self._current = self._current, None
        provisional, self._provisional = self._provisional, []
        out += [earlier.finish() for earlier in provisional]
        if current is not None:
            out += current.flush()
            out.append(current.finish())
        return out
