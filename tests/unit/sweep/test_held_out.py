"""Groups that noise makes are not printed."""

import random

import pytest

from fabbench.model.errors import Exit
from fabbench.model.log import METRICS
from fabbench.sweep.analyze import analyze
from fabbench.sweep.planner import all_pairs
from fabbench.sweep.readings import Readings
from fabbench.sweep.values import Diagnosis, SweepOutcome, SweepResult
from tests.support.simulated_sweeps import Cluster, blocks, named
from tests.support.tiers import seeds

NODES = named(17)


@pytest.mark.parametrize("between", [0.3, 0.75])
def test_groups_hold_for_pairs_that_were_held_out(between: float) -> None:
    cluster = Cluster(NODES, islands=blocks(NODES, 9, 8), between=between)
    said = cluster.diagnosed(all_pairs(NODES))
    assert [len(each.nodes) for each in said.groups] == [9, 8]
    assert (said.slow_path, said.status) == (True, Exit.BAD_ANSWER)


def by_chance(seed: int) -> Diagnosis:
    """Diagnose tests of which some are slow by chance, whatever the nodes."""
    chance = random.Random(seed)
    readings = Readings(METRICS["bandwidth"], NODES)
    for planned in [*all_pairs(NODES)][:5]:
        for test in planned.tests:
            figure = 4e6 if chance.random() < 0.5 else 1e6
            readings.add(SweepResult(test, SweepOutcome.OK, figure * chance.gauss(1, 0.03)))
    return analyze(readings)


@seeds(4, 12)
def test_slow_tests_by_chance_make_no_groups(seed: int) -> None:
    said = by_chance(seed)
    assert (said.groups, said.slow_path, said.suspects) == ([], False, [])
    assert said.status is Exit.UNTRUSTED


def test_groups_have_figures_where_tests_measured_several_things() -> None:
    """Of 136 pairs of 17 nodes of eight GPUs, some were of another size."""
    cluster = Cluster(NODES, islands=blocks(NODES, 9, 8), between=0.75, noise=0.03)
    readings = Readings(METRICS["busbw"], NODES)
    for planned in all_pairs(NODES):
        series = "128M" if planned.number % 4 else "64M"
        scale = 1 if planned.number % 4 else 0.8
        for test in planned.tests:
            measured = cluster.measure(test)
            assert measured.figure
            figure = measured.figure * scale
            readings.add(SweepResult(test, SweepOutcome.OK, figure, series=series))
    said = analyze(readings)
    assert said.slow_path
    assert len(said.groups) == 2
    for each in said.groups:
        assert each.inside
        assert each.between
        assert each.inside / each.between == pytest.approx(4, rel=0.1)


@pytest.mark.parametrize(("tolerance", "groups"), [(0.1, 2), (0.8, 0)])
def test_groups_differ_by_more_than_the_tolerance(tolerance: float, groups: int) -> None:
    """Of four nodes, too few pairs to hold any out."""
    nodes = named(4)
    cluster = Cluster(nodes, islands=blocks(nodes, 2, 2), between=0.5, noise=0.01)
    rounds = [each for _ in range(3) for each in all_pairs(nodes)]
    said = analyze(cluster.readings(rounds), tolerance=tolerance)
    assert (len(said.groups), said.slow_path) == (groups, groups > 0)
