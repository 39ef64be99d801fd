"""One execution of a perftest while it is read, and the record it comes to."""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache

from fabbench.benchmarks.nvshmem import findings, jobs, meaning
from fabbench.benchmarks.nvshmem.layouts import ALL, Eras, Layout, Row
from fabbench.benchmarks.nvshmem.settings import proven_by, stated
from fabbench.benchmarks.nvshmem.text import Preface
from fabbench.model import Damaged, Labels, Point, Record

Key = tuple[str | None, int, tuple[tuple[str, str], ...]]
"""What a program prints once: job, size and labels of a row."""

_MOST_TEXTS = 50
COPIES = (
    "The processes did not find each other: every one calls itself PE 0, and measures alone. "
    "Check that NVSHMEM_BOOTSTRAP fits the launcher."
)


@dataclass(slots=True)
class Table:
    """One table of one stream. Machine readable rows need no columns."""

    job: str | None
    layout: Layout
    rank: str = ""
    rows: list[Row] = field(default_factory=list)
    open_row: bool = False
    """Whether the rule behind the last row of a box is missing."""
    eras: Eras = ALL
    """Versions that print such a table."""

    owned: bool = False
    """Whether it is known of which execution it is: from its first row on."""

    def __post_init__(self) -> None:
        self.narrow(self.layout.eras)

    def narrow(self, eras: Eras) -> None:
        """Take note that it is of one of these versions."""
        self.eras = self.eras & eras or eras


