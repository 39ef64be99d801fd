"""Checks of hosts as text."""

import json
from dataclasses import replace

import pytest

from fabbench.hosts.check import Check, Status, check_hosts
from fabbench.model.errors import RequestError
from fabbench.report.check_report import HEADER, check_records, check_tables, render_checks
from fabbench.report.log_report import FORMATS
from tests.support.probes import probe

MEMLOCK = "Set memlock to unlimited."


def check(host: str, status: Status, name: str = "memlock", seen: str = "64 KiB.") -> Check:
    advice = "" if status is Status.PASS else MEMLOCK
    return Check(host=host, name=name, status=status, seen=seen, advice=advice)


def test_a_few_hosts_have_a_column_each() -> None:
    checks = [check("a", Status.PASS), check("b", Status.FAIL), check("b", Status.SKIP, "clock", "Unknown.")]
    overview, *rest = check_tables(checks)
    assert overview.header == ("Check", "a", "b")
    assert list(overview.rows) == [("memlock", "pass", "fail"), ("clock", "-", "skip")]
    assert overview.notes == ("1 pass, 0 warn, 1 fail, 1 skip.",)
    assert [(table.title, list(table.notes)) for table in rest] == [
        ("Failed", [f"memlock: (b) 64 KiB. → {MEMLOCK}"]),
        ("Not checked", [f"clock: (b) Unknown. → {MEMLOCK}"]),
    ]


def test_one_host_shows_what_was_seen() -> None:
    (overview,) = check_tables([check("a", Status.PASS)])
    assert list(overview.rows) == [("memlock", "pass", "64 KiB.")]


def test_many_hosts_are_counted_and_those_that_differ_are_named() -> None:
    checks = [check(f"n{number}", Status.WARN if number in {3, 7} else Status.PASS) for number in range(64)]
    overview, warned = check_tables(checks)
    assert list(overview.rows) == [("memlock", "pass", "62", ""), ("memlock", "warn", "2", "n3, n7")]
    assert list(warned.notes) == [f"memlock: (n3, n7) 64 KiB. → {MEMLOCK}"]


def test_advice_is_given_once_for_all_its_hosts() -> None:
    checks = [check(f"n{number}", Status.FAIL, seen=f"{number % 6} KiB.") for number in range(12)]
    _, failed = check_tables(checks)
    (note,) = failed.notes
    assert note.count(MEMLOCK) == 1
    assert note.startswith("memlock: (n0, n6) 0 KiB. (n1, n7) 1 KiB.")
    assert "And 2 more." in note


def test_failures_of_one_cause_are_one_note() -> None:
    checks = [check("a", Status.FAIL), check("a", Status.FAIL, "huge pages", "None."), check("b", Status.PASS)]
    _, failed = check_tables(checks)
    assert list(failed.notes) == [f"memlock: (a) 64 KiB. huge pages: (a) None. → {MEMLOCK}"]


def test_what_asks_for_nothing_is_counted_only_unless_all_is_wanted() -> None:
    idle = Check(host="a", name="gpus", status=Status.SKIP, seen="None.", advice="Nothing to do.")
    checks = [check("a", Status.PASS), idle]
    (overview,) = check_tables(checks, full=False)
    assert [row[0] for row in overview.rows] == ["memlock"]
    assert overview.notes == ("1 pass, 0 warn, 0 fail, 1 skip. -v lists 1 skipped with nothing to do.",)
    overview, skipped = check_tables(checks)
    assert [row[0] for row in overview.rows] == ["memlock", "gpus"]
    assert list(skipped.notes) == ["gpus: None. → Nothing to do."]
    # A row stays where one of its hosts says more.
    (several,) = check_tables([*checks, replace(idle, host="b", status=Status.PASS, advice="")], full=False)
    assert ("gpus", "skip", "pass") in several.rows


def test_what_all_hosts_share_names_none() -> None:
    _, failed = check_tables([check("a", Status.FAIL), check("b", Status.FAIL)])
    assert list(failed.notes) == [f"memlock: 64 KiB. → {MEMLOCK}"]


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_has_every_check(form: str) -> None:
    checks = check_hosts({"good": probe("p5-48xlarge"), "bad": probe("broken")})
    text = render_checks(checks, form)
    assert text.endswith("\n")
    for name in {check.name for check in checks}:
        assert name in text
    assert "NCCL_P2P_DISABLE=1" in text


def test_json_is_a_list_of_what_was_checked() -> None:
    checks = check_hosts({"a": probe("debian")})
    read = json.loads(render_checks(checks, "json"))
    assert read == check_records(checks)
    assert tuple(read[0]) == HEADER
    assert {item["status"] for item in read} <= {"pass", "warn", "fail", "skip"}


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(RequestError, match="Unknown format xml"):
        render_checks([], "xml")
