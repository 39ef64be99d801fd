"""What a plot shows, and where its axes begin and end; `svg` draws it. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, log2, log10

from fabbench.model.units import format_decimal, format_size

_MAX_TICKS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotLine:
    """One line."""

    label: str
    points: Sequence[tuple[int, float]]
    """Size and value, which is more than 0, in the unit of the axis."""
    band: Sequence[tuple[int, float, float]] = ()
    """Size, lower and upper bound."""
    kind: int = 0
    """Selects the color, dashes and marker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """A level that no value of some lines can exceed."""

    label: str
    value: float
    kind: int | None = None
    """The line that it is for; None: all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRange:
    """What others measured at one size, for one line."""

    label: str
    size: int
    low: float
    high: float
    kind: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Values by message size."""

    title: str
    axis: str
    """What the values are, with their unit."""
    lines: Sequence[PlotLine]
    ceilings: Sequence[Ceiling] = ()
    published: Sequence[PublishedRange] = ()
    description: str = ""
    """Sentences for readers who cannot see it."""
    even: bool = False
    """Whether there is a line at 1."""

    @property
    def legend(self) -> Sequence["PlotLine | Ceiling | PublishedRange"]:
        """The entries that have a label, in order."""
        return [*self.lines, *self.ceilings, *self.published]


@dataclass(frozen=True, slots=True)
class Axes:
    """Both axes, which are logarithmic: sizes to the base 2, values to the base 10."""

    low_size: float
    high_size: float
    low: float
    high: float

    def across(self, size: float) -> float:
        """Return the position of a size, from 0 to 1."""
        return (log2(size) - self.low_size) / (self.high_size - self.low_size)

    def up(self, value: float) -> float:
        """Return the position of a value, from 0 to 1; a value outside is at the edge."""
        part = (log10(value) - self.low) / (self.high - self.low)
        return min(max(part, 0.0), 1.0)

    def values(self) -> Iterator[tuple[float, str]]:
        """Yield powers of ten with labels; if they are few, also 2 and 5 times these, or finer steps."""
        for steps in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8)):
            powers = range(floor(self.low), ceil(self.high) + 1)
            ticks = [step * 10.0**power for power in powers for step in steps]
            within = [value for value in ticks if self.low <= log10(value) <= self.high]
            if len(within) > 2 or steps[-1] == 8:
                yield from ((value, _number(value)) for value in within[:: 1 + (len(within) - 1) // 8])
                return

    def sizes(self) -> Iterator[tuple[int, str]]:
        """Yield powers of two with labels."""
        first, last = ceil(self.low_size), floor(self.high_size)
        step = 1 + (last - first) // _MAX_TICKS
        yield from ((1 << power, format_size(1 << power)) for power in range(first, last + 1, step))


def axes(plot: Plot) -> Axes:
    """Return axes that fit everything in a plot."""
    sizes = [size for line in plot.lines for size, _ in line.points]
    sizes += [each.size for each in plot.published]
    values = [value for line in plot.lines for _, value in line.points]
    values += [bound for line in plot.lines for _, *bounds in line.band for bound in bounds]
    values += [each.value for each in plot.ceilings]
    values += [bound for each in plot.published for bound in (each.low, each.high)]
    values += [1.0] if plot.even else []
    low, high = log10(min(values, default=1.0)), log10(max(values, default=10.0))
    if high - low < 0.3:
        low, high = low - 0.15, high + 0.15
    room = 0.04 * (high - low)
    first, last = log2(min(sizes, default=1)), log2(max(sizes, default=1))
    if first == last:
        first, last = first - 1, last + 1
    return Axes(first, last, low - room, high + room)


def _number(value: float) -> str:
    for least, unit in ((1e6, "M"), (1e4, "k")):
        if value >= least:
            return f"{value / (least if unit == 'M' else 1e3):g}{unit}"
    return format_decimal(value, max(0, 2 - floor(log10(value)))) if value < 10 else f"{value:.0f}"
