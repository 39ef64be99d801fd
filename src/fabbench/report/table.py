"""A table made of text: built once, written as CSV, Markdown, or for a terminal, and always as plain text.

CSV is RFC 4180, but with plain line feeds. A spreadsheet evaluates a cell that begins with one of ``= + - @``
as a formula: such a cell gets an apostrophe in front, which marks it as text. Numbers are left alone, and
`RAW_CSV` leaves everything as it is, for programs.

Markdown is GitHub's, padded so that it can be read as text too. Nothing in a cell, a title or a note becomes
markup, a link or HTML; only text that would be read as such is escaped, so that most text stays as it is.

The text of a table cannot control a terminal.
"""

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import IO, TYPE_CHECKING, Any

from fabbench.model.errors import RequestError
from fabbench.model.messages import one_line, printable, unbroken
from fabbench.model.patterns import lazy
from fabbench.report.json_contract import to_json

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType
    from rich.segment import Segment
    from rich.table import Table as Grid
    from rich.text import Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells are finished text: no writer computes, rounds or scales.

    `align` has one letter per column, `l`, `r` or `d` (decimal points are aligned on a terminal);
    empty means left everywhere. `headline` is a sentence above the table, `notes` are sentences below it.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    headline: str = ""
    align: str = ""
    notes: Sequence[str] = ()
    keys: int = 0
    """A table too wide for a terminal is split, and every part begins with these columns; 0: it is folded."""

    def aligns(self) -> str:
        """Return one letter per column."""
        return self.align or "l" * len(self.header)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A table with a name, and the same as plain data for JSON."""

    name: str
    """Its key in JSON."""
    table: Table
    records: Sequence[Mapping[str, object]]


# ---------------------------------------------------------------- CSV

RAW_CSV = "raw-csv"
"""The format without apostrophes, for everything that can write CSV."""
CSV_FORMATS = ("csv", RAW_CSV)

_FORMULA = lazy(r"[\t\r\n]|\s*[=+\-@\uff1d\uff0b\uff0d\uff20]")
"""Also in full width, as in East Asian spreadsheets, and after blanks, which may be stripped."""
_NUMBER = lazy(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|-?(inf|nan)|-")


def to_csv(table: Table, *, raw: bool = False) -> str:
    """Write a table's header and cells. CSV has no title and no notes."""
    return write_rows(table.header, table.rows, raw=raw)


def records_to_csv(records: Iterable[Mapping[str, object]], header: Sequence[str], *, raw: bool = False) -> str:
    """Write mappings; None is an empty cell, and numbers keep every digit."""
    rows = ([str(value) if (value := record.get(name)) is not None else "" for name in header] for record in records)
    return write_rows(header, rows, raw=raw)


def write_rows(header: Sequence[str], rows: Iterable[Sequence[str]], *, raw: bool = False) -> str:
    """Write a header and rows of text. A carriage return becomes a line feed: csv would not quote it."""
    import csv

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    cell = _raw if raw else _cell
    writer.writerow(list(map(cell, header)))
    writer.writerows(list(map(cell, row)) for row in rows)
    return out.getvalue()


def row_text(cells: Sequence[str], *, raw: bool = False) -> str:
    """Write one row without its line feed."""
    return write_rows(cells, (), raw=raw).removesuffix("\n")


def _raw(text: str) -> str:
    return printable(text.replace("\r\n", "\n").replace("\r", "\n"))


def _cell(text: str) -> str:
    formula = _FORMULA.match(text) and not _NUMBER.fullmatch(text)
    return _raw(f"'{text}" if formula else text)


# ---------------------------------------------------------------- Markdown

