"""Titles, headers and rows of the tables, by version, and machine-readable rows. Pure.

A row counts only if all its cells are complete: the programs print every column with a fixed number of
decimals, which reveals truncated cells. Everything else that looks like a row is torn, and reported.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from fabbench.benchmarks.consistency import is_remains
from fabbench.benchmarks.nvshmem.text import UNSIZED, collective, is_job, metric_of
from fabbench.model.patterns import lazy

Eras: TypeAlias = frozenset[str]  # versions with the same behavior, named after the releases whose sources were read

V1, V2, V31, V32, V33 = "1", "2.0-3.0", "3.1", "3.2", "3.3+"
ALL: Final[Eras] = frozenset({V1, V2, V31, V32, V33})

GB, GIGABYTES, MICROSECONDS, MILLIONS = "GB", "1e9 B/s", "us", "1e6/s"
"""Printed units. `GB` is 2^30 or 1e9 bytes per second, depending on the version."""

UNITS: Mapping[str, tuple[str, str]] = {
    "us": ("latency", MICROSECONDS),
    "usec": ("latency", MICROSECONDS),
    "GB/sec": ("bandwidth", GB),
    "GB/s": ("bandwidth", GB),
    "GB": ("bandwidth", GB),
    "MMPS": ("message_rate", MILLIONS),
}
"""Printed unit → metric and unit."""

_WORDS = {"thread": "thread", "warp": "warp", "block": "block", "t": "thread", "w": "warp", "b": "block"}
_ABSENT = frozenset({"none", "(null)", "null"})
_INTEGER, _WORD, _ANY = r"0|[1-9]\d{0,17}", r"[A-Za-z(][\w()+-]*|\d+-bit", r"\S+"
_SCOPE = r"None|\(null\)|[Tt]hread|[Ww]arp|[Bb]lock|[twb]"
_NAMED = lazy(r"PE (?P<a>\d+) -> PE (?P<b>\d+)|(?P<name>[A-Za-z_]+) ?(?:\((?P<unit>[^()]*)\))?")
_HEADER = lazy(r"(?P<before>.*?)(?P<header>(?:size ?\(B\)|Size\(Bytes\))(?:\s.*)?)")
_FIGURES = (
    *("latency(us)", "(us)", "algbw(GB/s)", "busbw(GB/s)", "min_lat(us)", "max_lat(us)"),
    *("BW", "(GB/sec)", "(MMPS)"),
)
"""The possible last words of a header, as printed."""
_CUT_JOB = lazy(r"\w+_(?:un?|bid|de(?:v(?:ic?)?)?|on_?|on_s(?:t(?:r(?:ea?)?)?)?)")
"""A title with a truncated suffix: `_uni`, `_bidi`, `_device`, `_on_stream`."""
_PAGER = lazy(r"\[\d+/\d+\]$")
_MISPRINT = lazy(r"\s*(?P<size>\d{1,18})\s+None\b.*?\s(?P<value>\d+\.\d{6})\s+1\.000\s+1\.000\s*")


def _real(decimals: str) -> str:
    return rf"\d{{1,18}}\.\d{decimals}|-?inf|-?nan"


class NvshmemColumn(NamedTuple):
    """One column: the meaning of its cells, and their format."""

    role: str  # `size`, `threads`, `type`, `redop`, `scope`, `figure`, `count`, or `other`
    pattern: str
    metric: str = ""
    unit: str = ""
    labels: tuple[tuple[str, str], ...] = ()

    def whole(self, cell: str) -> bool:
        """Return whether a cell is complete."""
        return _compiled(self.pattern).fullmatch(cell) is not None


@lru_cache(maxsize=100)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


@lru_cache(maxsize=100)
def _patterns(columns: tuple[NvshmemColumn, ...]) -> tuple[re.Pattern[str], ...]:
    return tuple(_compiled(_SCOPE if column.role == "scope" else column.pattern) for column in columns)


class PrintedFigure(NamedTuple):
    """One number as printed, and its meaning."""

    metric: str
    token: str
    unit: str
    labels: tuple[tuple[str, str], ...] = ()


class NvshmemRow(NamedTuple):
    """One complete row."""

    size: int
    labels: tuple[tuple[str, str], ...]
    figures: tuple[PrintedFigure, ...]


class Torn(Enum):
    """The reading of a line that can only be a damaged row."""

    TORN = "torn"


TORN: Final = Torn.TORN


@dataclass(frozen=True, slots=True, kw_only=True)
class NvshmemLayout:
    """The columns of one table."""

    columns: tuple[NvshmemColumn, ...]
    eras: Eras  # versions that print such a table
    boxed: bool = False
    labels: tuple[tuple[str, str], ...] = ()  # labels of all rows, from the title
    misprint: str = ""
    """The actual metric of `latency(us)`: 3.1 prints point-to-point tests with the code for collectives."""

    def of_job(self, job: str | None) -> "NvshmemLayout":
        """Return the layout of a table of this job."""
        kind = collective(job)
        first = self.columns[0]
        if kind in UNSIZED:
            return replace(self, columns=(first._replace(role="threads"), *self.columns[1:]))
        bandwidths = any(column.metric == "busbw" for column in self.columns)
        if not kind and bandwidths and V31 in self.eras and metric_of(job):
            return replace(self, misprint=metric_of(job), eras=frozenset({V31}))
        return self

    def may_be_of(self, job: str | None) -> bool:
        """Return whether this can be the table of a complete job title: collectives print no bandwidth."""
        is_pair = any(column.metric == "bandwidth" for column in self.columns)
        return not (is_pair and collective(job)) and _CUT_JOB.fullmatch(job or "") is None

    def read(self, text: str) -> NvshmemRow | Torn | None:
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
        return TORN if is_remains(cells, _patterns(self.columns)) else None

    def _all_whole(self, cells: list[str]) -> bool:
        return all(column.whole(cell) for column, cell in zip(self.columns, cells, strict=True))

    def _boxed(self, text: str) -> NvshmemRow | Torn | None:
        text = text.strip()
        if not text.startswith("|"):
            return TORN if text.endswith("|") and re.search(r"\d\.\d", text) else None
        cells = [cell.strip() for cell in text.strip("|").split("|")]
        closed = text.endswith("|") and len(text) > 1
        if closed and len(cells) == len(self.columns) and self._all_whole(cells):
            return self._row(cells)
        if not cells[0] or cells[0][0].isdigit():
            return TORN
        figures = zip(self.columns[1:], cells[1:], strict=False)
        return TORN if any(column.whole(cell) for column, cell in figures) else None

    def _misprinted(self, text: str) -> NvshmemRow | Torn | None:
        match = _MISPRINT.fullmatch(text)
        if match is None:
            cells = text.split()
            begins = bool(cells) and cells[0].isdigit() and (len(cells) == 1 or "None".startswith(cells[1]))
            return TORN if begins or text.rstrip().endswith("1.000         1.000") else None
        unit = next(unit for metric, unit in UNITS.values() if metric == self.misprint)
        return NvshmemRow(int(match["size"]), self.labels, (PrintedFigure(self.misprint, match["value"], unit),))

    def _row(self, cells: list[str]) -> NvshmemRow | Torn:
        labels, figures, size = dict(self.labels), [], 0
        for column, cell in zip(self.columns, cells, strict=True):
            if column.role == "figure":
                figures.append(PrintedFigure(column.metric, cell, column.unit, column.labels))
            elif column.role == "size":
                size = int(cell)
            elif column.role == "threads":
                labels["threads"] = cell
            elif column.role in {"type", "redop"} and cell.lower() not in _ABSENT:
                labels["dtype" if column.role == "type" else "redop"] = cell
            elif column.role == "scope" and cell.lower() not in _ABSENT:
                labels["scope"] = scope_of(cell)
        if len(cells) > 4 and self.columns[1].role == "type" and cells[1] == "None":
            return TORN  # a point-to-point test of 3.1 without its title: its metric is unknown
        return NvshmemRow(size, tuple(labels.items()), tuple(figures))


def scope_of(word: str) -> str:
    """Return a scope as named in the contract: `t`, `Thread` and `thread` are the same."""
    return _WORDS.get(word.lower(), word.lower())


def read_header(text: str) -> tuple[str, NvshmemLayout] | None:
    """Return the title that is joined to a table's header, and the layout; None for any other line."""
    match = _HEADER.fullmatch(_PAGER.sub("", text.rstrip()))
    if match is None or ":" in match["header"]:
        return None  # nccom-test has columns such as time:avg(us)
    printf = match["header"].startswith("Size(")
    columns: list[NvshmemColumn] = []
    for column in _NAMED.finditer(match["header"]):
        if column["a"]:
            labels = (("rank", f"{column['a']}->{column['b']}"),)
            columns.append(NvshmemColumn("figure", _real("{2}"), "bandwidth", GB, labels))
        else:
            columns.append(_column(column["name"], column["unit"] or "", columns))
    last = match["header"].rsplit(maxsplit=1)[-1]
    is_cut = any(name.startswith(last) and name != last for name in _FIGURES)
    if is_cut or not any(each.role == "figure" for each in columns):
        return None
    layout = NvshmemLayout(columns=tuple(columns), eras=frozenset({V1}) if printf else _eras(columns))
    return match["before"], layout


