"""Traffic of NICs: tables below a run, lines beside the live table."""

from collections.abc import Iterator, Mapping, Sequence

from fabbench.counters.findings import amount, balance, rate
from fabbench.counters.snapshot import RX, TX, NicTraffic, Traffic
from fabbench.model.units import RATE_UNITS, Scale, format_decimal, scale
from fabbench.report.table import Table, cut, grid_pieces

MAX_NICS = 8  # Maximum number of NICs of a host that are shown one by one; more are one line
COLUMNS = 60  # Width of the live view
_NAMES = COLUMNS - 30  # width of the names in it


def table(hosts: Mapping[str, Traffic], *, title: str = "NICs") -> Table:
    """Lay out what the NICs of each host moved, with a line of balance per host.

    Pass the NICs to show (`traffic.of_fabric`).
    """
    rows = []
    for host, traffic in hosts.items():
        for name, nics in _lines(traffic, MAX_NICS):
            moved = [_moved(nics, direction) for direction in (TX, RX)]
            rates = [traffic.rate(count) for count in moved]
            shares = [f" ({share})" if (share := _share(nics, each)) else "" for each in rates]
            rated = [f"{rate(each)}{share}" for each, share in zip(rates, shares, strict=True)]
            links = {nic.link_rate for nic in nics}
            known = [
                Scale("Gb/s", RATE_UNITS["Gb/s"]).quantity(link)
                for link in links
                if link and len(links) == 1
            ]
            rows.append((host, name, *map(amount, moved), *rated, *(known or ["-"])))
    notes = [f"{host}: {note}" for host, traffic in hosts.items() for note in _notes(traffic)]
    header = ("Host", "NIC", "tx", "rx", "tx rate", "rx rate", "Link")
    return Table(title=title, header=header, rows=rows, align="llrrrrr", notes=notes)


def _lines(traffic: Traffic, most: int) -> list[tuple[str, Sequence[NicTraffic]]]:
    """Return the names and the NICs of each line: one line if there are more than `most` NICs."""
    if len(traffic.nics) > most:
        return [(f"{len(traffic.nics)} NICs", traffic.nics)]
    return [(nic.name, [nic]) for nic in traffic.nics]


def _moved(nics: Sequence[NicTraffic], direction: str) -> int | None:
    counts = [nic.counters[direction] for nic in nics if direction in nic.counters]
    return sum(counts) if counts else None


def _share(nics: Sequence[NicTraffic], value: float | None) -> str:
    links = [nic.link_rate for nic in nics if nic.link_rate]
    known = value is not None and links and len(links) == len(nics)
    return f"{format_decimal(100 * (value or 0.0) / sum(links), 0)} %" if known else ""


def _notes(traffic: Traffic) -> Iterator[str]:
    counts = [
        (way, [nic.counters[way] for nic in traffic.nics if way in nic.counters])
        for way in (TX, RX)
    ]
    parts = [
        (
            f"{way[:2]} max/mean {format_decimal(found.max_over_mean, 2)}, cv "
            f"{format_decimal(found.cv, 2)}"
        )
        for way, some in counts
        if (found := balance(some))
    ]
    moved = [f"{family} {amount(count)}" for family, count in traffic.families().items() if count]
    if parts := [*parts, *([f"EFA {', '.join(moved)}"] if moved else [])]:
        yield f"{'; '.join(parts)}."
    yield from (
        f"the traffic of {nic.name} is unknown: {nic.unreadable}"
        for nic in traffic.nics
        if nic.unreadable
    )


def live(hosts: Mapping[str, Traffic], *, max_lines: int = 16) -> list[str]:
    """Format the current traffic, from each host's last two snapshots.

    There are at most `max_lines` lines of 60 columns. NICs are listed one by one if those of all
    hosts fit, else there is one line per host; if there are more hosts than lines, only the first
    are listed.
    """
    most = MAX_NICS if sum(len(traffic.nics) for traffic in hosts.values()) < max_lines else 1
    found = [
        (host, traffic, *line) for host, traffic in hosts.items() for line in _lines(traffic, most)
    ]
    rates = [[traffic.rate(_moved(nics, way)) for way in (TX, RX)] for _, traffic, _, nics in found]
    unit = scale("B/s", max((each or 0.0 for both in rates for each in both), default=0.0))
    rows = []
    for (host, _, name, nics), both in zip(found, rates, strict=True):
        busier = max((each for each in both if each is not None), default=None)
        # Fixed decimals: numbers are aligned, and change while they are watched.
        shown = ("-" if each is None else f"{each / unit.factor:.2f}" for each in both)
        rows.append(
            (f"{cut(host, _NAMES - len(name) - 1)} {name}"[:_NAMES], *shown, _share(nics, busier))
        )
    if (room := max(1, max_lines - 1)) < len(rows):
        rows = [*rows[: room - 1], (f"and {len(rows) - room + 1} more hosts", "", "", "")]
    header = (" " * _NAMES, f"tx {unit.unit}", f"rx {unit.unit}", "of link")
    table = Table(header=header, rows=rows, align="lrrr", ruled=False)
    return "".join(grid_pieces(table)).splitlines() if rows else []
