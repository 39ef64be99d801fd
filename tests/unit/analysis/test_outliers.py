"""Executions that stand apart, warm-up and drift."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from fabbench.analysis.aggregate import Column
from fabbench.analysis.compare import compare
from fabbench.analysis.outliers import irregularities
from fabbench.model.log import Finding, Log, Severity
from tests.support.logs_by_hand import FACTS, GB, MB, column, log

QUIET = (100, 101, 99.5, 100.5, 99, 100.2, 99.8, 100.7)


def executions(figures: Sequence[float]) -> list[Log]:
    return [
        replace(log([(MB, value * 1e8), (GB, value * 1e9)]), source=f"{n}.log")
        for n, value in enumerate(figures)
    ]


def said(made: Column) -> tuple[str, ...]:
    return tuple(irregularities(compare([made])))


def test_steady_executions_are_not_spoken_of() -> None:
    assert said(column("a", *executions(QUIET))) == ()


def test_an_outlier_is_named_with_what_only_its_log_shows() -> None:
    logs = executions((*QUIET[:4], 70, *QUIET[4:]))
    slow = Finding(code="nic-uneven", severity=Severity.WARNING, meaning="NIC efa1 stood still.")
    logs[4] = replace(logs[4], findings=(slow,), facts={**FACTS, "nics": 3})
    logs = [replace(each, facts={"nics": 4, **each.facts}) for each in logs]
    (note,) = said(column("a", *logs))
    assert note == (
        "Execution 5 of 9 of a is an outlier: 30 % worse than the others (4.log). "
        "Only its log shows: NIC efa1 stood still; nics 3 (others: 4)."
    )


def test_a_slow_first_execution_is_warm_up() -> None:
    (note,) = said(column("a", *executions((80, *QUIET))))
    assert note.startswith("Execution 1 of 9 of a is warm-up: 20 % worse than the others (0.log).")


@pytest.mark.parametrize(
    ("step", "change"), [(-1.5, "worse, by about 11 %"), (1.5, "better, by about 9.9 %")]
)
def test_drift(step: float, change: str) -> None:
    (note,) = said(column("a", *executions([v + step * n for n, v in enumerate(QUIET)])))
    assert note.startswith(f"a drifts: over its 8 executions it gets {change}")


def test_equal_executions_are_rarely_called_irregular() -> None:
    chance = random.Random(2)
    tables = [
        column("a", *executions([chance.gauss(100, 8) for _ in range(12)])) for _ in range(200)
    ]
    assert sum(bool(said(each)) for each in tables) <= 10
