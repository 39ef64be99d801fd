"""What a run shows on standard error while it goes on."""

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pytest

from fabbench.analysis.compare import compare
from fabbench.cli import terminal
from fabbench.cli.live import RunScreen, SweepScreen
from fabbench.model.log import Log, Outcome, Point
from fabbench.model.plan import Configuration, Plan
from fabbench.model.units import format_size
from fabbench.report import render_comparison
from fabbench.runs.document import SweepDocument, TestResult
from fabbench.sweep.values import Round, SweepTest
from tests.support.logs_by_hand import ALL_REDUCE, KB, MB, column, log
from tests.support.requests import execution_by_hand

TCP = Configuration(label="tcp", fabric="tcp")
CONTROL = re.compile(r"\x1b\[[\d;?]*[a-zA-Z]|\r")
NCCL = tuple(8 << power for power in range(29))


def planned(*labels: str, sizes: tuple[int, ...] = (), repeats: int = 1) -> Plan:
    """Plan executions, one configuration after the other."""
    made = [Configuration(label=label, fabric="tcp") for label in labels]
    executions = [
        execution_by_hand(configuration, repeat=repeat, sizes=sizes)
        for repeat in range(1, repeats + 1)
        for configuration in made
    ]
    return Plan(
        benchmark="nccl",
        target="local",
        configurations=tuple(made),
        executions=tuple(executions),
        hosts=2,
    )


class Time:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def said(capsys: pytest.CaptureFixture[str], sizes: tuple[int, ...], *logs: Log) -> str:
    plan = planned("tcp", sizes=sizes)
    lines = RunScreen(plan, clock=Time())
    lines.begin(plan.executions[0], 1)
    lines.end(plan.executions[0], logs)
    return capsys.readouterr().err.strip()


SMALL, LARGE = [(8, 1e9), (16, 1e9), (32, 1e9)], [(16, 1e9), (32, 1e9)]


@pytest.mark.parametrize(
    ("sizes", "rows", "expected"),
    [
        # all_reduce begins at 8 B, and alltoall at what the ranks can divide.
        ((16, 32), (SMALL, LARGE), "2 of 2 sizes, ok; ok, peak 1 GB/s at 32 B"),
        ((16, 32), (SMALL, LARGE[:1]), "1 of 2 sizes, ok; ok, peak 1 GB/s at 32 B"),
        ((8, 16, 32), (SMALL,), "3 of 3 sizes, ok, peak 1 GB/s at 32 B"),
        ((8, 16), ([],), "0 of 2 sizes, ok"),
        ((8, 16), (), "0 of 2 sizes, "),
        ((), (SMALL, LARGE), "3 sizes, ok; ok, peak 1 GB/s at 32 B"),
        ((), ([(8, 1.0)],), "1 size, ok, peak 0 GB/s at 8 B"),
        ((8,), ([(8, 1e9)],), "1 of 1 size, ok, peak 1 GB/s at 8 B"),
    ],
)
def test_planned_sizes_that_every_program_measured_are_counted(
    capsys: pytest.CaptureFixture[str],
    sizes: tuple[int, ...],
    rows: tuple[list[tuple[int, float]], ...],
    expected: str,
) -> None:
    assert said(capsys, sizes, *map(log, rows)) == f"[1/1] tcp, repeat 1: {expected}, 0:00"
    bad = log(LARGE, outcome=Outcome.OFF_FABRIC, reason="It was not efa.")
    assert said(capsys, (16, 32), bad).endswith(": 2 of 2 sizes, off-fabric: It was not efa, 0:00")


