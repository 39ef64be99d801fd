"""Reads the lines of the programs in programs.toml."""

import re
from collections.abc import Mapping, Sequence
from functools import cache

import msgspec

from fabbench.benchmarks.consistency import ANYTHING
from fabbench.benchmarks.events import Ahead, Begin, End, Events, Header, Setting, Stop
from fabbench.benchmarks.executions import Execution, Table
from fabbench.benchmarks.findings import finding
from fabbench.benchmarks.tables import Cells, Column, Layout, Row
from fabbench.model import records
from fabbench.model.patterns import lazy

_NEVER = "(?!)"
_NUMBERS = lazy(r"\d+(?:\.\d*)?(?:\s+[\d.]+)+")


class Program(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A program: patterns of its lines, without blanks around them."""

    case: str
    begins: str  # Names of columns; or any line of figures, a damaged one, too
    headed: bool  # Whether lines of figures stand below names of columns
    rows: Sequence[str]  # Whole lines of figures
    units: Mapping[str, Mapping[str, float]]  # Group → the end of its text → base units
    ends: str = ""  # What shows the end; empty: a line of figures is the last one
    states: str = _NEVER  # A line above the figures, whose groups are facts
    examples: Sequence[str] = ()  # Of rows
    counterexamples: Sequence[str] = ()

    def layout(self, row: str) -> Layout:
        """Return the columns of a row. The first cell is the case, which tells programs apart."""
        names = re.compile(row).groupindex
        return (Column(cell=self.case), *map(self._column, names))

    def _column(self, name: str) -> Column:
        # A group `time_isolated` is of the metric `time`, with another statistic.
        metric, _, stat = name.partition("_")
        units = tuple(self.units[name].items())
        return Column(metric, stat=stat, cell=r"\S+", units=units)

    def cells(self, text: str) -> str:
        """Return the cells of a line of figures, with tabs between them; of another, its text."""
        for row in self.rows:
            match = re.fullmatch(row, text)
            if match is not None:
                cells = "\t".join((self.case, *match.groups()))
                return cells.replace(" ", "")  # before units
        return text

    def events(self, text: str, execution: Execution | None) -> Events | None:
        """Return what a line means; None: it is not the program's. `execution`: its open one."""
        if re.match(self.begins, text):
            # Below others, a line of figures or of names does not begin another execution.
            begin = self._beginning() if execution is None else ()
            layouts = [*map(self.layout, self.rows)]
            return (*begin, Header(layouts, is_row=not self.headed))
        if execution is not None and self.ends and re.search(self.ends, text):
            return (End(),)
        stated = re.search(self.states, text)
        if stated is None:
            return None
        facts = {name: value for name, value in stated.groupdict().items() if value}
        is_of_next = execution is not None and execution.rows
        stop = (Stop(),) if is_of_next else ()
        return (*stop, Ahead((Setting(facts=facts),)))

    def _beginning(self) -> Events:
        return (
            Begin(),
            Setting(self.case),
            *(() if self.ends else (End(),)),
            *(() if "size" in self.units else (finding("size-unstated", "kv_transfer"),)),
        )


@cache
def programs() -> Sequence[Program]:
    """Return the records of programs.toml."""
    return records.load("fabbench.benchmarks.kv_transfer", "programs.toml", Program)


def _events(text: str, execution: Execution | None) -> Events | None:
    for program in programs():
        is_own = execution is not None and execution.record.case == program.case
        events = program.events(text.strip(), execution if is_own else None)
        if events is not None:
            return events
    return None


def _cells(text: str) -> Cells:
    cells = text.strip()
    for program in programs():
        cells = program.cells(cells)
    return Cells(cells)


def _fits(row: Row) -> bool:
    """Return whether a rate that is printed in two units is one."""
    rate = row.read("bandwidth") or ANYTHING
    return rate.agrees(row.read("same") or ANYTHING)


TABLE = Table(
    benchmark="kv_transfer",
    events=_events,
    cells=_cells,
    fits=_fits,
    remains=lambda text, _: _NUMBERS.fullmatch(text.strip()) is not None,
    finished=False,
    over_mpi=False,
    ascending=False,
    is_sweep=False,
)