def _column(name: str, unit: str, before: list[NvshmemColumn]) -> NvshmemColumn:
    if not before:
        return NvshmemColumn("size", _INTEGER)
    if name in {"count", "type", "redop", "scope"}:
        return NvshmemColumn("count", _INTEGER) if name == "count" else NvshmemColumn(name, _WORD)
    if name in {"algbw", "busbw"}:
        return NvshmemColumn("figure", _real("{3}"), name, GIGABYTES)
    if name in {"min_lat", "max_lat"}:
        return NvshmemColumn("figure", _real("{3}"), "latency", MICROSECONDS, (("stat", name[:3]),))
    main = next((column for column in before if column.role == "figure"), None)
    if name in {"stddev", "min", "max", "mean"} and main is not None:
        stat = "stdev" if name == "stddev" else name
        return NvshmemColumn("figure", _real("+"), main.metric, main.unit, (("stat", stat),))
    return NvshmemColumn("figure", _real("{6}"), *UNITS[unit]) if unit in UNITS else NvshmemColumn("other", _ANY)


def _eras(columns: list[NvshmemColumn]) -> Eras:
    metrics = {column.metric for column in columns}
    newest = any("rank" in dict(column.labels) for column in columns)
    if newest or (len(columns) > 1 and columns[1].role == "count"):
        return frozenset({V33})
    if "busbw" in metrics:
        return frozenset({V31, V32})
    # 3.1 prints only barriers like this, and everything between two PEs with the code for collectives.
    return frozenset({V31, V32, V33}) if metrics == {"latency"} else frozenset({V32, V33})


