"""Reads the output of the perftests: which lines are titles, headers and rows of which table."""

import re
from collections.abc import Sequence
from dataclasses import replace

from fabbench.benchmarks import Reader, Reading
from fabbench.benchmarks.nvshmem.execution import Executions, NvshmemTable
from fabbench.benchmarks.nvshmem.layouts import (
    ALL,
    V31,
    NvshmemLayout,
    NvshmemRow,
    PerfRow,
    TableTitle,
    Torn,
    read_box_header,
    read_header,
    read_machine_row,
    read_title,
)
from fabbench.benchmarks.nvshmem.text import program, read_options, read_pes, read_statement
from fabbench.model.compat import override
from fabbench.model.log import Line
from fabbench.model.patterns import lazy

_RULE = lazy(r"\+-[-+]*|#\s*-+")
_FACTOR = lazy(r"\s*Job Name (\S+) bandwidth factor not set")
_FOOTER = lazy(r"#? ?Avg bus bandwidth\s*:")
_ROW = lazy(r"\|?\s*\d{1,18}\s[^:=]*\s\d{1,18}\.\d{2,6}[\s|]*$", re.ASCII)
_MAX_LINE = 4096  # characters of a line that are read; the longest lines of the programs are their options
_NO_COLUMNS = NvshmemLayout(columns=(), eras=ALL)


class NvshmemReader(Reader):
    """Reads one stream group."""

    def __init__(self) -> None:
        self._executions = Executions()
        self._titles: dict[str, TableTitle] = {}
        """By the rank of the stream, like the tables: usually one PE prints them."""
        self._tables: dict[str, NvshmemTable] = {}

    @override
    def feed(self, line: Line) -> Sequence[Reading] | None:
        used = self._read(line)
        out, self._executions.out = self._executions.out, []
        return out if used or out else None

    @override
    def close(self) -> Sequence[Reading]:
        cut = any(table.open_row for table in self._tables.values())
        for rank in list(self._tables):
            self._close_table(rank)
        self._executions.close(cut=cut)
        out, self._executions, self._titles = self._executions.out, Executions(), {}
        return out

    def _read(self, line: Line) -> bool:
        line = line if len(line.text) <= _MAX_LINE else line._replace(text=line.text[:_MAX_LINE])
        text = line.text
        table = self._tables.get(line.stream.rank)
        machine = read_machine_row(text, inside=self._executions.inside)
        if machine is not None:
            self._machine(line, machine)
            return True
        row = table.layout.read(text) if table is not None else None
        if table is None or row is None:
            return self._of_table(line) or self._headless(line) or self._around(line)
        if isinstance(row, NvshmemRow):
            self._executions.row(table, row, line)
            # From 2.0 to 3.0 a rule follows each row.
            table.open_row = table.layout.boxed and len(table.layout.columns) == 2
        elif not self._of_table(line):
            self._executions.add_torn_row(table, line)
        return True

    def _headless(self, line: Line) -> bool:
        """Read a line that looks like a row below a title whose header is missing."""
        rank = line.stream.rank
        table, title = self._tables.get(rank), self._titles.get(rank)
        if _ROW.match(line.text) is None:
            return False
        if table is None and title is not None and title.certain and title.near(line.number):
            table = self._tables[rank] = NvshmemTable(title.job, _NO_COLUMNS, rank, headless=True)
        if table is None or not table.headless:
            return False
        self._executions.add_torn_row(table, line)
        return True

    def _of_table(self, line: Line) -> bool:
        """Read a line that belongs to tables but is not a row."""
        text, rank = line.text, line.stream.rank
        if "ize" in text and (header := read_header(text)) is not None:
            self._title(line._replace(text=header[0]))
            self._open(line, header[1])
            return True
        if text.lstrip()[:1] == "|" and (layout := read_box_header(text)) is not None:
            self._open(line, layout)
            return True
        if self._title(line):
            return self._titles[rank].certain
        table = self._tables.get(rank)
        if table is None:
            return False
        if _RULE.fullmatch(text.strip()):
            table.open_row = False
        elif (factor := _FACTOR.match(text)) is not None:
            # 3.1 prints this before each row of a job that is not a collective.
            if table.job is None and not table.attached:
                table.job = factor[1]
                table.layout = table.layout.of_job(factor[1])
            table.narrow(table.layout.eras)
        elif _FOOTER.match(text):
            table.narrow(frozenset({V31}))
        else:
            return False
        return True

    def _around(self, line: Line) -> bool:
        """Read a line of text from the program or NVSHMEM, or a command line."""
        text, executions = line.text, self._executions
        if (options := read_options(text)) is not None:
            executions.add_options(options)
        elif pes := read_pes(text):
            executions.add_pes(pes)
        elif name := program(text):
            # It begins another execution.
            if inside := executions.inside:
                self._executions.out = [*self.close()]
            self._executions.preface.program = name
            read_statement(text, self._executions.preface, inside=False)
            return inside
        elif read_statement(text, executions.preface, inside=executions.inside):
            executions.preface.started = True
        else:
            return False
        return True

    def _title(self, line: Line) -> bool:
        """Read a title or a possible title; return whether the line is one."""
        title, rank = read_title(line.text, line.number), line.stream.rank
        if title is None:
            return False
        old = self._titles.get(rank)
        if title.certain or old is None or not old.certain:
            self._titles[rank] = title
        if title.certain:
            self._close_table(rank)
            self._executions.preface.started = True
        return True

    def _open(self, line: Line, layout: NvshmemLayout) -> None:
        rank = line.stream.rank
        self._close_table(rank)
        title = self._titles.pop(rank, None)
        if title is not None and not layout.may_be_of(title.job):
            # The test of the rows is unknown, but there was a title.
            self._executions.preface.job, title = title.job, None
        titled = title is not None and (title.certain or title.near(line.number))
        if title is None or not titled:
            title = TableTitle(line.number)
        layout = replace(layout.of_job(title.job), labels=title.labels)
        self._tables[rank] = NvshmemTable(title.job, layout, rank, titled)
        self._executions.preface.started = True

    def _machine(self, line: Line, reading: PerfRow | Torn) -> None:
        """Read a machine-readable row: it needs no title and no header."""
        rank = line.stream.rank
        table = self._tables.get(rank)
        other = table is None or bool(table.layout.columns)
        if table is not None and not other and isinstance(reading, PerfRow):
            other = table.job not in {None, reading.job}
            other = other or (table.attached and self._executions.begins_another(table, reading.row))
        if table is None or other:
            self._close_table(rank)
            table = self._tables[rank] = NvshmemTable(None, _NO_COLUMNS, rank)
        if isinstance(reading, PerfRow):
            table.job = reading.job
            table.narrow(reading.eras)
            self._executions.row(table, reading.row, line)
            # The title above belongs to these rows: the next table has one of its own.
            self._titles.pop(rank, None)
        else:
            self._executions.add_torn_row(table, line)

    def _close_table(self, rank: str) -> None:
        table = self._tables.pop(rank, None)
        if table is not None and not table.attached:
            preface = self._executions.preface
            preface.empty_tables += 1
            preface.job, preface.started = preface.job or table.job, True
