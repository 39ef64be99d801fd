"""Headers and rows of the tables, by version. Pure.

A row counts only if each of its cells is whole: the programs print every column with a fixed number of
decimals, so that a cell that was cut shows. Everything else that looks like a row is torn, and reported.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from fabbench.benchmarks.nvshmem import jobs

Eras: TypeAlias = frozenset[str]
"""Versions with one behaviour, named after the releases whose sources were read."""

V1, V2, V31, V32, V33 = "1", "2.0-3.0", "3.1", "3.2", "3.3+"
ALL: Final[Eras] = frozenset({V1, V2, V31, V32, V33})

GB, GIGABYTES, MICROSECONDS, MILLIONS = "GB", "1e9 B/s", "us", "1e6/s"
"""What numbers are printed in. `GB` is 2^30 or 1e9 bytes a second, depending on the version."""

UNITS: Mapping[str, tuple[str, str]] = {
    "us": ("latency", MICROSECONDS),
    "usec": ("latency", MICROSECONDS),
    "GB/sec": ("bandwidth", GB),
    "GB/s": ("bandwidth", GB),
    "GB": ("bandwidth", GB),
    "MMPS": ("message_rate", MILLIONS),
}
"""Printed unit → metric, and what it is printed in."""

_WORDS = {"thread": "thread", "warp": "warp", "block": "block", "t": "thread", "w": "warp", "b": "block"}
_NOTHING = frozenset({"none", "(null)", "null"})
_INTEGER, _WORD, _ANY = r"0|[1-9]\d{0,17}", r"[A-Za-z(][\w()+-]*|\d+-bit", r"\S+"
_SCOPE = r"None|\(null\)|[Tt]hread|[Ww]arp|[Bb]lock|[twb]"
_NAMED = re.compile(r"PE (?P<a>\d+) -> PE (?P<b>\d+)|(?P<name>[A-Za-z_]+) ?(?:\((?P<unit>[^()]*)\))?")
_HEADER = re.compile(r"(?P<before>.*?)(?P<header>(?:size ?\(B\)|Size\(Bytes\))(?:\s.*)?)")
_PAGER = re.compile(r"\[\d+/\d+\]$")
_MISPRINT = re.compile(r"\s*(?P<size>\d{1,18})\s+None\b.*?\s(?P<value>\d+\.\d{6})\s+1\.000\s+1\.000\s*")


def _real(decimals: str) -> str:
    return rf"\d{{1,18}}\.\d{decimals}|-?inf|-?nan"


class Column(NamedTuple):
    """One column: what its cells say, and how they are written."""

    role: str
    """`size`, `threads`, `type`, `redop`, `scope`, `figure`, `count`, or `other`."""
    pattern: str
    metric: str = ""
    unit: str = ""
    labels: tuple[tuple[str, str], ...] = ()

    def whole(self, cell: str) -> bool:
        """Whether a cell is complete."""
        return _compiled(self.pattern).fullmatch(cell) is not None

    def begun(self, cell: str) -> bool:
        """Whether this could be the beginning of a cell."""
        if self.role == "figure":
            return re.fullmatch(r"\d{1,18}(?:\.\d*)?|-?(?:i|in|n|na)?", cell) is not None or self.whole(cell)
        if self.role == "scope":
            return any(
                word.startswith(cell) for word in ("None", "(null)", *_WORDS, "Thread", "Warp", "Block")
            )
        return self.whole(cell) or (self.role == "type" and bool(re.fullmatch(r"\d{1,3}(?:-b?i?)?", cell)))


@lru_cache(maxsize=100)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


class Figure(NamedTuple):
    """One number as printed, and what it is."""

    metric: str
    token: str
    unit: str
    labels: tuple[tuple[str, str], ...] = ()


class Row(NamedTuple):
    """One whole row."""

    size: int
    labels: tuple[tuple[str, str], ...]
    figures: tuple[Figure, ...]


class Torn(Enum):
    """The reading of a line that can only be a damaged row."""

    TORN = "torn"


TORN: Final = Torn.TORN


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The columns of one table."""

    columns: tuple[Column, ...]
    eras: Eras
    """Versions that print such a table."""
    boxed: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    """Labels that all rows have, from the title."""
    misprint: str = ""
    """What `latency(us)` really holds: 3.1 prints point-to-point tests with the collectives' printer."""

    def of_job(self, job: str | None) -> "Layout":
        """Give the layout of a table of this job."""
        kind = jobs.collective(job)
        first = self.columns[0]
        if kind in jobs.UNSIZED:
            return replace(self, columns=(first._replace(role="threads"), *self.columns[1:]))
        bandwidths = any(column.metric == "busbw" for column in self.columns)
        if not kind and bandwidths and V31 in self.eras and jobs.metric_of(job):
            return replace(self, misprint=jobs.metric_of(job), eras=frozenset({V31}))
        return self

    def with_labels(self, labels: tuple[tuple[str, str], ...]) -> "Layout":
        """Give the layout with labels that the title tells."""
        return replace(self, labels=labels)

    def read(self, text: str) -> Row | Torn | None:
        """Read a line as a row of this table."""
        if self.boxed:
            return self._boxed(text)
        if not self.columns or text[:1] in {"", "#", "&", "+", "|"}:
            return None
        if self.misprint:
            return self._misprinted(text)
        cells = text.split()
        if len(cells) == len(self.columns) and self._all_whole(cells):
            return self._row(cells)
        return TORN if cells and self._torn(cells) else None

    def _all_whole(self, cells: list[str]) -> bool:
        return all(column.whole(cell) for column, cell in zip(self.columns, cells, strict=True))

    def _boxed(self, text: str) -> Row | Torn | None:
        text = text.strip()
        if not text.startswith("|"):
            return TORN if text.endswith("|") and re.search(r"\d\.\d", text) else None
        cells = [cell.strip() for cell in text.strip("|").split("|")]
        closed = text.endswith("|") and len(text) > 1
        if closed and len(cells) == len(self.columns) and self._all_whole(cells):
            return self._row(cells)
        return TORN if not cells[0] or cells[0][0].isdigit() else None

    def _misprinted(self, text: str) -> Row | Torn | None:
        match = _MISPRINT.fullmatch(text)
        if match is None:
            cells = text.split()
            begins = bool(cells) and cells[0].isdigit() and (len(cells) == 1 or "None".startswith(cells[1]))
            return TORN if begins or text.rstrip().endswith("1.000         1.000") else None
        unit = next(unit for metric, unit in UNITS.values() if metric == self.misprint)
        return Row(int(match["size"]), self.labels, (Figure(self.misprint, match["value"], unit),))

    def _row(self, cells: list[str]) -> Row | Torn:
        labels, figures, size = dict(self.labels), [], 0
        for column, cell in zip(self.columns, cells, strict=True):
            if column.role == "figure":
                figures.append(Figure(column.metric, cell, column.unit, column.labels))
            elif column.role == "size":
                size = int(cell)
            elif column.role == "threads":
                labels["threads"] = cell
            elif column.role in {"type", "redop"} and cell.lower() not in _NOTHING:
                labels["dtype" if column.role == "type" else "redop"] = cell
            elif column.role == "scope" and cell.lower() not in _NOTHING:
                labels["scope"] = scope_of(cell)
        if len(cells) > 4 and self.columns[1].role == "type" and cells[1] == "None":
            return TORN  # a point-to-point test of 3.1 without its title: nobody knows what it measures
        return Row(size, tuple(labels.items()), tuple(figures))

    def _torn(self, cells: list[str]) -> bool:
        """Tell a damaged row from a line of something else."""
        columns = self.columns
        fits = 0
        for column, cell in zip(columns, cells, strict=False):
            if not column.whole(cell) or (column.role == "scope" and not re.fullmatch(_SCOPE, cell)):
                break
            fits += 1
        if fits >= min(3, len(columns) - 1) and fits >= 2:
            return True
        rest = cells[fits:]
        if (
            len(cells) <= len(columns)
            and fits
            and (not rest or (len(rest) == 1 and columns[fits].begun(rest[0])))
        ):
            return True
        tail = min(len(cells), len(columns) - 1)
        ends = all(column.whole(cell) for column, cell in zip(columns[-tail:], cells[-tail:], strict=True))
        return ends and any(re.fullmatch(r"\d+\.\d{3,}", cell) for cell in cells[-tail:])


