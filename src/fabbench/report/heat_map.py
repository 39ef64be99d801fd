"""The matrix of a sweep as a heat map: characters, or SVG. A cell is a fraction of the typical figure.

Both can be read without color: digits are tenths, and in SVG a stronger cell is worse. Lines separate groups.
Colors are classes of plot.css: they follow the reader's light or dark setting.
"""

from collections.abc import Iterator
from math import isnan
from typing import TYPE_CHECKING

from fabbench.report import svg
from fabbench.report.svg import cut, text_of

if TYPE_CHECKING:
    from fabbench.sweep.matrix import Matrix

MAX_ROWS = 40  # in text
MAX_SVG_ROWS = 64
_FINE = 0.9
_LONGEST = 28
_FEW = 4
_KEY = "· ≥ 90 % of typical; 5 = 50–59 %; x = failed; blank = not tested.\nColumns in the same order as rows."


def heat_map_text(matrix: "Matrix") -> str:
    """Write a line for each row, with columns in the same order; of four nodes or fewer, a line for each pair."""
    if len(matrix.names) <= _FEW == max(_FEW, *matrix.sizes):
        return "".join(_pairs(matrix))
    names = [cut(name, _LONGEST) for name in matrix.names]
    width = max(map(len, names), default=0)
    lines = []
    for row, cells in enumerate(matrix.cells):
        signs = [f"{'│' if _begins(matrix, column) else ''}{_sign(float(cell))}" for column, cell in enumerate(cells)]
        if _begins(matrix, row):
            rule = "".join("┼─" if _begins(matrix, column) else "─" for column in range(len(cells)))
            lines.append(f"{'':{width}}  {rule}")
        lines.append(f"{names[row]:<{width}}  {''.join(signs)}".rstrip())
    several = max(matrix.sizes, default=1)
    shared = f"\nRows with several nodes, up to {several}, show their lower quartile." if several > 1 else ""
    return "\n".join([*lines, "", f"{_KEY}{shared}"]) + "\n"


def _pairs(matrix: "Matrix") -> Iterator[str]:
    for row, name in enumerate(matrix.names):
        for column in range(row + 1, len(matrix.names)):
            yield f"{name} – {matrix.names[column]}  {_words(float(matrix.cells[row, column]))}\n"


def _words(part: float) -> str:
    return "not tested" if isnan(part) else "failed" if part <= 0 else f"{part:.0%} of typical"


def _begins(matrix: "Matrix", row: int) -> bool:
    """Return whether a row is the first of another group than the row before."""
    return row > 0 and matrix.groups[row] != matrix.groups[row - 1]


def _sign(part: float) -> str:
    if isnan(part):
        return " "
    if part <= 0:
        return "x"
    return "·" if part >= _FINE else str(int(part * 10))


_SMALLEST, _LARGEST, _WIDE = 12, 28, 640
"""Size limits of a cell, and the width that cells may grow to fill, in pixels."""
_LEFT, _TOP = 220, 52
_LEVELS = (0.95, 0.9, 0.75, 0.5, 0.25)


def heat_map_svg(matrix: "Matrix", headline: str, *, standalone: bool = True) -> str:
    """Write an image: text that needs no library, no script and no network. In a page, the page has the style."""
    rows = len(matrix.names)
    cell = max(_SMALLEST, min(_LARGEST, _WIDE // max(rows, 1)))
    width, height, top = max(_LEFT + rows * cell + 20, 700), _TOP + rows * cell + 20, 28 if standalone else 0
    title = f'<text class="title" x="12" y="24">{text_of(cut(headline, width // 9))}</text>\n' if standalone else ""
    style = f"<style>\n{svg.style()}</style>\n" if standalone else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" viewBox="0 {-top} {width} {height + top}" '
        f'width="{width}" height="{height + top}" role="img">\n<title>{text_of(headline)}</title>\n{style}'
        f'<rect class="back" y="{-top}" width="{width}" height="{height + top}"/>\n'
        f'<g transform="translate(0 {-top})">{title}</g>\n'
        f"{''.join(_legend())}{''.join(_labels(matrix, cell))}{''.join(_cells(matrix, cell))}</svg>\n"
    )


def _legend() -> Iterator[str]:
    yield '<text class="faint" x="12" y="22">of typical:</text>\n'
    words = [*(f"≥ {level:.0%}" for level in _LEVELS), "less", "failed", "not tested"]
    kinds = [*(f"h{index}" for index in range(len(_LEVELS) + 1)), "hx", "hn"]
    for index, (word, kind) in enumerate(zip(words, kinds, strict=True)):
        x = 84 + 74 * index
        yield f'<rect class="{kind}" x="{x}" y="12" width="12" height="12"/><text x="{x + 17}" y="22">{word}</text>\n'


def _labels(matrix: "Matrix", cell: int) -> Iterator[str]:
    for row, (name, size) in enumerate(zip(matrix.names, matrix.sizes, strict=True)):
        kind = ' class="strong"' if matrix.suspects[row] else ""
        more = f" ({size})" if size > 1 else ""
        y = _TOP + row * cell + cell // 2 + 4
        yield f'<text{kind} x="{_LEFT - 6}" y="{y}" text-anchor="end">{text_of(cut(name, _LONGEST))}{more}</text>\n'


def _cells(matrix: "Matrix", cell: int) -> Iterator[str]:
    """Yield cells; neighbors of one color in a row are one rectangle, unless they have tooltips. Then boundaries."""
    for row, cells in enumerate(matrix.cells):
        start = 0
        kinds = [_kind(float(part)) for part in cells]
        for column, kind in enumerate(kinds):
            fine = kind in {"h0", "h1", "hn"}
            if fine and column + 1 < len(kinds) and kinds[column + 1] == kind:
                continue
            if kind != "hn":
                names = f"{text_of(matrix.names[row])}, {text_of(matrix.names[column])}"
                tooltip = "" if fine else f"<title>{names}: {_words(float(cells[column]))}</title>"
                yield (
                    f'<rect class="{kind}" x="{_LEFT + start * cell}" y="{_TOP + row * cell}" '
                    f'width="{(column + 1 - start) * cell}" height="{cell}">{tooltip}</rect>\n'
                )
            start = column + 1
    size = len(matrix.names) * cell
    for row in (row for row in range(len(matrix.names)) if _begins(matrix, row)):
        at = row * cell
        yield f'<path class="edge" d="M{_LEFT} {_TOP + at}h{size}M{_LEFT + at} {_TOP}v{size}"/>\n'


def _kind(part: float) -> str:
    if isnan(part):
        return "hn"
    return (
        "hx" if part <= 0 else f"h{next((index for index, level in enumerate(_LEVELS) if part >= level), len(_LEVELS))}"
    )
