"""A table made of text.

Built once, written as CSV, Markdown, or for a terminal, and always as plain text.

CSV is RFC 4180, but with plain line feeds. A spreadsheet evaluates a cell that begins with one of
``= + - @`` as a formula: such a cell gets an apostrophe in front, which marks it as text. Numbers
are left alone.

Markdown is GitHub's, padded so that it can be read as text too. Nothing in a cell, a title or a
note becomes markup, a link or HTML; only text that would be read as such is escaped, so that most
text stays as it is.

The text of a table cannot control a terminal.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

from fabbench.catalog.systems import pairs_of
from fabbench.model.compat import override
from fabbench.model.errors import RequestError
from fabbench.model.messages import one_line, printable, quoted, unbroken, with_line_feeds
from fabbench.model.patterns import Match, lazy
from fabbench.model.values import frozen


@frozen
class Table:
    """Cells are finished text: no writer computes, rounds or scales.

    `align` has one letter per column: `l`, `r` (numbers, whose decimal points are aligned) or `d`
    (numbers, to the right as they are); empty means left everywhere. `headline` is a sentence
    above the table, `notes` are sentences below it. Without a header there are only these.
    """

    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    title: str = ""
    headline: str = ""
    align: str = ""
    notes: Sequence[str] = ()
    # Columns that begin each part of a table too wide for a terminal; 0: it is folded, not split
    keys: int = 0
    # Whether text has a line below the header; lists, which programs may read, have none
    ruled: bool = True

    @property
    def folds(self) -> bool:
        """Whether a page shows only its title at first."""
        return bool(self.title) and len(self.rows) > _UNFOLDED

    def aligns(self) -> str:
        """Return one letter per column."""
        return self.align or "l" * len(self.header)


_UNFOLDED = 12

TableColumn: TypeAlias = tuple[str, str, Callable[..., str]]
"""Its header, its alignment, and what its cell has of an item."""


def table_of(columns: Sequence[TableColumn], items: Sequence[Any], **more: Any) -> Table:
    """Return a table with a row per item, whose text is made on access: there may be a million."""
    header = [name for name, _, _ in columns]
    align = "".join(letter for _, letter, _ in columns)
    rows = _Rows(items, [cell for _, _, cell in columns])
    return Table(header=header, align=align, rows=rows, **more)


class _Rows(Sequence[Sequence[str]]):
    def __init__(self, items: Sequence[Any], cells: Sequence[Callable[..., str]]) -> None:
        self._items = items
        self._cells = cells

    @override
    def __len__(self) -> int:
        return len(self._items)

    @override
    def __getitem__(self, index: Any) -> Any:
        item = self._items[index]
        if isinstance(index, slice):  # `item` is then several, whose text is not made yet
            return _Rows(item, self._cells)
        return [cell(item) for cell in self._cells]


Cells: TypeAlias = tuple[str, ...]
"""Those of a row."""
PlainData: TypeAlias = dict[str, Any]
"""An object of JSON, or a row of CSV."""


class Overview(NamedTuple):
    """A table with a name, and the same as plain data for JSON."""

    name: str  # Its key in JSON
    table: Table
    records: Sequence[PlainData]


# ---------------------------------------------------------------- CSV

_FORMULA = lazy(r"[\t\r\n]|\s*[=+\-@\uff1d\uff0b\uff0d\uff20]")
"""Also in full width, as in East Asian spreadsheets, and after blanks, which may be stripped."""
_NUMBER = lazy(r"[+-]?(\d++(?:\.\d*+)?|\.\d++)([eE][+-]?\d+)?|-?(inf|nan)|-")


def to_csv(table: Table) -> str:
    """Write a table's header and cells. CSV has no title and no notes."""
    return csv_text((table.header, *table.rows))


def records_to_csv(records: Iterable[PlainData], header: Sequence[str]) -> str:
    """Write mappings; None is an empty cell, and numbers keep every digit."""
    rows = (map(record.get, header) for record in records)
    return csv_text([header, *rows])


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Write rows, whose text becomes safe."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows(map(_csv_cell, row) for row in rows)
    return out.getvalue()