def test_without_a_terminal_there_is_a_sign_of_life_every_half_minute(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Time()
    plan = planned("efa", "tcp", sizes=(KB, MB), repeats=2)
    lines = RunScreen(plan, clock=clock)
    first, second, third, _ = plan.executions
    lines.begin(first, 1)
    for _ in range(59):
        clock.now += 1
        lines.tick()
    assert capsys.readouterr().err == "[1/4] efa, repeat 1: running for 0:30, 0 of 2 sizes\n"
    lines.point(first, Point(KB, ALL_REDUCE, ("busbw",), (1e9,)))
    clock.now += 1
    lines.tick()
    # 1:00 for one of two sizes: 2:00 for each of four executions.
    expected = "[1/4] efa, repeat 1: running for 1:00, about 7:00 left, 1 of 2 sizes, last 1 KB\n"
    assert capsys.readouterr().err == expected
    clock.now += 10
    lines.end(first, (log([(KB, 1e9), (MB, 2e9)]),))
    expected = "[1/4] efa, repeat 1: 2 of 2 sizes, ok, peak 2 GB/s at 1 MB, 1:10, about 3:30 left\n"
    assert capsys.readouterr().err == expected
    lines.begin(second, 2)
    clock.now += 3610
    lines.end(second, (log([(KB, 1e9), (MB, 1e9)]),))
    expected = (
        "[2/4] tcp, repeat 1: 2 of 2 sizes, ok, peak 1 GB/s at 1 MB, 1:00:10, about 1:01:20 left\n"
    )
    assert capsys.readouterr().err == expected
    lines.begin(third, 3)
    clock.now += 29
    lines.tick()
    assert not capsys.readouterr().err


# ---------------------------------------------------------------- the screen


class Screen:
    """What a run draws."""

    def __init__(self, plan: Plan) -> None:
        self.clock = Time()
        self.live = RunScreen(plan, self._show, clock=self.clock)
        self.status, self.part, self.rows = "", 0.0, list[str]()

    def _show(self, text: str, done: float, total: float, lines: Sequence[str]) -> None:
        self.status, self.part, self.rows = text, done / total, [line.rstrip() for line in lines]

    def lines(self) -> list[str]:
        """Return what is below the bar."""
        self.live.tick()
        return self.rows


@pytest.mark.parametrize("width", [40, 80])
def test_the_newest_row_and_the_rows_before_it_are_shown(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    plan = planned("a-configuration-with-a-long-name", "tcp", sizes=NCCL, repeats=3)
    screen = Screen(plan)
    bad = log([], outcome=Outcome.FAILED, reason="It failed.")
    for number, execution in enumerate(plan.executions, 1):
        screen.live.begin(execution, number)
        for size in NCCL:
            screen.live.point(execution, Point(size, ALL_REDUCE, ("busbw",), (1e9,)))
            screen.clock.now += 1
            if size in {8, 16 * KB, 32 * MB, 2048 * MB}:
                lines = screen.lines()
                assert lines[-1].split()[:2] == format_size(size).split()
                assert max(map(len, lines)) <= width
                assert len(lines) <= 13
                sizes = f", {NCCL.index(size) + 1} of 29 sizes, last {format_size(size)}"
                assert screen.status.startswith(
                    f"[{number}/6] {execution.configuration.label}, repeat "
                )
                assert screen.status.endswith(sizes)
        screen.live.end(execution, (bad,))
        assert ": 0 of 29 sizes, failed: It failed, 0:29" in " ".join(
            capsys.readouterr().err.split()
        )
    assert 0.8 < screen.part <= 1


def test_live_figures_are_those_of_the_final_table() -> None:
    """In-place rows, and those of servers, are not pooled with the others."""
    plan = planned("a", "b", sizes=(KB, MB), repeats=2)
    screen = Screen(plan)
    inside = {**ALL_REDUCE, "placement": "in-place"}
    logs: dict[str, list[Log]] = {"a": [], "b": []}
    for number, execution in enumerate(plan.executions, 1):
        screen.live.begin(execution, number)
        points = [
            Point(size, labels, ("time", "busbw"), (1e-5, rate * number * 1e9))
            for size in (KB, MB)
            for labels, rate in ((ALL_REDUCE, 1.0), (inside, 40.0))
        ]
        for point in points:
            screen.live.point(execution, point)
        before = [line for line in screen.lines() if line.startswith(("1 KB", "1 MB"))]
        done = replace(log([]), points=tuple(points))
        screen.live.read(execution, done)
        screen.live.end(execution, (done,))
        assert [line for line in screen.lines() if line.startswith(("1 KB", "1 MB"))] == before
        logs[execution.configuration.label].append(done)
    final = compare([column(label, *found) for label, found in logs.items()], only_ok=True)
    text = render_comparison(final, "text", width=80)
    cells = [line.split() for line in text.splitlines()]
    rows = [row for row in cells if row[4:5] == ["-33.3"]]
    assert [line.split() for line in before] == [row[:6] for row in rows]
    assert [row[:6] for row in rows] == [
        ["1", "KB", "2.00", "3.00", "-33.3", "%"],
        ["1", "MB", "2.00", "3.00", "-33.3", "%"],
    ]


def test_rows_of_a_program_that_has_ended_are_not_those_of_the_next() -> None:
    plan = planned("a", sizes=(KB,))
    screen = Screen(plan)
    (execution,) = plan.executions
    screen.live.begin(execution, 1)
    first = Point(KB, ALL_REDUCE, ("busbw",), (9e9,))
    screen.live.point(execution, first)
    screen.live.read(execution, replace(log([], case="sendrecv"), points=(first,)))
    screen.live.point(execution, Point(KB, ALL_REDUCE, ("busbw",), (1e9,)))
    shown = [line.split() for line in screen.lines() if line.startswith("1 KB")]
    assert shown == [["1", "KB", "1.00"]]


def test_the_clock_goes_on_while_nothing_comes() -> None:
    plan = planned("a", sizes=(KB,))
    screen = Screen(plan)
    screen.live.begin(plan.executions[0], 1)
    screen.clock.now += 75
    assert screen.lines() == []
    assert screen.status == "[1/1] a, repeat 1: running for 1:15, 0 of 1 size"


def test_what_changes_is_drawn_in_place_and_what_is_said_stays(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    with terminal.changing() as show:
        assert show is not None
        show("first " + "x" * 80, 1, 2, ["row"])
        terminal.notify("said")
        show("second", 2, 2)
    first, _, second = capsys.readouterr().err.partition("said")
    assert any("xxx…xxx" in line for line in re.sub(CONTROL, "", first).splitlines())
    assert "row" in first
    assert "second" in second
    assert all(len(line) <= 60 for line in re.sub(CONTROL, "\n", first + second).splitlines())


def test_a_sweep_draws_its_matrix_as_the_answer_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Eight nodes on 80 x 24, of which one is slow with all others."""
    for name, value in (("COLUMNS", "80"), ("LINES", "24")):
        monkeypatch.setenv(name, value)
    nodes = tuple(f"node-{number}" for number in range(1, 9))
    document = SweepDocument(
        mode="pairs",
        benchmark="pingpong",
        fabric="tcp",
        nodes=nodes,
        metric="bandwidth",
        seed=0,
        confidence=0.99,
        tolerance=0.1,
    )
    tests = [SweepTest(pair) for pair in combinations(nodes, 2)]
    results = [
        TestResult(
            number=number,
            round=1,
            nodes=test.nodes,
            outcome="ok",
            value=5.5e8 if "node-5" in test.nodes else 1e9 + number,
        )
        for number, test in enumerate(tests)
    ]
    screen = SweepScreen(document)
    planned = Round(number=1, tests=tuple(tests), purpose="all pairs")
    screen(planned, 2, results[:-1], len(tests) - 1)
    assert screen.state(0.0)[3] == ()
    screen(planned, 2, results, len(tests))
    text, done, total, lines = screen.state(0.0)
    assert (done, total, "suspects: node-5" in text) == (28, 28, True)
    assert len(lines) < 23
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["node-5", "5555555"]
    assert "suspects: node-5" in capsys.readouterr().err
