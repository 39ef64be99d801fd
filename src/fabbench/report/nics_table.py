"""What NICs moved, and what rails come to: tables under a run or comparison, lines beside the live table."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from fabbench.analysis.aggregate import BEHIND, RailFigures, rail_figures, together
from fabbench.counters.findings import amount, amount_scale, balance, rate, rate_scale
from fabbench.counters.snapshot import RX, TX, NicTraffic, Traffic
from fabbench.model.log import Log
from fabbench.model.messages import counted
from fabbench.model.units import RATE_UNITS, Scale, format_decimal, format_size, scale
from fabbench.report.table import Table

MOST_NICS = 8
"""NICs of one host that are shown one by one; of more than that only what they moved together."""
COLUMNS = 60
"""How wide the live view is."""
_NAMES = COLUMNS - 31
"""Columns for names in it."""


def table(hosts: Mapping[str, Traffic], *, title: str = "NICs") -> Table:
    """Lay out what the NICs of each host moved, with a line of balance per host.

    Give it the NICs to be shown (`traffic.of_fabric`).
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
    if len(traffic.nics) > MOST_NICS:
        counts = [_amounts(traffic.nics, way) for way in (TX, RX)]
        rates = [_rates(traffic, way) for way in (TX, RX)]
        yield [host, f"{len(traffic.nics)} NICs", *counts, *rates, _links(traffic.nics)]
        return
    for nic in traffic.nics:
        rates = [_rate(nic, traffic, count) for count in (nic.tx, nic.rx)]
        yield [host, nic.name, amount(nic.tx), amount(nic.rx), *rates, _links([nic])]


def _rate(nic: NicTraffic, traffic: Traffic, count: int | None) -> str:
    """Write a rate, with its part of what the link can do."""
    value = traffic.rate(count)
    part = (
        f" ({format_decimal(100 * value / nic.link_rate, 0)} %)"
        if value is not None and nic.link_rate
        else ""
    )
    return f"{rate(value)}{part}"


def _amounts(nics: Sequence[NicTraffic], way: str) -> str:
    """Write what each of many NICs moved one way."""
    counts = [nic.moved[way] for nic in nics if way in nic.moved]
    return _spread(counts, amount_scale(max(counts))) if counts else "-"


def _rates(traffic: Traffic, way: str) -> str:
    counts = [traffic.rate(nic.moved[way]) for nic in traffic.nics if way in nic.moved]
    known = [value for value in counts if value is not None]
    return _spread(known, rate_scale(max(known))) if known else "-"


def _spread(values: Sequence[float], written: Scale) -> str:
    """Write the mean and the standard deviation: ``"12.1 ± 0.1 GB"``."""
    found = balance(values)
    mean, deviation = (found.mean, found.cv * found.mean) if found else (0.0, 0.0)
    return f"{written.text(mean)} ± {written.text(deviation)} {written.unit}"


def _links(nics: Iterable[NicTraffic]) -> str:
    """Write the speed of a link in bits, as it is sold; nothing where links differ or do not tell."""
    rates = {nic.link_rate for nic in nics}
    [link] = rates if len(rates) == 1 else [None]
    return "-" if link is None else Scale("Gb/s", RATE_UNITS["Gb/s"]).quantity(link)


def _notes(host: str, traffic: Traffic) -> Iterator[str]:
    both = [
        (way[:2], balance([nic.moved[way] for nic in traffic.nics if way in nic.moved])) for way in (TX, RX)
    ]
    parts = [
        f"{way} max/mean {format_decimal(found.max_over_mean, 2)}, cv {format_decimal(found.cv, 2)}"
        for way, found in both
        if found
    ]
    moved = [f"{family} {amount(count)}" for family, count in traffic.families().items() if count]
    parts += [f"EFA {', '.join(moved)}"] if moved else []
    if parts:
        yield f"{host}: {'; '.join(parts)}."
    for nic in traffic.nics:
        if nic.unreadable:
            yield f"{host}: {nic.name} cannot be told: {nic.unreadable}"


# ---------------------------------------------------------------- live