_BLOCK = lazy(r"\#{1,6}(?=\s|$)|>|[-+](?=\s|$)|-(?=[\s-]*$)|\d+(?=[.)](?:\s|$))|\[[ xX]\](?=\s)")
"""Markup at the start of a block: headings, quotes, lists, rules, check boxes."""
_MARKUP = lazy(
    r"""
      \\(?=[!-/:-@\[-`{-~]|$)         # a backslash that would escape something
    | [`*]
    | (?<![^\W_])_ | _(?![^\W_])      # within a word it does not emphasize
    | ~(?!/) | (?<=\S)~              # except for home directories
    | <(?=[A-Za-z/!?])                # HTML, and links
    | &(?=\#?\w+;)                    # a character reference
    | \](?=[(\[:])                    # a link, or its definition
    | \$(?=.*\$) | (?<=\$)\$          # a formula
    """,
    re.VERBOSE,
)


def to_markdown(table: Table) -> str:
    """Write one table: title, cells, notes. Ends with a newline."""
    # A ``#`` at the end of a heading would not be shown.
    parts = ["### " + re.sub(r"#(?=#*$)", r"\\#", escaped(table.title)) + "\n"] if table.title else []
    if table.headline:
        parts.append(f"{_block(table.headline)}\n")
    if table.header:
        parts.append(_grid(table))
    if table.notes:
        parts.append("\n".join(f"- {_block(note)}" for note in table.notes) + "\n")
    return "\n".join(parts)


def escaped(text: str) -> str:
    """Return text on one line, escaped so that GitHub shows it literally within a line."""
    return _MARKUP.sub(lambda match: f"\\{match[0]}", one_line(text))


def cell(text: str) -> str:
    r"""Escape a cell: a `|` would end it.

    After a backslash, `\|` is read differently by different programs.
    """
    return re.sub(r"(?<!\\)\|", r"\\|", re.sub(r"(?<=\\)\|", "&#124;", escaped(text)))


def _block(text: str) -> str:
    line = escaped(text)
    match = _BLOCK.match(line)
    if not match:
        return line
    number = match[0] if match[0].isdigit() else ""
    return f"{number}\\{line[len(number) :]}"


def _grid(table: Table) -> str:
    rows = [[cell(text) for text in row] for row in (table.header, *table.rows)]
    widths = [max(3, *(len(row[index]) for row in rows)) for index in range(len(table.header))]
    aligns = table.aligns()
    rule = ["-" * (width + 1) + ("-" if align == "l" else ":") for width, align in zip(widths, aligns, strict=True)]
    pads = [str.ljust if align == "l" else str.rjust for align in aligns]
    head, *body = (
        f"| {' | '.join(pad(text, width) for pad, text, width in zip(pads, row, widths, strict=True))} |"
        for row in rows
    )
    return "\n".join([head, f"|{'|'.join(rule)}|", *body]) + "\n"


# ---------------------------------------------------------------- terminals


LONG = 1000
"""Tables with more rows are not drawn by rich, which takes a millisecond per row."""
_ROWS_PER_BLOCK = 512


def to_terminal(tables: Iterable[Table], *, color: bool = False, width: int | None = None) -> str:
    """Write tables one after another. `color` requests color; the variable NO_COLOR still disables it.

    Without `width` nothing is wrapped or cut. Every character is text: rich's markup in cells is ignored.
    """
    return "".join(terminal_pieces(tables, color=color, width=width))


def terminal_pieces(tables: Iterable[Table], *, color: bool = False, width: int | None = None) -> Iterator[str]:
    """Write tables as `to_terminal` does, piece by piece. Rows of `LONG` tables are never wrapped."""
    tables = list(tables)
    if not color and width is None and not any(table.keys for table in tables):
        yield from _plain_pieces(tables)
        return
    from rich.text import Text

    out = io.StringIO()
    terminal = console(out, color=color, width=width or 10_000)
    separate = True
    for index, table in enumerate(tables):
        if index and separate:
            terminal.print()
        # The box for a terminal has a blank line below it.
        separate = not (color and table.header and not table.notes)
        if table.headline:
            terminal.print(text_of(table.headline, style="bold"), soft_wrap=width is None)
            terminal.print()
        if table.title:
            terminal.print(text_of(table.title, style="bold"), soft_wrap=width is None)
        if table.header and len(table.rows) > LONG:
            yield _drain(out)
            yield from _long_grid(table, color=color)
        elif table.header:
            for part in split_to_width(align_decimals(table), terminal.width):
                terminal.print(to_rich(part, color=color))
        for note in table.notes:
            whole = text_of(note, style="dim")
            lines = whole.wrap(terminal, width - 2) if width else [whole]
            marked = text_of("- ", style="dim") + Text("\n  ").join(lines)
            terminal.print(marked, soft_wrap=width is None)
    yield _drain(out)


