"""Plots as a PNG image, by Matplotlib: it needs no display, and brings its own fonts.

It draws the same as `svg`, in the light colors of plot.css. The file's metadata describes the plots as text.
"""

import io
import re
import warnings
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fabbench.model.errors import RequestError
from fabbench.model.messages import one_line
from fabbench.report.plot import Axes, Ceiling, Plot, PlotLine, PublishedRange, axes
from fabbench.report.svg import KINDS, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Drawing

MAX_PLOTS = 60
"""Maximum number of plots in one image; few programs open larger ones."""
_MARKERS = "os^DvP"
_INCHES, _HIGH, _DPI = 8, 5.2, 160
_ENTRY = 0.21
"""Height of a line of the legend, in inches."""
_LONGEST = 90


def require_library() -> None:
    """Raise RequestError where Matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        raise RequestError(
            "--format png needs Matplotlib, which is not installed.",
            hint="Install fabbench[png], or use --format svg.",
        )


def to_png(plots: Sequence[Plot]) -> bytes:
    """Draw plots one below the other. Raise RequestError for too many, and where Matplotlib is missing."""
    require_library()
    if len(plots) > MAX_PLOTS:
        raise RequestError(
            f"{len(plots)} plots are too many for one picture: at most {MAX_PLOTS}.",
            hint="Use --format svg, or compare fewer devices.",
        )
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # Ignore any matplotlibrc; a character that no font has is drawn as a box.
    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        heights = [_HIGH + _ENTRY * max(0, len(plot.legend) - 3) for plot in plots] or [1.0]
        figure = Figure(figsize=(_INCHES, sum(heights)), dpi=_DPI, layout="constrained")
        FigureCanvasAgg(figure)
        if not plots:
            figure.text(0.02, 0.5, "No value can be drawn.")
        else:
            grid = figure.subplots(len(plots), squeeze=False, height_ratios=heights)
            for plot, (drawing,) in zip(plots, grid, strict=True):
                _draw(plot, drawing)
        file = io.BytesIO()
        description = " ".join(f"{plot.title}. {plot.description}" for plot in plots)
        metadata = {"Software": None, "Description": one_line(description)}
        figure.savefig(file, format="png", metadata=metadata)
        return file.getvalue()


def _draw(plot: Plot, drawing: "Drawing") -> None:
    scales, colors = axes(plot), _colors()
    _prepare(plot, drawing, scales)
    marks: list[Any] = []
    for entry in plot.legend:
        color = colors["text"] if entry.kind is None else colors[f"line{entry.kind % KINDS}"]
        marks.append(_entry(entry, drawing, color))
    legend = drawing.legend(
        marks, ["label"] * len(marks), loc="upper left", bbox_to_anchor=(0, -0.09), frameon=False
    )
    for text, entry in zip(legend.get_texts(), plot.legend, strict=True):
        _write(text, entry.label)


def _prepare(plot: Plot, drawing: "Drawing", scales: Axes) -> None:
    """Draw the same axes as in the SVG."""
    colors = _colors()
    drawing.set_xscale("log", base=2)
    drawing.set_yscale("log")
    room = 0.015 * (scales.high_size - scales.low_size)  # for half a mark
    drawing.set_xlim(2 ** (scales.low_size - room), 2 ** (scales.high_size + room))
    drawing.set_ylim(10**scales.low, 10**scales.high)
    sizes, values = list(scales.sizes()), list(scales.values())
    drawing.set_xticks([size for size, _ in sizes], [label for _, label in sizes])
    drawing.set_yticks([value for value, _ in values], [label for _, label in values])
    drawing.minorticks_off()
    drawing.tick_params(length=0, labelcolor=colors["faint"])
    drawing.grid(visible=True, axis="y", color=colors["grid"])
    drawing.set_axisbelow(True)
    drawing.spines[:].set_visible(False)
    _write(drawing.set_title("", loc="left", fontweight="bold"), plot.title)
    _write(drawing.set_ylabel("", color=colors["faint"]), plot.axis)
    if plot.even:
        drawing.axhline(1, color=colors["faint"], linestyle="--", linewidth=1)


def _entry(entry: PlotLine | Ceiling | PublishedRange, drawing: "Drawing", color: str) -> Any:
    """Draw a line, a ceiling or a range; return its mark for the legend."""
    if isinstance(entry, Ceiling):
        return drawing.axhline(entry.value, color=color, linestyle=(0, (1, 2)), linewidth=2)
    if isinstance(entry, PublishedRange):
        bounds = [[0.0], [entry.high - entry.low]]
        style: dict[str, Any] = {"fmt": "none", "color": color, "linewidth": 2, "capthick": 2}
        return drawing.errorbar([entry.size], [entry.low], yerr=bounds, capsize=6, **style)
    if entry.band:
        sizes, low, high = zip(*entry.band, strict=True)
        drawing.fill_between(sizes, low, high, color=color, alpha=0.18, linewidth=0)
    kind = entry.kind % KINDS
    sizes, values = zip(*entry.points, strict=True)
    dashes = _dashes(kind)
    (mark,) = drawing.plot(
        sizes,
        values,
        color=color,
        marker=_MARKERS[kind],
        markersize=4,
        linestyle=(0, dashes) if dashes else "-",
    )
    return mark


def _write(text: Any, words: str) -> None:
    """Set text literally: `$` does not begin a formula."""
    line = one_line(words)
    text.set_parse_math(False)
    text.set_text(line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…")


@cache
def _colors() -> dict[str, str]:
    """Return the colors of a light page by name."""
    root = re.search(r":root\{([^}]*)\}", style())
    return dict(re.findall(r"--(\w+):(#\w+)", root[1])) if root else {}


@cache
def _dashes(kind: int) -> tuple[float, ...]:
    """Return the dashes of a line in units of its width, which is 2 in plot.css; empty: it is solid."""
    found = re.search(rf"\.k{kind}\{{[^}}]*stroke-dasharray:([\d ]+)", style())
    return tuple(float(part) / 2 for part in found[1].split()) if found else ()
