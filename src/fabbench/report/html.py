"""Parts of HTML pages: no script, nothing fetched, readable without colors, in print and by screen readers.

All text in them is escaped, whatever its origin. A content security policy also forbids scripts and all
network access.
"""

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from fabbench.model.messages import printable
from fabbench.report import svg
from fabbench.report.table import Table

_LONG = 48
"""Cells with more characters than this are folded."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def document(title: str, parts: Iterable[str], version: str) -> Iterator[str]:
    """Yield a page in pieces: its head, the title as its heading, and `parts`, which are HTML."""
    yield (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{text(title)}</title>\n<style>\n{svg.style()}{svg.style('page.css')}</style>\n</head>\n<body>\n"
        '<a class="skip" href="#main">Skip to the results</a>\n'
        f'<svg width="0" height="0" style="position:absolute" aria-hidden="true"><defs>{svg.MARKERS}</defs>'
        f'</svg>\n<main id="main">\n<h1>{text(title)}</h1>\n'
    )
    yield from parts
    yield f'<p class="faint">Written by fabbench {text(version)}.</p>\n</main>\n</body>\n</html>\n'


def table(content: Table) -> str:
    """Write a table with its notes; one without columns is a list of notes."""
    if not content.header:
        name = f"<h4>{text(content.title)}</h4>\n" if content.title and content.notes else ""
        return name + bullet_list(content.notes)
    rows = [list(map(text, row)) for row in content.rows]
    return grid(content.title, content.header, rows, content.aligns()) + bullet_list(content.notes)


def grid(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], aligns: str = "") -> str:
    """Write a table of cells that are HTML; the first one names its row."""
    sides = [_side(align, [row[at] for row in rows]) for at, align in enumerate(aligns or "l" * len(header))]
    head = "".join(f'<th scope="col"{side}>{text(name)}</th>' for name, side in zip(header, sides, strict=True))
    body = []
    for first, *cells in rows:
        more = (f"<td{side}>{cell}</td>" for cell, side in zip(cells, sides[1:], strict=True))
        body.append(f'<tr><th scope="row"{sides[0]}>{first}</th>{"".join(more)}</tr>\n')
    name = text(title or "Table")
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{name}">\n<table>\n'
        f"<caption>{name}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{''.join(body)}</tbody>\n"
        "</table>\n</div>\n"
    )


def _side(align: str, cells: Iterable[str]) -> str:
    """Return the class of a column: numbers are right-aligned, long texts folded."""
    name = "r" if align != "l" else "long" if any(len(cell) > _LONG for cell in cells) else ""
    return f' class="{name}"' if name else ""


def figure(title: str, legend: Iterable[tuple[str, str]], plot: str) -> str:
    """Write a plot with its title and a legend of marks, which are HTML like the plot, and labels."""
    entries = "".join(f"<li>{mark}{text(label)}</li>" for mark, label in legend)
    return f'<figure>\n<figcaption>{text(title)}</figcaption>\n<ul class="legend">{entries}</ul>\n{plot}\n</figure>\n'


def bullet_list(sentences: Iterable[str]) -> str:
    """Write sentences as a list; empty without any."""
    items = "".join(f"<li>{text(sentence)}</li>\n" for sentence in sentences)
    return f"<ul>\n{items}</ul>\n" if items else ""


def text(words: str) -> str:
    """Escape text for HTML."""
    return escape(printable(words))
