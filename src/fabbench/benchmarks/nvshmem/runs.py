"""Executions, one after another: which rows and which statements belong to which.

All PEs print their options when they start, one PE prints tables, and what the others print may arrive in the
midst of them. So what was said since the last row is kept apart until the next row shows whether it was said
late, or by another execution.
"""

from dataclasses import dataclass, field

from fabbench.benchmarks import Reading
from fabbench.benchmarks.nvshmem.execution import Execution, Table
from fabbench.benchmarks.nvshmem.layouts import Row
from fabbench.benchmarks.nvshmem.text import Options, Preface
from fabbench.model import Damaged, Line

_MOST_DAMAGED = 10_000


@dataclass(slots=True)
class Runs:
    """The execution that is open, what was said since its last row, and what is ready to be given."""

    out: list[Reading] = field(default_factory=list)
    said: Preface = field(default_factory=Preface)
    _run: Execution | None = None

    @property
    def inside(self) -> bool:
        """Whether a perftest is known to run."""
        return self._run is not None or self.said.claimed

    # ------------------------------------------------------------ statements

    def dump(self, options: Options) -> None:
        """Take the options that a PE prints; all PEs of one execution print the same."""
        if self.said.options is not None and self.said.options.differs(options):
            self._settle(cut=False)
        self.said.options = self.said.options or options
        self.said.dumps += 1
        self.said.claimed = True

    def present(self, pes: dict[int, int]) -> None:
        """Take note of PEs that present themselves; each does so once."""
        if self.said.pes.keys() & pes.keys():
            if {*self.said.pes, *pes} == {0} and self._run is None and not self.said.failures:
                self.said.copies += 1
            else:
                self._settle(cut=False)
        self.said.pes |= pes
        self.said.claimed = True

    def without_row(self, table: Table) -> None:
        """Count a table that ended without a row."""
        self.said.empty += 1
        self.said.job = self.said.job or table.job
        self.said.claimed = True

    # ------------------------------------------------------------ rows

    def row(self, table: Table, row: Row) -> None:
        """Take a row."""
        run = self._of(table, row)
        point = run.add(table, row)
        if point is not None:
            self.out.append(point)

    def torn(self, table: Table, line: Line) -> None:
        """Take a row that cannot be read."""
        run = self._of(table, None)
        if len(run.damaged) < _MOST_DAMAGED:
            run.damaged.append(Damaged(line.number, line.text.rstrip()))

    def again(self, table: Table, row: Row) -> bool:
        """Whether this row of an open table can only be of another execution."""
        return self._run is not None and not self._run.continued_by(self.said, table.job, row)

    def _of(self, table: Table, row: Row | None) -> Execution:
        """Decide at a table's first row of which execution it is, and with it what was said until now."""
        run = self._run
        if run is not None and not table.owned and not run.continued_by(self.said, table.job, row):
            self._finish(cut=False)
            run = None
        if run is None:
            run = self._run = Execution()
        if row is not None:
            self.said.survive()
            run.said.survive()
        run.said.take(self.said)
        self.said = Preface()
        if not table.owned:
            run.own(table)
        return run

    # ------------------------------------------------------------ ends

    def close(self, *, cut: bool) -> None:
        """End the text. `cut`: a table is open that cannot end so."""
        self._settle(cut=cut)
        self._finish(cut=cut)

    def _settle(self, *, cut: bool) -> None:
        """End what was said with no row behind it: an execution of its own, or last words of the open one."""
        said, self.said = self.said, Preface()
        if self._run is not None and not self._run.precedes(said):
            self._run.said.take(said)
        elif said.claimed:
            self._finish(cut=cut)
            self._run = Execution(said=said)
            self._finish(cut=False)

    def _finish(self, *, cut: bool) -> None:
        if self._run is not None:
            self.out.append(self._run.finish(cut=cut))
            self._run = None