def _csv_cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    # A carriage return becomes a line feed: csv would not quote it.
    text = value.replace("\r\n", "\n").replace("\r", "\n")
    # An apostrophe in front makes it text
    is_formula = _FORMULA.match(value) and not _NUMBER.fullmatch(value)
    return printable(f"'{text}" if is_formula else text)


# ---------------------------------------------------------------- Markdown

_BLOCK = lazy(r"\A(\d+(?=[.)](?:\s|$))|(?=\#{1,6}(?:\s|$)|>|[-+](?:\s|$)|-[\s-]*$|\[[ xX]\]\s))")
"""Before markup at the start of a block: headings, quotes, lists, rules, check boxes.

After the number of a list.
"""
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
    parts: list[str] = []
    if table.title:
        # A ``#`` at the end of a heading would not be shown.
        title = escaped(table.title)
        bare = title.rstrip("#")
        closing = title.removeprefix(bare).replace("#", r"\#")
        parts.append(f"### {bare}{closing}\n")
    if table.headline:
        parts.append(f"{_escaped_block(table.headline)}\n")
    if table.header:
        parts.append(_markdown_grid(table))
    if table.notes:
        notes = (f"- {_escaped_block(note)}\n" for note in table.notes)
        parts.append("".join(notes))
    return "\n".join(parts)


def escaped(text: str) -> str:
    """Return text on one line, escaped so that GitHub shows it literally within a line."""
    return _MARKUP.sub(lambda match: f"\\{match[0]}", one_line(text))


def cell(text: str) -> str:
    r"""Escape a cell: a `|` would end it.

    After a backslash, `\|` is read differently by different programs.
    """
    after_backslash = re.sub(r"(?<=\\)\|", "&#124;", escaped(text))
    return re.sub(r"(?<!\\)\|", r"\\|", after_backslash)


def _escaped_block(text: str) -> str:
    return _BLOCK.sub(r"\1\\", escaped(text))


def _markdown_grid(table: Table) -> str:
    cells = [list(map(cell, row)) for row in table.rows]
    aligned = align_decimals(replace(table, rows=cells))
    rows = [list(map(cell, table.header)), *aligned.rows]
    columns = zip(*rows, strict=True)
    # No column is narrower than its rule, `---`
    widths = [max(3, *map(len, column)) for column in columns]
    aligns = table.aligns()
    rule = "|".join(map(_rule_below, widths, aligns))
    head, *body = (_markdown_row(row, widths, aligns) for row in rows)
    return "\n".join([head, f"|{rule}|", *body, ""])


def _rule_below(width: int, align: str) -> str:
    """Return the dashes below a header, as wide as its cell with a blank on both sides."""
    end = "-" if align == "l" else ":"  # A colon aligns a column to the right
    return "-" * (width + 1) + end


def _markdown_row(row: Sequence[str], widths: Sequence[int], aligns: str) -> str:
    cells: list[str] = []
    for text, width, align in zip(row, widths, aligns, strict=True):
        pad = str.ljust if align == "l" else str.rjust
        cells.append(pad(text, width))
    inner = " | ".join(cells)
    return f"| {inner} |"


# ---------------------------------------------------------------- terminals

# Tables with more rows are written in blocks, and neither folded nor aligned by their decimals
LONG = 1000
_ROWS_PER_BLOCK = 512
_GAP = 2
_NO_CELLS: Sequence[Cells] = [()]  # The line of a row without any
_COLUMN_GAP = " " * _GAP
_HEADER_WIDTH = 14  # On a terminal a header is folded to this width, unless its cells are wider
_LEAST_WIDTH = 8  # A column is not folded to less than this width
_QUANTITY = lazy(r"((?:[≤>] )?[-+]?\d+)(\.\d+)?([^\d.–].*)?")

