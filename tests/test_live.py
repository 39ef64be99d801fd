"""What a run says of an execution on standard error."""

from io import StringIO

import pytest
from rich.console import Console
from rich.live import Live

from fabbench.cli.live import Lines, Table
from fabbench.model import Arm, Log, Outcome, Plan, Point, Proof, Trial
from logs_by_hand import log

TCP = Arm(label="tcp", fabric="tcp")


def one(planned: tuple[int, ...] = ()) -> tuple[Plan, Trial]:
    """Plan one execution."""
    proof = Proof(fabric="tcp")
    trial = Trial(id="000-tcp-r1", arm=TCP, repeat=1, steps=(), proof=proof, planned_sizes=planned)
    return Plan(benchmark="nccl", target="local", arms=(TCP,), trials=(trial,), hosts=2), trial


def said(capsys: pytest.CaptureFixture[str], planned: tuple[int, ...], *logs: Log) -> str:
    plan, trial = one(planned)
    lines = Lines(plan)
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


def test_the_table_on_a_terminal_shows_the_metric_that_is_measured_now() -> None:
    plan, trial = one()
    console = Console(file=StringIO(), width=60)
    table = Table(plan, Live(console=console, auto_refresh=False))

    def shown() -> str:
        with console.capture() as capture:
            console.print(table.drawn())
        return capture.get()

    table.begin(trial, 1)
    table.point(trial, Point(1024, {}, ("latency", "algbw", "busbw"), (1e-6, 1e9, 2e9)))
    assert ("busbw" in shown(), "2 GB/s" in shown()) == (True, True)
    table.point(trial, Point(2048, {}, ("bandwidth",), (3e9,)))
    assert "bandwidth" in shown()
    assert [row.split() for row in shown().splitlines() if "/s" in row] == [
        ["│", "2", "KB", "│", "3", "GB/s", "│"]
    ]
