"""Tables for a terminal, or as plain text where there is none."""

import io
from collections.abc import Iterable

from fabbench.report.table import Table


def write(tables: Iterable[Table], *, colour: bool = False, width: int | None = None) -> str:
    """Write tables one after another. `colour` asks for it; the variable NO_COLOR still forbids it.

    Without `width` nothing is wrapped or cut. Every character is text: rich's markup in a cell is not read.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    out = io.StringIO()
    console = Console(
        file=out, force_terminal=colour, width=width or 10_000, highlight=False, emoji=False, markup=False
    )
    apart = True
    for index, table in enumerate(tables):
        if index and apart:
            console.print()
        # The box for a terminal has a blank line below it.
        apart = not (colour and table.header and not table.notes)
        if table.title:
            console.print(Text(table.title, style="bold"), soft_wrap=width is None)
        if table.header:
            grid = Grid(box=box.SIMPLE_HEAD if colour else box.ASCII2, pad_edge=not colour)
            for name, align in zip(table.header, table.aligns(), strict=True):
                grid.add_column(Text(name), justify="right" if align == "r" else "left", overflow="fold")
            for row in table.rows:
                grid.add_row(*(Text(text) for text in row))
            console.print(grid)
        for note in table.notes:
            lines = Text(note, style="dim").wrap(console, width - 2) if width else [Text(note, style="dim")]
            console.print(Text("- ", style="dim") + Text("\n  ").join(lines), soft_wrap=width is None)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"
