"""Tables as GitHub-flavoured Markdown, padded so that they can be read as text too."""

from collections.abc import Sequence

from fabbench.report.table import Table


def write(table: Table) -> str:
    """Write one table: title, cells, notes. Ends with a newline."""
    parts = [f"### {_inline(table.title)}\n"] if table.title else []
    if table.header:
        parts.append(_grid(table))
    if table.notes:
        parts.append("\n".join(f"- {_inline(note)}" for note in table.notes) + "\n")
    return "\n".join(parts)


def cell(text: str) -> str:
    r"""Escape a cell: a `|` would end it, a line break the row.

    A backslash before a `|` is doubled, because `\|` as text would otherwise read as an escaped `|`.
    """
    return " ".join(text.replace("\\|", "\\\\|").replace("|", "\\|").split())


def _grid(table: Table) -> str:
    rows = [[cell(text) for text in row] for row in (table.header, *table.rows)]
    widths = [max(3, *(len(row[index]) for row in rows)) for index in range(len(table.header))]
    aligns = table.aligns()
    rule = [
        "-" * (width + 1) + (":" if align == "r" else "-")
        for width, align in zip(widths, aligns, strict=True)
    ]
    head, *body = (_row(row, widths, aligns) for row in rows)
    return "\n".join([head, f"|{'|'.join(rule)}|", *body]) + "\n"


def _row(cells: Sequence[str], widths: Sequence[int], aligns: str) -> str:
    padded = (
        text.rjust(width) if align == "r" else text.ljust(width)
        for text, width, align in zip(cells, widths, aligns, strict=True)
    )
    return f"| {' | '.join(padded)} |"


def _inline(text: str) -> str:
    return " ".join(text.split())
