"""The matrix of a sweep as a heat map: characters, or SVG. A cell is a fraction of the typical figure.

Both can be read without color: digits are tenths, and in SVG a darker cell is worse.
"""

from collections.abc import Iterator
from math import isnan
from typing import TYPE_CHECKING

from fabbench.report.svg import cut, text_of

if TYPE_CHECKING:
    from fabbench.sweep.matrix import Matrix

MAX_ROWS = 40  # in text
MAX_SVG_ROWS = 96
_FINE = 0.9
_LONGEST = 28
_KEY = "· 90% of the typical figure or more; a digit: tenths of it (5: 50 to 59%); x failed; blank: not tested."


def heat_map_text(matrix: "Matrix") -> str:
    """Write a line for each row; columns are in the order of rows."""
    names = [cut(name, _LONGEST) for name in matrix.names]
    width = max(map(len, names), default=0)
    lines = [
        f"{name:<{width}}  {''.join(_sign(float(cell)) for cell in cells)}".rstrip()
        for name, cells in zip(names, matrix.cells, strict=True)
    ]
    several = max(matrix.sizes, default=1)
    shared = (
        f"\nOther nodes share rows, up to {several} in each; a cell is their lower quartile." if several > 1 else ""
    )
    return "\n".join([*lines, "", f"{_KEY}\nColumns are in the order of rows.{shared}"]) + "\n"


def _sign(part: float) -> str:
    if isnan(part):
        return " "
    if part <= 0:
        return "x"
    return "·" if part >= _FINE else str(int(part * 10))


_SMALLEST, _LARGEST, _WIDE = 9, 24, 640
"""Size limits of a cell, and the width that cells may grow to fill, in pixels."""
_LEFT, _TOP, _BOTTOM = 200, 64, 40
_LEVELS = (0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.3, 0.1)
_COLORS = (*("#e6edf2", "#d0dde6", "#fbd9a5", "#f9b95c", "#f08c3a", "#da5f2c", "#b3382a", "#7f1d26"), "#4d0f1f")
_MISSING = "#ffffff"
_FAILED = "#000000"


def heat_map_svg(matrix: "Matrix", headline: str) -> str:
    """Write a file: text that needs no library, no script and no network."""
    rows = len(matrix.names)
    cell = max(_SMALLEST, min(_LARGEST, _WIDE // max(rows, 1)))
    width = max(_LEFT + rows * cell + 20, 680)
    height = _TOP + rows * cell + _BOTTOM
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" font-family="system-ui, sans-serif" font-size="8">\n'
        f"<title>{text_of(headline)}</title>\n"
        f'<rect width="{width}" height="{height}" fill="#fff"/>\n'
        f'<text x="12" y="22" font-size="12">{text_of(headline)}</text>\n'
        f"{''.join(_legend())}{''.join(_labels(matrix, cell))}{''.join(_cells(matrix, cell))}</svg>\n"
    )


def _legend() -> Iterator[str]:
    words = [*(f"≥ {level:.0%}" for level in _LEVELS), "less", "failed", "not tested"]
    colors = [*_COLORS, _FAILED, _MISSING]
    yield '<text x="12" y="43">part of the typical figure</text>\n'
    for index, (word, color) in enumerate(zip(words, colors, strict=True)):
        x = 120 + 46 * index
        yield (
            f'<rect x="{x}" y="36" width="8" height="8" fill="{color}" stroke="#999" stroke-width=".5"/>'
            f'<text x="{x + 11}" y="43">{word}</text>\n'
        )


def _labels(matrix: "Matrix", cell: int) -> Iterator[str]:
    for row, (name, size) in enumerate(zip(matrix.names, matrix.sizes, strict=True)):
        weight = ' font-weight="bold"' if row < matrix.suspects else ""
        more = f" ({size})" if size > 1 else ""
        yield (
            f'<text x="{_LEFT - 6}" y="{_TOP + row * cell + cell // 2 + 3}" text-anchor="end"{weight}>'
            f"{text_of(cut(name, _LONGEST))}{more}</text>\n"
        )


def _cells(matrix: "Matrix", cell: int) -> Iterator[str]:
    """Yield cells; neighbors of one color in a row are one rectangle, unless they have tooltips."""
    for row, cells in enumerate(matrix.cells):
        start = 0
        colors = [_color(float(cell)) for cell in cells]
        for column, color in enumerate(colors):
            fine = color in {*_COLORS[:2], _MISSING}
            if fine and column + 1 < len(colors) and colors[column + 1] == color:
                continue
            if color != _MISSING:
                tooltip = "" if fine else _tooltip(matrix, row, column)
                yield (
                    f'<rect x="{_LEFT + start * cell}" y="{_TOP + row * cell}" '
                    f'width="{(column + 1 - start) * cell}" height="{cell}" fill="{color}">{tooltip}</rect>\n'
                )
            start = column + 1


def _tooltip(matrix: "Matrix", row: int, column: int) -> str:
    part = float(matrix.cells[row, column])
    what = "failed" if part <= 0 else f"{part:.0%}"
    return f"<title>{text_of(matrix.names[row])}, {text_of(matrix.names[column])}: {what}</title>"


def _color(part: float) -> str:
    if isnan(part):
        return _MISSING
    if part <= 0:
        return _FAILED
    return next((color for level, color in zip(_LEVELS, _COLORS, strict=False) if part >= level), _COLORS[-1])
