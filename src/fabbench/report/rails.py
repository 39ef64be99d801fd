"""What several rails come to: a table for under a comparison."""

from collections.abc import Iterator, Mapping, Sequence

from fabbench.model import Log
from fabbench.rails import BEHIND, Spread, spreads, together
from fabbench.report.table import Table
from fabbench.units import Scale, format_decimal, format_size, scale


def tables(columns: Mapping[str, Sequence[Log]], metrics: Sequence[str]) -> list[Table]:
    """Lay out mean and sum of the rails of each arm that has several, by each metric."""
    found = (table(label, logs, metric) for metric in metrics for label, logs in columns.items())
    return [each for each in found if each is not None]


def records(columns: Mapping[str, Sequence[Log]], metrics: Sequence[str]) -> list[dict[str, object]]:
    """Give the same as plain data, in base units: one record for each arm and size."""
    return [
        {
            "column": label,
            "size": spread.size,
            "metric": metric,
            "together": together(logs),
            "mean": spread.mean,
            "sum": spread.total,
            "slowest": spread.slowest,
            "devices": dict(spread.figures),
        }
        for metric in metrics
        for label, logs in columns.items()
        for spread in spreads(logs, metric)
    ]


def table(label: str, logs: Sequence[Log], metric: str) -> Table | None:
    """Lay out mean and sum of an arm's rails, size by size; None where there are not several."""
    found = spreads(logs, metric)
    if not found:
        return None
    unit = found[0].metric.unit
    written = scale(unit, max(value for spread in found for value in spread.figures.values()))
    names = ("Mean", "Sum", "Min", "Max")
    return Table(
        title=f"Rails of {label}: {metric}",
        header=("Message Size", "Rails", *(f"{name} ({written.unit})" for name in names), "Slowest"),
        rows=[_row(spread, written) for spread in found],
        align="lrrrrrl",
        notes=list(_notes(found, written, at_once=together(logs))),
    )


def _row(spread: Spread, written: Scale) -> list[str]:
    values = spread.figures.values()
    total = "-" if spread.total is None else written.text(spread.total)
    return [
        format_size(spread.size),
        str(len(values)),
        written.text(spread.mean),
        total,
        written.text(min(values)),
        written.text(max(values)),
        f"{spread.slowest} ({written.text(spread.figures[spread.slowest])})",
    ]


def _notes(found: Sequence[Spread], written: Scale, *, at_once: bool) -> Iterator[str]:
    if found[0].total is not None:
        yield (
            "The rails were measured at the same time: the sum is what they moved together, as far as their "
            "programs overlapped."
            if at_once
            else "The rails were measured one after another: the sum is what they would move together if "
            "they shared nothing."
        )
    for spread in found:
        for device, part in spread.behind().items():
            value, mean = written.quantity(spread.figures[device]), written.quantity(spread.mean)
            worse, marked = (f"{format_decimal(100 * each, 0)} %" for each in (part, BEHIND))
            yield (
                f"{device} stands out at {format_size(spread.size)}: {value}, {worse} worse than the mean "
                f"of {mean} (more than {marked} is marked)."
            )
