"""One stream of lines as the executions of a plan.

The lines are those of a script's, put together here.
"""

from collections.abc import Sequence

import pytest

from fabbench.launchers.batch_job import Demux
from fabbench.logs.parser import LogParser, logs
from fabbench.model.log import Ending, Outcome, begin_marker, end_marker
from fabbench.model.plan import Execution, Plan
from tests.support.script_plans import pingpong

PLAN = pingpong("tcp", "tcp", repeats=1)
ONE, TWO = PLAN.executions


def step(execution: Execution, index: int, *lines: str, status: int | None = 0) -> list[str]:
    of = execution.steps[index]
    return [begin_marker(of.id, of.facts), *lines, end_marker(of.id, status)]


def taken(lines: Sequence[str], plan: Plan = PLAN) -> list[tuple[list[str], Ending]]:
    """What each execution gets, and how it ended."""
    split, out = Demux(lines), []
    for execution in plan.executions:
        got: list[str] = []
        found = split.execute(execution)
        while True:
            try:
                got.append(next(found))
            except StopIteration as end:
                out.append((got, end.value))
                break
    return out


def test_each_execution_gets_its_own_lines() -> None:
    first, second = (
        [*step(ONE, 0, "a"), *step(ONE, 1, "b")],
        [*step(TWO, 0, "c"), *step(TWO, 1, "d")],
    )
    (one, ended), (two, ended_too) = taken(["before", *first, *second, "after"])
    assert (one, two) == (["before", *first], [*second, "after"])
    assert ended == ended_too == Ending(status=0, planned_sizes=(64, 1024))


@pytest.mark.parametrize(
    "prefix", ["(head, rank=0, pid=2123) ", "[pod/launcher-x7/main] ", "2026-01-01T00:00:00.1Z "]
)
def test_a_launchers_prefixes_stay_and_do_not_matter(prefix: str) -> None:
    lines = [
        f"{prefix}{line}" for line in [*step(ONE, 0), *step(ONE, 1), *step(TWO, 0), *step(TWO, 1)]
    ]
    (one, _), (two, ended) = taken(lines)
    assert (one, two) == (lines[:4], lines[4:])
    assert ended.status == 0


def test_a_step_that_failed_is_the_end_of_its_execution_alone() -> None:
    (_, failed), (_, fine) = taken([*step(ONE, 0, status=7), *step(TWO, 0), *step(TWO, 1)])
    assert (failed.status, failed.stopped) == (7, "")
    assert (fine.status, fine.stopped) == (0, "")


def test_a_job_that_was_stopped_says_so() -> None:
    why = "The script was stopped by SIGTERM in step 64."
    ((_, ended), (_, never)) = taken(step(ONE, 0, f"fabbench: {why}", status=None))
    assert ended.stopped == why
    assert never.stopped == "The job ended, or went on, without this execution."


def test_the_status_of_a_time_limit_is_a_timeout() -> None:
    """It is coreutils' timeout's, around ranks and around each side of a pair."""
    session = LogParser("x")
    results = session.feed_lines(step(ONE, 0, status=124)) + session.close()
    (log,) = logs(results)
    assert (log.outcome, log.reason) == (Outcome.TIMEOUT, "Step 64 timed out (exit status 124).")
