"""How an execution ends counts for what ran last, however much of it was printed."""

import json

import pytest

from fabbench.model.log import Ending, Log, Outcome
from tests.support.paths import DATA
from tests.support.read_logs import read_lines

LATE = Ending(
    status=None, timed_out="Step x was aborted: no output for 5 s.", planned_sizes=(64, 256)
)

STEPS = json.loads((DATA / "hung_steps.json").read_text("utf-8"))
"""Benchmark → the marker's words, and what a program of it prints before it hangs."""


def hung(benchmark: str, keep: int, *, end: bool, before: tuple[str, ...] = ()) -> list[Log]:
    words, *said = STEPS[benchmark]
    lines = [*before, f"#@fabbench begin 000-tcp-r1/{words}", *said[:keep]]
    if end:
        lines.append(f"#@fabbench end 000-tcp-r1/{words.partition(' ')[0]} ?")
    return read_lines(lines, ending=LATE)


@pytest.mark.parametrize("end", [True, False])
@pytest.mark.parametrize(
    ("benchmark", "keep"),
    [(name, keep) for name, step in STEPS.items() for keep in range(len(step))],
)
def test_a_program_that_hangs_is_a_timeout_wherever_it_does(
    benchmark: str, keep: int, end: bool
) -> None:
    (log,) = hung(benchmark, keep, end=end)
    assert (log.benchmark, log.outcome) == (benchmark, Outcome.TIMEOUT)
    assert (log.reason or "").startswith(LATE.timed_out)
    assert ("The last row is of" in (log.reason or "")) == bool(log.points)


WHOLE = [
    "#@fabbench begin 000-tcp-r1/first benchmark=nvshmem test=shmem_put_bw ranks=2",
    *STEPS["nvshmem"][1:],
    "256         None      0.009776        ",
    "#@fabbench end 000-tcp-r1/first 0",
]


@pytest.mark.parametrize("keep", [0, 3])
def test_a_step_that_hangs_does_not_spoil_the_one_before_and_is_not_lost(keep: int) -> None:
    first, second = hung("nvshmem", keep, end=True, before=tuple(WHOLE))
    assert (first.outcome, len(first.points)) == (Outcome.OK, 2)
    assert (second.benchmark, second.outcome) == ("nvshmem", Outcome.TIMEOUT)


@pytest.mark.parametrize("status", [0, 7])
def test_a_step_that_says_nothing_is_not_ok(status: int) -> None:
    words = STEPS["nvshmem"][0]
    lines = [
        *WHOLE,
        f"#@fabbench begin 000-tcp-r1/{words}",
        f"#@fabbench end 000-tcp-r1/shmem_put_bw {status}",
    ]
    first, second = read_lines(lines, ending=Ending(status=status, planned_sizes=(64, 256)))
    assert first.outcome is Outcome.OK
    assert second.outcome is (Outcome.FAILED if status else Outcome.TRUNCATED)
