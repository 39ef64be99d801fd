"""What ended a rung of a ladder: the time of the whole ladder, or a limit of its own."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, cast

import pytest

from fabbench.benchmarks.nccl.plan import NcclWork
from fabbench.model.errors import RequestError
from fabbench.model.log import Ending, Outcome, begin_marker
from fabbench.model.plan import Execution, Step
from fabbench.runs import acceptance
from fabbench.runs.acceptance import Acceptance
from fabbench.runs.execute import Watcher
from fabbench.runs.ladder import AcceptOptions, Rung, ladder
from fabbench.runs.run import RunResult
from fabbench.runs.sweep import SweepRequest
from fabbench.testing import two_hosts
from tests.support.clock import Clock
from tests.support.requests import request

if TYPE_CHECKING:
    from fabbench.model.hosts import Inventory

LONGEST_S = 600.0
ALL_REDUCE = "all:all_reduce"


class HangingHosts:
    """Hosts on which every step hangs, until something ends it; see `Allocation`."""

    concurrent = False

    def __init__(self, clock: Clock, ends_after: Callable[[Step], float]) -> None:
        self.inventory: Inventory = two_hosts()
        self._clock = clock
        self._ends_after = ends_after

    @property
    def documents(self) -> Mapping[str, str]:
        return {}

    def part(self, hosts: Sequence[int], ended: Event) -> "HangingHosts":
        del hosts, ended
        return self

    def counters(self) -> Mapping[str, Sequence[str]]:
        return {}

    def execute(self, execution: Execution) -> Generator[str, None, Ending]:
        (step,) = execution.steps
        yield begin_marker(step.id, step.facts)
        self._clock.sleep(self._ends_after(step))
        return Ending(timed_out="It hung.")


def measured(
    store: Path, monkeypatch: pytest.MonkeyPatch, ends_after: Callable[[Step], float]
) -> RunResult:
    """Measure a rung of three repeats, each of which hangs."""
    clock = Clock()
    monkeypatch.setattr(acceptance, "time", clock)
    monkeypatch.setattr("fabbench.runs.store.time.time", clock.monotonic)
    how = AcceptOptions(level="full", max_time=LONGEST_S)
    asked = request("nccl", NcclWork(), "tcp", store=store)
    climbing = Acceptance(
        asked=SweepRequest(run=asked, mode="", confidence=0.99, tolerance=0.1),
        how=how,
        resume=None,
        notify=lambda _: None,
        watching=lambda _: nullcontext(Watcher()),
        watching_sweep=cast("Any", None),
        examine=cast("Any", None),
    )
    hosts = HangingHosts(clock, ends_after)
    rungs: dict[str, Rung] = {each.name: each for each in ladder(hosts.inventory, how)}
    return climbing._run_within_time(rungs[ALL_REDUCE], hosts)


def test_hangs_that_have_time_left_are_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silence ends each of them: all together take longer than one of them may."""
    ended = measured(tmp_path, monkeypatch, lambda _: LONGEST_S / 4)
    outcomes = [log.outcome for column in ended.columns for log in column.logs]
    assert outcomes == [Outcome.TIMEOUT] * 3


def test_one_that_the_ladder_s_own_time_ended_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RequestError, match="the time is up"):
        measured(tmp_path, monkeypatch, lambda step: step.timeout_s)