def scope_of(word: str) -> str:
    """Give a scope as the contract has it: `t`, `Thread` and `thread` are the same."""
    return _WORDS.get(word.lower(), word.lower())


def read_header(text: str) -> tuple[str, Layout] | None:
    """Read a table's header; also give what stands before it in the line: a title that was glued to it."""
    match = _HEADER.fullmatch(_PAGER.sub("", text.rstrip()))
    if match is None:
        return None
    printf = match["header"].startswith("Size(")
    columns: list[Column] = []
    for found in _NAMED.finditer(match["header"]):
        if found["a"]:
            labels = (("rank", f"{found['a']}->{found['b']}"),)
            columns.append(Column("figure", _real("{2}"), "bandwidth", GB, labels))
        else:
            columns.append(_column(found["name"], found["unit"] or "", columns))
    if not any(column.role == "figure" for column in columns):
        return None
    return match["before"], Layout(columns=tuple(columns), eras=frozenset({V1}) if printf else _eras(columns))


def _column(name: str, unit: str, before: list[Column]) -> Column:
    """Read one column's name."""
    if not before:
        return Column("size", _INTEGER)
    if name in {"count", "type", "redop", "scope"}:
        return Column("count", _INTEGER) if name == "count" else Column(name, _WORD)
    if name in {"algbw", "busbw"}:
        return Column("figure", _real("{3}"), name, GIGABYTES)
    if name in {"min_lat", "max_lat"}:
        return Column("figure", _real("{3}"), "latency", MICROSECONDS, (("stat", name[:3]),))
    main = next((column for column in before if column.role == "figure"), None)
    if name in {"stddev", "min", "max", "mean"} and main is not None:
        stat = "stdev" if name == "stddev" else name
        return Column("figure", _real("+"), main.metric, main.unit, (("stat", stat),))
    return Column("figure", _real("{6}"), *UNITS[unit]) if unit in UNITS else Column("other", _ANY)


