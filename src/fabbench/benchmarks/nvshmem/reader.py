"""Reads the perftests' output: which lines are titles, headers and rows of which table."""

import re
from collections.abc import Sequence

from fabbench.benchmarks import Reading, Shortcut
from fabbench.benchmarks.nvshmem import jobs, perf
from fabbench.benchmarks.nvshmem.execution import Table
from fabbench.benchmarks.nvshmem.layouts import (
    ALL,
    TORN,
    V31,
    Layout,
    Row,
    Torn,
    read_box_header,
    read_header,
)
from fabbench.benchmarks.nvshmem.runs import Runs
from fabbench.benchmarks.nvshmem.text import note, read_options, read_pes
from fabbench.benchmarks.nvshmem.titles import Title, read_title
from fabbench.markers import Marker
from fabbench.model import Line

_RULE = re.compile(r"\+-[-+]*|#\s*-+")
_FACTOR = re.compile(r"\s*Job Name (\S+) bandwidth factor not set")
_FOOTER = re.compile(r"#? ?Avg bus bandwidth\s*:")
_LONGEST = 4096
"""Characters of a line that is read; the longest that the programs print are their options."""
_NO_COLUMNS = Layout(columns=(), eras=ALL)


class NvshmemReader:
    """Reads one stream group; see `fabbench.benchmarks.Reader`."""

    def __init__(self) -> None:
        self._runs = Runs()
        self._titles: dict[str, Title] = {}
        """By the stream's rank, as the tables: usually one PE prints them."""
        self._tables: dict[str, Table] = {}

    # ------------------------------------------------------------ the protocol

    def feed(self, line: Line) -> Sequence[Reading] | None:
        """Read one line; None: it says nothing of a perftest."""
        used = self._read(line)
        out, self._runs.out = self._runs.out, []
        return out if used or out else None

    def shortcut(self, rank: str) -> Shortcut | None:
        """Give no quick way: a log has a few hundred rows."""
        del rank
        return None

    def mark(self, marker: Marker) -> Sequence[Reading]:
        """Begin another execution at each step. How it ends is not known before the text does."""
        return self.close() if marker.kind == "begin" else ()

    def close(self) -> Sequence[Reading]:
        """End the execution that is open."""
        cut = any(table.open_row for table in self._tables.values())
        for rank in list(self._tables):
            self._leave(rank)
        self._runs.close(cut=cut)
        out, self._runs, self._titles = self._runs.out, Runs(), {}
        return out

    # ------------------------------------------------------------ lines

    def _read(self, line: Line) -> bool:
        line = line if len(line.text) <= _LONGEST else line._replace(text=line.text[:_LONGEST])
        text = line.text
        table = self._tables.get(line.stream.rank)
        machine = perf.read(text, inside=self._runs.inside)
        if machine is not None:
            self._machine(line, machine)
            return True
        row = table.layout.read(text) if table is not None else None
        if table is not None and row is not None and (row is not TORN or not self._of_table(line)):
            self._take(line, table, row)
            return True
        return row is not None or self._of_table(line) or self._around(line)

    def _take(self, line: Line, table: Table, row: Row | Torn) -> None:
        if isinstance(row, Row):
            self._runs.row(table, row)
            # From 2.0 to 3.0 a rule follows each row.
            table.open_row = table.layout.boxed and len(table.layout.columns) == 2
        else:
            self._runs.torn(table, line)

    def _of_table(self, line: Line) -> bool:
        """Read what belongs to tables besides rows."""
        text, rank = line.text, line.stream.rank
        if "ize" in text and (header := read_header(text)) is not None:
            self._title(line._replace(text=header[0]))
            self._open(line, header[1])
            return True
        if text.lstrip()[:1] == "|" and (layout := read_box_header(text)) is not None:
            self._open(line, layout)
            return True
        if self._title(line):
            return self._titles[rank].sure
        table = self._tables.get(rank)
        return table is not None and self._inside_table(text, table)

    def _inside_table(self, text: str, table: Table) -> bool:
        if _RULE.fullmatch(text.strip()):
            table.open_row = False
        elif (factor := _FACTOR.match(text)) is not None:
            # 3.1 says this before each row of a job that is no collective.
            if table.job is None and not table.owned:
                table.job = factor[1]
                table.layout = table.layout.of_job(factor[1])
            table.narrow(table.layout.eras)
        elif _FOOTER.match(text):
            table.narrow(frozenset({V31}))
        else:
            return False
        return True

    def _around(self, line: Line) -> bool:
        """Read what the program and NVSHMEM say, and the command line."""
        text, runs = line.text, self._runs
        if (options := read_options(text)) is not None:
            runs.dump(options)
        elif pes := read_pes(text):
            runs.present(pes)
        elif name := jobs.program(text):
            return self._command(name, text)
        elif note(text, runs.said, inside=runs.inside):
            runs.said.claimed = True
        else:
            return False
        return True

    def _command(self, name: str, text: str) -> bool:
        """Take note of a command line: what follows it is another execution."""
        inside = self._runs.inside
        if inside:
            self._runs.out = [*self.close()]
        self._runs.said.program = name
        note(text, self._runs.said, inside=False)
        return inside

    # ------------------------------------------------------------ tables

    def _title(self, line: Line) -> bool:
        """Take note of a title, or of what may be one."""
        title, rank = read_title(line.text, line.number), line.stream.rank
        if title is None:
            return False
        old = self._titles.get(rank)
        if title.sure or old is None or not old.sure:
            self._titles[rank] = title
        if title.sure:
            self._leave(rank)
            self._runs.said.claimed = True
        return True

    def _open(self, line: Line, layout: Layout) -> None:
        """Open a table under the title that stands above it."""
        rank = line.stream.rank
        self._leave(rank)
        title = self._titles.pop(rank, None)
        if title is None or not title.above(line.number):
            title = Title(line.number)
        layout = layout.of_job(title.job).with_labels(title.labels)
        self._tables[rank] = Table(title.job, layout, rank)
        self._runs.said.claimed = True

    def _machine(self, line: Line, found: perf.PerfRow | Torn) -> None:
        """Read a machine readable row: it needs no title and no header."""
        rank = line.stream.rank
        table = self._tables.get(rank)
        if table is not None and table.layout.columns:
            table = None
        if table is not None and isinstance(found, perf.PerfRow):
            same = table.job in {None, found.job}
            if not same or (table.owned and self._runs.again(table, found.row)):
                table = None
        if table is None:
            self._leave(rank)
            table = self._tables[rank] = Table(None, _NO_COLUMNS, rank)
        if isinstance(found, perf.PerfRow):
            table.job = found.job
            table.narrow(found.eras)
            self._runs.row(table, found.row)
        else:
            self._runs.torn(table, line)

    def _leave(self, rank: str) -> None:
        """End a table; one without a row only counts."""
        table = self._tables.pop(rank, None)
        if table is not None and not table.owned:
            self._runs.without_row(table)
