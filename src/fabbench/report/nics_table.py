"""Traffic of NICs: tables below a run, lines beside the live table."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fabbench.counters.findings import amount, balance, rate
from fabbench.counters.snapshot import Moved, NicTraffic, Traffic
from fabbench.counters.vocabulary import RX, TX
from fabbench.model.messages import with_remark
from fabbench.model.units import RATE_UNITS, Scale, format_decimal, format_percent
from fabbench.report.table import Cells, Table, cut, grid_pieces

MAX_NICS = 8  # Maximum number of NICs of a host that are shown one by one; more are one line
COLUMNS = 64  # Width of the live view
_NAME_WIDTH = COLUMNS - 38  # Width of the names in it


def table(hosts: Moved, *, title: str = "NICs", most: int = MAX_NICS) -> Table:
    """Lay out what the NICs of each host moved, with a line of balance per host.

    Pass the NICs to show (`traffic.of_fabric`); of a host with more than `most`, all are one line.
    """
    rows: list[Cells] = []
    notes: list[str] = []
    for host, traffic in hosts.items():
        lines = _lines(traffic, most)
        rows += [(host, *_cells(traffic, line)) for line in lines]
        notes += [f"{host}: {note}" for note in _traffic_notes(traffic)]
    header = ("Host", "NIC", "tx", "rx", "tx rate", "rx rate", "Link")
    return Table(title=title, header=header, rows=rows, align="llrrrrr", notes=notes)


def _cells(traffic: Traffic, line: "_Line") -> Iterator[str]:
    """Yield what a line says of its NICs."""
    yield line.name
    for direction in _DIRECTIONS:
        yield amount(_moved(line.nics, direction))
    yield from _rate_cells(traffic, line)
    yield _link_cell(line.nics)


_DIRECTIONS = (TX, RX)


def _rate_cells(traffic: Traffic, line: "_Line") -> Iterator[str]:
    """Yield what a line's NICs send and receive per second, and which part of their links it is."""
    for direction in _DIRECTIONS:
        per_second = traffic.rate(_moved(line.nics, direction))
        share = _percent_of_links(line.nics, per_second)
        yield with_remark(rate(per_second), share)


def _link_cell(nics: Sequence[NicTraffic]) -> str:
    """Return the rate of the NICs' links, if it is known and the same."""
    links = {nic.link_rate for nic in nics}
    link = links.pop()
    if links or not link:  # several rates are left, or it is not known
        return "-"
    return Scale("Gb/s", RATE_UNITS["Gb/s"]).quantity(link)


class _Line(NamedTuple):
    """One NIC, or those that share a line."""

    name: str
    nics: Sequence[NicTraffic]


def _lines(traffic: Traffic, most: int) -> list[_Line]:
    """Return a line for each NIC: one for all if there are more than `most`."""
    count = len(traffic.nics)
    if count > most:
        return [_Line(f"{count} NICs", traffic.nics)]
    return [_Line(nic.name, [nic]) for nic in traffic.nics]


def _moved(nics: Sequence[NicTraffic], direction: str) -> int | None:
    """Return the bytes that NICs moved together; None if none of them counts."""
    counts = _counts(nics, direction)
    return sum(counts) if counts else None


def _counts(nics: Sequence[NicTraffic], direction: str) -> list[int]:
    """Return the bytes of the NICs that count them."""
    counters = (nic.counters for nic in nics)
    return [each[direction] for each in counters if direction in each]


def _percent_of_links(nics: Sequence[NicTraffic], value: float | None) -> str:
    """Return which part of what the links could carry a rate is; empty if that is not known."""
    links = [nic.link_rate for nic in nics if nic.link_rate]
    if value is None or not links or len(links) < len(nics):
        return ""
    return format_percent(value / sum(links), 0)


def _traffic_notes(traffic: Traffic) -> Iterator[str]:
    """Yield one sentence on balance and EFA's operations, and one for each unreadable NIC."""
    parts = [*_balances(traffic)]
    amounts = [
        f"{family} {amount(count)}"
        for family, count in traffic.families().items()  # of operations, such as rdma-write
        if count
    ]
    if amounts:
        parts.append("EFA " + ", ".join(amounts))
    if parts:
        yield "; ".join(parts) + "."
    for nic in traffic.nics:
        if nic.unreadable:
            yield f"the traffic of {nic.name} is unknown: {nic.unreadable}"


def _balances(traffic: Traffic) -> Iterator[str]:
    """Say for each direction how evenly the NICs shared the traffic."""
    for name, direction in (("tx", TX), ("rx", RX)):
        shares = balance(_counts(traffic.nics, direction))
        if shares:
            ratio = format_decimal(shares.max_over_mean, 2)
            variation = format_decimal(shares.cv, 2)
            yield f"{name} max/mean {ratio}, cv {variation}"


def live(hosts: Moved, *, max_lines: int = 16) -> list[str]:
    """Format the current rates, from each host's last two snapshots.

    There are at most `max_lines` lines of `COLUMNS` columns. NICs are listed one by one if those of
    all hosts fit, else there is one line per host; if there are more hosts than lines, only the
    first are listed.
    """
    nics = sum(len(traffic.nics) for traffic in hosts.values())
    most = MAX_NICS if nics < max_lines else 1  # Else all NICs of a host share a line
    rows: list[Cells] = []
    for host, traffic in hosts.items():
        for line in _lines(traffic, most):
            short = cut(host, _NAME_WIDTH - len(line.name) - 1)
            name = f"{short} {line.name}"
            rows.append((name[:_NAME_WIDTH], *_rate_cells(traffic, line)))
    if not rows:
        return []
    room = max(1, max_lines - 1)  # The first line is the header
    # Of too many rows each is a host: NICs have rows only where all fit. The last line that fits
    # says how many have none, itself taking the place of one.
    more = len(rows) - room + 1
    if more > 1:
        rows[room - 1 :] = [(f"and {more} more hosts", "", "")]
    header = (" " * _NAME_WIDTH, "tx rate", "rx rate")
    table = Table(header=header, rows=rows, align="lrr", ruled=False)
    return "".join(grid_pieces(table)).splitlines()