def _eras(columns: list[Column]) -> Eras:
    metrics = {column.metric for column in columns}
    newest = any("rank" in dict(column.labels) for column in columns)
    if newest or (len(columns) > 1 and columns[1].role == "count"):
        return frozenset({V33})
    if "busbw" in metrics:
        return frozenset({V31, V32})
    # 3.1 prints only barriers so, everything else between two PEs with the collectives' printer.
    return frozenset({V31, V32, V33}) if metrics == {"latency"} else frozenset({V32, V33})


def read_box_header(text: str) -> Layout | None:
    """Read the header of a box table: one column for each scope in 1.x, one in all from 2.0 to 3.0."""
    text = text.strip()
    if not (text.startswith("|") and text.endswith("|")):
        return None
    first, *cells = (cell.strip() for cell in text.strip("|").split("|"))
    size = Column("size" if first.lower().startswith("size") else "threads", _INTEGER)
    scopes = [re.fullmatch(r"(\w+) \((\w+)\)", cell) for cell in cells]
    if size.role == "size" and cells and all(match and match[2] in UNITS for match in scopes):
        columns = tuple(
            Column("figure", _real("{2}"), *UNITS[match[2]], (("scope", scope_of(match[1])),))
            for match in scopes
            if match
        )
        return Layout(columns=(size, *columns), eras=frozenset({V1}), boxed=True)
    words = cells[0].split() if len(cells) == 1 else []
    if len(words) == 2 and words[1] in UNITS and not first[:1].isdigit():
        column = Column("figure", _real("{6}"), *UNITS[words[1]])
        return Layout(columns=(size, column), eras=frozenset({V2}), boxed=True)
    return None


_REDOPS = frozenset({"sum", "prod", "and", "or", "xor", "min", "max"})


def read_sub_job(text: str) -> tuple[tuple[str, str], ...]:
    """Read a sub-title such as ``32-bit-block`` or ``int32-sum-t``."""
    labels: dict[str, str] = {}
    for word in re.findall(r"\d+-bit|[^-\s]+", text):
        if word.lower() in _NOTHING:
            continue
        kind = "scope" if word.lower() in _WORDS else "redop" if word.lower() in _REDOPS else "dtype"
        labels.setdefault(kind, scope_of(word) if kind == "scope" else word)
    return tuple(labels.items())
