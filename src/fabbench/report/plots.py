"""A comparison → plots: values of each configuration, and ratios to the baseline with intervals. Pure.

If the instance type is known, plots include the ceiling of the NICs and published figures.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fabbench.analysis.compare import Comparison, ComparisonSection
from fabbench.analysis.headline import headline
from fabbench.analysis.highlights import confidence
from fabbench.model.messages import counted
from fabbench.report.comparison_tables import title_of
from fabbench.report.expectations import expectations_of
from fabbench.report.svg import Ceiling, Plot, PlotLine, PublishedRange

if TYPE_CHECKING:
    from fabbench.analysis.expectations import Expectation

_BEYOND = 4  # Published figures at sizes of more than this times the largest measured size are not drawn


def plots(comparison: Comparison) -> Iterator[Plot]:
    """Yield the plots of all sections in order; none for a section without values."""
    for index in range(len(comparison.sections)):
        yield from section_plots(comparison, index)


def section_plots(comparison: Comparison, index: int, *, ratios: bool = True) -> Iterator[Plot]:
    """Yield the plot of a section's values, and with `ratios` one of its ratios if they have verdicts."""
    section = comparison.sections[index]
    title = title_of(section)
    description = headline(comparison, index)
    values = list(_values(comparison, section))
    if values:
        axis = f"{section.metric.name} ({section.scale.unit})"
        expected = [each for each in expectations_of(comparison) if each.key == section.key]
        more = "; shaded: range of repeats" if any(line.band for line in values) else ""
        yield Plot(
            title=_titled(f"{section.metric.name} by message size", title),
            axis=f"{axis}{more}",
            lines=values,
            headline=description,
            ceilings=list(_ceilings(expected, section, values)),
            published=list(_published(expected, section, values)),
            description=" ".join([f"{description}.", *(f"{each.column}: {each.sentence()}" for each in expected)]),
        )
    tested = list(_ratios(comparison, section)) if ratios else []
    if tested:
        yield Plot(
            title=_titled(f"Speed-up over {comparison.base.label}", title),
            axis=f"{section.metric.name}, ratio; shaded: {confidence(section.level)} interval",
            lines=tested,
            description=description,
            even=True,
        )


def _titled(what: str, where: str) -> str:
    return f"{what}: {where}" if where else what


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
        known = [(size, ratio, test) for size, ratio, test in tested if ratio and test and test.low > 0]
        if not all(test.once for _, _, test in known):
            yield PlotLine(
                label=column.label,
                points=[(size, ratio) for size, ratio, _ in known],
                band=tuple((size, test.low, test.high) for size, _, test in known),
                kind=index,
            )


def _ceilings(
    expected: Sequence["Expectation"], section: ComparisonSection, lines: Sequence[PlotLine]
) -> Iterator[Ceiling]:
    """Yield each ceiling once, whether it is that of all lines or of some."""
    kinds = {line.label: line.kind for line in lines}
    labels: dict[float, list[str]] = {}
    for each in expected:
        if each.ceiling and each.column in kinds:
            labels.setdefault(each.ceiling, []).append(each.column)
    for value, names in labels.items():
        yield Ceiling(
            value=value / section.scale.factor, kind=kinds[names[0]] if len(names) == 1 < len(lines) else None
        )


def _published(
    expected: Sequence["Expectation"], section: ComparisonSection, lines: Sequence[PlotLine]
) -> Iterator[PublishedRange]:
    """Yield the smallest and the largest published figure of each size, for each line that has any."""
    kinds = {line.label: line.kind for line in lines}
    largest = max(size for line in lines for size, _ in line.points)
    for each in expected:
        sizes: dict[int, list[float]] = {}
        for figure in each.figures:
            sizes.setdefault(figure.size or each.size, []).append(figure.value)
        for size, values in sizes.items():
            if each.column in kinds and size <= largest * _BEYOND:
                yield PublishedRange(
                    size=size,
                    low=min(values) / section.scale.factor,
                    high=max(values) / section.scale.factor,
                    kind=kinds[each.column],
                )


def left_out(comparison: Comparison, index: int) -> Sequence[str]:
    """Describe what a plot of section `index` leaves out: a logarithmic axis cannot show values of 0."""
    section = comparison.sections[index]
    sentences = []
    for number, column in enumerate(comparison.columns):
        figures = (row.figures[number] for row in section.rows)
        zeros = sum(figure is not None and figure.value <= 0 for figure in figures)
        if zeros:
            sentences.append(f"{counted(zeros, 'zero value')} of {column.label} not plotted: the axis is logarithmic.")
    return sentences
