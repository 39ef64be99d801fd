"""Checks of hosts as text: a table of statuses, and under it what was seen and what to do. Pure."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from fabbench.check import Check, Status
from fabbench.errors import RequestError
from fabbench.pods.nodes import Node
from fabbench.report import delimited, markdown, terminal
from fabbench.report import nodes as cluster
from fabbench.report.parsed import FORMATS
from fabbench.report.table import Table

HEADER = ("host", "check", "status", "seen", "advice")
"""Columns of CSV, and keys of JSON."""
_COLUMNS = 8
"""Hosts from which on each no longer has a column of its own."""
_NAMED = 4
"""Hosts named in a line."""
_TITLES = {Status.FAIL: "Failed", Status.WARN: "To look at", Status.SKIP: "Not checked"}


def render(
    checks: Sequence[Check],
    form: str = "table",
    *,
    nodes: Sequence[Node] = (),
    colour: bool = False,
    width: int | None = None,
) -> str:
    """Write checks in one of `parsed.FORMATS`; `colour` and `width` are for `table`. Ends with a newline.

    The nodes of a cluster stand before their checks; JSON is then a mapping of both, and CSV the checks only.
    """
    parts = [*([cluster.table(nodes)] if nodes else []), *tables(checks)]
    if form == "table":
        return terminal.write(parts, colour=colour, width=width)
    if form == "markdown":
        return "\n".join(map(markdown.write, parts))
    if form == "csv":
        return delimited.write_records(records(checks), HEADER)
    if form == "json":
        own = records(checks)
        found = {"nodes": cluster.records(nodes), "checks": own} if nodes else own
        return json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    raise RequestError(f"There is no format {form}.", hint=f"One of {', '.join(FORMATS)}.")


def records(checks: Iterable[Check]) -> list[Mapping[str, str]]:
    """Give each check as a mapping, in order."""
    return [
        {
            "host": check.host,
            "check": check.name,
            "status": check.status.value,
            "seen": check.seen,
            "advice": check.advice,
        }
        for check in checks
    ]


def tables(checks: Sequence[Check]) -> list[Table]:
    """Lay out the statuses, then what failed, what to look at, and what was not checked."""
    hosts = list(dict.fromkeys(check.host for check in checks))
    if len(hosts) == 1:
        overview = _one_host(checks)
    else:
        overview = _matrix(checks, hosts) if len(hosts) <= _COLUMNS else _counts(checks)
    parts = (_advice(checks, status, hosts) for status in _TITLES)
    return [overview, *(part for part in parts if part.notes)]


def _one_host(checks: Sequence[Check]) -> Table:
    rows = [(check.name, check.status.value, check.seen) for check in checks]
    return Table(header=("Check", "Status", "Seen"), rows=rows, notes=(_summary(checks),))


def _matrix(checks: Sequence[Check], hosts: Sequence[str]) -> Table:
    cells = {(check.name, check.host): check.status.value for check in checks}
    names = dict.fromkeys(check.name for check in checks)
    rows = [(name, *(cells.get((name, host), "-") for host in hosts)) for name in names]
    return Table(header=("Check", *hosts), rows=rows, notes=(_summary(checks),))


def _counts(checks: Sequence[Check]) -> Table:
    """Give one row for each status of each check; hosts are named where they are not the most."""
    rows = []
    for name in dict.fromkeys(check.name for check in checks):
        own = [check for check in checks if check.name == name]
        counted = Counter(check.status for check in own)
        usual = counted.most_common(1)[0][0]
        for status in sorted(counted, key=lambda item: -counted[item]):
            hosts = [check.host for check in own if check.status is status]
            rows.append((name, status.value, str(len(hosts)), "" if status is usual else _names(hosts)))
    header = ("Check", "Status", "Hosts", "Which")
    return Table(header=header, rows=rows, align="llrl", notes=(_summary(checks),))


def _summary(checks: Sequence[Check]) -> str:
    counted = Counter(check.status for check in checks)
    return ", ".join(f"{counted[status]} {status.value}" for status in Status) + "."


def _advice(checks: Sequence[Check], status: Status, hosts: Sequence[str]) -> Table:
    """Give every piece of advice once, with the hosts that it is for and what was seen on them."""
    groups: dict[tuple[str, str], dict[str, list[str]]] = {}
    for check in checks:
        if check.status is status:
            groups.setdefault((check.name, check.advice), {}).setdefault(check.seen, []).append(check.host)
    notes = []
    for (name, advice), seen in groups.items():
        where = [f"{_of(own, hosts)}{text}" for text, own in list(seen.items())[:_NAMED]]
        more = [f"And {len(seen) - _NAMED} more."] if len(seen) > _NAMED else []
        notes.append(" ".join([f"{name}:", *where, *more, "→", advice]))
    return Table(header=(), rows=(), title=_TITLES[status], notes=notes)


def _of(own: Sequence[str], hosts: Sequence[str]) -> str:
    """Say of which hosts a sentence is; nothing where it is of all."""
    return "" if len(own) == len(hosts) else f"({_names(own)}) "


def _names(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
