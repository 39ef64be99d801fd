"""The rungs of `fabbench accept`."""

import json
from pathlib import Path

import pytest

from fabbench.model.hosts import Host, Inventory
from fabbench.report.certificate import Certificate, RungFigure, RungResult, State
from fabbench.runs.ladder import AcceptOptions, ladder, write_thresholds


@pytest.mark.parametrize(("timeout", "limits"), [(90, {90}), (None, {30, 300})])
def test_a_limit_is_that_of_tests_of_few_nodes(timeout: float | None, limits: set[float]) -> None:
    hosts = tuple(Host(name=name, gpus=8, devices={"mlx5_0": "ib"}) for name in "ab")
    how = AcceptOptions(level="full", timeout=timeout)
    rungs = ladder(Inventory(target="", hosts=hosts), how)
    of_few = {each.work.timeout_s for each in rungs if each.mode}  # type: ignore[attr-defined]
    of_all = {each.work.timeout_s for each in rungs if not each.mode}  # type: ignore[attr-defined]
    assert (of_few, of_all) == (limits, {1800})


def test_fewer_iterations_are_those_of_tests_of_few_nodes() -> None:
    hosts = tuple(Host(name=name, gpus=8, devices={"mlx5_0": "ib"}) for name in "ab")
    rungs = ladder(Inventory(target="", hosts=hosts), AcceptOptions(level="full", iterations=7))
    of_few = {each.work.iterations for each in rungs if each.mode}  # type: ignore[attr-defined]
    of_all = {each.work.iterations for each in rungs if not each.mode}  # type: ignore[attr-defined]
    assert (of_few, of_all) == ({7}, {20})


@pytest.mark.parametrize(
    ("figure", "limit"),
    [
        (RungFigure(metric="busbw", size=1 << 30, value=400e9, repeats=3), "busbw@1GB>=280GB/s"),
        (RungFigure(metric="time", size=1 << 20, value=1e-3, repeats=3), "time@1MB<=1300us"),
    ],
)
def test_a_limit_that_is_written_is_worse_by_the_tolerance(
    tmp_path: Path, figure: RungFigure, limit: str
) -> None:
    rung = RungResult(name="all:all_reduce", what="", state=State.PASSED, figures=(figure,))
    certificate = Certificate(
        id="", level="quick", profile="training", target="", started=0, rungs=(rung,)
    )
    file = tmp_path / "limits.json"
    write_thresholds(file, certificate, 0.3)
    assert json.loads(file.read_text()) == {"all:all_reduce": [limit]}