_TONES = pairs_of("tones.csv", "fabbench.report")
_COLORS = {"good": "32", "bad": "31", "doubt": "33"}
_WORDS = "|".join(_TONES)
_VERDICT = lazy(rf"(?<![\w./-])({_WORDS})(?![\w/-])")
# A verdict where one is stated: before a colon or a bracket, after a colon, counted
_STATED = lazy(
    rf"(?<![\w./-])(?:{_WORDS})(?=: |:$| \()"
    rf"|(?<=: )(?:{_WORDS})(?=, |[,.]?$)"
    rf"|(?<=\d )(?:{_WORDS})(?=[,. ]|$)"
)


def tone_of(text: str) -> str:
    """Return whether the verdict that a text begins with is `good`, `bad` or in `doubt`.

    Empty: it is none.
    """
    verdict = _VERDICT.match(text)
    return _TONES[verdict[1]] if verdict else ""


def bold(text: str) -> str:
    """Return text in bold, for a terminal that shows it."""
    return f"\x1b[1m{text}\x1b[0m" if text else text


def toned(text: str, *, everywhere: bool = False) -> str:
    """Color the verdicts in a text: good ones green, bad ones red, doubtful ones yellow.

    Not `everywhere`: only where a verdict is stated, as before a colon; the words have other uses.
    """
    verdicts = _VERDICT if everywhere else _STATED
    return verdicts.sub(_colored, text)


def _colored(verdict: Match) -> str:
    color = _COLORS[_TONES[verdict[0]]]
    return f"\x1b[{color}m{verdict[0]}\x1b[39m"


def to_terminal(tables: Iterable[Table], *, color: bool = False, width: int | None = None) -> str:
    """Write tables one after another.

    `color` is for a terminal that shows it; without `width` nothing is folded.
    """
    return "".join(terminal_pieces(tables, color=color, width=width))


def terminal_pieces(tables: Iterable[Table], *, color: bool, width: int | None) -> Iterator[str]:
    """Write tables as `to_terminal` does, piece by piece."""
    for index, table in enumerate(tables):
        if index:
            yield "\n"
        yield with_line_feeds(_lines_above(table, color=color, width=width))
        parts: Iterable[Table] = [table] if table.header else []  # else there are only notes
        if parts and width and table.keys:
            parts = split_to_width(table, width)
        for part in parts:
            yield from grid_pieces(part, color=color, width=width)
        yield with_line_feeds(_lines_below(table, color=color, width=width))


def _lines_above(table: Table, *, color: bool, width: int | None) -> Iterator[str]:
    """Yield the headline, an empty line below it, and the title."""
    for text, is_headline in ((table.headline, True), (table.title, False)):
        for line in folded(text, width) if text else []:
            yield bold(toned(line, everywhere=is_headline)) if color else line
        if text and is_headline:
            yield ""


def _lines_below(table: Table, *, color: bool, width: int | None) -> Iterator[str]:
    """Yield the notes, and an empty line between them and the cells."""
    if table.notes and table.header:
        yield ""
    for note in table.notes:
        for line in folded(note, width, first="- ", indent="  "):
            yield toned(line) if color else line


def folded(
    text: str,
    width: int | None,
    *,
    first: str = "",
    indent: str = "",
    whole: bool = True,
) -> list[str]:
    """Return a text in lines of at most `width` columns, between words; None: in one line.

    `first` is before the first line, `indent` before the others. A longer word stays `whole`, to be
    copied.
    """
    line = first + _cell_text(text)
    if width is None or _cell_width(line) <= width:
        return [line]
    import textwrap

    # textwrap counts characters: a wide one gets a NUL after it, to count as two. A NUL may end up
    # on the next line: one column is left free.
    rest = line.removeprefix(first)
    wide = "".join(char.ljust(_cell_width(char), "\0") for char in rest)
    if "\0" in wide:
        width -= 1
    wrapper = textwrap.TextWrapper(
        max(width, len(indent) + _LEAST_WIDTH),
        first,
        indent,
        break_long_words=not whole,
        break_on_hyphens=False,
    )
    return [wrapped.replace("\0", "") for wrapped in wrapper.wrap(wide)]


