"""A whole sweep in which tests run out of time: what is repeated, what is stored, and resumed."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from fabbench.benchmarks.nccl.plan import NcclWork
from fabbench.launchers.local import LocalOptions
from fabbench.model.hosts import Inventory
from fabbench.model.log import Ending, begin_marker, end_marker
from fabbench.model.plan import Execution, Step
from fabbench.runs.store import StoredRun
from fabbench.runs.sweep import SweepRequest, SweepRun, diagnosed, sweep, unfinished
from fabbench.sweep.values import Diagnosis
from fabbench.testing import two_hosts
from tests.support.clock import Clock
from tests.support.nccl_text import nccl_text
from tests.support.requests import request

TAKES_S = 20.0
LIMIT_S = 30.0
SIZE = 1 << 28


def no_interrupt(step: Step) -> None:
    del step


class Hosts:
    """Hosts on which tests of all `hanging` ones hang; see `DivisibleAllocation`."""

    concurrent = False

    def __init__(
        self,
        clock: Clock,
        hanging: frozenset[str],
        inventory: Inventory,
        before: Callable[[Step], None] = no_interrupt,
    ) -> None:
        self.inventory = inventory
        self._clock = clock
        self._hanging = hanging
        self._before = before

    @property
    def documents(self) -> Mapping[str, str]:
        return {}

    def part(self, hosts: Sequence[int], ended: Event) -> "Hosts":
        del ended
        return Hosts(self._clock, self._hanging, self.inventory.part(hosts), self._before)

    def counters(self) -> Mapping[str, Sequence[str]]:
        return {}

    def execute(self, execution: Execution) -> Generator[str, None, Ending]:
        (step,) = execution.steps
        self._before(step)
        yield begin_marker(step.id, step.facts)
        if self._hanging <= {host.name for host in self.inventory.hosts}:
            self._clock.sleep(step.timeout_s)
            yield end_marker(step.id, None)
            return Ending(timed_out=f"It was aborted after {step.timeout_s:g} s.")
        self._clock.sleep(TAKES_S)
        yield from nccl_text([(SIZE, 20.0)], ranks=8).splitlines()
        yield end_marker(step.id, 0)
        return Ending(status=0, planned_sizes=execution.planned_sizes)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("fabbench.runs.execute.awake_s", clock.monotonic)
    return clock


def four_hosts() -> Inventory:
    first, *_ = two_hosts().hosts
    hosts = tuple(replace(first, name=name) for name in "abcd")
    return Inventory(target="local", hosts=hosts)


def swept(store: Path, hosts: Hosts, resume: StoredRun | None = None, *, raises: bool) -> SweepRun:
    """All pairs of four hosts, with a limit of 30 s of a test."""
    work = NcclWork(min_bytes=SIZE, max_bytes=SIZE, timeout_s=LIMIT_S, silence_s=LIMIT_S)
    run = request("nccl", work, "tcp", store=store)
    run = replace(run, target=replace(run.target, options=LocalOptions()))
    asked = SweepRequest(
        run=run,
        mode="pairs",
        confidence=0.99,
        tolerance=0.1,
        raises_limit=raises,
        resume=resume,
    )
    watching = nullcontext(lambda *_: None)
    return sweep(asked, notify=lambda _: None, watching=lambda _: watching, held=hosts)


def said_of(result: SweepRun) -> Diagnosis:
    return diagnosed(result.sweep.document, result.sweep.results)


def test_what_ran_out_of_time_is_repeated_with_twice_the_limit(
    tmp_path: Path, clock: Clock
) -> None:
    result = swept(tmp_path, Hosts(clock, frozenset("c"), four_hosts()), raises=True)
    assert result.whole
    assert unfinished(result.sweep) == ""
    late = [each for each in result.sweep.tests if each.outcome == "timeout"]
    assert {(each.longer, each.seconds) for each in late} == {(False, 30.0), (True, 60.0)}
    assert all("c" in each.nodes for each in late)
    said = said_of(result)
    assert ([each.name for each in said.suspects], said.out_of_time) == (["c"], "")


def test_a_limit_of_the_user_stays(tmp_path: Path, clock: Clock) -> None:
    result = swept(tmp_path, Hosts(clock, frozenset("c"), four_hosts()), raises=False)
    late = [each for each in result.sweep.tests if each.outcome == "timeout"]
    assert [each.seconds for each in late] == [30.0] * 3
    said = said_of(result)
    assert said.suspects == []
    assert "--timeout 40" in said.out_of_time


def test_one_that_is_interrupted_goes_on_with_what_is_to_be_repeated(
    tmp_path: Path, clock: Clock
) -> None:
    def interrupt(step: Step) -> None:
        if step.timeout_s > LIMIT_S:
            raise KeyboardInterrupt

    pair = frozenset("bd")
    first = swept(tmp_path, Hosts(clock, pair, four_hosts(), interrupt), raises=True)
    assert first.interrupted
    # The round after the one in which it ran out of time has the longer limit.
    assert unfinished(first.sweep).startswith("2 tests of round 3 (all pairs")
    kept = len(first.sweep.tests)
    stored = StoredRun(first.sweep.path)
    last = swept(tmp_path, Hosts(clock, pair, four_hosts()), stored, raises=True)
    assert last.whole
    assert last.sweep.tests[:kept] == first.sweep.tests
    assert {frozenset(each.nodes) for each in last.sweep.tests if each.longer} >= {pair}
    assert {*said_of(last).suspects[0].nodes} == pair
