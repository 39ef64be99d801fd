"""Summaries of runs.

Read instead of the logs, made where they are missing, and never of a run in progress.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from fabbench.evidence.known_errors import finding
from fabbench.model.log import METRICS
from fabbench.model.units import Sizes
from fabbench.runs.store import StoredRun
from fabbench.runs.summary import FullSummary, Summary, summaries, summary_of, write_summary
from tests.support.store_fixtures import RUNS

BUSBW = METRICS["busbw"]


def listed(store: Path, *, figures: bool = False) -> tuple[list[Summary], int]:
    """Return the summaries of a store, and how many were made."""
    count = 0

    @contextmanager
    def reading(total: int) -> Iterator[Callable[[], None]]:
        assert total <= RUNS

        def read() -> None:
            nonlocal count
            count += 1

        yield read

    return list(summaries(store, reading, figures=figures)), count


def full(store: Path) -> list[FullSummary]:
    return [run for run in listed(store, figures=True)[0] if isinstance(run, FullSummary)]


def newest(store: Path) -> Path:
    return max(path for path in store.iterdir() if path.is_dir())


def test_a_run_is_read_once(store: Path) -> None:
    runs, made = listed(store)
    assert made == RUNS
    assert [run.path for run in runs] == sorted(
        (path.name for path in store.glob("*-nccl-*")), reverse=True
    )
    first = runs[0]
    assert (first.sizes, first.outcomes, first.is_ok) == ("8 B - 2 GB", {"ok": 2}, True)
    assert first.peak.endswith(" GB/s")
    assert (first.benchmark, first.target, first.arms) == ("nccl", "prod", ("socket", "tcp"))
    seen = full(store)[0].circumstances["socket"]
    assert (seen["nccl"], seen["cuda"], seen["node names"]) == ("2.27.5", "12.8", "node0, node1")
    again, made = listed(store)
    assert ([run.path for run in again], made) == ([run.path for run in runs], 0)
    assert (again[0].arms, again[0].basis) == (first.arms, first.basis)


def test_that_another_run_was_there_is_a_circumstance_of_a_run(store: Path) -> None:
    run = StoredRun(newest(store))
    (alone,) = run.logs("socket")
    beside = replace(alone, findings=(finding("neighbor", where="node1"),))
    for logs, seen in (((alone,), ""), ((alone, beside), beside.findings[0].meaning)):
        summary = summary_of(run, {"socket": logs})
        assert summary.circumstances["socket"]["neighbor"] == seen


def test_what_was_measured_is_kept(store: Path) -> None:
    made, kept = full(store)[0], full(store)[0]
    assert made == kept
    found = [each for each in kept.measured if each.metric == "busbw"]
    assert [each.configuration for each in found] == ["socket", "tcp"]
    key = dict(found[0].key)
    assert (key["case"], key["nodes"], key["type"]) == ("all_reduce", "2", "p4d.24xlarge")
    value, best = (
        found[0].value(BUSBW, Sizes(ranges=(range(2 << 30, (2 << 30) + 1),))),
        found[0].value(BUSBW),
    )
    assert 60e9 < (value or 0) <= (best or 0) < 80e9
    assert found[0].value(BUSBW, Sizes(ranges=(range(3, 4),))) is None
    (quickest, _) = (each.value(METRICS["time"]) for each in kept.measured if each.metric == "time")
    assert (quickest or 1) < 1e-3  # the best time is the least


def test_a_run_writes_what_would_be_made_of_it(store: Path) -> None:
    path = newest(store)
    run = StoredRun(path)
    write_summary(path, {each.label: run.logs(each.label) for each in run.configurations})
    assert listed(store)[1] == RUNS - 1
    assert json.loads((path / "summary.json").read_text())["outcomes"] == {"ok": 2}
    shutil.copytree(path, store / "other" / path.name)
    (store / "other" / path.name / "summary.json").unlink()
    assert summary_of(StoredRun(store / "other" / path.name)).measured == full(store)[0].measured


SPOILERS: dict[str, Callable[[Path], object]] = {
    "bytes": lambda path: path.write_bytes(b"\xff" * 5000),
    "end": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: os.truncate(path, 0),
    "gone": lambda path: path.unlink(),
    "format": lambda path: path.write_text(path.read_text().replace('"format": 3', '"format": 2')),
    "type": lambda path: path.write_text(path.read_text().replace('"id": "', '"id": 7, "x": "')),
    "deep": lambda path: path.write_text("[" * 100_000),
}


@pytest.mark.parametrize("name", SPOILERS)
def test_a_summary_that_cannot_be_used_is_made_again(store: Path, name: str) -> None:
    runs = full(store)
    SPOILERS[name](newest(store) / "summary.json")
    assert listed(store)[1] == 1
    assert full(store) == runs
    assert listed(store)[1] == 0


def test_that_of_a_run_in_progress_is_not_kept(store: Path) -> None:
    unfinished = newest(store) / "exec/000-socket-r1/run.json"
    text = unfinished.read_text()
    unfinished.unlink()
    (first, *_), made = listed(store)
    assert (first.outcomes, made) == ({"truncated": 1, "ok": 1}, RUNS)
    assert listed(store)[1] == 0  # it was not written to for long
    (newest(store) / "summary.json").unlink()
    (unfinished.parent / "output.log").touch()
    assert [listed(store)[1], listed(store)[1]] == [1, 1]
    unfinished.write_text(text)
    assert [listed(store)[1], listed(store)[1]] == [1, 0]


def test_a_damaged_run_is_reported_beside_the_others(store: Path) -> None:
    (newest(store) / "request.json").write_text("{")
    runs = full(store)
    assert len(runs) == RUNS
    assert "is damaged" in runs[0].damaged[0]
    assert (runs[0].is_ok, runs[0].measured) == (False, ())


def test_a_folder_without_a_request_is_no_run(store: Path) -> None:
    runs, _ = listed(store)
    (newest(store) / "request.json").unlink()
    (newest(store) / "summary.json").unlink()
    assert [run.path for run in listed(store)[0]] == [run.path for run in runs[1:]]


def test_a_store_that_cannot_be_written_is_read(store: Path) -> None:
    for path in store.iterdir():
        (path / ".summary.json").mkdir()
        (path / "summary.json").mkdir()  # as root, permissions keep nothing from being written
    assert [len(full(store)), listed(store)[1]] == [RUNS, RUNS]


def test_a_store_that_is_not_there_has_no_runs(tmp_path: Path) -> None:
    assert listed(tmp_path / "none") == ([], 0)
    assert not (tmp_path / "none").exists()