def grid_pieces(table: Table, *, color: bool = False, width: int | None = None) -> Iterator[str]:
    """Write the header and the rows, in blocks. Iterates over the rows twice: first for widths."""
    table = align_decimals(table)
    fold_to = width if len(table.rows) <= LONG else None  # None: lines are as long as they are
    widths = _narrowed(_widths(table, fold=fold_to is not None), fold_to)
    aligns = table.aligns()
    grid = _TextGrid(widths=widths, aligns=aligns, fold=bool(fold_to), color=color)
    head = list(grid.lines(table.header, bold))
    if table.ruled:
        gaps = _GAP * (len(widths) - 1)
        head.append("\N{BOX DRAWINGS LIGHT HORIZONTAL}" * (sum(widths) + gaps))
    yield with_line_feeds(head)
    for start in range(0, len(table.rows), _ROWS_PER_BLOCK):
        block = table.rows[start : start + _ROWS_PER_BLOCK]
        yield with_line_feeds(line for row in block for line in grid.lines(row, _toned_cell))


_Coloring: TypeAlias = Callable[[str], str]
"""Returns the text of a cell with its colors."""


@frozen
class _TextGrid:
    """The columns of a table of plain text."""

    widths: Sequence[int]
    aligns: str
    fold: bool
    color: bool

    def lines(self, cells: Sequence[str], in_color: _Coloring) -> Iterator[str]:
        """Yield the lines of a row: several if a cell is folded."""
        lines_of_cells = list(map(self._folded, cells, self.widths))
        # A row without cells is one empty line, too.
        for texts in zip_longest(*lines_of_cells, fillvalue="") if lines_of_cells else _NO_CELLS:
            parts: list[str] = []
            for text, width, align in zip(texts, self.widths, self.aligns, strict=True):
                blank = " " * (width - _cell_width(text))
                colored = in_color(text) if self.color else text
                if align == "l":
                    parts.append(colored + blank)
                else:
                    parts.append(blank + colored)
            yield _COLUMN_GAP.join(parts).rstrip()

    def _folded(self, cell: str, width: int) -> list[str]:
        return folded(cell, width, whole=False) if self.fold else [_cell_text(cell)]


def _toned_cell(text: str) -> str:
    """Color the verdicts of a cell that begins with one."""
    return toned(text, everywhere=True) if tone_of(text.lstrip()) else text


def align_decimals(table: Table) -> Table:
    """Pad the numbers of a table so that their decimal points are below each other.

    Those of columns with `r`; what is aligned by `d` stays as it is.
    """
    if "r" not in table.align or not 0 < len(table.rows) <= LONG:
        return table
    aligned: list[Sequence[str]] = []
    columns = zip(*table.rows, strict=True)
    for cells, align in zip(columns, table.align, strict=True):
        aligned.append(_points_aligned(cells) if align == "r" else cells)
    return replace(table, rows=list(zip(*aligned, strict=True)))


def _points_aligned(cells: Sequence[str]) -> Sequence[str]:
    """Pad numbers, and what follows them, so that their points meet in right-aligned cells.

    Cells that begin with no number stay as they are.
    """
    numbers = [_number_in(cell) for cell in cells]
    known = [number for number in numbers if number]
    fraction = max((len(number.fraction) for number in known), default=0)
    unit = max((len(number.unit) for number in known), default=0)
    padded: list[str] = []
    for number, text in zip(numbers, cells, strict=True):
        if number:
            end = number.fraction.ljust(fraction) + number.unit.ljust(unit)
            padded.append(number.whole + end)
        else:
            padded.append(text)
    return padded


class _Number(NamedTuple):
    """The parts of a cell with a number."""

    whole: str  # With its sign, and what says that it is a bound
    fraction: str  # From the decimal point on
    unit: str  # With the blank before it


