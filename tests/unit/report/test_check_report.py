"""Checks of hosts as text."""

from dataclasses import replace

from fabbench.hosts.check import Check, Status
from fabbench.report.check_report import answer, check_tables

MEMLOCK = "Set memlock to unlimited."


def check(host: str, status: Status, name: str = "memlock", seen: str = "64 KiB.") -> Check:
    advice = "" if status is Status.PASS else MEMLOCK
    return Check(host=host, name=name, status=status, seen=seen, advice=advice)


def test_hosts_are_counted_and_what_is_to_do_is_below() -> None:
    checks = [
        check("a", Status.PASS),
        check("b", Status.FAIL),
        check("b", Status.SKIP, "clock", "Unknown."),
    ]
    overview, *rest = check_tables(checks)
    assert overview.header == ("Check", "Status", "Hosts", "Which")
    rows = ["|".join(row) for row in overview.rows]
    assert rows == ["memlock|pass|1|", "memlock|fail|1|b", "clock|skip|1|b"]
    assert overview.notes == ("1 pass, 0 warn, 1 fail, 1 skip.",)
    assert answer(checks) == "Failed: memlock. 1 pass, 0 warn, 1 fail, 1 skip."
    assert answer(checks[:1]).startswith("Nothing failed. ")
    assert [(table.title, list(table.notes)) for table in rest] == [
        ("Failed", [f"memlock: (b) 64 KiB. → {MEMLOCK}"]),
        ("Not checked", [f"clock: (b) Unknown. → {MEMLOCK}"]),
    ]


def test_many_hosts_are_counted_and_those_that_differ_are_named() -> None:
    checks = [
        check(f"n{number}", Status.WARN if number in {3, 7} else Status.PASS)
        for number in range(64)
    ]
    overview, warned = check_tables(checks)
    assert list(overview.rows) == [
        ("memlock", "pass", "62", ""),
        ("memlock", "warn", "2", "n3, n7"),
    ]
    assert list(warned.notes) == [f"memlock: (n3, n7) 64 KiB. → {MEMLOCK}"]


def test_advice_is_given_once_for_all_its_hosts() -> None:
    checks = [check(f"n{number}", Status.FAIL, seen=f"{number % 6} KiB.") for number in range(12)]
    _, failed = check_tables(checks)
    (note,) = failed.notes
    assert note.count(MEMLOCK) == 1
    assert note.startswith("memlock: (n0, n6) 0 KiB. (n1, n7) 1 KiB.")
    assert "And 2 more." in note


def test_what_asks_for_nothing_is_counted_only_unless_all_is_wanted() -> None:
    idle = Check(host="a", name="gpus", status=Status.SKIP, seen="None.", advice="Nothing to do.")
    checks = [check("a", Status.PASS), idle]
    (overview,) = check_tables(checks, full=False)
    assert [row[0] for row in overview.rows] == ["memlock"]
    assert overview.notes == (
        "1 pass, 0 warn, 0 fail, 1 skip. -v lists 1 skipped with nothing to do.",
    )
    overview, skipped = check_tables(checks)
    assert [row[0] for row in overview.rows] == ["memlock", "gpus"]
    assert list(skipped.notes) == ["gpus: None. → Nothing to do."]
    # A row stays where one of its hosts says more.
    (several,) = check_tables(
        [*checks, replace(idle, host="b", status=Status.PASS, advice="")], full=False
    )
    assert ("gpus", "skip", "1", "a") in several.rows
