"""What a run says of an execution on standard error."""

import pytest

from fabbench.cli.live import Lines
from fabbench.model import Arm, Log, Outcome, Plan, Proof, Trial
from logs_by_hand import log


def said(capsys: pytest.CaptureFixture[str], planned: tuple[int, ...], *logs: Log) -> str:
    arm = Arm(label="tcp", fabric="tcp")
    trial = Trial(
        id="000-tcp-r1", arm=arm, repeat=1, steps=(), proof=Proof(fabric="tcp"), planned_sizes=planned
    )
    lines = Lines(Plan(benchmark="nccl", target="local", arms=(arm,), trials=(trial,), hosts=2))
    lines.begin(trial, 1)
    lines.end(trial, logs)
    return capsys.readouterr().err.strip()


SMALL, LARGE = [(8, 1e9), (16, 1e9), (32, 1e9)], [(16, 1e9), (32, 1e9)]


@pytest.mark.parametrize(
    ("planned", "rows", "told"),
    [
        # all_reduce begins at 8 B, and alltoall at what the ranks can divide.
        ((16, 32), (SMALL, LARGE), "2 of 2 sizes, ok; ok"),
        ((16, 32), (SMALL, LARGE[:1]), "1 of 2 sizes, ok; ok"),
        ((8, 16, 32), (SMALL,), "3 of 3 sizes, ok"),
        ((8, 16), ([],), "0 of 2 sizes, ok"),
        ((8, 16), (), "0 of 2 sizes,"),
        ((), (SMALL, LARGE), "3 sizes, ok; ok"),
        ((), ([(8, 1.0)],), "1 size, ok"),
    ],
)
def test_planned_sizes_that_every_program_measured_are_counted(
    capsys: pytest.CaptureFixture[str],
    planned: tuple[int, ...],
    rows: tuple[list[tuple[int, float]], ...],
    told: str,
) -> None:
    assert said(capsys, planned, *map(log, rows)) == f"[1/1] tcp, repeat 1: {told}"


def test_why_an_execution_is_not_ok_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    bad = log(LARGE, outcome=Outcome.OFF_FABRIC, reason="It was not efa.")
    assert said(capsys, (16, 32), bad) == "[1/1] tcp, repeat 1: 2 of 2 sizes, off-fabric: It was not efa."