def read_box_header(text: str) -> NvshmemLayout | None:
    """Read the header of a boxed table: one column per scope in 1.x, a single one from 2.0 to 3.0."""
    text = text.strip()
    if not (text.startswith("|") and text.endswith("|")):
        return None
    first, *cells = (cell.strip() for cell in text.strip("|").split("|"))
    size = NvshmemColumn("size" if first.lower().startswith("size") else "threads", _INTEGER)
    scopes = [re.fullmatch(r"(\w+) \((\w+)\)", cell) for cell in cells]
    if (
        size.role == "size"
        and cells
        and all(match and match[1].lower() in _WORDS and match[2] in UNITS for match in scopes)
    ):
        columns = tuple(
            NvshmemColumn("figure", _real("{2}"), *UNITS[match[2]], (("scope", scope_of(match[1])),))
            for match in scopes
            if match
        )
        return NvshmemLayout(columns=(size, *columns), eras=frozenset({V1}), boxed=True)
    words = cells[0].split() if len(cells) == 1 else []
    if len(words) == 2 and words[1] in UNITS and not first[:1].isdigit():
        column = NvshmemColumn("figure", _real("{6}"), *UNITS[words[1]])
        return NvshmemLayout(columns=(size, column), eras=frozenset({V2}), boxed=True)
    return None


_REDOPS = frozenset({"sum", "prod", "and", "or", "xor", "min", "max"})


def read_sub_job(text: str) -> tuple[tuple[str, str], ...]:
    """Return the labels in a subtitle such as ``32-bit-block`` or ``int32-sum-t``."""
    labels: dict[str, str] = {}
    for word in re.findall(r"\d+-bit|[^-\s]+", text):
        if word.lower() in _ABSENT:
            continue
        kind = "scope" if word.lower() in _WORDS else "redop" if word.lower() in _REDOPS else "dtype"
        labels.setdefault(kind, scope_of(word) if kind == "scope" else word)
    return tuple(labels.items())


_TITLE = lazy(r"#\s*([A-Za-z]\w*)|#?\s*([A-Za-z]\w*) \(GB/s\)")
_BOX_TITLE = lazy(r"\|\s*([A-Za-z]\w*)\s*\|\s*(\S+)\s*\|")
_OPERAND = lazy(r"#\s*(\d+-bit) operand")
_OPERATION = lazy(r"(Put|Get) with (thread|warp|block)")