def live(hosts: Mapping[str, Traffic], *, most: int = 16) -> list[str]:
    """Write what moves now in at most `most` lines of 60 columns, from the last two snapshots of each host.

    NICs one by one where there is room for those of all hosts, else one line per host; of more hosts
    than lines the first.
    """
    sums = [_sum(traffic, traffic.nics, way) or 0.0 for traffic in hosts.values() for way in (TX, RX)]
    written = scale("B/s", max(sums, default=0.0))
    blocks = [_block(host, traffic, written) for host, traffic in hosts.items()]
    if 1 + sum(len(block) for block in blocks) > most:
        blocks = [[_together(host, traffic, written)] for host, traffic in hosts.items()]
    lines = [line for block in blocks for line in block]
    room = max(1, most - 1)
    if len(lines) > room:
        lines = [*lines[: room - 1], f"and {len(lines) - room + 1} more hosts"]
    return [_columns("", f"tx {written.unit}", f"rx {written.unit}", "of link"), *lines] if lines else []


def _block(host: str, traffic: Traffic, written: Scale) -> list[str]:
    if len(traffic.nics) > MOST_NICS:
        return [_together(host, traffic, written)]
    if len(traffic.nics) == 1:
        return [_line(_beside(host, traffic.nics[0].name), traffic, traffic.nics, written)]
    return [
        _cut(host, 2 * _NAMES),
        *(_line(f"  {nic.name}", traffic, [nic], written) for nic in traffic.nics),
    ]


def _together(host: str, traffic: Traffic, written: Scale) -> str:
    number = counted(len(traffic.nics), "NIC")
    return _line(_beside(host, number), traffic, traffic.nics, written)


def _line(name: str, traffic: Traffic, nics: Sequence[NicTraffic], written: Scale) -> str:
    """Write what some NICs move together; of the link is the busier way."""
    tx, rx = (_sum(traffic, nics, way) for way in (TX, RX))
    links = [nic.link_rate for nic in nics if nic.link_rate]
    busier = max(tx or 0.0, rx or 0.0)
    told = nics and len(links) == len(nics) and (tx, rx) != (None, None)
    part = f"{format_decimal(100 * busier / sum(links), 0)} %" if told else ""
    return _columns(name, _fixed(tx, written), _fixed(rx, written), part)


def _sum(traffic: Traffic, nics: Sequence[NicTraffic], way: str) -> float | None:
    counts = [nic.moved[way] for nic in nics if way in nic.moved]
    return traffic.rate(sum(counts)) if counts else None


def _fixed(value: float | None, written: Scale) -> str:
    """Write with fixed decimals: the numbers stand below each other and are watched."""
    return "-" if value is None else f"{value / written.factor:.2f}"


def _columns(name: str, tx: str, rx: str, link: str) -> str:
    return f"{_cut(name, _NAMES):<{_NAMES}} {tx:>10} {rx:>10} {link:>8}".rstrip()


def _beside(host: str, what: str) -> str:
    """Return the names of a host and of its part: where both have no room, the host is cut."""
    return f"{_cut(host, max(8, _NAMES - len(what) - 1))} {what}"


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 1]}…"


def rail_tables(columns: Mapping[str, Sequence[Log]], metrics: Sequence[str]) -> list[Table]:
    """Lay out mean and sum of the rails of each configuration that has several, by each metric."""
    found = (rail_table(label, logs, metric) for metric in metrics for label, logs in columns.items())
    return [each for each in found if each is not None]


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
    """Lay out mean and sum of a configuration's rails, size by size; None where there are not several."""
    found = rail_figures(logs, metric)
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
        notes=list(_rail_notes(found, written, at_once=together(logs))),
    )


def _row(spread: RailFigures, written: Scale) -> list[str]:
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


def _rail_notes(found: Sequence[RailFigures], written: Scale, *, at_once: bool) -> Iterator[str]:
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
            value, mean = written.quantity(spread.figures[device]), written.quantity(spread.mean)
            worse, marked = (f"{format_decimal(100 * each, 0)} %" for each in (part, BEHIND))
            yield (
                f"{device} stands out at {format_size(spread.size)}: {value}, {worse} worse than the mean "
                f"of {mean} (more than {marked} is marked)."
            )
