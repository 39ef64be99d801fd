"""Traffic of NICs, and totals of rails: tables below a run or comparison, lines beside the live table."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from fabbench.analysis.aggregate import BEHIND, RailFigures, rail_figures, together
from fabbench.counters.findings import amount, amount_scale, balance, rate, rate_scale
from fabbench.counters.snapshot import RX, TX, NicTraffic, Traffic
from fabbench.model.log import Log
from fabbench.model.messages import counted
from fabbench.model.units import RATE_UNITS, Scale, format_decimal, format_size, scale
from fabbench.report.table import Table

MAX_NICS = 8
"""Maximum number of NICs of a host that are shown one by one; more are summarized."""
COLUMNS = 60
"""Width of the live view."""
_NAMES = COLUMNS - 31
"""Width of the names in it."""


def table(hosts: Mapping[str, Traffic], *, title: str = "NICs") -> Table:
    """Lay out what the NICs of each host moved, with a line of balance per host.

    Pass the NICs to show (`traffic.of_fabric`).
    """
    rows = [row for host, traffic in hosts.items() for row in _rows(host, traffic)]
    return Table(
        title=title,
        header=("Host", "NIC", "tx", "rx", "tx rate", "rx rate", "Link"),
        rows=rows,
        align="llrrrrr",
        notes=[note for host, traffic in hosts.items() for note in _notes(host, traffic)],
    )


def _rows(host: str, traffic: Traffic) -> Iterator[list[str]]:
    if len(traffic.nics) > MAX_NICS:
        counts = [_moved(traffic.nics, direction) for direction in (TX, RX)]
        rates = [[value for each in some if (value := traffic.rate(each)) is not None] for some in counts]
        cells = (*(_spread(some, amount_scale) for some in counts), *(_spread(some, rate_scale) for some in rates))
        yield [host, f"{len(traffic.nics)} NICs", *cells, _links(traffic.nics)]
        return
    for nic in traffic.nics:
        shares = [_rate(nic, traffic, count) for count in (nic.tx, nic.rx)]
        yield [host, nic.name, amount(nic.tx), amount(nic.rx), *shares, _links([nic])]


def _rate(nic: NicTraffic, traffic: Traffic, count: int | None) -> str:
    value = traffic.rate(count)
    part = f" ({format_decimal(100 * value / nic.link_rate, 0)} %)" if value is not None and nic.link_rate else ""
    return f"{rate(value)}{part}"


def _moved(nics: Sequence[NicTraffic], direction: str) -> list[int]:
    return [nic.moved[direction] for nic in nics if direction in nic.moved]


def _spread(values: Sequence[float], scale_for: Callable[[float], Scale]) -> str:
    """Format the mean and the standard deviation: ``"12.1 ± 0.1 GB"``; ``-`` without any value."""
    if not values:
        return "-"
    unit_scale, found = scale_for(max(values)), balance(values)
    mean, deviation = (found.mean, found.cv * found.mean) if found else (0.0, 0.0)
    return f"{unit_scale.text(mean)} ± {unit_scale.text(deviation)} {unit_scale.unit}"


def _links(nics: Iterable[NicTraffic]) -> str:
    """Format the speed of links in bits, as they are sold; ``-`` if they differ or are unknown."""
    rates = {nic.link_rate for nic in nics}
    [link] = rates if len(rates) == 1 else [None]
    return "-" if link is None else Scale("Gb/s", RATE_UNITS["Gb/s"]).quantity(link)


def _notes(host: str, traffic: Traffic) -> Iterator[str]:
    both = [(direction[:2], balance(_moved(traffic.nics, direction))) for direction in (TX, RX)]
    parts = [
        f"{direction} max/mean {format_decimal(found.max_over_mean, 2)}, cv {format_decimal(found.cv, 2)}"
        for direction, found in both
        if found
    ]
    moved = [f"{family} {amount(count)}" for family, count in traffic.families().items() if count]
    parts += [f"EFA {', '.join(moved)}"] if moved else []
    if parts:
        yield f"{host}: {'; '.join(parts)}."
    for nic in traffic.nics:
        if nic.unreadable:
            yield f"{host}: the traffic of {nic.name} is unknown: {nic.unreadable}"


# ---------------------------------------------------------------- live


def live(hosts: Mapping[str, Traffic], *, max_lines: int = 16) -> list[str]:
    """Format the current traffic, from each host's last two snapshots.

    There are at most `max_lines` lines of 60 columns. NICs are listed one by one if those of all hosts fit,
    else there is one line per host; if there are more hosts than lines, only the first are listed.
    """
    sums = [_sum(traffic, traffic.nics, direction) or 0.0 for traffic in hosts.values() for direction in (TX, RX)]
    unit_scale = scale("B/s", max(sums, default=0.0))
    blocks = [_block(host, traffic, unit_scale) for host, traffic in hosts.items()]
    if 1 + sum(len(block) for block in blocks) > max_lines:
        blocks = [[_together(host, traffic, unit_scale)] for host, traffic in hosts.items()]
    lines = [line for block in blocks for line in block]
    room = max(1, max_lines - 1)
    if len(lines) > room:
        lines = [*lines[: room - 1], f"and {len(lines) - room + 1} more hosts"]
    return [_columns("", f"tx {unit_scale.unit}", f"rx {unit_scale.unit}", "of link"), *lines] if lines else []


def _block(host: str, traffic: Traffic, unit_scale: Scale) -> list[str]:
    if len(traffic.nics) > MAX_NICS:
        return [_together(host, traffic, unit_scale)]
    if len(traffic.nics) == 1:
        return [_line(_beside(host, traffic.nics[0].name), traffic, traffic.nics, unit_scale)]
    return [_cut(host, 2 * _NAMES), *(_line(f"  {nic.name}", traffic, [nic], unit_scale) for nic in traffic.nics)]


def _together(host: str, traffic: Traffic, unit_scale: Scale) -> str:
    return _line(_beside(host, counted(len(traffic.nics), "NIC")), traffic, traffic.nics, unit_scale)


def _line(name: str, traffic: Traffic, nics: Sequence[NicTraffic], unit_scale: Scale) -> str:
    """Format the total of some NICs; the share of the link is that of the busier direction."""
    tx, rx = (_sum(traffic, nics, direction) for direction in (TX, RX))
    links = [nic.link_rate for nic in nics if nic.link_rate]
    busier = max(tx or 0.0, rx or 0.0)
    known = nics and len(links) == len(nics) and (tx, rx) != (None, None)
    part = f"{format_decimal(100 * busier / sum(links), 0)} %" if known else ""
    return _columns(name, _fixed(tx, unit_scale), _fixed(rx, unit_scale), part)


def _sum(traffic: Traffic, nics: Sequence[NicTraffic], direction: str) -> float | None:
    counts = _moved(nics, direction)
    return traffic.rate(sum(counts)) if counts else None


def _fixed(value: float | None, unit_scale: Scale) -> str:
    """Format with fixed decimals: numbers are aligned, and change while they are watched."""
    return "-" if value is None else f"{value / unit_scale.factor:.2f}"


def _columns(name: str, tx: str, rx: str, link: str) -> str:
    return f"{_cut(name, _NAMES):<{_NAMES}} {tx:>10} {rx:>10} {link:>8}".rstrip()


def _beside(host: str, what: str) -> str:
    """Return the host and `what` side by side; the host is cut if both do not fit."""
    return f"{_cut(host, max(8, _NAMES - len(what) - 1))} {what}"


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 1]}…"


def rail_tables(columns: Mapping[str, Sequence[Log]], metrics: Sequence[str]) -> list[Table]:
    """Lay out mean and sum of the rails of each configuration that has several, for each metric."""
    tables = (rail_table(label, logs, metric) for metric in metrics for label, logs in columns.items())
    return [each for each in tables if each is not None]


def rail_records(columns: Mapping[str, Sequence[Log]], metrics: Sequence[str]) -> list[dict[str, object]]:
    """Return the same as plain data, in base units: one record for each configuration and size."""
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
        for spread in rail_figures(logs, metric)
    ]


def rail_table(label: str, logs: Sequence[Log], metric: str) -> Table | None:
    """Lay out mean and sum of a configuration's rails, size by size; None if it has only one."""
    found = rail_figures(logs, metric)
    if not found:
        return None
    unit = found[0].metric.unit
    unit_scale = scale(unit, max(value for spread in found for value in spread.figures.values()))
    names = ("Mean", "Sum", "Min", "Max")
    return Table(
        title=f"Rails of {label}: {metric}",
        header=("Message Size", "Rails", *(f"{name} ({unit_scale.unit})" for name in names), "Slowest"),
        rows=[_row(spread, unit_scale) for spread in found],
        align="lrrrrrl",
        notes=list(_rail_notes(found, unit_scale, at_once=together(logs))),
    )


def _row(spread: RailFigures, unit_scale: Scale) -> list[str]:
    values = spread.figures.values()
    figures = (spread.mean, spread.total, min(values), max(values))
    texts = ("-" if figure is None else unit_scale.text(figure) for figure in figures)
    slowest = f"{spread.slowest} ({unit_scale.text(spread.figures[spread.slowest])})"
    return [format_size(spread.size), str(len(values)), *texts, slowest]


def _rail_notes(found: Sequence[RailFigures], unit_scale: Scale, *, at_once: bool) -> Iterator[str]:
    if found[0].total is not None:
        yield (
            "The NICs were measured concurrently: the sum is what they moved together, as far as "
            "their programs overlapped."
            if at_once
            else "The NICs were measured one after another: the sum is what they would move together if "
            "they shared nothing."
        )
    for spread in found:
        for device, part in spread.behind().items():
            value, mean = unit_scale.quantity(spread.figures[device]), unit_scale.quantity(spread.mean)
            worse, marked = (f"{format_decimal(100 * each, 0)} %" for each in (part, BEHIND))
            yield (
                f"{device} stands out at {format_size(spread.size)}: {value}, {worse} worse than the mean "
                f"of {mean} (more than {marked} is marked)."
            )
