"""Rows for NCCL's example tuner plug-in, which takes the first that fits."""

from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from fabbench.analysis.tuning import TunedSize, Tuning
from fabbench.benchmarks.nccl.plan import NcclWork
from fabbench.model.errors import MachineError
from fabbench.model.log import Facts, Log
from fabbench.model.plan import Variant
from fabbench.plan.arms import DEFAULT
from fabbench.plan.request import RunRequest
from fabbench.runs import tuner_csv
from fabbench.runs.run import RunResult
from fabbench.runs.tune import Tune, with_arms
from fabbench.runs.tuner_csv import ranges, rows
from tests.support.logs_by_hand import column, log
from tests.support.requests import request
from tests.support.simulated_tunes import against_default

OWN = {
    TunedSize("all_reduce", 8): "ring,ll,1",
    TunedSize("all_reduce", 64): "ring,ll,1",
    TunedSize("all_reduce", 512): "nvls,simple,16",
    TunedSize("reduce", 8): "ring,simple,4",
}
WON = {TunedSize("all_reduce", 64): "tree,ll,2"}


def picked(rows: list[str], collective: str, size: int, here: str) -> str:
    """Return what the plug-in takes, as its pluginGetCollInfo does."""
    for row in rows:
        name, least, most, *choice, nodes, ranks = row.split(",")
        fits = name == collective and int(least) <= size <= int(most)
        if fits and f"{nodes},{ranks}" in {here, "-1,-1"}:
            return ",".join(choice)
    return "one channel"


def test_each_size_has_the_row_that_is_meant() -> None:
    rows = [*chain(ranges({**OWN, **WON}, "2,16"), ranges(OWN, "-1,-1"))]
    sizes = (8, 63, 64, 511, 512, 1 << 40)
    here = [picked(rows, "allreduce", size, "2,16") for size in sizes]
    assert here == ["ring,ll,1"] * 2 + ["tree,ll,2"] * 2 + ["nvls,simple,16"] * 2
    elsewhere = [picked(rows, "allreduce", size, "1,8") for size in sizes]
    assert elsewhere == ["ring,ll,1"] * 4 + ["nvls,simple,16"] * 2
    assert picked(rows, "reduce", 1 << 20, "1,8") == "ring,simple,4"


def test_neighbors_with_one_choice_share_a_row() -> None:
    assert len([*ranges(OWN, "-1,-1")]) == 3


HOW: Any = {"notify": None, "watching": None, "held": None}
"""What is only passed on."""
KNOWN: Facts = {"nodes": 1, "ranks": 2, "channels": 16}


def line(algorithm: str) -> str:
    """Return a line in the form of those in which NCCL writes what it chose."""
    choice = f"Algo {algorithm} proto SIMPLE channel{{Lo..Hi}}={{0..15}}"
    return f"host:1:1 [0] NCCL INFO ReduceScatter: 4 Bytes -> {choice}\n"


def seen(folder: Path, algorithm: str, facts: Facts) -> Log:
    """Return a log of one call."""
    file = folder / f"{algorithm}.log"
    file.write_text(line(algorithm))
    return replace(log([], facts=facts), source=str(file))


def confirmed(folder: Path, facts: Facts) -> Tune:
    """Return the confirmation of an arm that won, beside one that died."""
    winner, usual = {0: 0.5, 1: 0.51, 2: 0.49}, {0: 0.0, 1: 0.01, 2: -0.01}
    tuning = Tuning(arms=("tree", "dead"), maximum=5, out={"dead": "failed"})
    cell = TunedSize("reduce_scatter", 8)
    tuning.look(against_default({cell: {"tree": winner, DEFAULT: usual}}), 3)
    arms = [Variant(name=name) for name in tuning.arms]
    logs = {
        "tree": seen(folder, "TREE", facts),
        "dead": seen(folder, "NVLS", {}),
        DEFAULT: seen(folder, "RING", facts),
    }
    columns = tuple(column(name, each) for name, each in logs.items())
    result = RunResult(id="confirmation", path=folder, columns=columns)
    asked = with_arms(request("nccl", NcclWork(), "socket"), arms)
    return Tune(asked, tuning, result, confirms=True, by_size=True)


def choosing(asked: list[RunRequest], result: RunResult) -> Any:
    """Return a `run` that has this result."""

    def run(request: RunRequest, **how: object) -> RunResult:
        assert how == HOW
        asked.append(request)
        return result

    return run


def test_an_arm_that_died_needs_no_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = confirmed(tmp_path, KNOWN)
    asked: list[RunRequest] = []
    own = replace(made.result, columns=made.result.columns[-1:])
    monkeypatch.setattr(tuner_csv, "run", choosing(asked, own))
    here, elsewhere, *_ = rows(made, **HOW)
    assert here == f"reducescatter,8,{2**64 - 1},tree,simple,16,1,2"
    assert elsewhere == f"reducescatter,8,{2**64 - 1},ring,simple,16,-1,-1"
    assert [each.name for each in asked] == ["choices-confirmation"]


@pytest.mark.parametrize("missing", [*KNOWN])
def test_a_log_that_lacks_facts_is_no_bug(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {name: value for name, value in KNOWN.items() if name != missing}
    made = confirmed(tmp_path, facts)
    own = replace(made.result, columns=made.result.columns[-1:])
    monkeypatch.setattr(tuner_csv, "run", choosing([], own))
    with pytest.raises(MachineError, match="NCCL's log"):
        rows(made, **HOW)


@pytest.mark.parametrize(
    ("ended", "raised"),
    [({"interrupted": True}, KeyboardInterrupt), ({"failure": MachineError("")}, MachineError)],
)
def test_without_the_last_run_it_is_said_what_is_left(
    ended: dict[str, Any],
    raised: type[BaseException],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = RunResult(id="choices", path=tmp_path, **ended)
    monkeypatch.setattr(tuner_csv, "run", choosing([], own))
    with pytest.raises(raised) as error:
        rows(confirmed(tmp_path, KNOWN), **HOW)
    assert f"fabbench run --resume {tmp_path}" in error.value.__notes__[0]
