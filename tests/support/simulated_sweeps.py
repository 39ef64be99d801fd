"""Clusters with known faults, whose tests are drawn: for sweeps."""

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fabbench.model.log import METRICS
from fabbench.sweep.analyze import analyze
from fabbench.sweep.planner import Planner
from fabbench.sweep.readings import Readings
from fabbench.sweep.values import Diagnosis, Round, SweepOutcome, SweepResult, SweepTest

TYPICAL = 77e9
"""The busbw of a healthy pair, in B/s."""


def named(count: int) -> list[str]:
    return [f"node-{number:0{len(str(count - 1))}}" for number in range(count)]


@dataclass
class Cluster:
    """Faults say by which part a test is slower; 1: it fails."""

    nodes: Sequence[str]
    bad_nodes: Mapping[str, float] = field(default_factory=dict)
    bad_links: Mapping[frozenset[str], float] = field(default_factory=dict)
    bad_nics: Mapping[tuple[str, str], float] = field(default_factory=dict)
    bad_uplinks: Mapping[str, float] = field(default_factory=dict)
    """Group → how much slower tests with other groups are."""
    group_of: Mapping[str, str] = field(default_factory=dict)
    flaky: float = 1.0
    """The part of tests in which a fault shows."""
    noise: float = 0.05
    """The standard deviation of the logarithm, between executions."""
    outliers: float = 0.0
    """The part of healthy tests that are 30 % slower by chance."""
    seed: int = 0
    nics: Sequence[str] = ()
    """NICs that a test without a rail measures one by one; none: tests have one figure."""

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.tests = 0

    def measure(self, test: SweepTest, number: int = 1) -> SweepResult:
        self.tests += 1
        chance = self.chance
        faults = [self.bad_nodes.get(node, 0.0) for node in test.nodes]
        faults.append(self.bad_links.get(frozenset(test.nodes), 0.0))
        faults += [self.bad_nics.get((node, test.rail), 0.0) for node in test.nodes]
        groups = {self.group_of.get(node, "") for node in test.nodes}
        if len(groups) > 1:
            faults += [self.bad_uplinks.get(group, 0.0) for group in groups]
        fault = max(fault if chance.random() < self.flaky else 0.0 for fault in faults)
        if fault >= 1:
            return SweepResult(test, SweepOutcome.FAILED, round=number, reason="The test failed.")
        if chance.random() < self.outliers:
            fault = max(fault, 0.3)
        figure = TYPICAL * (1 - fault) * math.exp(chance.gauss(0.0, self.noise))
        if self.nics and not test.rail:
            each = {nic: figure * (1 - self._nic_fault(test, nic)) for nic in self.nics}
            return SweepResult(test, SweepOutcome.OK, min(each.values()), number, nics=each)
        return SweepResult(test, SweepOutcome.OK, figure, number)

    def _nic_fault(self, test: SweepTest, nic: str) -> float:
        return max(self.bad_nics.get((node, nic), 0.0) for node in test.nodes)

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
            for test in each.tests:
                result = self.measure(test, each.number)
                readings.add(result)
                planner.add(result)
        return readings, count
