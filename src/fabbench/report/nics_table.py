"""Traffic of NICs, and totals of rails: tables below a run or comparison, lines beside the live table."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from fabbench.analysis.aggregate import BEHIND, RailFigures, rail_figures, together
from fabbench.counters.findings import amount, amount_scale, balance, rate, rate_scale
from fabbench.counters.snapshot import RX, TX, NicTraffic, Traffic
from fabbench.model.log import Log
from fabbench.model.messages import counted
from fabbench.model.units import RATE_UNITS, Scale, format_decimal, format_size, scale
from fabbench.report.table import Table, cut, grid_pieces

MAX_NICS = 8  # Maximum number of NICs of a host that are shown one by one; more are summarized
COLUMNS = 60  # Width of the live view
_NAMES = COLUMNS - 30  # width of the names in it


def table(hosts: Mapping[str, Traffic], *, title: str = "NICs") -> Table:
    """Lay out what the NICs of each host moved, with a line of balance per host.

    Pass the NICs to show (`traffic.of_fabric`).
    """
    return Table(
        title=title,
        header=("Host", "NIC", "tx", "rx", "tx rate", "rx rate", "Link"),
        rows=[[host, *cells] for host, traffic in hosts.items() for cells in _rows(traffic)],
        align="llrrrrr",
        notes=[f"{host}: {note}" for host, traffic in hosts.items() for note in _notes(traffic)],
    )


def _rows(traffic: Traffic) -> Iterator[Sequence[str]]:
    if len(traffic.nics) > MAX_NICS:
        counts = [_moved(traffic.nics, direction) for direction in (TX, RX)]
        rates = [[value for each in some if (value := traffic.rate(each)) is not None] for some in counts]
        cells = (*(_spread(some, amount_scale) for some in counts), *(_spread(some, rate_scale) for some in rates))
        yield f"{len(traffic.nics)} NICs", *cells, _links(traffic.nics)
        return
    for nic in traffic.nics:
        counted_both = (nic.tx, nic.rx)
        shares = (_rate(nic, traffic.rate(count)) for count in counted_both)
        yield nic.name, *map(amount, counted_both), *shares, _links([nic])


def _rate(nic: NicTraffic, value: float | None) -> str:
    known = value is not None and nic.link_rate
    return rate(value) + (f" ({format_decimal(100 * (value or 0) / (nic.link_rate or 1), 0)} %)" if known else "")


def _moved(nics: Sequence[NicTraffic], direction: str) -> list[int]:
    return [nic.counters[direction] for nic in nics if direction in nic.counters]


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


def _notes(traffic: Traffic) -> Iterator[str]:
    both = [(direction[:2], balance(_moved(traffic.nics, direction))) for direction in (TX, RX)]
    parts = [
        f"{direction} max/mean {format_decimal(found.max_over_mean, 2)}, cv {format_decimal(found.cv, 2)}"
        for direction, found in both
        if found
    ]
    moved = [f"{family} {amount(count)}" for family, count in traffic.families().items() if count]
    if parts := [*parts, *([f"EFA {', '.join(moved)}"] if moved else [])]:
        yield f"{'; '.join(parts)}."
    yield from (f"the traffic of {nic.name} is unknown: {nic.unreadable}" for nic in traffic.nics if nic.unreadable)


# ---------------------------------------------------------------- live


def live(hosts: Mapping[str, Traffic], *, max_lines: int = 16) -> list[str]:
    """Format the current traffic, from each host's last two snapshots.

    There are at most `max_lines` lines of 60 columns. NICs are listed one by one if those of all hosts fit,
    else there is one line per host; if there are more hosts than lines, only the first are listed.
    """
    sums = [_sum(traffic, traffic.nics, direction) or 0.0 for traffic in hosts.values() for direction in (TX, RX)]
    unit = scale("B/s", max(sums, default=0.0))
    rows = list[Sequence[str]]()
    for host, traffic in hosts.items():
        each = [_line(f"  {nic.name}", traffic, [nic], unit) for nic in traffic.nics]
        rows += (
            [(cut(host, _NAMES), "", "", ""), *each] if 1 < len(each) <= MAX_NICS else [_together(host, traffic, unit)]
        )
    if len(rows) >= max_lines:
        rows = [_together(host, traffic, unit) for host, traffic in hosts.items()]
    room = max(1, max_lines - 1)
    more = [[f"and {len(rows) - room + 1} more hosts", "", "", ""]] if len(rows) > room else []
    header = (" " * _NAMES, f"tx {unit.unit}", f"rx {unit.unit}", "of link")
    content = Table(header=header, rows=[*rows[: room - len(more)], *more], align="lrrr", ruled=False)
    return "".join(grid_pieces(content)).splitlines() if rows else []


def _together(host: str, traffic: Traffic, unit: Scale) -> Sequence[str]:
    """Return one line of a host, which is cut if it does not fit beside what it has."""
    nics = traffic.nics
    what = nics[0].name if len(nics) == 1 else counted(len(nics), "NIC")
    return _line(f"{cut(host, max(8, _NAMES - len(what) - 1))} {what}", traffic, nics, unit)


def _line(name: str, traffic: Traffic, nics: Sequence[NicTraffic], unit: Scale) -> Sequence[str]:
    """Format the total of some NICs; the share of the link is that of the busier direction."""
    both = [_sum(traffic, nics, direction) for direction in (TX, RX)]
    links = [nic.link_rate for nic in nics if nic.link_rate]
    known = nics and len(links) == len(nics) and any(each is not None for each in both)
    part = f"{format_decimal(100 * max(each or 0.0 for each in both) / sum(links), 0)} %" if known else ""
    # Fixed decimals: numbers are aligned, and change while they are watched.
    shown = ("-" if each is None else f"{each / unit.factor:.2f}" for each in both)
    return name[:_NAMES], *shown, part


def _sum(traffic: Traffic, nics: Sequence[NicTraffic], direction: str) -> float | None:
    counts = _moved(nics, direction)
    return traffic.rate(sum(counts)) if counts else None


# ---------------------------------------------------------------- rails


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
    unit = scale(found[0].metric.unit, max(value for spread in found for value in spread.figures.values()))
    rows = []
    for each in found:
        values = each.figures.values()
        texts = [
            "-" if value is None else unit.text(value) for value in (each.mean, each.total, min(values), max(values))
        ]
        slowest = f"{each.slowest} ({unit.text(each.figures[each.slowest])})"
        rows.append([format_size(each.size), str(len(values)), *texts, slowest])
    return Table(
        title=f"Rails of {label}: {metric}",
        header=(
            "Message Size",
            "Rails",
            *(f"{name} ({unit.unit})" for name in ("Mean", "Sum", "Min", "Max")),
            "Slowest",
        ),
        rows=rows,
        align="lrrrrrl",
        notes=list(_rail_notes(found, unit, at_once=together(logs))),
    )


def _rail_notes(found: Sequence[RailFigures], unit: Scale, *, at_once: bool) -> Iterator[str]:
    if found[0].total is not None:
        yield (
            "The NICs were measured concurrently: the sum is what they moved, as far as their programs overlapped."
            if at_once
            else "The NICs were measured one after another: the sum is what they would move if they shared nothing."
        )
    for spread in found:
        for device, part in spread.behind().items():
            worse, marked = (f"{format_decimal(100 * each, 0)} %" for each in (part, BEHIND))
            yield (
                f"{device} stands out at {format_size(spread.size)}: {unit.quantity(spread.figures[device])}, {worse} "
                f"worse than the mean of {unit.quantity(spread.mean)} (more than {marked} is marked)."
            )
