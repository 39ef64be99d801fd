"""Checks of hosts as text: a table of statuses, then what was seen and what to do. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, TypeAlias

from fabbench.hosts.check import Check, Status
from fabbench.model.mappings import gathered
from fabbench.model.messages import listed
from fabbench.report.table import Overview, Table, picked, records_to_csv, write_result

HEADER = ("host", "check", "status", "seen", "advice")  # Columns of CSV, and keys of JSON
_MAX_NAMED = 4
_TITLES = {Status.FAIL: "Failed", Status.WARN: "Warnings", Status.SKIP: "Not checked"}


def render_checks(
    checks: Sequence[Check],
    form: str = "text",
    *,
    overviews: Sequence[Overview] = (),
    full: bool = True,
    **drawing: Any,
) -> str:
    """Write checks in one of the `FORMATS` of lists. Ends with a newline.

    Overviews come before the checks; JSON is then a mapping of all of them, and CSV has the checks
    only. Without `full`, tables leave out skipped checks that need no action.
    """
    records = [
        {"host": each.host, "check": each.name, **picked(each, "status", "seen", "advice")}
        for each in checks
    ]
    tables = [each.table for each in overviews]
    tables += check_tables(checks, full=full)
    document: object = records
    if overviews:
        document = {**{each.name: each.records for each in overviews}, "checks": records}
    return write_result(
        form, lambda: tables, lambda: document, lambda: records_to_csv(records, HEADER), **drawing
    )


def check_tables(checks: Sequence[Check], *, full: bool = True) -> list[Table]:
    """Lay out the statuses, then what failed, warnings, and what was not checked.

    Of one host there is what was seen; of several, those that pass are not named. Not `full`:
    checks that were skipped, and need no action, are only counted.
    """
    hosts = len({check.host for check in checks})
    shown = [each for each in checks if full or not _needs_nothing(each)]
    # A check that is shown for one host is listed for all
    names = dict.fromkeys(check.name for check in shown)
    listing = [check for check in checks if check.name in names]
    overview = _table_of_hosts(names, listing) if hosts > 1 else _table_of_one_host(listing)
    summary = _counted(checks)
    left_out = len(checks) - len(shown)
    if left_out:
        summary += f" -v lists {left_out} skipped with nothing to do."
    tables = [replace(overview, notes=(summary,))]
    for status in _TITLES:
        advice = _advice_table(shown, status, hosts)
        if advice.notes:
            tables.append(advice)
    return tables


def answer(checks: Sequence[Check]) -> str:
    """Say in one line which checks failed, and how many have which status."""
    failed = sorted({each.name for each in checks if each.status is Status.FAIL})
    failures = f"Failed: {listed(failed)}" if failed else "Nothing failed"
    return f"{failures}. {_counted(checks)}"


def _counted(checks: Iterable[Check]) -> str:
    counts = Counter(check.status for check in checks)
    numbers = [f"{counts[status]} {status.value}" for status in Status]
    return ", ".join(numbers) + "."


def _needs_nothing(check: Check) -> bool:
    return check.status is Status.SKIP and check.advice.startswith("Nothing to do")


def _table_of_one_host(checks: Iterable[Check]) -> Table:
    rows = [(each.name, each.status, each.seen) for each in checks]
    return Table(header=("Check", "Status", "Seen"), rows=rows)


_HostsOf: TypeAlias = dict[Status, list[str]]
"""Status → the hosts that have it."""


def _table_of_hosts(names: Iterable[str], checks: Iterable[Check]) -> Table:
    """Return a row for each status of each check, with its hosts; the checks in order of names."""
    by_name: dict[str, _HostsOf] = {name: {} for name in names}
    for check in checks:
        by_name[check.name].setdefault(check.status, []).append(check.host)
    rows = [
        (name, status, str(len(hosts)), _which_hosts(status, hosts))
        for name, by_status in by_name.items()
        for status, hosts in by_status.items()
    ]
    return Table(header=("Check", "Status", "Hosts", "Which"), rows=rows, align="llrl")


def _which_hosts(status: Status, hosts: Sequence[str]) -> str:
    return "" if status is Status.PASS else listed(hosts, _MAX_NAMED)


def _advice_table(checks: Sequence[Check], status: Status, hosts: int) -> Table:
    """Return every piece of advice of one status once, after the checks that give it.

    Each with what it saw, and on which of so many `hosts`.
    """
    with_status = (check for check in checks if check.status is status)
    notes: list[str] = []
    by_advice = gathered((check.advice, check) for check in with_status)
    for advice, alike in by_advice.items():
        saw = ((check.name, (check.seen, check.host)) for check in alike)
        by_name = gathered(saw).items()
        parts = [_what_a_check_saw(name, seen, hosts) for name, seen in by_name]
        notes.append(" ".join([*parts, "→", advice]))
    return Table(title=_TITLES[status], notes=notes)


def _what_a_check_saw(check: str, seen_on: Iterable[tuple[str, str]], hosts: int) -> str:
    """Say what a check saw, and on which hosts unless on all; `seen_on`: that, and the host."""
    seen = gathered(seen_on)
    parts = [f"{check}:"]
    for text, where in islice(seen.items(), _MAX_NAMED):
        if len(where) != hosts:
            parts.append(f"({listed(where, _MAX_NAMED)})")
        parts.append(text)
    more = len(seen) - _MAX_NAMED
    if more > 0:
        parts.append(f"And {more} more.")
    return " ".join(parts)
