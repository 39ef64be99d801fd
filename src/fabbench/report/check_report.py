"""Checks of hosts as text: a table of statuses, then what was seen and what to do. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from fabbench.hosts.check import Check, Status
from fabbench.model.messages import listed
from fabbench.report.json_contract import picked
from fabbench.report.table import Overview, Table, records_to_csv, write_result

HEADER = ("host", "check", "status", "seen", "advice")  # Columns of CSV, and keys of JSON
_COLUMNS = 8  # With more hosts, they are counted instead of having a column each
_NAMED = 4
_TITLES = {Status.FAIL: "Failed", Status.WARN: "Warnings", Status.SKIP: "Not checked"}


def render_checks(  # noqa: PLR0913 - what is written, and how
    checks: Sequence[Check],
    form: str = "table",
    *,
    overviews: Sequence[Overview] = (),
    color: bool = False,
    width: int | None = None,
    full: bool = True,
) -> str:
    """Write checks in one of `log_report.FORMATS`. Ends with a newline.

    `color` and `width` are for `table`. Overviews come before the checks; JSON is then a mapping of all of
    them, and CSV has the checks only. Without `full`, tables leave out skipped checks that need no action.
    """
    records = check_records(checks)
    tables = [*(each.table for each in overviews), *check_tables(checks, full=full)]
    document = {**{each.name: each.records for each in overviews}, "checks": records} if overviews else records
    csv = partial(records_to_csv, records, HEADER)
    return write_result(form, lambda: tables, lambda: document, csv, color=color, width=width)


def check_records(checks: Iterable[Check]) -> list[dict[str, object]]:
    """Return each check as a mapping, in order."""
    return [{"host": each.host, "check": each.name, **picked(each, "status", "seen", "advice")} for each in checks]


def check_tables(checks: Sequence[Check], *, full: bool = True) -> list[Table]:
    """Lay out the statuses, then what failed, warnings, and what was not checked."""
    hosts = list(dict.fromkeys(check.host for check in checks))
    shown = [
        each for each in checks if full or each.status is not Status.SKIP or not each.advice.startswith("Nothing to do")
    ]
    names = {check.name for check in shown}
    rows = [check for check in checks if check.name in names]
    if len(hosts) == 1:
        cells = [(check.name, check.status.value, check.seen) for check in rows]
        overview = Table(header=("Check", "Status", "Seen"), rows=cells)
    else:
        overview = _matrix(rows, hosts) if len(hosts) <= _COLUMNS else _counts(rows)
    counted = Counter(check.status for check in checks)
    summary = ", ".join(f"{counted[status]} {status.value}" for status in Status) + "."
    if left_out := len(checks) - len(shown):
        summary += f" -v lists {left_out} skipped with nothing to do."
    parts = (_advice(shown, status, len(hosts)) for status in _TITLES)
    return [replace(overview, notes=(summary,)), *(part for part in parts if part.notes)]


def _matrix(checks: Sequence[Check], hosts: Sequence[str]) -> Table:
    cells = {(check.name, check.host): check.status.value for check in checks}
    names = dict.fromkeys(check.name for check in checks)
    rows = [(name, *(cells.get((name, host), "-") for host in hosts)) for name in names]
    return Table(header=("Check", *hosts), rows=rows)


def _counts(checks: Sequence[Check]) -> Table:
    """Return one row for each status of each check; hosts with the most common status are not named."""
    found: dict[str, dict[Status, list[str]]] = {}
    for check in checks:
        found.setdefault(check.name, {}).setdefault(check.status, []).append(check.host)
    rows = [
        (name, status.value, str(len(hosts)), listed(hosts, _NAMED) if at else "")
        for name, by_status in found.items()
        for at, (status, hosts) in enumerate(sorted(by_status.items(), key=lambda each: -len(each[1])))
    ]
    return Table(header=("Check", "Status", "Hosts", "Which"), rows=rows, align="llrl")


def _advice(checks: Sequence[Check], status: Status, hosts: int) -> Table:
    """Return every piece of advice once: the checks with that cause, and what was seen on which of so many hosts."""
    causes: dict[str, dict[str, dict[str, list[str]]]] = {}  # advice → check → what was seen → hosts
    for check in checks:
        if check.status is status:
            seen = causes.setdefault(check.advice, {}).setdefault(check.name, {})
            seen.setdefault(check.seen, []).append(check.host)
    notes = []
    for advice, names in causes.items():
        parts = []
        for name, seen in names.items():
            parts.append(f"{name}:")
            for text, where in list(seen.items())[:_NAMED]:
                parts.append(text if len(where) == hosts else f"({listed(where, _NAMED)}) {text}")
            parts += [f"And {len(seen) - _NAMED} more."] if len(seen) > _NAMED else []
        notes.append(" ".join([*parts, "→", advice]))
    return Table(header=(), rows=(), title=_TITLES[status], notes=notes)
