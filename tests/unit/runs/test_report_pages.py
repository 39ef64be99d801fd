"""Stored runs as sections of a report: the same by one process and by several."""

from pathlib import Path

import pytest

from fabbench.model.errors import RequestError
from fabbench.report.page import page_of
from fabbench.runs import inputs, report_pages
from fabbench.runs.report_pages import stored_sections
from fabbench.runs.store import runs
from tests.performance.store import write_store

COUNT = 5


def test_a_page_has_two_metrics_of_each_run_and_not_too_many_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_store(tmp_path, 2)
    known = list(runs(tmp_path))
    assert [each.section.html.count("<figure>") for each in stored_sections(known, cores=1)] == [
        2,
        2,
    ]
    assert ">Time</a></h3>" in next(stored_sections(known, "time", cores=1)).section.html
    monkeypatch.setattr(report_pages, "_MAX_RUNS", 1)
    with pytest.raises(RequestError, match="1 runs at most, not 2"):
        stored_sections(known)


def test_several_processes_write_what_one_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_store(tmp_path, COUNT)
    known = list(runs(tmp_path))
    (known[1] / "request.json").write_text("{")
    alone = list(stored_sections(known, cores=1))
    monkeypatch.setattr(inputs, "_FEW", 1)
    monkeypatch.setattr(report_pages, "_RUNS_AT_ONCE", 2)
    assert list(stored_sections(known, cores=2)) == alone
    assert [each.path for each in alone] == known
    assert [bool(each.damage) for each in alone] == [False, True, False, False, False]
    assert [each.status for each in alone] == [0, 4, 0, 0, 0]
    page = "".join(page_of([each.section for each in alone]))
    assert [page.count(f'id="run-{number}"') for number in range(1, COUNT + 2)] == [1] * COUNT + [0]