class TableTitle(NamedTuple):
    """A title or a possible title."""

    line: int
    job: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    certain: bool = False  # whether it can only be a title: any program may print a word after a hash sign

    def near(self, line: int) -> bool:
        """Return whether a table that begins at this line may be its own."""
        return line - self.line <= 4  # a boxed table has rules between its title and its first row


def read_title(text: str, line: int) -> TableTitle | None:
    """Read a title in any version; None for any other line.

    Captions that users put above tables (``# 3.5.21``) do not count: the name of a job is one word.
    """
    text = text.strip()
    if (match := _TITLE.fullmatch(text)) is not None:
        job = match[1] or match[2]
        return TableTitle(line, job, certain=is_job(job))
    if (match := _BOX_TITLE.fullmatch(text)) is not None:
        return TableTitle(line, match[1], read_sub_job(match[2]), certain=is_job(match[1]))
    if (match := _OPERAND.fullmatch(text)) is not None:
        return TableTitle(line, None, (("dtype", match[1]),))
    if (match := _OPERATION.fullmatch(text)) is not None:
        return TableTitle(line, f"shmem_{match[1].lower()}_bw", (("scope", scope_of(match[2])),))
    return TableTitle(line, text, certain=True) if is_job(text) else None


# ---------------------------------------------------------------- machine-readable rows
# ``&&&& PERF job___subjob___size__N___output value ±unit``: a compile-time option up to 2.11, and
# NVSHMEM_MACHINE_READABLE_OUTPUT=1 from 3.0.6 on. The sign shows which direction is better. PERF_STATS, with
# the statistics of repetitions, was added after 3.6.

SIGN = "&&&& PERF"
_MACHINE_REST = lazy(r"___\w+__\d{1,18}___\S+ \d|PERF(?:_STATS)? \S+___\S*___\w+__\d")
_MAX_MACHINE_ROW = 400  # maximum length of a row: longer lines are not rows, and would be slow to match
_NUMBER = r"\d{1,18}(?:\.\d{1,18})?|-?inf|-?nan"
_NAMES = r"(?P<job>\S+?)___(?P<sub>.*?)___(?P<variable>[^_\s][^_]*?)__(?P<size>\d{1,18})___(?P<output>\S+)"
_PERF = lazy(rf"&&&& PERF {_NAMES} (?P<value>\d{{1,18}}\.\d{{6}}|-?inf|-?nan) [+-](?P<unit>\S+)\s*")
_STATS = lazy(
    rf"&&&& PERF_STATS {_NAMES} [+-](?P<unit>\S+) mean=(?P<mean>{_NUMBER}) stddev=(?P<stdev>{_NUMBER})"
    rf" min=(?P<min>{_NUMBER}) max=(?P<max>{_NUMBER}) repetitions=\d+\s*"
)


class PerfRow(NamedTuple):
    """One row, its job, and the versions that print such a row."""

    job: str
    row: NvshmemRow
    eras: Eras


def read_machine_row(text: str, *, inside: bool) -> PerfRow | Torn | None:
    """Read a line; None if it is neither such a row nor, `inside` a table, the beginning of one."""
    if not text.startswith(SIGN):
        cut = text[:1] == "&" and SIGN.startswith(text)
        return TORN if inside and (cut or _MACHINE_REST.search(text)) else None
    if len(text) > _MAX_MACHINE_ROW:
        return TORN
    one = _PERF.fullmatch(text)
    match = one or _STATS.fullmatch(text)
    if match is None or match["unit"] not in UNITS:
        return TORN
    metric, unit = UNITS[match["unit"]]
    labels = dict(read_sub_job(match["sub"]))
    sized = match["variable"].lower().startswith("size")
    if not sized:
        labels["threads"] = match["size"]
    if one is not None:
        figures: tuple[PrintedFigure, ...] = (PrintedFigure(metric, match["value"], unit),)
    else:
        names = ("mean", "stdev", "min", "max")
        figures = tuple(PrintedFigure(metric, match[name], unit, (("stat", name),)) for name in names)
    row = NvshmemRow(int(match["size"]) if sized else 0, tuple(labels.items()), figures)
    return PerfRow(match["job"], row, ALL if one is not None else frozenset({V33}))
