"""A comparison → plots: values of each configuration, and ratios to the baseline with intervals. Pure.

If the instance type is known, plots include the ceiling of the NICs and published figures.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING

from fabbench.analysis.compare import Comparison, ComparisonSection
from fabbench.analysis.headline import headline
from fabbench.analysis.highlights import confidence
from fabbench.model.messages import counted
from fabbench.report.comparison_tables import title_of
from fabbench.report.expectations import expectations_of
from fabbench.report.svg import Plot, PlotLine, PublishedRange

if TYPE_CHECKING:
    from fabbench.analysis.expectations import Expectation

_BEYOND = 4  # Published figures at sizes of more than this times the largest measured size are not drawn


def plots(comparison: Comparison) -> Iterator[Plot]:
    """Yield the plots of all sections in order; none for a section without values."""
    for index in range(len(comparison.sections)):
        yield from section_plots(comparison, index)


def section_plots(comparison: Comparison, index: int, *, ratios: bool = True) -> Iterator[Plot]:
    """Yield the plot of a section's values, and with `ratios` one of its ratios if they have verdicts."""
    section, factor = comparison.sections[index], comparison.sections[index].scale.factor
    title = f": {title_of(section)}" if section.key else ""
    description = headline(comparison, index)
    if values := list(_values(comparison, section)):
        axis = f"{section.metric.name} ({section.scale.unit})"
        expected = [each for each in expectations_of(comparison) if each.key == section.key]
        more = "; shaded: range of repeats" if any(line.band for line in values) else ""
        yield Plot(
            title=f"{section.metric.name} by message size{title}",
            axis=f"{axis}{more}",
            lines=values,
            headline=description,
            ceilings=list(dict.fromkeys(each.ceiling / factor for each in expected if each.ceiling)),
            published=list(_published(expected, values, factor)),
            description=" ".join([f"{description}.", *(f"{each.column}: {each.sentence()}" for each in expected)]),
        )
    if ratios and (tested := list(_ratios(comparison, section))):
        yield Plot(
            title=f"Speed-up over {comparison.base.label}{title}",
            axis=f"{section.metric.name}, ratio; shaded: {confidence(section.level)} interval",
            lines=tested,
            description=description,
            even=True,
        )


def _values(comparison: Comparison, section: ComparisonSection) -> Iterator[PlotLine]:
    factor = section.scale.factor
    for index, column in enumerate(comparison.columns):
        figures = [(row.size, row.figures[index]) for row in section.rows]
        drawn = [(size, figure) for size, figure in figures if figure is not None and figure.value > 0]
        several = any(figure.n > 1 for _, figure in drawn)
        if drawn:
            yield PlotLine(
                label=column.label,
                points=[(size, figure.value / factor) for size, figure in drawn],
                band=tuple((size, figure.low / factor, figure.high / factor) for size, figure in drawn if several),
                kind=index,
            )


def _ratios(comparison: Comparison, section: ComparisonSection) -> Iterator[PlotLine]:
    for index, column in enumerate(comparison.columns[:-1]):
        tested = [(row.size, row.ratios[index], row.tests[index]) for row in section.rows if row.tests]
        known = [(size, ratio, test) for size, ratio, test in tested if ratio and test]
        if not all(test.once for _, _, test in known):
            yield PlotLine(
                label=column.label,
                points=[(size, ratio) for size, ratio, _ in known],
                band=tuple((size, test.low, test.high) for size, _, test in known),
                kind=index,
            )


def _published(expected: Sequence["Expectation"], lines: Sequence[PlotLine], factor: float) -> Iterator[PublishedRange]:
    """Yield the smallest and the largest published figure of each size and line."""
    largest = max(size for line in lines for size, _ in line.points)
    for line, each in product(lines, expected):
        sizes: dict[int, list[float]] = {}
        for figure in each.figures if each.column == line.label else ():
            sizes.setdefault(figure.size or each.size, []).append(figure.value / factor)
        for size, values in sizes.items():
            if size <= largest * _BEYOND:
                yield PublishedRange(size, min(values), max(values), line.kind)


def left_out(comparison: Comparison, index: int) -> list[str]:
    """Describe what the plots of section `index` leave out: a logarithmic axis cannot show values of 0."""
    rows, ratios = comparison.sections[index].rows, list(_ratios(comparison, comparison.sections[index]))
    without = len(rows) - max((len(line.points) for line in ratios), default=len(rows))
    zeros = {
        column.label: sum((figure := row.figures[number]) is not None and figure.value <= 0 for row in rows)
        for number, column in enumerate(comparison.columns)
    }
    of = {f"{counted(count, 'zero value')} of {label}": count for label, count in zeros.items()}
    of[f"{counted(without, 'size')} without a speed-up"] = without
    return [f"{what} not plotted." for what, count in of.items() if count]
