"""Executions, one after another: what was read from each, and its record.

All PEs print their options when they start, one PE prints tables, and the output of the others may arrive in
the middle of them. So the text since the last row is kept apart until the next row shows whether it was late,
or from another execution.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache

from fabbench.benchmarks import Reading
from fabbench.benchmarks.consistency import out_of_order
from fabbench.benchmarks.nvshmem.figures import (
    AMBIGUOUS,
    BLOCK,
    TOTAL,
    ExecutionOutput,
    bandwidth_unit,
    base_value,
    contradictions,
    eras_of,
    figure_findings,
    gathers,
    ranks_of,
    size_meaning,
    sizes_lost,
)
from fabbench.benchmarks.nvshmem.layouts import ALL, Eras, NvshmemLayout, NvshmemRow
from fabbench.benchmarks.nvshmem.text import Preface, PrintedOptions, case_of, direction_of, network_facts, way_of
from fabbench.model.log import Damaged, Labels, Line, Point, Record

_MAX_FAILURES = 50
_MAX_DAMAGED = 10_000
COPIES = (
    "The processes did not find each other: each one is PE 0 and measures alone. "
    "Check that NVSHMEM_BOOTSTRAP fits the launcher."
)


@dataclass(slots=True)
class NvshmemTable:
    """One table of one stream. Machine-readable rows need no columns."""

    job: str | None
    layout: NvshmemLayout
    rank: str = ""
    titled: bool = True  # whether a title is above it: machine-readable rows name their job themselves
    headless: bool = False  # whether the header below the title is missing, so that rows cannot be read
    rows: list[NvshmemRow] = field(default_factory=list)
    open_row: bool = False  # whether the rule after the last row of a boxed table is missing
    eras: Eras = ALL  # versions that print such a table
    attached: bool = False  # whether its execution is known: from its first row on

    def __post_init__(self) -> None:
        self.narrow(self.layout.eras)

    def narrow(self, eras: Eras) -> None:
        """Narrow the versions down to `eras`; `eras` replaces them if they contradict each other."""
        self.eras = self.eras & eras or eras

    def second_sweep(self) -> list[NvshmemRow]:
        """Return the rows from the first whose size does not increase, or whose labels differ.

        Each sweep, type, operation and scope has a header of its own: theirs is missing.
        """
        if not self.layout.columns:
            return []
        size = -1
        stray = set(out_of_order([row.size for row in self.rows]))
        for at, row in enumerate(self.rows):
            if at in stray:
                continue
            if row.size <= size or row.labels != self.rows[0].labels:
                return self.rows[at:]
            size = row.size
        return []


@dataclass(slots=True)
class NvshmemExecution:
    """One execution of one program."""

    preface: Preface = field(default_factory=Preface)
    case: str | None = None
    tables: list[NvshmemTable] = field(default_factory=list)  # tables with a row, complete or damaged
    keys: set[tuple[str | None, int, tuple[tuple[str, str], ...]]] = field(default_factory=set)
    """Job, size and labels of its rows: what a program prints only once."""
    damaged: list[Damaged] = field(default_factory=list)
    _order: list[tuple[NvshmemTable, NvshmemRow, Line]] = field(default_factory=list)

    def continued_by(self, preface: Preface, job: str | None, row: NvshmemRow | None) -> bool:
        """Return whether a table that begins after `preface` still belongs to this execution."""
        if not self.tables:
            return True
        if preface.conflicts(self.preface):
            return False
        if self.preface.begins() and not preface.begins():
            return True  # this program prints text when it starts, and no program has since
        if job is not None and self.case is not None and case_of(job) != self.case:
            return False
        return row is None or self.preface.copies > 0 or (job, row.size, row.labels) not in self.keys

    def precedes(self, preface: Preface) -> bool:
        """Return whether `preface`, with no row after it, belongs to a later execution."""
        if preface.conflicts(self.preface):
            return True
        if preface.job is not None and self.case not in {None, case_of(preface.job)}:
            return preface.begins() or not self.preface.begins()
        return bool(preface.dumps) and not preface.pes and self.preface.complete()

    def attach(self, table: NvshmemTable) -> None:
        """Add a table."""
        table.attached = True
        self.tables.append(table)
        if table.job is not None and self.case is None:
            self.case = case_of(table.job)

    def add(self, table: NvshmemTable, row: NvshmemRow, line: Line) -> Point | None:
        """Add a row of one of the tables; return its first point, as far as is known yet."""
        table.rows.append(row)
        self.keys.add((table.job, row.size, row.labels))
        self._order.append((table, row, line))
        return next(self._points(table, row, self._eras(), 1), None)

    def finish(self, *, cut: bool) -> Record:
        """Return the record. `cut`: the last table is incomplete."""
        self._drop_contradictions()
        preface = self.preface
        case = preface.program or self.case or (case_of(preface.job) if preface.job else None)
        record = Record(benchmark="nvshmem", case=case, finished=None)
        eras, ranks = self._eras(), self._ranks()
        record.facts |= self._facts(ranks)
        hosts = record.facts.get("hosts")
        network, record.evidence = network_facts(preface, hosts if isinstance(hosts, int) else 0)
        record.facts |= network
        if preface.version:
            record.facts["nvshmem"] = preface.version
        sizes = {self._size_of(table, eras) for table in self.tables} - {""}
        size = sizes.pop() if len(sizes) == 1 else AMBIGUOUS if sizes else ""
        # The highest PE seen may not be the last: sizes are multiplied only by a number that is certain.
        certain = self._implied_ranks() is not None or preface.complete()
        scaled = size == BLOCK and certain and ranks is not None and ranks > 1
        for table, row, _ in self._order:
            by = ranks if scaled and ranks and gathers(table.rows, table.job) else 1
            record.points += self._points(table, row, eras, by)
        if size:
            record.facts["size_means"] = TOTAL if scaled else size
        if any(figure.metric == "bandwidth" for _, row, _ in self._order for figure in row.figures):
            record.facts["unit"] = bandwidth_unit(eras)
        record.damaged = sorted(self.damaged)
        if cut:
            record.finished = False
        self._fail(record)
        read = ExecutionOutput(
            record=record,
            preface=preface,
            rows=[row for _, row, _ in self._order],
            eras=eras,
            scaled_by=ranks if scaled else None,
        )
        record.findings += figure_findings(read)
        record.incomplete = record.incomplete or sizes_lost(read)
        return record

    def _drop_contradictions(self) -> None:
        pes = len(self.preface.pes) if self.preface.complete() and not self.preface.copies else None
        rows = [(table.job or self.preface.program, row) for table, row, _ in self._order]
        wrong = {id(self._order[at][1]) for at in contradictions(rows, pes)}
        for table in self.tables:
            wrong |= {id(table.rows[at]) for at in out_of_order([row.size for row in table.rows])}
        wrong |= {id(row) for row in self._unidentified_rows()}
        if not wrong:
            return
        self.damaged += [Damaged(line.number, line.text.rstrip()) for _, row, line in self._order if id(row) in wrong]
        self._order = [entry for entry in self._order if id(entry[1]) not in wrong]
        for table in self.tables:
            table.rows = [row for row in table.rows if id(row) not in wrong]

    def _unidentified_rows(self) -> Iterator[NvshmemRow]:
        """Yield the rows whose title or header is missing, which every version prints: their test is unknown."""
        announced = self.preface.begins() or self.preface.job is not None
        titled = announced or any(table.titled for table in self.tables)
        for table in self.tables:
            if titled and not table.titled and table.job is None:
                yield from table.rows
            elif not self.preface.copies:
                yield from table.second_sweep()

    def _fail(self, record: Record) -> None:
        preface = self.preface
        failures = list(dict.fromkeys(preface.failures))
        if preface.copies:
            failures.insert(0, COPIES)
        if preface.errors and not failures:
            failures += [f"NVSHMEM reported: {error}" for error in dict.fromkeys(preface.errors)]
        if preface.usage and not record.points and not failures:
            failures.append("The program printed its usage text instead of running.")
        record.failures = failures[:_MAX_FAILURES]

    def _eras(self) -> Eras:
        """Return the possible versions: by the printed text, else by the stated version."""
        eras = ALL
        for table in self.tables:
            eras = eras & table.eras or table.eras
        return eras & eras_of(self.preface.version) or eras

    def _ranks(self) -> int | None:
        pes, implied = self.preface.pes, self._implied_ranks()
        printed = max(len(pes), max(pes) + 1) if pes else None
        return implied if printed is None or (implied is not None and implied > printed) else printed

    def _implied_ranks(self) -> int | None:
        counts = {ranks_of(table.rows, table.job) for table in self.tables} - {None}
        # A single table may allow several numbers, but all of them together only one.
        rows, jobs = [row for table in self.tables for row in table.rows], {table.job for table in self.tables}
        if counts:
            return counts.pop() if len(counts) == 1 else None
        return ranks_of(rows, jobs.pop() if len(jobs) == 1 else None)

    def _facts(self, ranks: int | None) -> dict[str, str | int]:
        facts: dict[str, str | int] = {}
        if ranks is not None:
            facts["ranks"] = 1 if self.preface.copies else ranks
        pes = self.preface.pes
        if ranks is not None and sorted(pes) == list(range(ranks)) and 0 in pes.values() and not self.preface.copies:
            facts["hosts"] = hosts = list(pes.values()).count(0)  # every node has exactly one first PE
            if ranks % hosts == 0:
                facts["gpus_per_host"] = ranks // hosts
        options = self.preface.options
        if options is not None:
            counts = {"iterations": options.iterations, "warmup": options.warmup}
            facts |= {name: count for name, count in counts.items() if count is not None}
        return facts

    def _size_of(self, table: NvshmemTable, eras: Eras) -> str:
        figures = table.rows[0].figures if table.rows else ()
        job = table.job or self.preface.program
        if not job and not any(figure.metric == "busbw" for figure in figures):
            # Only latencies by scope, and no title: an unknown collective of 1.x.
            return AMBIGUOUS if any(figure.labels for figure in figures) else ""
        return size_meaning(eras, job) if figures and gathers(table.rows, job) else ""

    def _points(self, table: NvshmemTable, row: NvshmemRow, eras: Eras, by: int) -> Iterator[Point]:
        """Yield the points of a row: its main figures, and one for each statistic, scope or pair of PEs."""
        binary = bandwidth_unit(eras)
        groups: dict[tuple[tuple[str, str], ...], dict[str, float]] = {}
        for figure in row.figures:
            number = base_value(figure.token, figure.unit, binary)
            if number is not None:
                scale = by if figure.metric in {"algbw", "busbw"} else 1
                groups.setdefault(figure.labels, {})[figure.metric] = number * scale
        for group_labels, values in groups.items():
            labels = _labels(row.labels + group_labels + self._job_labels(table, values.keys()))
            yield Point(row.size * by, labels, tuple(values), tuple(values.values()))

    def _job_labels(self, table: NvshmemTable, metrics: AbstractSet[str]) -> tuple[tuple[str, str], ...]:
        """Return the labels of all rows that follow from the name of the job, or the options."""
        job = table.job or self.preface.program
        labels: dict[str, str] = {}
        if not metrics.isdisjoint({"bandwidth", "message_rate"}):
            labels["direction"] = direction_of(table.job)
            if not labels["direction"] and self.preface.options is not None:
                labels["direction"] = {0: "uni", 1: "bi", None: ""}.get(self.preface.options.both_ways, "")
        elif "latency" in metrics:
            labels["way"] = way_of(job)
        if len({each.rank for each in self.tables}) > 1:
            labels["rank"] = table.rank
        return tuple((name, label) for name, label in labels.items() if label)


@lru_cache(maxsize=10_000)
def _labels(pairs: tuple[tuple[str, str], ...]) -> Labels:
    return dict(pairs)  # shared by all rows that have them


@dataclass(slots=True)
class Executions:
    """The open execution, the text since its last row, and finished readings (`out`)."""

    out: list[Reading] = field(default_factory=list)
    preface: Preface = field(default_factory=Preface)
    _current: NvshmemExecution | None = None

    @property
    def inside(self) -> bool:
        """Return whether a perftest is known to be running."""
        return self._current is not None or self.preface.started

    def add_options(self, options: PrintedOptions) -> None:
        """Add the options that a PE prints; all PEs of one execution print the same."""
        if self.preface.options is not None and self.preface.options.differs(options):
            self._settle(cut=False)
        self.preface.options = self.preface.options or options
        self.preface.dumps += 1
        self.preface.started = True

    def add_pes(self, pes: dict[int, int]) -> None:
        """Add PEs that print their numbers (PE → its number within its node); each does so once."""
        if self.preface.pes.keys() & pes.keys():
            if {*self.preface.pes, *pes} == {0} and self._current is None and not self.preface.failures:
                self.preface.copies += 1
            else:
                self._settle(cut=False)
        self.preface.pes |= pes
        self.preface.started = True

    def row(self, table: NvshmemTable, row: NvshmemRow, line: Line) -> None:
        """Add a row, read from a line."""
        if (point := self._execution_for(table, row).add(table, row, line)) is not None:
            self.out.append(point)

    def add_torn_row(self, table: NvshmemTable, line: Line) -> None:
        """Add a row that cannot be read."""
        execution = self._execution_for(table, None)
        if len(execution.damaged) < _MAX_DAMAGED:
            execution.damaged.append(Damaged(line.number, line.text.rstrip()))

    def begins_another(self, table: NvshmemTable, row: NvshmemRow) -> bool:
        """Return whether this row of an open table can only belong to another execution."""
        return self._current is not None and not self._current.continued_by(self.preface, table.job, row)

    def _execution_for(self, table: NvshmemTable, row: NvshmemRow | None) -> NvshmemExecution:
        """Return the execution of a table, decided at its first row, and add the text so far to it."""
        execution, is_first = self._current, not table.attached
        if execution and is_first and not execution.continued_by(self.preface, table.job, row):
            self._finish(cut=False)
            execution = None
        if execution is None:
            execution = self._current = NvshmemExecution()
        if row is not None:
            self.preface.demote_errors()
            execution.preface.demote_errors()
        execution.preface.merge(self.preface)
        self.preface = Preface()
        if is_first:
            execution.attach(table)
        return execution

    def close(self, *, cut: bool) -> None:
        """End the text. `cut`: the open table is incomplete."""
        self._settle(cut=cut)
        self._finish(cut=cut)

    def _settle(self, *, cut: bool) -> None:
        """End text with no row after it: it is an execution of its own, or the end of the open one."""
        preface, self.preface = self.preface, Preface()
        if self._current is not None and not self._current.precedes(preface):
            self._current.preface.merge(preface)
        elif preface.started:
            self._finish(cut=cut)
            self._current = NvshmemExecution(preface=preface)
            self._finish(cut=False)

    def _finish(self, *, cut: bool) -> None:
        if self._current is not None:
            self.out.append(self._current.finish(cut=cut))
            self._current = None