def _number_in(cell: str) -> _Number | None:
    match = _QUANTITY.fullmatch(cell)
    return _Number(*match.groups("")) if match else None


def split_to_width(table: Table, width: int) -> Iterator[Table]:
    """Yield a table in as many parts as fit into `width`, each with the `keys` columns."""
    widths = _widths(align_decimals(table), fold=True)
    keys = list(range(table.keys))
    gaps = _GAP * (table.keys - 1)
    beside_keys = width - sum(widths[: table.keys]) - gaps
    room = beside_keys
    others: list[int] = []  # The indexes of the part's other columns
    for index in range(table.keys, len(widths)):
        needed = widths[index] + _GAP
        if others and needed > room:
            yield columns_of(table, [*keys, *others])
            others = []
            room = beside_keys
        others.append(index)
        room -= needed
    yield columns_of(table, [*keys, *others])


def _widths(table: Table, *, fold: bool) -> list[int]:
    """Return the width of each column.

    With `fold`, its header is folded if it is wider than its cells.
    """
    heads = [_cell_width(_cell_text(name)) for name in table.header]
    widths = [min(head, _HEADER_WIDTH) if fold else head for head in heads]
    for row in table.rows:
        cells = (_cell_width(_cell_text(cell)) for cell in row)
        widths = list(map(max, widths, cells))
    return widths


def _narrowed(widths: list[int], most: int | None) -> list[int]:
    """Narrow the widest columns until all fit into `most`, but not below `_LEAST_WIDTH`.

    None: they may be as wide as they are.
    """
    if most is None:
        return widths
    room = most - _GAP * (len(widths) - 1)
    fitted = widths
    widest = max(widths, default=0)
    while widest > _LEAST_WIDTH and sum(fitted) > room:
        widest -= 1
        fitted = [min(width, widest) for width in widths]
    return fitted


def columns_of(table: Table, indices: Sequence[int]) -> Table:
    """Return some columns of a table."""
    return replace(
        table,
        header=[table.header[index] for index in indices],
        rows=[[row[index] for index in indices] for row in table.rows],
        align="".join(table.aligns()[index] for index in indices),
    )


def cut(text: str, limit: int) -> str:
    """Return text on one line of at most `limit` characters."""
    return quoted(one_line(text), limit)


def _cell_text(text: str) -> str:
    return unbroken(text).expandtabs(8)


def _cell_width(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


# ---------------------------------------------------------------- results


def picked(value: object, *names: str, **renamed: str) -> PlainData:
    """Return some attributes of a value by their names, or by others: ``unit="metric.unit"``."""
    attributes = {name: name for name in names} | renamed
    return {name: attrgetter(path)(value) for name, path in attributes.items()}


def to_json(document: Any) -> str:
    """Write a document that people can read, with a final newline.

    Terminal control codes are escaped.
    """
    return printable(json.dumps(document, indent=1, ensure_ascii=False)) + "\n"


def write_result(
    form: str,
    tables: Callable[[], Sequence[Table]],
    document: Callable[[], object],
    rows: Callable[[], str],
    **drawing: Any,
) -> str:
    """Write a result in a format that every result has, which alone is computed.

    `document` is for JSON, `rows` returns the CSV, and `drawing` is for `to_terminal`.
    """
    if form == "json":
        return to_json(document())
    if form == "csv":
        return rows()
    if form == "markdown":
        return "\n".join(map(to_markdown, tables()))
    if form == "text":
        return to_terminal(tables(), **drawing)
    raise RequestError(f"Unknown format {form}.", hint="docs/cli.md lists them.")


def render_overview(overview: Overview, form: str = "text", **drawing: Any) -> str:
    """Write an overview in one of the `FORMATS` of lists. Ends with a newline."""
    document = {"format": 1, overview.name: overview.records}
    return write_result(
        form, lambda: [overview.table], lambda: document, lambda: to_csv(overview.table), **drawing
    )
