"""Checks of hosts as text: a table of statuses, then what was seen and what to do. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fabbench.hosts.check import Check, Status
from fabbench.model.messages import listed
from fabbench.report.table import Overview, Table, picked, records_to_csv, write_result

HEADER = ("host", "check", "status", "seen", "advice")  # Columns of CSV, and keys of JSON
_NAMED = 4
_TITLES = {Status.FAIL: "Failed", Status.WARN: "Warnings", Status.SKIP: "Not checked"}


def render_checks(
    checks: Sequence[Check],
    form: str = "table",
    *,
    overviews: Sequence[Overview] = (),
    full: bool = True,
    **drawing: Any,
) -> str:
    """Write checks in one of `log_report.FORMATS`. Ends with a newline.

    Overviews come before the checks; JSON is then a mapping of all of them, and CSV has the checks
    only. Without `full`, tables leave out skipped checks that need no action.
    """
    records = [
        {"host": each.host, "check": each.name, **picked(each, "status", "seen", "advice")}
        for each in checks
    ]
    tables = [*(each.table for each in overviews), *check_tables(checks, full=full)]
    document = (
        {**{each.name: each.records for each in overviews}, "checks": records}
        if overviews
        else records
    )
    return write_result(
        form, lambda: tables, lambda: document, lambda: records_to_csv(records, HEADER), **drawing
    )


def check_tables(checks: Sequence[Check], *, full: bool = True) -> list[Table]:
    """Lay out the statuses, then what failed, warnings, and what was not checked.

    Of one host there is what was seen; of several, those that pass are not named.
    """
    hosts = {check.host for check in checks}
    shown = [
        each
        for each in checks
        if full or each.status is not Status.SKIP or not each.advice.startswith("Nothing to do")
    ]
    found: dict[str, dict[Status, list[str]]] = {check.name: {} for check in shown}
    listing = [check for check in checks if check.name in found]
    for check in listing:
        found[check.name].setdefault(check.status, []).append(check.host)
    overview = Table(
        header=("Check", "Status", "Seen"),
        rows=[(each.name, each.status, each.seen) for each in listing],
    )
    if len(hosts) > 1:
        rows = [
            (name, status, str(len(some)), "" if status is Status.PASS else listed(some, _NAMED))
            for name, by_status in found.items()
            for status, some in by_status.items()
        ]
        overview = Table(header=("Check", "Status", "Hosts", "Which"), rows=rows, align="llrl")
    counted = Counter(check.status for check in checks)
    summary = ", ".join(f"{counted[status]} {status.value}" for status in Status) + "."
    if left_out := len(checks) - len(shown):
        summary += f" -v lists {left_out} skipped with nothing to do."
    parts = (_advice(shown, status, len(hosts)) for status in _TITLES)
    return [replace(overview, notes=(summary,)), *(part for part in parts if part.notes)]


def _advice(checks: Sequence[Check], status: Status, hosts: int) -> Table:
    """Return every piece of advice once.

    The checks with that cause, and what was seen on which of so many hosts.
    """
    # advice → check → what was seen → hosts
    causes: dict[str, dict[str, dict[str, list[str]]]] = {}
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
