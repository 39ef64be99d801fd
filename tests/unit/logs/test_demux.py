"""One stream of lines as the executions of a plan. The lines are those of a script's, put together here."""

from collections.abc import Sequence

import pytest

from fabbench.logs.demux import Demux, RestartDetector
from fabbench.logs.parser import LogParser, logs
from fabbench.model.log import Ending, Outcome, begin_marker, end_marker
from fabbench.model.plan import Execution, Plan
from tests.support.read_logs import read_plan_output
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
    first, second = [*step(ONE, 0, "a"), *step(ONE, 1, "b")], [*step(TWO, 0, "c"), *step(TWO, 1, "d")]
    (one, ended), (two, ended_too) = taken(["before", *first, *second, "after"])
    assert (one, two) == (["before", *first], [*second, "after"])
    assert ended == ended_too == Ending(status=0, planned_sizes=(64, 1024))


@pytest.mark.parametrize("prefix", ["(head, rank=0, pid=2123) ", "[pod/launcher-x7/main] ", "2026-01-01T00:00:00.1Z "])
def test_a_launchers_prefixes_stay_and_do_not_matter(prefix: str) -> None:
    lines = [f"{prefix}{line}" for line in [*step(ONE, 0), *step(ONE, 1), *step(TWO, 0), *step(TWO, 1)]]
    (one, _), (two, ended) = taken(lines)
    assert (one, two) == (lines[:4], lines[4:])
    assert ended.status == 0


def test_a_step_that_failed_is_the_end_of_its_execution_alone() -> None:
    (_, failed), (_, fine) = taken([*step(ONE, 0, status=7), *step(TWO, 0), *step(TWO, 1)])
    assert (failed.status, failed.stopped) == (7, "")
    assert (fine.status, fine.stopped) == (0, "")


def test_a_step_that_was_ended_says_why() -> None:
    why = "Step 64 B was ended after 60 s: the server was not ready."
    ((_, ended), _) = taken(step(ONE, 0, f"fabbench: {why}", status=None))
    assert (ended.timed_out, ended.status) == (why, None)


def test_a_job_that_was_stopped_says_so() -> None:
    why = "The script was stopped by SIGTERM in step 64."
    ((_, ended), (_, never)) = taken(step(ONE, 0, f"fabbench: {why}", status=None))
    assert ended.stopped == why
    assert never.stopped == "The job ended, or went on, without this execution."


@pytest.mark.parametrize(
    ("lines", "said"),
    [(step(ONE, 0)[:1], "The output ends in step 64."), (step(ONE, 0), "The output ends after 1 of 2 steps.")],
)
def test_an_output_that_ends_too_early(lines: list[str], said: str) -> None:
    ((_, ended), _) = taken(lines)
    assert ended.stopped == said


def test_one_configuration_alone() -> None:
    lines = [*step(TWO, 0), *step(TWO, 1)]
    (one, never), (two, ended) = taken(lines)
    assert (one, two) == ([], lines)
    assert never.stopped
    assert ended.status == 0


def test_a_job_that_begins_anew_counts_from_where_it_was_interrupted() -> None:
    done = [*step(ONE, 0), *step(ONE, 1)]
    cut, again = step(TWO, 0)[:1], [*step(TWO, 0), *step(TWO, 1)]
    (one, _), (two, ended) = taken([*done, *cut, *done, *again])
    assert (one, two) == (done, [*cut, *again])
    assert (ended.status, ended.stopped) == (0, "")


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ("Step 64 B was ended after 60 s: the server was not ready.", Outcome.TIMEOUT),
        ("64 B was aborted: no output for 300 s.", Outcome.TIMEOUT),
        ("The script was stopped by SIGTERM in step 64.", Outcome.FAILED),
    ],
)
def test_a_reader_that_knows_no_plan_sees_it_too(said: str, outcome: Outcome) -> None:
    session = LogParser("x")
    results = session.feed_lines(step(ONE, 0, f"fabbench: {said}", status=None)) + session.close()
    (log,) = logs(results)
    assert (log.outcome, log.reason) == (outcome, f"fabbench reported: {said}")


def test_an_attempt_that_was_killed_does_not_count() -> None:
    """Its programs got a signal, and the script did not come to say why."""
    ((_, ended), _) = taken([*step(ONE, 0, status=143), *step(ONE, 0), *step(ONE, 1)])
    assert ended == Ending(status=0, planned_sizes=(64, 1024))


def test_what_is_begun_anew_is_told_by_its_first_step() -> None:
    first, second = step(ONE, 0), step(ONE, 1)
    begun = RestartDetector()
    lines = [*first, second[0], *first, *second]
    assert [begun.restarted(f"[pod/x/main] {line}") for line in lines] == [*[False] * 3, True, *[False] * 3]


def test_an_interrupted_attempt_is_not_read_with_the_one_that_followed() -> None:
    broken = [*step(ONE, 0, "fabbench: The script was stopped by SIGTERM in step 64.", status=None)]
    printed = [*broken, *step(ONE, 0), *step(ONE, 1)]
    ((execution, logs),) = read_plan_output(printed, PLAN, "x")
    assert (execution, len(logs)) == (ONE, 1)
    assert logs[0].outcome is not Outcome.FAILED