def _plain_pieces(tables: Iterable[Table]) -> Iterator[str]:
    """Write tables as rich draws them without color, but without rich, which is slow to load."""
    for index, table in enumerate(tables):
        above = [*([""] if index else []), *([table.headline, ""] if table.headline else [])]
        above += [table.title] if table.title else []
        if above:
            yield "".join(f"{_cell_text(line).rstrip()}\n" for line in above)
        if table.header:
            short = len(table.rows) <= LONG
            yield from _long_grid(align_decimals(table) if short else table, color=False)
        if table.notes:
            yield "".join(f"{_cell_text(f'- {note}').rstrip()}\n" for note in table.notes)


def _drain(out: io.StringIO) -> str:
    text = out.getvalue()
    out.seek(0)
    out.truncate()
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def to_rich(table: Table, *, color: bool) -> "Grid":
    """Return the cells of a table for rich."""
    from rich import box
    from rich.table import Table as Grid

    grid = Grid(box=box.SIMPLE_HEAD if color else box.ASCII2, pad_edge=not color)
    widths = _widths(table) if table.keys else [None] * len(table.header)
    for name, align, width in zip(table.header, table.aligns(), widths, strict=True):
        side: JustifyMethod = "left" if align == "l" else "right"
        grid.add_column(text_of(name), justify=side, overflow="fold", width=width)
    for row in table.rows:
        grid.add_row(*map(text_of, row))
    return grid


_GAP = 3
"""Characters between two columns, with any box."""
_HEAD = 14
"""A header is folded to this width, unless its cells are wider."""
_QUANTITY = lazy(r"(-?\d+)(\.\d+)?([^\d.–].*)?")


def align_decimals(table: Table) -> Table:
    """Pad the cells of columns aligned by their decimal points."""
    aligns = table.aligns()
    if "d" not in aligns:
        return table
    columns = zip(zip(*table.rows, strict=True), aligns, strict=False)
    padded = (_padded(column) if align == "d" else column for column, align in columns)
    return replace(table, rows=list(zip(*padded, strict=True)))


def _padded(cells: Sequence[str]) -> Sequence[str]:
    """Pad numbers, and what follows them, so that their points meet where cells are right-aligned."""
    matches = [_QUANTITY.fullmatch(cell) for cell in cells]
    known = [match for match in matches if match]
    fraction = max((len(match[2] or "") for match in known), default=0)
    unit = max((len(match[3] or "") for match in known), default=0)
    return [
        f"{match[1]}{match[2] or '':<{fraction}}{match[3] or '':<{unit}}" if match else cell
        for match, cell in zip(matches, cells, strict=True)
    ]


def split_to_width(table: Table, width: int) -> Iterator[Table]:
    """Yield a table in as many parts as it takes to fit into `width`, each with the `keys` columns."""
    widths = _widths(table) if table.keys else []
    keys = list(range(table.keys))
    room = width - sum(widths[: table.keys]) - _GAP * table.keys - 1
    part: list[int] = []
    for index in range(table.keys, len(widths)):
        taken = sum(widths[each] + _GAP for each in [*part, index])
        if part and taken > room:
            yield _columns_of(table, [*keys, *part])
            part = []
        part.append(index)
    yield _columns_of(table, [*keys, *part]) if keys else table


def _widths(table: Table) -> list[int]:
    """Return the width of each column, with its header folded if that is wider than its cells."""
    from rich.cells import cell_len

    widths = []
    for index, name in enumerate(table.header):
        body = max((cell_len(unbroken(row[index])) for row in table.rows), default=0)
        widths.append(max(body, min(cell_len(unbroken(name)), _HEAD)))
    return widths