@dataclass(slots=True)
class Execution:
    """Takes what belongs to one execution of one program."""

    said: Preface = field(default_factory=Preface)
    case: str | None = None
    tables: list[Table] = field(default_factory=list)
    """Those with a row, whole or damaged."""
    keys: set[Key] = field(default_factory=set)
    damaged: list[Damaged] = field(default_factory=list)
    _order: list[tuple[Table, Row]] = field(default_factory=list)

    def continued_by(self, said: Preface, job: str | None, row: Row | None) -> bool:
        """Whether a table that begins after `said` is still of this execution."""
        if not self.tables:
            return True
        if said.conflicts(self.said):
            return False
        if self.said.begins() and not said.begins():
            return True  # programs that say something when they start, and none has
        if job is not None and self.case is not None and jobs.case_of(job) != self.case:
            return False
        return row is None or self.said.copies > 0 or (job, row.size, row.labels) not in self.keys

    def precedes(self, said: Preface) -> bool:
        """Whether `said`, with no row behind it, is of another execution after this one."""
        if said.conflicts(self.said):
            return True
        if said.job is not None and self.case not in {None, jobs.case_of(said.job)}:
            return said.begins() or not self.said.begins()
        return bool(said.dumps) and not said.pes and self.said.complete()

    def own(self, table: Table) -> None:
        """Take a table in."""
        table.owned = True
        self.tables.append(table)
        if table.job is not None and self.case is None:
            self.case = jobs.case_of(table.job)

    def add(self, table: Table, row: Row) -> Point | None:
        """Take a row of one of the tables; gives it as a point, as far as is known until now."""
        table.rows.append(row)
        self.keys.add((table.job, row.size, row.labels))
        self._order.append((table, row))
        points = list(self._points(table, row, self._eras(), 1))
        return points[0] if points else None

    # ------------------------------------------------------------ what it comes to

    def finish(self, *, cut: bool) -> Record:
        """Give the record. `cut`: a table ends where it cannot."""
        said = self.said
        case = said.program or self.case or (jobs.case_of(said.job) if said.job else None)
        record = Record(benchmark="nvshmem", case=case, finished=None)
        eras, ranks = self._eras(), self._ranks()
        record.facts |= self._facts(ranks)
        hosts = record.facts.get("hosts")
        network = stated(said, hosts if isinstance(hosts, int) else 0)
        record.facts |= network
        if said.version:
            record.facts["nvshmem"] = said.version
        record.evidence = proven_by(said, network)
        size = self._size_means(eras)
        # The highest PE that is seen need not be the last: sizes are multiplied by a sure number only.
        sure = self._shown() is not None or said.complete()
        scaled = size == meaning.BLOCK and sure and ranks is not None and ranks > 1
        for table, row in self._order:
            by = ranks if scaled and ranks and meaning.gathers(table.rows, table.job) else 1
            record.points += self._points(table, row, eras, by)
        if size:
            record.facts["size_means"] = meaning.TOTAL if scaled else size
        if self._has("bandwidth"):
            record.facts["unit"] = meaning.unit_of(eras)
        record.damaged = sorted(self.damaged)
        if cut:
            record.finished = False
        self._fail(record)
        read = findings.Read(
            record=record,
            said=said,
            rows=[row for _, row in self._order],
            empty=said.empty,
            eras=eras,
            scaled_by=ranks if scaled else None,
        )
        record.findings += findings.findings(read)
        return record

    def _fail(self, record: Record) -> None:
        said = self.said
        failures = list(dict.fromkeys(said.failures))
        if said.copies:
            failures.insert(0, COPIES)
        if said.errors and not failures:
            failures += [f"NVSHMEM reported: {error}" for error in dict.fromkeys(said.errors)]
        if said.usage and not record.points and not failures:
            failures.append("The program printed its usage text instead of running.")
        record.failures = failures[:_MOST_TEXTS]

    def _eras(self) -> Eras:
        """Say which versions this can be: by what was printed, and if that is not enough by the version."""
        eras = ALL
        for table in self.tables:
            eras = eras & table.eras or table.eras
        return eras & meaning.era_of(self.said.version) or eras

    def _ranks(self) -> int | None:
        pes, shown = self.said.pes, self._shown()
        told = max(len(pes), max(pes) + 1) if pes else None
        return shown if told is None or (shown is not None and shown > told) else told

    def _shown(self) -> int | None:
        """Give the number of PEs that the figures show."""
        found = {meaning.ranks_of(table.rows, table.job) for table in self.tables} - {None}
        # Each table alone may allow several; then all of them together may not.
        rows = [row for table in self.tables for row in table.rows]
        return found.pop() if len(found) == 1 else None if found else meaning.ranks_of(rows, self._job())

    def _job(self) -> str | None:
        """Give the job of all tables; None if they have several, or none."""
        names = {table.job for table in self.tables}
        return names.pop() if len(names) == 1 else None

    def _facts(self, ranks: int | None) -> dict[str, str | int]:
        facts: dict[str, str | int] = {}
        if ranks is not None:
            facts["ranks"] = 1 if self.said.copies else ranks
        pes = self.said.pes
        if (
            ranks is not None
            and sorted(pes) == list(range(ranks))
            and 0 in pes.values()
            and not self.said.copies
        ):
            # Every node has one PE that is the first on it.
            hosts = sum(1 for local in pes.values() if local == 0)
            facts["hosts"] = hosts
            if ranks % hosts == 0:
                facts["gpus_per_host"] = ranks // hosts
        options = self.said.options
        if options is not None:
            told = {"iterations": options.iterations, "warmup": options.warmup}
            facts |= {name: count for name, count in told.items() if count is not None}
        return facts

    def _size_means(self, eras: Eras) -> str:
        """Say what the sizes of these tables are; empty: they have one meaning only."""
        meanings = {self._size_of(table, eras) for table in self.tables} - {""}
        return meanings.pop() if len(meanings) == 1 else meaning.AMBIGUOUS if meanings else ""

    def _size_of(self, table: Table, eras: Eras) -> str:
        figures = table.rows[0].figures if table.rows else ()
        job = table.job or self.said.program
        if not job and not any(figure.metric == "busbw" for figure in figures):
            # Nothing but latencies by scope, and no title: a collective of 1.x, nobody knows which.
            return meaning.AMBIGUOUS if any(figure.labels for figure in figures) else ""
        return meaning.size_of(eras, job) if figures and meaning.gathers(table.rows, job) else ""

    def _has(self, metric: str) -> bool:
        return any(figure.metric == metric for _, row in self._order for figure in row.figures)

    def _points(self, table: Table, row: Row, eras: Eras, by: int) -> Iterator[Point]:
        """Give a row's points: its main figures, and one for each statistic, scope or pair of PEs."""
        binary = meaning.unit_of(eras)
        groups: dict[tuple[tuple[str, str], ...], dict[str, float]] = {}
        for figure in row.figures:
            number = meaning.value(figure.token, figure.unit, binary)
            if number is not None:
                scale = by if figure.metric in {"algbw", "busbw"} else 1
                groups.setdefault(figure.labels, {})[figure.metric] = number * scale
        for own, values in groups.items():
            labels = _labels(row.labels + own + self._of_job(table, values.keys()))
            yield Point(row.size * by, labels, tuple(values), tuple(values.values()))

    def _of_job(self, table: Table, metrics: AbstractSet[str]) -> tuple[tuple[str, str], ...]:
        """Give the labels that the job's name, or the options, tell for all rows."""
        job = table.job or self.said.program
        labels: dict[str, str] = {}
        if not metrics.isdisjoint({"bandwidth", "message_rate"}):
            labels["direction"] = jobs.direction_of(table.job)
            if not labels["direction"] and self.said.options is not None:
                labels["direction"] = {0: "uni", 1: "bi", None: ""}.get(self.said.options.both_ways, "")
        elif "latency" in metrics:
            labels["way"] = jobs.way_of(job)
        if len({each.rank for each in self.tables}) > 1:
            labels["rank"] = table.rank
        return tuple((name, label) for name, label in labels.items() if label)


@lru_cache(maxsize=10_000)
def _labels(pairs: tuple[tuple[str, str], ...]) -> Labels:
    """Give labels: one mapping for all rows that share them."""
    return dict(pairs)
