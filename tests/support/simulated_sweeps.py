"""Clusters with known faults, drawn by other rules than `fabbench.sweep` assumes."""

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from fabbench.model.log import METRICS
from fabbench.sweep.analyze import analyze
from fabbench.sweep.planner import Planner
from fabbench.sweep.readings import Readings
from fabbench.sweep.values import (
    LONGER,
    Diagnosis,
    Round,
    SweepOutcome,
    SweepResult,
    SweepTest,
)

TYPICAL = 77e9
"""The busbw of a healthy pair, in B/s."""


def named(count: int) -> list[str]:
    return [f"node-{number:0{len(str(count - 1))}}" for number in range(count)]


def blocks(nodes: Sequence[str], *sizes: int) -> dict[str, str]:
    """Put nodes into groups of these sizes, one after another."""
    letters = [chr(ord("a") + group) for group, size in enumerate(sizes) for _ in range(size)]
    return dict(zip(nodes, letters, strict=True))


@dataclass
class Cluster:
    """Faults say by which part a test is slower; 1: it fails."""

    nodes: Sequence[str]
    bad_nodes: Mapping[str, float] = field(default_factory=dict)
    bad_links: Mapping[frozenset[str], float] = field(default_factory=dict)
    bad_nics: Mapping[tuple[str, str], float] = field(default_factory=dict)
    bad_servers: Mapping[str, float] = field(default_factory=dict)
    """Nodes whose tests are slower if they are the server, the first of a pair."""
    bad_uplinks: Mapping[str, float] = field(default_factory=dict)
    """Group → how much slower tests with other groups are."""
    group_of: Mapping[str, str] = field(default_factory=dict)
    """What the planner and the analysis are told."""
    islands: Mapping[str, str] = field(default_factory=dict)
    """What nobody tells them: node → its switch."""
    between: float = 0.0
    """By which part tests between islands are slower."""
    shared: bool = False
    """Whether the tests of a round share what is between islands."""
    types: Mapping[str, float] = field(default_factory=dict)
    """Node → its speed, of 1."""
    flaky: float = 1.0
    """The part of tests in which a fault shows."""
    noise: float = 0.05
    """The standard deviation of the logarithm, between executions."""
    tails: Literal["normal", "t3", "skewed"] = "normal"
    spread: float = 0.0
    """The standard deviation of the logarithm between healthy nodes."""
    congestion: float = 0.0
    """The part of tests that are 20 to 70 % slower by chance."""
    failures: float = 0.0
    """The part of tests that fail by chance."""
    sums: bool = False
    """Whether a test takes the mean of its nodes' times, and not the time of the slowest."""
    step: float = 0.0
    """In which steps figures are printed; 0: they are not rounded."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Node → why its tests fail, if always for the same reason."""
    takes_s: float = 0.0
    """How long a test of a typical figure takes; 0: that is not known."""
    limit_s: float = math.inf
    """After how long a test is aborted; one that would fail hangs until then."""
    varied: bool = False
    """Whether other tests fail each for a reason of its own."""
    seed: int = 0
    nics: Sequence[str] = ()
    """NICs that a test without a rail measures one by one; none: tests have one figure."""

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.tests = 0
        self.shown = 0
        """How many tests a fault made slower, or failed."""
        self.hung: set[SweepTest] = set()
        """Tests that ran out of time, and were not repeated with more."""
        self._crossing = 1
        self.speed = {node: math.exp(self.chance.gauss(0, self.spread)) for node in self.nodes}

    def measure(self, test: SweepTest, number: int = 1) -> SweepResult:
        result = self._measured(test, number)
        if not self.takes_s:
            return result
        self.hung.discard(replace(test, longer=False))
        seconds = self.takes_s * TYPICAL / (result.figure or math.inf)
        limit_s = self.limit_s * (LONGER if test.longer else 1)
        if result.figure and seconds <= limit_s:
            return replace(result, seconds=seconds)
        self.hung.add(test)
        return SweepResult(test, SweepOutcome.HUNG, round=number, seconds=limit_s)

    def _measured(self, test: SweepTest, number: int) -> SweepResult:
        self.tests += 1
        faults = [self._shown(self.bad_nodes.get(node, 0.0)) for node in test.nodes]
        faults[0] = max(faults[0], self.bad_servers.get(test.nodes[0], 0.0))
        path = self._shown(self._path(test))
        types = [self.types.get(node, 1.0) for node in test.nodes]
        nic = max((self._nic(test, each) for each in (test.rail, *self.nics)), default=0.0)
        self.shown += max(*faults, path, nic, 1 - min(types)) > 0
        if max(*faults, path) >= 1 or self.chance.random() < self.failures:
            return SweepResult(test, SweepOutcome.FAILED, round=number, reason=self._reason(test))
        natures = [self.speed[node] for node in test.nodes]
        speeds = [
            nature * of_type * (1 - fault)
            for nature, of_type, fault in zip(natures, types, faults, strict=True)
        ]
        slowest = len(speeds) / sum(1 / speed for speed in speeds) if self.sums else min(speeds)
        figure = TYPICAL * min(slowest, 1 - path) * math.exp(self.noise * self._deviation())
        if self.chance.random() < self.congestion:
            figure *= 1 - self.chance.uniform(0.2, 0.7)
        if self.nics and not test.rail:
            each = {nic: figure * (1 - self._nic(test, nic)) for nic in self.nics}
            return SweepResult(test, SweepOutcome.OK, min(each.values()), number, nics=each)
        return self._printed(test, figure * (1 - self._nic(test, test.rail)), number)

    def _reason(self, test: SweepTest) -> str:
        """Return why a test fails: always for the same reason, or one of its own."""
        known = [self.reasons[node] for node in test.nodes if node in self.reasons]
        if known:
            return known[0]
        return f"Stopped at size {self.tests}." if self.varied else "The test failed."

    def _printed(self, test: SweepTest, figure: float, number: int) -> SweepResult:
        """Return a result with the figure as it is printed."""
        if not self.step:
            return SweepResult(test, SweepOutcome.OK, figure, number)
        printed = round(figure / self.step) * self.step
        if not printed:
            return SweepResult(test, SweepOutcome.UNUSABLE, round=number, reason="Too small.")
        return SweepResult(test, SweepOutcome.OK, printed, number, step=self.step)

    def slow(self) -> set[str]:
        """Return healthy nodes that are more than 9 % slower than the median by nature."""
        median = sorted(self.speed.values())[len(self.speed) // 2]
        return {node for node, speed in self.speed.items() if speed < 0.91 * median}

    def _shown(self, fault: float) -> float:
        return fault if not fault or self.flaky == 1 or self.chance.random() < self.flaky else 0.0

    def _path(self, test: SweepTest) -> float:
        """Return how much slower what is between the nodes makes a test."""
        faults = [self.bad_links.get(frozenset(test.nodes), 0.0)]
        faults += [1 - (1 - self.between) / self._crossing] if self._crosses(test) else []
        groups = {self.group_of.get(node, "") for node in test.nodes}
        return max(
            faults + [self.bad_uplinks.get(group, 0.0) for group in groups if len(groups) > 1]
        )

    def _crosses(self, test: SweepTest) -> bool:
        return len({self.islands.get(node) for node in test.nodes}) > 1

    def _nic(self, test: SweepTest, nic: str) -> float:
        return max(self.bad_nics.get((node, nic), 0.0) for node in test.nodes)

    def _deviation(self) -> float:
        gauss = self.chance.gauss
        if self.tails == "t3":
            return gauss(0, 1) / math.sqrt(sum(gauss(0, 1) ** 2 for _ in range(3)) / 3)
        return 1 - self.chance.expovariate(1) if self.tails == "skewed" else gauss(0, 1)

    def readings(self, rounds: Iterable[Round]) -> Readings:
        """Results of fixed rounds."""
        readings = Readings(METRICS["busbw"], self.nodes, group_of=self.group_of)
        for each in rounds:
            for test in each.tests:
                readings.add(self.measure(test, each.number))
        return readings

    def diagnosed(self, rounds: Iterable[Round]) -> Diagnosis:
        return analyze(self.readings(rounds))

    def carried_out(self, planner: Planner) -> tuple[Readings, int]:
        """Results of what a planner asks for, and the number of rounds."""
        readings, count = Readings(METRICS["busbw"], self.nodes, group_of=self.group_of), 0
        while (each := planner.next_round()) is not None:
            count += 1
            if self.shared:
                self._crossing = max(sum(map(self._crosses, each.tests)), 1)
            for test in each.tests:
                result = self.measure(test, each.number)
                readings.add(result)
                planner.add(result)
        return readings, count
