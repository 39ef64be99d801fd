"""A store that fabbench of commit 76934b80 wrote is read by this one.

Its own commands wrote it, with fi_pingpong and the stand-ins for nccl-tests; then paths and the
kernel's name were replaced. It has runs (one with gates, one corrupt, one interrupted), a sweep,
and two certificates with their rungs and the limits that the first one wrote.
"""

import json
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from fabbench.cli import cli
from fabbench.model.errors import Exit
from fabbench.runs.ladder import read_thresholds
from tests.support.command_line import runner
from tests.support.paths import DATA

ARCHIVE = DATA / "stored/76934b80.tar.xz"
GATED, SMALL, SWEEP, CORRUPT, CUT = "177f80", "9e889d", "2967b6", "253655", "e7c57a"
RUNGS = {"93acdc", "ef9cd9", "6415f7", "46c2ad"}
INCOMPLETE, REJECTED = "20261130T120338Z-121f29", "20261130T120355Z-c3b1f5"


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("older")
    with tarfile.open(ARCHIVE) as archive:
        for member in filter(tarfile.TarInfo.isfile, archive):
            path = store / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            content = archive.extractfile(member)
            assert content is not None
            path.write_bytes(content.read())
            os.utime(path, (member.mtime, member.mtime))
    return store


def asked(store: Path, *words: str) -> Result:
    done = runner({"FABBENCH_STORE": str(store), "COLUMNS": "200"}).invoke(cli, words)
    assert "damaged" not in done.stderr
    return done


def document(store: Path, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(asked(store, *words, "--json").stdout)
    return found


def test_runs_are_listed_with_or_without_the_summaries_of_then(older: Path) -> None:
    listed = document(older, "runs")["runs"]
    known = {each["id"]: each for each in listed}
    expected = {GATED, SMALL, SWEEP, CORRUPT, CUT, INCOMPLETE, REJECTED, *RUNGS}
    assert set(known) == expected
    assert not any(each["damaged"] for each in listed)
    assert {name: known[name]["gate"] for name in (GATED, SWEEP, CUT)} == {
        GATED: "passed",
        SWEEP: "passed",
        CUT: "",
    }
    assert known[CORRUPT]["outcomes"] == {"corrupt": 1}
    assert known[CUT]["outcomes"] == {"ok": 1, "not begun": 2}
    summaries = [*older.glob("*/summary.json")]
    assert len(summaries) == len(expected) - 2
    for summary in summaries:
        summary.unlink()
    assert document(older, "runs")["runs"] == listed


def outcomes(shown: Mapping[str, Any]) -> list[str]:
    return [log["outcome"] for execution in shown["executions"] for log in execution["logs"]]


def test_show_has_what_was_measured(older: Path) -> None:
    assert outcomes(document(older, "show", GATED)) == ["ok"] * 4
    assert outcomes(document(older, "show", CORRUPT)) == ["corrupt"]
    for each in (GATED, SMALL, CORRUPT, CUT, SWEEP, *RUNGS):
        done = asked(older, "show", each)
        assert (done.exit_code, done.stdout[:10]) == (Exit.FINE, "$ fabbench"), each


def test_runs_are_compared_and_make_a_history(older: Path) -> None:
    assert asked(older, "compare", GATED).exit_code == Exit.FINE
    compared = asked(older, "compare", SMALL, CUT)
    assert compared.exit_code == Exit.FINE, compared.stderr
    (series,) = document(older, "history", "busbw@1M")["series"]
    assert [point["run"] for point in series["points"]] == [SMALL, CUT]
    assert asked(older, "explain", CORRUPT).exit_code == Exit.UNTRUSTED


def test_a_sweep_is_judged_again(older: Path) -> None:
    found = document(older, "sweep", "--from", SWEEP)
    assert (found["suspects"], len(found["nodes"])) == ([], 3)
    (path,) = older.glob(f"*-{SWEEP}")
    assert document(older, "sweep", "--from", str(path))["suspects"] == []


@pytest.mark.parametrize(
    ("name", "status"),
    [
        (GATED, Exit.FINE),
        (CORRUPT, Exit.UNTRUSTED),
        (SWEEP, Exit.FINE),
        (REJECTED, Exit.BAD_ANSWER),
    ],
)
def test_a_page_is_made_of_each(older: Path, name: str, status: Exit) -> None:
    done = asked(older, "report", name)
    assert (done.exit_code, done.stdout[:15]) == (status, "<!DOCTYPE html>"), done.stderr


def test_certificates_say_what_they_said(older: Path) -> None:
    for name, verdict, status in (
        (INCOMPLETE, "incomplete", Exit.UNTRUSTED),
        (REJECTED, "rejected", Exit.BAD_ANSWER),
    ):
        assert document(older, "show", name)["verdict"] == verdict
        assert asked(older, "show", name).exit_code == status
    assert read_thresholds(older / "limits.json") == {
        "pairs": ("busbw>=4.27GB/s",),
        "all:all_reduce": ("busbw@1GB>=4.28GB/s",),
    }


@pytest.mark.local
def test_a_command_line_is_repeated(older: Path) -> None:
    done = asked(older, "rerun", GATED, "--dry-run")
    assert done.exit_code == Exit.FINE, done.stderr
    assert "fi_pingpong" in done.stdout