def _columns_of(table: Table, indices: Sequence[int]) -> Table:
    return replace(
        table,
        header=[table.header[index] for index in indices],
        rows=[[row[index] for index in indices] for row in table.rows],
        align="".join(table.aligns()[index] for index in indices),
    )


def _long_grid(table: Table, *, color: bool) -> Iterator[str]:
    """Write a grid like rich's, in blocks. Iterates over the rows twice: first for widths."""
    aligns, widths = table.aligns(), list(map(_cell_width, map(_cell_text, table.header)))
    for row in table.rows:
        widths = [max(width, _cell_width(_cell_text(cell))) for width, cell in zip(widths, row, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = []
        for cell, width, align in zip(map(_cell_text, cells), widths, aligns, strict=True):
            blank = " " * (width - _cell_width(cell))
            padded.append(cell + blank if align == "l" else blank + cell)
        return f" {'   '.join(padded)}".rstrip() if color else f"| {' | '.join(padded)} |"

    if color:
        above, below = "\n", "\n"
        rule = f" {chr(0x2500) * (sum(widths) + 3 * len(widths) - 3)}"
    else:
        rule = f"+{'+'.join('-' * (width + 2) for width in widths)}+"
        above = below = f"{rule}\n"
    yield f"{above}{line(table.header)}\n{rule}\n"
    for start in range(0, len(table.rows), _ROWS_PER_BLOCK):
        block = [line(row) for row in table.rows[start : start + _ROWS_PER_BLOCK]]
        yield "\n".join(block) + "\n"
    yield below


def _cell_text(text: str) -> str:
    return unbroken(text).expandtabs(8)


def _cell_width(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def text_of(text: str, *, style: str = "") -> "Text":
    """Return text for rich, on one line."""
    from rich.text import Text

    return Text(unbroken(text), style=style)


def console(file: IO[str], *, color: bool | None = None, width: int | None = None) -> "Console":
    """Return a rich console that passes only styles and the moves of a live view to a terminal.

    All printed text is made printable, whatever its source. `color` None: color if `file` is a terminal.
    """
    from rich.console import Console

    class TextConsole(Console):
        def render(self, renderable: "RenderableType", options: "ConsoleOptions | None" = None) -> "Iterable[Segment]":
            for segment in super().render(renderable, options):
                plain = segment.text if segment.control else printable(segment.text)
                yield segment if plain == segment.text else segment._replace(text=plain)

    settings: dict[str, Any] = {} if width is None else {"width": width}
    return TextConsole(file=file, force_terminal=color, highlight=False, emoji=False, markup=False, **settings)


# ---------------------------------------------------------------- results


def write_result(  # noqa: PLR0913 - what is written, and how
    form: str,
    tables: Callable[[], Sequence[Table]],
    document: Callable[[], object],
    csv: Callable[..., str],
    *,
    color: bool = False,
    width: int | None = None,
) -> str:
    """Write what is computed in a format that every result has; `csv` takes whether cells are written verbatim."""
    if form == "json":
        return to_json(document())
    if form in CSV_FORMATS:
        return csv(raw=form == RAW_CSV)
    if form == "markdown":
        return "\n".join(map(to_markdown, tables()))
    if form in {"terminal", "table"}:
        return to_terminal(tables(), color=color, width=width)
    raise RequestError(f"Unknown format {form}.", hint="One of markdown, csv, json, table, terminal.")


def render_overview(overview: Overview, form: str = "table", *, color: bool = False, width: int | None = None) -> str:
    """Write an overview in one of `log_report.FORMATS`, or as `RAW_CSV`. Ends with a newline."""
    document = {"format": 1, overview.name: overview.records}
    csv = partial(to_csv, overview.table)
    return write_result(form, lambda: [overview.table], lambda: document, csv, color=color, width=width)
