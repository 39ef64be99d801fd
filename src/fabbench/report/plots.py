"""A comparison → plots: values of each configuration, and ratios to the baseline with intervals. Pure."""

from collections.abc import Iterator, Sequence

from fabbench.analysis.compare import Comparison, ComparisonSection
from fabbench.analysis.headline import headline
from fabbench.analysis.highlights import confidence
from fabbench.model.messages import counted
from fabbench.report.svg import Plot, PlotLine


def plots(comparison: Comparison) -> Iterator[Plot]:
    """Yield the plots of all sections in order; a section without values has none."""
    for index in range(len(comparison.sections)):
        yield from section_plots(comparison, index)


def section_plots(comparison: Comparison, index: int, *, ratios: bool = True) -> Iterator[Plot]:
    """Yield the plot of a section's values, and where there are verdicts one of its `ratios`."""
    section = comparison.sections[index]
    title = ", ".join(f"{name} {value or 'unknown'}" for name, value in section.key.items())
    about = headline(comparison, index)
    values = list(_values(comparison, section))
    if values:
        axis = f"{section.metric.name} ({section.scale.unit})"
        more = "; shaded: range of repeats" if any(line.band for line in values) else ""
        yield Plot(
            title=_titled(f"{section.metric.name} by message size", title),
            axis=f"{axis}{more}",
            lines=values,
            about=about,
        )
    tested = list(_ratios(comparison, section)) if ratios else []
    if tested:
        yield Plot(
            title=_titled(f"Times better than {comparison.base.label}", title),
            axis=f"{section.metric.name}, ratio; shaded: {confidence(section.level)} interval",
            lines=tested,
            about=about,
            even=True,
        )


def _titled(what: str, where: str) -> str:
    return f"{what}: {where}" if where else what


def _values(comparison: Comparison, section: ComparisonSection) -> Iterator[PlotLine]:
    factor = section.scale.factor
    for index, column in enumerate(comparison.columns):
        found = [(row.size, row.figures[index]) for row in section.rows]
        drawn = [(size, figure) for size, figure in found if figure is not None and figure.low > 0]
        several = any(figure.n > 1 for _, figure in drawn)
        if drawn:
            yield PlotLine(
                label=column.label,
                points=[(size, figure.value / factor) for size, figure in drawn],
                band=tuple(
                    (size, figure.low / factor, figure.high / factor) for size, figure in drawn if several
                ),
                kind=index,
            )


def _ratios(comparison: Comparison, section: ComparisonSection) -> Iterator[PlotLine]:
    for index, column in enumerate(comparison.columns[:-1]):
        tested = [(row.size, row.ratios[index], row.tests[index]) for row in section.rows if row.tests]
        known = [(size, ratio, test) for size, ratio, test in tested if ratio and test and test.low > 0]
        if known:
            yield PlotLine(
                label=column.label,
                points=[(size, ratio) for size, ratio, _ in known],
                band=tuple((size, test.low, test.high) for size, _, test in known),
                kind=index,
            )


def left_out(comparison: Comparison, index: int) -> Sequence[str]:
    """Say what a plot of section `index` cannot show: values of 0 have no place on a logarithmic axis."""
    section = comparison.sections[index]
    found = []
    for number, column in enumerate(comparison.columns):
        figures = (row.figures[number] for row in section.rows)
        zeros = sum(figure is not None and figure.low <= 0 for figure in figures)
        if zeros:
            found.append(f"{column.label} has {counted(zeros, 'value')} of 0, which the plot leaves out.")
    return found
